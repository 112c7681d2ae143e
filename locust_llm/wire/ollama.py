"""Ollama, its own API: ``POST /api/chat`` and ``/api/generate``, a JSON object a line.

The line with ``done: true`` ends the answer and brings the counts; on it ``eval_count`` counts thinking too. A line can
hold several tokens and tells nothing of their number. Durations (``load_duration``: the model was not in memory) are
kept in ``timings``.
"""

from __future__ import annotations

import json
from typing import Any

from ..errors import UsageError
from .answer import CONTENT, EMPTY, FINISH, OTHER, REASONING, ROLE, TOKEN_KINDS, TOOL, Usage
from .api import Call
from .body import MAX_EVENT_BYTES, Framing
from .errors import error_in
from .fields import listed, merge_fields, one_prompt, same_names
from .jsonevents import JsonEvents
from .messages import Media, media_of, messages_of, parts_of, text_of, tool_uses
from .ndjson import NdjsonFraming
from .openai import bearer
from .usage import count

_OPTIONS = same_names(
    "frequency_penalty min_p mirostat mirostat_eta mirostat_tau num_batch num_ctx num_gpu num_keep num_predict "
    "num_thread presence_penalty repeat_last_n repeat_penalty seed stop temperature tfs_z top_k top_p typical_p",
    max_tokens="num_predict",
    max_completion_tokens="num_predict",
    repetition_penalty="repeat_penalty",
)


class OllamaChat:
    """See ``api.Api``."""

    name = "ollama"
    request_type = "CHAT"
    root = ""
    models_path: str | None = "/api/tags"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body; a string prompt becomes one user message. Ollama knows no exact length.

        Raises:
            UsageError: the call has neither messages nor one prompt, or an image that is not base64.
        """
        messages = [_message(message) for message in messages_of(call, self.name)]
        return _body(call, {"model": call.model, "messages": messages})

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/api/chat"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the bearer token that gateways and Ollama's cloud want."""
        return bearer(key)

    def decoder(self, stream: bool) -> OllamaDecoder:
        """Return a fresh decoder; the answer itself shows whether it is a stream."""
        return OllamaDecoder()


class OllamaGenerate(OllamaChat):
    """See ``api.Api``."""

    name = "ollama-generate"
    request_type = "COMPLETION"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body.

        Raises:
            UsageError: the call has not one prompt.
        """
        return _body(call, {"model": call.model, "prompt": one_prompt(call.prompt, self.name)})

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/api/generate"


class OllamaDecoder(JsonEvents):
    """Reads one answer of either endpoint; see ``api.Decoder``."""

    def _open(self, start: bytes) -> Framing | None:
        return NdjsonFraming() if start[:1] == b"{" else super()._open(start)

    def _frame(self, event: str | None, data: bytes, at_ns: int) -> None:
        if self._held or (data.strip() == b"{" and not self.answer.kinds):
            # One document over several lines, as a gateway may print it.
            self._held += data + b"\n"
            if len(self._held) > MAX_EVENT_BYTES:
                self._too_large("a document")
            return
        super()._frame(event, data, at_ns)

    def _end(self) -> None:
        if self._held:
            document = bytes(self._held)
            self._held.clear()
            super()._frame(None, document, self._at_ns)
        super()._end()

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        self._fail(error_in(value))
        self._identify(value)
        done = value.get("done") is True
        message = value.get("message")
        kind, tokens = EMPTY, -1
        if isinstance(message, dict):
            kind = self._say(message.get("content"), message.get("thinking"), message.get("tool_calls"))
            if kind == EMPTY and message.get("role") and not self.answer.kinds:
                kind = ROLE
        elif "response" in value or "thinking" in value:
            kind = self._say(value.get("response"), value.get("thinking"), value.get("tool_calls"))
        else:
            kind = OTHER
        logprobs = value.get("logprobs")
        if isinstance(logprobs, list) and logprobs:
            tokens = len(logprobs)
        if done:
            kind = kind if kind in TOKEN_KINDS else FINISH
            self._finish(value.get("done_reason"))
            self._counts(value)
        self._add(at_ns, kind, tokens)
        if done:
            self._done(at_ns)

    def _document(self, value: Any, at_ns: int) -> bool:
        return self._error_document(value, at_ns)  # a list: nothing that Ollama would say

    def _say(self, text: object, thinking: object, tool_calls: object) -> str:
        kind = REASONING if self._reasoning(thinking) else EMPTY
        for call in tool_calls if isinstance(tool_calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                # Each is a call of its own and complete, so each gets a number of its own.
                said = self._tool(len(self.answer.tools), call.get("id"), function.get("name"), _arguments(function))
                kind = TOOL if said else kind
        return CONTENT if self._text(text) else kind

    def _counts(self, value: dict[str, Any]) -> None:
        raw: dict[str, Any] = {name: value[name] for name in ("prompt_eval_count", "eval_count") if name in value}
        if raw:
            self._count(raw, Usage(count(raw.get("prompt_eval_count")), count(raw.get("eval_count"))))
        self.answer.timings = {name: value[name] for name in value if name.endswith("_duration")} or None


# ---- the request


def _body(call: Call, body: dict[str, Any]) -> dict[str, Any]:
    options = {} if call.max_tokens is None else {"num_predict": call.max_tokens}
    body = merge_fields({**body, "options": options, "stream": call.stream}, call.extra, "options", _OPTIONS)
    options = body["options"]
    if not options:
        del body["options"]
    elif isinstance(options, dict):
        listed(options, "stop")
    return body


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of the OpenAI form as Ollama wants it: text and base64 images apart, arguments as objects."""
    changed = dict(message)
    content = message.get("content")
    if isinstance(content, list):
        changed["content"] = text_of(content)
        images = [_base64(media) for part in parts_of(content) if (media := media_of(part)) is not None]
        if images:
            changed["images"] = [*message.get("images", []), *images]
    uses = tool_uses(message)
    if uses:
        changed["tool_calls"] = [
            {"id": use.id, "function": {"name": use.name, "arguments": use.arguments}} for use in uses
        ]
    return changed


def _base64(media: Media) -> str:
    if media.kind != "image" or not media.data:
        raise UsageError("--llm-api ollama takes images as base64 (data:image/png;base64,…), no address and no sound")
    return media.data


def _arguments(function: dict[str, Any]) -> str:
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(arguments, ensure_ascii=False) if arguments is not None else ""
    except RecursionError:
        return "…"
