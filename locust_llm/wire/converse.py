"""Bedrock's Converse form: the request that all its models take, and the events and documents that answer it.

``inputTokens`` counts only what was neither read from nor written to the cache, so the input is the sum of three
counts. A ``metadata`` event after ``messageStop`` ends the answer.
"""

from __future__ import annotations

from typing import Any

from .answer import CONTENT, EMPTY, FINISH, OTHER, REASONING, ROLE, TOOL, USAGE, ServerError, Usage, first_kind
from .api import Call
from .errors import error_in
from .fields import listed, merge_fields, same_names
from .jsonevents import JsonEvents
from .messages import Media, function_of, media_of, messages_of, parts_of, split_system, text_of, tool_uses
from .tools import as_arguments
from .usage import count

EVENTS = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
)
_CONFIG = same_names(
    "temperature", max_tokens="maxTokens", max_completion_tokens="maxTokens", top_p="topP", stop="stopSequences"
)
_FAILED = frozenset({"malformed_model_output", "malformed_tool_use"})
_FORMATS = {"jpg": "jpeg", "x-wav": "wav", "plain": "txt"}


class ConverseDecoder(JsonEvents):
    """What reads Converse events, for the decoder that knows how they are framed."""

    def _converse(self, name: str, value: dict[str, Any], at_ns: int) -> None:
        """Take in an event of that name."""
        if name == "contentBlockDelta":
            self._add(at_ns, self._block_delta(value.get("contentBlockIndex"), value.get("delta")))
        elif name == "contentBlockStart":
            start = value.get("start")
            self._add(at_ns, self._converse_block(value.get("contentBlockIndex"), start))
        elif name == "messageStart":
            self._add(at_ns, ROLE)
        elif name == "messageStop":
            self.answer.ended = self._converse_finish(value.get("stopReason")) or self.answer.ended
            self._add(at_ns, FINISH)
        elif name == "metadata":
            self._converse_usage(value)
            self._add(at_ns, USAGE)
            if self.answer.ended:
                self._done(at_ns)
        else:
            self._fail(error_in(value))
            self._add(at_ns, OTHER)

    def _converse_document(self, value: dict[str, Any], at_ns: int) -> bool:
        message = value["output"].get("message")
        content = message.get("content") if isinstance(message, dict) else None
        blocks = content if isinstance(content, list) else []
        kinds = [self._converse_block(index, block) for index, block in enumerate(blocks)]
        finished = self._converse_finish(value.get("stopReason"))
        self._converse_usage(value)
        return self._whole(at_ns, first_kind(kinds, FINISH if finished else EMPTY))

    def _converse_block(self, index: object, block: object) -> str:
        """Take in a block as it starts, or a whole one; return its kind."""
        if not isinstance(block, dict):
            return OTHER
        use, reasoning = block.get("toolUse"), block.get("reasoningContent")
        if isinstance(use, dict):
            said = self._tool(index, use.get("toolUseId"), use.get("name"), as_arguments(use.get("input")))
            return TOOL if said else EMPTY
        if isinstance(reasoning, dict):
            text = reasoning.get("reasoningText")
            return REASONING if isinstance(text, dict) and self._reasoning(text.get("text")) else OTHER
        cited = block.get("citationsContent")
        if isinstance(cited, dict):
            return CONTENT if self._text(text_of(cited.get("content"))) else OTHER
        return CONTENT if self._text(block.get("text")) else OTHER

    def _block_delta(self, index: object, delta: object) -> str:
        if not isinstance(delta, dict):
            return OTHER
        if "text" in delta:
            return CONTENT if self._text(delta["text"]) else EMPTY
        use, reasoning = delta.get("toolUse"), delta.get("reasoningContent")
        if isinstance(use, dict):
            return TOOL if self._tool(index, None, None, as_arguments(use.get("input"))) else EMPTY
        if isinstance(reasoning, dict) and self._reasoning(reasoning.get("text")):
            return REASONING
        return CONTENT if delta.get("image") else OTHER

    def _converse_finish(self, reason: object) -> bool:
        if isinstance(reason, str) and reason in _FAILED:
            self._fail(ServerError(f"stop reason {reason}", type=reason, code=reason))
        return self._finish(reason)

    def _converse_usage(self, value: dict[str, Any]) -> None:
        usage, metrics = value.get("usage"), value.get("metrics")
        if isinstance(usage, dict):
            self._count(usage, read_usage(usage))
        if isinstance(metrics, dict):
            self.answer.timings = metrics


def read_usage(raw: dict[str, Any]) -> Usage:
    """Read a usage object of Converse's kind."""
    cached = count(raw.get("cacheReadInputTokens"))
    n_in = count(raw.get("inputTokens"))
    if n_in is not None:
        n_in += (cached or 0) + (count(raw.get("cacheWriteInputTokens")) or 0)
    return Usage(n_in, count(raw.get("outputTokens")), None, cached)


# ---- the request


def build_body(call: Call, api: str) -> dict[str, Any]:
    """Return the JSON body of a call.

    Raises:
        UsageError: the call has neither messages nor one prompt.
    """
    system, messages = split_system(messages_of(call, api))
    body: dict[str, Any] = {"messages": [_message(message) for message in messages]}
    if system:
        body["system"] = [_block(part) for part in system]
    config = {} if call.max_tokens is None else {"maxTokens": call.max_tokens}
    body = merge_fields({**body, "inferenceConfig": config}, call.extra, "inferenceConfig", _CONFIG)
    config = body["inferenceConfig"]
    if not config:
        del body["inferenceConfig"]
    elif isinstance(config, dict):
        listed(config, "stopSequences")
    tools = body.pop("tools", None)
    if tools is not None:
        body["toolConfig"] = {"tools": [_tool(tool) for tool in tools] if isinstance(tools, list) else tools}
    return body


def _message(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") == "tool":
        result = {"toolUseId": message.get("tool_call_id"), "content": [_block(part) for part in parts_of(content)]}
        return {"role": "user", "content": [{"toolResult": result}]}
    blocks = [_block(part) for part in parts_of(content)]
    for use in tool_uses(message):
        blocks.append({"toolUse": {"toolUseId": use.id, "name": use.name, "input": use.arguments}})
    return {"role": message.get("role"), "content": blocks}


def _block(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"text": part.get("text")}
    media = media_of(part)
    if media is None or media.url:
        return part  # of this form already, or by an address, which Bedrock does not take
    return {"document" if media.kind == "file" else media.kind: _media(part, media)}


def _media(part: dict[str, Any], media: Media) -> dict[str, Any]:
    inner = {"format": _FORMATS.get(media.format, media.format), "source": {"bytes": media.data}}
    return inner if media.kind != "file" else {"name": str(part["file"].get("filename") or "document"), **inner}


def _tool(tool: Any) -> Any:
    function = function_of(tool)
    if function is None:
        return tool
    described = {"description": function["description"]} if function.get("description") else {}
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"toolSpec": {"name": function.get("name"), **described, "inputSchema": {"json": schema}}}
