"""OpenAI chat completions: ``POST /chat/completions``."""

from __future__ import annotations

from typing import Any

from .api import Call
from .messages import messages_of
from .openai import OpenAIDecoder, bearer, common_fields

_ODD_IN_CHUNK = frozenset({"error", "prompt_progress", "timings", "token_ids", "x_groq"})
_ODD_IN_CHOICE = frozenset({"error", "usage"})


class OpenAIChat:
    """See ``api.Api``."""

    name = "openai-chat"
    request_type = "CHAT"
    root = "/v1"
    models_path: str | None = "/models"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body; a string prompt becomes one user message.

        Raises:
            UsageError: the call has neither messages nor one prompt.
        """
        return {"model": call.model, "messages": messages_of(call, self.name), **common_fields(call), **call.extra}

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/chat/completions"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the bearer token."""
        return bearer(key)

    def decoder(self, stream: bool) -> OpenAIDecoder:
        """Return a fresh decoder; the answer itself shows whether it is a stream."""
        return OpenAIDecoder(plain_text)


def plain_text(chunk: Any, index: int) -> str | None:
    """See ``openai.PlainText``."""
    try:
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        text = delta["content"]
        if (
            text.__class__ is not str
            or not text
            or choice["index"] != index
            or choice.get("finish_reason")
            or choice.get("logprobs") is not None
            or choice.get("token_ids") is not None
            or chunk.get("usage") is not None
            or not _ODD_IN_CHUNK.isdisjoint(chunk)
            or not _ODD_IN_CHOICE.isdisjoint(choice)
        ):
            return None
        if len(delta) > 1:
            for name, value in delta.items():
                if value and name != "content" and name != "role":
                    return None
        return text
    except (AttributeError, LookupError, TypeError, ValueError):
        return None
