"""OpenAI chat completions: ``POST /chat/completions``."""

from __future__ import annotations

from typing import Any

from .answer import CONTENT, REASONING
from .api import Call
from .delta import REASONING_NAMES
from .messages import messages_of
from .openai import ODD_IN_CHUNK, OpenAIDecoder, OpenAIShaped, common_fields

_ODD_IN_CHOICE = frozenset({"error", "usage"})
_CHANNELS = {"content": CONTENT, **dict.fromkeys(REASONING_NAMES, REASONING)}


class OpenAIChat(OpenAIShaped):
    """See ``api.Api``."""

    name = "openai-chat"
    request_type = "CHAT"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body; a string prompt becomes one user message.

        Raises:
            UsageError: the call has neither messages nor one prompt.
        """
        return {"model": call.model, "messages": messages_of(call, self.name), **common_fields(call), **call.extra}

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/chat/completions"

    def decoder(self, stream: bool) -> OpenAIDecoder:
        """Return a fresh decoder; the answer itself shows whether it is a stream."""
        return OpenAIDecoder(plain_piece)


def plain_piece(chunk: Any, index: int) -> tuple[str, str] | None:
    """See ``alike.PlainPiece``."""
    try:
        (choice,) = chunk["choices"]
        if (
            choice["index"] != index
            or choice.get("finish_reason")
            or choice.get("logprobs") is not None
            or choice.get("token_ids") is not None
            or chunk.get("usage") is not None
            or not ODD_IN_CHUNK.isdisjoint(chunk)
            or not _ODD_IN_CHOICE.isdisjoint(choice)
        ):
            return None
        piece = None
        for name, value in choice["delta"].items():
            if not value or name == "role":
                continue
            if piece is not None or value.__class__ is not str:
                return None
            piece = _CHANNELS[name], value
        return piece
    except (AttributeError, LookupError, TypeError, ValueError):
        return None
