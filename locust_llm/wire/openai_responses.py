"""OpenAI's Responses API: ``POST /responses``; also of vLLM, llama.cpp, SGLang and gateways.

Typed events, dispatched on ``type``. The end mark is the event that brings the whole response: completed, incomplete (a
length limit or a content filter: a success) or failed; counts stand only there. ``….done`` events repeat what deltas
said and are read only where no delta came. The name of a function is generated, so an ``output_item.added`` that brings
one is a token event.
"""

from __future__ import annotations

from typing import Any

from .answer import CONTENT, EMPTY, FINISH, OTHER, REASONING, REFUSAL, ROLE, TOOL, ServerError, first_kind
from .api import Call
from .errors import error_in
from .jsonevents import JsonEvents
from .messages import function_of, messages_of, parts_of, renamed, text_of, tool_uses
from .openai import OpenAIShaped
from .tools import as_arguments
from .usage import read_usage

# What streams as NAME.delta and is repeated by NAME.done.
_CHANNELS = {
    "response.output_text": CONTENT,
    "response.refusal": REFUSAL,
    "response.reasoning_text": REASONING,
    "response.reasoning_summary_text": REASONING,
    "response.reasoning": REASONING,
    "response.reasoning_summary": REASONING,
    "response.function_call_arguments": TOOL,
    "response.custom_tool_call_input": TOOL,
    "response.mcp_call_arguments": TOOL,
    "response.code_interpreter_call_code": TOOL,
}
_WHOLE_TEXT = ("text", "refusal", "arguments", "input", "code")
_SOUND = frozenset(
    {
        "response.audio.delta", "response.audio.transcript.delta",
        "response.output_audio.delta", "response.output_audio_transcript.delta",
    }
)  # fmt: skip
_LAST = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
)
_UNDER_WAY = ("in_progress", "queued")


