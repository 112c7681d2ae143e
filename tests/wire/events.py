"""Builds OpenAI-shaped events and reads them, for tests that are about one rule."""

from __future__ import annotations

import json
from typing import Any

from locust_llm.outcome import TransportEnd, judge
from locust_llm.wire import registry
from locust_llm.wire.answer import TOKEN_KINDS, Answer

END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def chunk(delta: Any, index: Any = 0, finish: Any = None, **more: Any) -> dict[str, Any]:
    choice_level = {k: more.pop(k) for k in ("logprobs", "token_ids") if k in more}
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish, **choice_level}], **more}


def text(piece: str, **more: Any) -> dict[str, Any]:
    return chunk({"content": piece}, **more)


def usage(n_out: Any, n_in: Any = 5, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": n_in, "completion_tokens": n_out, **more}


def only_usage(n_out: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": usage(n_out, **more)}


def read(*events: Any, api: str = "openai-chat", done: bool = True) -> Answer:
    parts = [event if isinstance(event, bytes) else b"data: %b\n\n" % json.dumps(event).encode() for event in events]
    return raw(b"".join(parts) + b"data: [DONE]\n\n" * done, api=api)


def typed(*events: dict[str, Any], api: str) -> Answer:
    """Read events that have a ``type``, each in a frame of that name."""
    frames = (b"event: %b\ndata: %b\n\n" % (str(e["type"]).encode(), json.dumps(e).encode()) for e in events)
    return raw(b"".join(frames), api=api)


def document(value: Any, api: str) -> Answer:
    """Read one JSON document."""
    return raw(json.dumps(value).encode(), api=api, stream=False)


def tokens_of(answer: Answer) -> list[int]:
    """Return the tokens of each token event."""
    return [n for n, kind in zip(answer.tokens, answer.kinds, strict=True) if kind in TOKEN_KINDS]


def raw(body: bytes, api: str = "openai-chat", stream: bool = True) -> Answer:
    decoder = registry.api(api).decoder(stream)
    decoder.feed(body, 1)
    decoder.eof(2)
    return decoder.answer


def outcome(answer: Answer) -> str:
    return judge(answer, 200, TransportEnd("complete"), None)[0]
