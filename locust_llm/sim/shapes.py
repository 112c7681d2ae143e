"""OpenAI's JSON as bytes: events of a stream, whole answers, error objects.

An event is built from parts prepared when its request came in, so that sending a token costs one formatting and no
JSON encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from .http import HttpError

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Count:
    """Tokens to report; ``cached`` and ``reasoning`` are None where the server does not tell."""

    prompt: int
    completion: int
    cached: int | None
    reasoning: int | None

    def encode(self) -> dict[str, Any]:
        """Return the usage object."""
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
        }
        if self.cached is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached}
        if self.reasoning is not None:
            usage["completion_tokens_details"] = {"reasoning_tokens": self.reasoning}
        return usage


class EventShape:
    """The events of one stream. Texts given to it must need no JSON escapes."""

    def __init__(self, chat: bool, id: str, created: int, model: str) -> None:
        self._chat = chat
        kind = "chat.completion.chunk" if chat else "text_completion"
        common = orjson.dumps({"id": id, "object": kind, "created": created, "model": model})
        self._start = b"data: " + common[:-1] + b',"choices":['

    def token_parts(self, choice: int, reasoning: bool = False) -> tuple[bytes, bytes]:
        """Return what stands before and after the text of a token event, up to where usage may follow."""
        before = self._start + b'{"index":%d,' % choice
        if not self._chat:
            return before + b'"text":"', b'","logprobs":null,"finish_reason":null}]'
        name = b"reasoning_content" if reasoning else b"content"
        return before + b'"delta":{"%b":"' % name, b'"},"logprobs":null,"finish_reason":null}]'

    def role(self, choice: int, usage: Count | None) -> bytes:
        """The first event of a chat stream."""
        body = b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]' % choice
        return self._start + body + event_end(usage)

    def finish(self, choice: int, reason: str, usage: Count | None) -> bytes:
        """The event that says why an answer ended."""
        empty = b'"delta":{}' if self._chat else b'"text":""'
        body = b'{"index":%d,%b,"logprobs":null,"finish_reason":"%b"}]' % (choice, empty, reason.encode())
        return self._start + body + event_end(usage)

    def usage(self, usage: Count) -> bytes:
        """The event without choices that carries the final usage."""
        return self._start + b"]" + event_end(usage)


def event_end(usage: Count | None) -> bytes:
    """Return the end of an event's JSON, with usage if given, and the blank line."""
    if usage is None:
        return b"}\n\n"
    return b',"usage":' + orjson.dumps(usage.encode()) + b"}\n\n"


@dataclass(frozen=True, slots=True)
class WholeChoice:
    """One answer of a body that is not streamed."""

    text: str
    reasoning: str | None
    finish_reason: str


def whole_answer(
    chat: bool, id: str, created: int, model: str, choices: Sequence[WholeChoice], usage: Count | None
) -> bytes:
    """Return the body of an answer that is not streamed."""
    shaped: list[dict[str, Any]] = []
    for index, choice in enumerate(choices):
        item: dict[str, Any] = {"index": index}
        if chat:
            item["message"] = {"role": "assistant", "content": choice.text}
            if choice.reasoning is not None:
                item["message"]["reasoning_content"] = choice.reasoning
        else:
            item["text"] = choice.text
        item |= {"logprobs": None, "finish_reason": choice.finish_reason}
        shaped.append(item)
    kind = "chat.completion" if chat else "text_completion"
    body: dict[str, Any] = {"id": id, "object": kind, "created": created, "model": model, "choices": shaped}
    if usage is not None:
        body["usage"] = usage.encode()
    return orjson.dumps(body)


def error_object(error: HttpError) -> bytes:
    """Return an OpenAI error object."""
    return orjson.dumps(
        {"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.status}}
    )