class OpenAIResponses(OpenAIShaped):
    """See ``api.Api``."""

    name = "openai-responses"
    request_type = "CHAT"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body; ``max_tokens`` becomes ``max_output_tokens``.

        Raises:
            UsageError: the call has neither messages nor one prompt.
        """
        prompt: Any = call.prompt
        if call.messages is not None or not isinstance(prompt, str):
            prompt = [item for message in messages_of(call, self.name) for item in _items(message)]
        body: dict[str, Any] = {"model": call.model, "input": prompt}
        if call.max_tokens is not None:
            body["max_output_tokens"] = call.max_tokens
            if call.exact_length:
                body["ignore_eos"] = True
                body["min_tokens"] = call.max_tokens
        body["stream"] = call.stream
        fields = renamed(call.extra, max_tokens="max_output_tokens", max_completion_tokens="max_output_tokens")
        if isinstance(fields.get("tools"), list):
            fields["tools"] = [_tool(tool) for tool in fields["tools"]]
        return {**body, **fields}

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/responses"

    def decoder(self, stream: bool) -> ResponsesDecoder:
        """Return a fresh decoder; the answer itself shows whether it is a stream."""
        return ResponsesDecoder()


class ResponsesDecoder(JsonEvents):
    """Reads one answer; see ``api.Decoder``."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[object, int] = {}  # of output items, by their index or id
        self._heard: set[tuple[str, int]] = set()  # channels of items that have streamed something

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        kind = value.get("type") or event
        if not isinstance(kind, str):
            self._other(value, at_ns)
        elif kind.endswith(".delta"):
            channel = _CHANNELS.get(kind[:-6])
            if channel is not None:
                said = self._say(channel, value.get("delta"), self._number(value, value.get("item_id")))
                logprobs = value.get("logprobs")
                known = len(logprobs) if isinstance(logprobs, list) else 0
                self._add(at_ns, channel if said else EMPTY, known or -1)
            else:
                self._add(at_ns, CONTENT if kind in _SOUND and value.get("delta") else OTHER)
        elif kind in _LAST:
            response = value.get("response")
            if isinstance(value.get("timings"), dict):
                self.answer.timings = value["timings"]
            self._add(at_ns, self._response(response if isinstance(response, dict) else {}, kind[9:]))
            self._done(at_ns)
        elif kind.endswith(".done") and kind[:-5] in _CHANNELS:
            channel = _CHANNELS[kind[:-5]]
            number = self._number(value, value.get("item_id"))
            whole = next((text for name in _WHOLE_TEXT if isinstance(text := value.get(name), str) and text), "")
            unheard = (channel, number) not in self._heard
            self._add(at_ns, channel if unheard and self._say(channel, whole, number) else OTHER)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._add(at_ns, self._item(value.get("item"), value, whole=kind.endswith("done")))
        else:
            self._other(value, at_ns)

    def _document(self, value: Any, at_ns: int) -> bool:
        if not isinstance(value, dict) or not (isinstance(value.get("output"), list) or "status" in value):
            return self._error_document(value, at_ns)
        if isinstance(value.get("timings"), dict):
            self.answer.timings = value["timings"]
        self._whole(at_ns, self._response(value, "completed"))
        self.answer.ended = value.get("status") not in _UNDER_WAY
        return True

    # ---- helpers

    def _other(self, value: dict[str, Any], at_ns: int) -> None:
        response = value.get("response")
        if isinstance(response, dict):
            self._identify(response)
        self._fail(error_in(value))
        self._add(at_ns, OTHER)

    def _response(self, response: dict[str, Any], status: str) -> str:
        """Take in the whole response, its output only if nothing has streamed; return the kind of its event."""
        self._identify(response)
        status = str(response.get("status") or status)
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        self._fail(error_in({"error": response.get("error")}))
        if status in ("failed", "cancelled"):
            self._fail(ServerError(f"the response is {status}", type=status))
        finished = status not in _UNDER_WAY and self._finish(reason or status)
        usage = response.get("usage")
        if isinstance(usage, dict):
            self._count(usage, read_usage(usage))
        output = response.get("output")
        kinds = []
        if isinstance(output, list) and not self.answer.has_tokens():
            kinds = [self._item(item, {"output_index": index}, whole=True) for index, item in enumerate(output)]
        return first_kind(kinds, FINISH if finished else OTHER)

    def _item(self, item: object, value: dict[str, Any], whole: bool) -> str:
        """Take in an output item as it starts, or a whole one; return its kind."""
        if not isinstance(item, dict):
            return OTHER
        number = self._number(value, item.get("id"))
        if isinstance(item.get("name"), str) and ("arguments" in item or "input" in item):
            return TOOL if self._call(item, number, whole) else OTHER
        if not whole:
            return ROLE if item.get("role") else OTHER
        heard = {channel for channel, its_number in self._heard if its_number == number}
        kinds = []
        for part in (*_list(item.get("summary")), *_list(item.get("content"))):
            if isinstance(part, dict):
                refused = part.get("type") == "refusal"
                channel = REASONING if item.get("type") == "reasoning" else REFUSAL if refused else CONTENT
                if channel not in heard and self._say(channel, part.get("refusal") or part.get("text"), number):
                    kinds.append(channel)
        return first_kind(kinds, OTHER)

    def _call(self, item: dict[str, Any], number: int, whole: bool) -> bool:
        if not whole:
            return self._tool(number, item.get("call_id") or item.get("id"), item["name"], "")
        if (TOOL, number) in self._heard:
            return False
        self._heard.add((TOOL, number))
        arguments = as_arguments(item.get("arguments") or item.get("input"))
        return self._tool(number, item.get("call_id") or item.get("id"), item["name"], arguments)

    def _say(self, channel: str, piece: object, number: int) -> bool:
        if channel == CONTENT:
            said = self._text(piece)
        elif channel == TOOL:
            said = self._tool(number, None, None, as_arguments(piece))
        else:
            said = self._reasoning(piece) if channel == REASONING else self._refusal(piece)
        if said:
            self._heard.add((channel, number))
        return said

    def _number(self, value: dict[str, Any], item_id: object) -> int:
        """Return the number of an item: some servers give only an index, some only an id, some a new id each time."""
        index = value.get("output_index")
        key = index if type(index) is int else item_id if isinstance(item_id, str) else None
        return self._numbers.setdefault(key, len(self._numbers))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# ---- the request


def _items(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a message as input items."""
    role, content = message.get("role"), message.get("content")
    if role is None:
        return [message]  # an item of this API
    if role == "tool":
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": text_of(content)}]
    items: list[dict[str, Any]] = []
    if isinstance(content, list):
        items.append({"role": role, "content": [_input_part(part, role) for part in parts_of(content)]})
    elif content or not message.get("tool_calls"):
        items.append({"role": role, "content": content})
    for use in tool_uses(message):
        arguments = as_arguments(use.arguments) or "{}"
        items.append({"type": "function_call", "call_id": use.id, "name": use.name, "arguments": arguments})
    return items


def _input_part(part: dict[str, Any], role: object) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "text":
        return {**part, "type": "output_text" if role == "assistant" else "input_text"}
    if kind == "image_url":
        image = part.get("image_url")
        inner = image if isinstance(image, dict) else {"url": image}
        detail = {"detail": inner["detail"]} if inner.get("detail") else {}
        return {"type": "input_image", "image_url": inner.get("url"), **detail}
    if kind == "file" and isinstance(part.get("file"), dict):
        return {"type": "input_file", **part["file"]}
    return part


def _tool(tool: Any) -> Any:
    function = function_of(tool)
    return tool if function is None else {"type": "function", **function}
