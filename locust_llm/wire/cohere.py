"""Cohere's chat API, version 2: ``POST /v2/chat``.

Typed events, dispatched on ``type``; the end mark is ``message-end``, which brings reason and counts (``tokens``, the
billed ones if there are no others). A tool plan is generated before the calls and is reasoning.
"""

from __future__ import annotations

from typing import Any

from .answer import CONTENT, EMPTY, FINISH, OTHER, REASONING, ROLE, TOOL, ServerError, Usage, first_kind
from .api import Call
from .errors import error_in
from .fields import listed
from .jsonevents import JsonEvents
from .jsontext import as_text
from .messages import messages_of, renamed
from .openai import bearer
from .tools import as_arguments
from .usage import count


class Cohere:
    """See ``api.Api``."""

    name = "cohere"
    request_type = "CHAT"
    root = "/v2"
    models_path: str | None = None

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body; messages and tools have the OpenAI form here too, sampling fields other names.

        The API knows no exact length.

        Raises:
            UsageError: the call has neither messages nor one prompt.
        """
        body: dict[str, Any] = {"model": call.model, "messages": messages_of(call, self.name)}
        if call.max_tokens is not None:
            body["max_tokens"] = call.max_tokens
        fields = renamed(call.extra, stop="stop_sequences", top_p="p", top_k="k", max_completion_tokens="max_tokens")
        listed(fields, "stop_sequences")
        return {**body, "stream": call.stream, **fields}

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/chat"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the bearer token."""
        return bearer(key)

    def decoder(self, stream: bool) -> CohereDecoder:
        """Return a fresh decoder; the answer itself shows whether it is a stream."""
        return CohereDecoder()


class CohereDecoder(JsonEvents):
    """Reads one answer; see ``api.Decoder``."""

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        kind = value.get("type") or event
        delta = value.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        message = delta.get("message")
        message = message if isinstance(message, dict) else {}
        if kind in ("content-delta", "content-start"):
            logprobs = value.get("logprobs")
            ids = logprobs.get("token_ids") if isinstance(logprobs, dict) else None
            self._add(at_ns, self._content(message.get("content")), (isinstance(ids, list) and len(ids)) or -1)
        elif kind == "tool-plan-delta":
            self._add(at_ns, REASONING if self._reasoning(message.get("tool_plan")) else EMPTY)
        elif kind in ("tool-call-start", "tool-call-delta"):
            self._add(at_ns, self._call(value.get("index"), message.get("tool_calls")))
        elif kind == "message-start":
            self._identify(value)
            self._add(at_ns, ROLE)
        elif kind == "message-end":
            self._ended(delta)
            self._add(at_ns, FINISH)
            self._done(at_ns)
        else:
            self._fail(error_in(value))
            self._add(at_ns, OTHER)

    def _document(self, value: Any, at_ns: int) -> bool:
        message = value.get("message") if isinstance(value, dict) else None
        if not isinstance(message, dict):
            return self._error_document(value, at_ns)
        self._identify(value)
        kinds = [REASONING] if self._reasoning(message.get("tool_plan")) else []
        content, calls = message.get("content"), message.get("tool_calls")
        kinds += [self._content(part) for part in (content if isinstance(content, list) else [content])]
        for index, call in enumerate(calls if isinstance(calls, list) else ()):
            kinds.append(self._call(index, call))
        finished = self._ended(value)
        return self._whole(at_ns, first_kind(kinds, FINISH if finished else EMPTY))

    # ---- helpers

    def _content(self, content: object) -> str:
        if isinstance(content, str):
            return CONTENT if self._text(content) else EMPTY
        if not isinstance(content, dict):
            return EMPTY
        if self._reasoning(content.get("thinking")):
            return REASONING
        return CONTENT if self._text(content.get("text")) else EMPTY

    def _call(self, index: object, call: object) -> str:
        if isinstance(call, list):
            call = call[0] if call else None
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict):
            return EMPTY
        said = self._tool(index, call.get("id"), function.get("name"), as_arguments(function.get("arguments")))
        return TOOL if said else EMPTY

    def _ended(self, value: dict[str, Any]) -> bool:
        """Take in reason, error and counts; return whether there was a reason."""
        message = as_text(value.get("error"))
        if message is not None:
            self._fail(ServerError(message, type=as_text(value.get("finish_reason"))))
        usage = value.get("usage")
        if isinstance(usage, dict):
            self._count(usage, read_usage(usage))
        return self._finish(value.get("finish_reason"))


def read_usage(raw: dict[str, Any]) -> Usage:
    """Read a usage object of Cohere's kind."""
    places = [place for name in ("tokens", "billed_units") if isinstance(place := raw.get(name), dict)]
    n_in, n_out = (
        next((n for place in places if (n := count(place.get(name))) is not None), None)
        for name in ("input_tokens", "output_tokens")
    )
    return Usage(n_in, n_out, None, count(raw.get("cached_tokens")))
