"""Anthropic's Messages API: ``POST /messages``; also of vLLM, llama.cpp, SGLang and gateways.

Typed events, dispatched on ``type`` (relays drop the ``event:`` lines). The end mark is ``message_stop``, or a stop
reason where a relay cuts the rest. ``input_tokens`` counts only what was neither read from nor written to the cache, so
the input is the sum of three counts; output counts are cumulative, and the one of ``message_start`` is no total. The
name of a tool is generated, so a ``content_block_start`` that brings one is a token event; a signature is none.
"""

from __future__ import annotations

from typing import Any

from ..errors import UsageError
from .answer import CONTENT, DONE, EMPTY, FINISH, OTHER, REASONING, ROLE, TOOL, USAGE, Usage, first_kind
from .api import Call
from .errors import error_in
from .fields import listed
from .jsonevents import JsonEvents
from .messages import Media, function_of, media_of, messages_of, parts_of, renamed, split_system, tool_uses
from .tools import as_arguments
from .usage import count

VERSION = "2023-06-01"

_TOOLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class Anthropic:
    """See ``api.Api``."""

    name = "anthropic"
    request_type = "CHAT"
    root = "/v1"
    models_path: str | None = "/models"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body: system messages in ``system``; ``stop`` of the user's becomes ``stop_sequences``.

        The API knows no exact length.

        Raises:
            UsageError: no messages, or no ``max_tokens``, which this API wants.
        """
        return {"model": call.model, **message_fields(call, self.name), "stream": call.stream, **own_fields(call)}

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/messages"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return key and version of the API; ``--llm-header 'anthropic-version: …'`` names another one."""
        return [*([("x-api-key", key)] if key else []), ("anthropic-version", VERSION)]

    def decoder(self, stream: bool) -> AnthropicDecoder:
        """Return a fresh decoder; the answer itself shows whether it is a stream."""
        return AnthropicDecoder()


class AnthropicDecoder(JsonEvents):
    """Reads one answer; see ``api.Decoder``."""

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        kind = value.get("type") or event
        if kind == "content_block_delta":
            self._add(at_ns, self._delta(value.get("index"), value.get("delta")))
        elif kind == "content_block_start":
            self._add(at_ns, self._block(value.get("index"), value.get("content_block")))
        elif kind == "content_block_stop":
            self._add(at_ns, OTHER)
        elif kind == "ping":
            self.answer.pings += 1
        elif kind == "message_start":
            message = value.get("message")
            if isinstance(message, dict):
                self._identify(message)
                self._usage(message.get("usage"), started=True)
            self._add(at_ns, ROLE)
        elif kind == "message_delta":
            delta = value.get("delta")
            finished = isinstance(delta, dict) and self._finish(delta.get("stop_reason"))
            self.answer.ended = self.answer.ended or finished
            counted = self._usage(value.get("usage"))
            self._add(at_ns, FINISH if finished else USAGE if counted else EMPTY)
        elif kind == "message_stop":
            self._add(at_ns, DONE)
            self._done(at_ns)
        else:
            self._fail(error_in(value))
            self._add(at_ns, OTHER)

    def _document(self, value: Any, at_ns: int) -> bool:
        content = value.get("content") if isinstance(value, dict) else None
        if not isinstance(content, list):
            return self._error_document(value, at_ns)
        self._fail(error_in(value))
        self._identify(value)
        kinds = [self._block(index, block) for index, block in enumerate(content)]
        finished = self._finish(value.get("stop_reason"))
        self._usage(value.get("usage"))
        return self._whole(at_ns, first_kind(kinds, FINISH if finished else EMPTY))

    def _block(self, index: object, block: object) -> str:
        """Take in a block as it starts, or a whole one; return its kind."""
        if not isinstance(block, dict):
            return OTHER
        kind = block.get("type")
        if kind == "text":
            return CONTENT if self._text(block.get("text")) else EMPTY
        if kind == "thinking":
            return REASONING if self._reasoning(block.get("thinking")) else EMPTY
        if kind in _TOOLS:
            said = self._tool(index, block.get("id"), block.get("name"), as_arguments(block.get("input")))
            return TOOL if said else EMPTY
        return OTHER

    def _delta(self, index: object, delta: object) -> str:
        if not isinstance(delta, dict):
            return OTHER
        kind = delta.get("type")
        if kind == "text_delta":
            return CONTENT if self._text(delta.get("text")) else EMPTY
        if kind == "thinking_delta":
            return REASONING if self._reasoning(delta.get("thinking")) else EMPTY
        if kind == "input_json_delta":
            return TOOL if self._tool(index, None, None, as_arguments(delta.get("partial_json"))) else EMPTY
        return OTHER

    def _usage(self, raw: object, started: bool = False) -> bool:
        """Take in a usage, over what an earlier one said; return whether it counts output."""
        if not isinstance(raw, dict):
            return False
        known = self.answer.usage_raw or {}
        n_out = None if started else count(raw.get("output_tokens"))
        # Relays report zeros before or after the real counts.
        raw = {**known, **{name: value for name, value in raw.items() if value or not known.get(name)}}
        self._count(raw, read_usage(raw, n_out))
        return n_out is not None


