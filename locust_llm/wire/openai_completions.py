"""OpenAI text completions: ``POST /completions``."""

from __future__ import annotations

from typing import Any

from .answer import CONTENT
from .api import Call
from .fields import prompts_of
from .openai import ODD_IN_CHUNK, OpenAIDecoder, OpenAIShaped, common_fields

_ODD_IN_CHOICE = frozenset({"delta", "error", "usage"})


class OpenAICompletions(OpenAIShaped):
    """See ``api.Api``."""

    name = "openai-completions"
    request_type = "COMPLETION"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body.

        Raises:
            UsageError: the call has no prompt.
        """
        return {"model": call.model, "prompt": prompts_of(call.prompt, self.name), **common_fields(call), **call.extra}

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/completions"

    def decoder(self, stream: bool) -> OpenAIDecoder:
        """Return a fresh decoder; the answer itself shows whether it is a stream."""
        return OpenAIDecoder(plain_piece)


def plain_piece(chunk: Any, index: int) -> tuple[str, str] | None:
    """See ``alike.PlainPiece``."""
    try:
        (choice,) = chunk["choices"]
        text = choice["text"]
        if (
            text.__class__ is not str
            or not text
            or choice["index"] != index
            or choice.get("finish_reason")
            or choice.get("logprobs") is not None
            or choice.get("token_ids") is not None
            or chunk.get("usage") is not None
            or not ODD_IN_CHUNK.isdisjoint(chunk)
            or not _ODD_IN_CHOICE.isdisjoint(choice)
        ):
            return None
        return CONTENT, text
    except (AttributeError, LookupError, TypeError, ValueError):
        return None