def read_usage(raw: dict[str, Any], n_out: int | None) -> Usage:
    """Read a usage object of Anthropic's kind; ``n_out``: its output tokens if they are a total."""
    cached = count(raw.get("cache_read_input_tokens"))
    n_in = count(raw.get("input_tokens"))
    if n_in is not None:
        n_in += (cached or 0) + (count(raw.get("cache_creation_input_tokens")) or 0)
    details = raw.get("output_tokens_details")
    thinking = count(details.get("thinking_tokens")) if isinstance(details, dict) else None
    return Usage(n_in, n_out, thinking, cached)


# ---- the request


def message_fields(call: Call, api: str) -> dict[str, Any]:
    """Return ``max_tokens``, ``system`` and ``messages`` of a call.

    Raises:
        UsageError: no messages, or no ``max_tokens``.
    """
    if call.max_tokens is None and "max_tokens" not in call.extra:
        raise UsageError(
            f"--llm-api {api} wants a longest answer: give --llm-max-tokens N, or max_tokens=N in the call"
        )
    system, messages = split_system(messages_of(call, api))
    body: dict[str, Any] = {} if call.max_tokens is None else {"max_tokens": call.max_tokens}
    if len(system) == 1 and system[0].keys() == {"type", "text"}:
        body["system"] = system[0]["text"]
    elif system:
        body["system"] = system
    body["messages"] = [_message(message) for message in messages]
    return body


def own_fields(call: Call) -> dict[str, Any]:
    """Return the user's fields in this API's form."""
    fields = renamed(call.extra, stop="stop_sequences")
    listed(fields, "stop_sequences")
    if isinstance(fields.get("tools"), list):
        fields["tools"] = [_tool(tool) for tool in fields["tools"]]
    return fields


def _message(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("role") == "tool":
        result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": message.get("content")}
        return {"role": "user", "content": [result]}
    content: Any = message.get("content")
    if isinstance(content, list):
        content = [_part(part) for part in content]
    calls = [{"type": "tool_use", "id": use.id, "name": use.name, "input": use.arguments} for use in tool_uses(message)]
    if calls:
        content = [*parts_of(content), *calls]
    return {"role": message.get("role"), "content": content}


def _part(part: Any) -> Any:
    media = media_of(part) if isinstance(part, dict) else None
    if media is None or media.kind == "audio":
        return part
    return {"type": "image" if media.kind == "image" else "document", "source": _source(media)}


def _source(media: Media) -> dict[str, str]:
    if media.url:
        return {"type": "url", "url": media.url}
    return {"type": "base64", "media_type": media.media_type, "data": media.data}


def _tool(tool: Any) -> Any:
    function = function_of(tool)
    if function is None:
        return tool
    described = {"description": function["description"]} if function.get("description") else {}
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function.get("name"), **described, "input_schema": schema}
