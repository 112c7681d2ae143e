"""What must hold for any bytes and any JSON a server may send, sensible or not."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from cases import body, load
from hypothesis import given, settings
from hypothesis import strategies as st
from soundness import check_sound, facts, run, sse

from locust_llm.wire import registry
from locust_llm.wire.api import Decoder
from locust_llm.wire.errors import retry_after_s, server_error
from locust_llm.wire.openai import OpenAIDecoder

BODIES = [
    (case.api, b"".join(data for _, _, data in body(case)))
    for case in load(*registry.names())
    if 200 <= case.status < 300 and sum(len(write.data) for write in case.writes) < 20_000
]

NAMES = [
    "id", "model", "object", "choices", "usage", "timings", "error", "x_groq", "error_type", "error_message",
    "detail", "message", "code", "type", "param", "loc", "msg", "prompt_progress", "token_ids", "index",
    "delta", "text", "finish_reason", "logprobs", "content", "role", "reasoning", "reasoning_content",
    "reasoning_details", "thinking", "refusal", "audio", "data", "images", "tool_calls", "function_call",
    "function", "name", "arguments", "tokens", "prompt_tokens", "completion_tokens", "total_tokens",
    "completion_tokens_details", "prompt_tokens_details", "reasoning_tokens", "cached_tokens", "predicted_n",
    "prompt_n", "cache_n",
]  # fmt: skip
CHUNK_NAMES, DELTA_NAMES = NAMES[: NAMES.index("index")], NAMES[NAMES.index("content") : NAMES.index("function")]
TEXT = st.sampled_from(
    ["", "a", " ", "Red", "stop", "abort", "None", "7", "\ud83d", "\ude00", "x\ud83d", "é\ufffd\n", "error"]
)
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.just(10**30),
    st.sampled_from([3.0, 2.5, float("nan"), float("inf")]),
    TEXT,
)
JSON = st.recursive(
    SCALAR,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)),
    max_leaves=25,
)
DELTA = st.dictionaries(st.sampled_from(DELTA_NAMES), st.one_of(TEXT, JSON), max_size=4)
CHOICE = st.fixed_dictionaries(
    {"index": st.one_of(st.integers(0, 1), JSON)},
    optional={
        "delta": st.one_of(DELTA, st.builds(lambda text: {"content": text}, TEXT), JSON),
        "text": st.one_of(TEXT, JSON),
        "message": st.one_of(DELTA, JSON),
        "finish_reason": st.one_of(TEXT, JSON),
        "logprobs": JSON,
        "token_ids": JSON,
        "usage": JSON,
        "error": JSON,
    },
)
PLAIN = st.builds(lambda text: {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}, TEXT)
CHUNK = st.one_of(
    PLAIN,
    st.builds(
        lambda choices, more: {"id": "q", "model": "m", **more, "choices": choices},
        st.one_of(st.lists(CHOICE, max_size=3), JSON),
        st.dictionaries(st.sampled_from(CHUNK_NAMES), JSON, max_size=3),
    ),
    JSON,
)
FRAMES = st.sampled_from(
    [b"data: [DONE]\n\n", b"event: error\ndata: x\n\n", b"error: x\n\n", b":\n\n", b"data:\n\n", b"data: {\n\n"]
)


def chat() -> Decoder:
    return registry.api("openai-chat").decoder(True)


def careful() -> Decoder:
    return OpenAIDecoder(lambda chunk, index: None)


@given(st.sampled_from(BODIES), st.lists(st.integers(0, 20_000), max_size=12))
def test_any_split_of_the_same_bytes_gives_the_same_answer(known: tuple[str, bytes], cuts: list[int]) -> None:
    api, data = known
    edges = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    pieces = [data[a:b] for a, b in pairwise(edges)]
    make = lambda: registry.api(api).decoder(True)  # noqa: E731
    assert facts(run(make, pieces)) == facts(run(make, [data]))


@given(st.lists(st.one_of(CHUNK, FRAMES), max_size=8), st.lists(st.integers(0, 2000), max_size=6))
@settings(max_examples=400)
def test_any_events_give_a_sound_answer_the_same_by_both_ways_and_by_any_split(
    events: list[Any], cuts: list[int]
) -> None:
    data = sse(events)
    whole = run(chat, [data])
    check_sound(whole)
    edges = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    assert facts(run(chat, [data[a:b] for a, b in pairwise(edges)])) == facts(whole)
    assert facts(run(careful, [data]), times=True) == facts(whole, times=True)


@given(JSON, st.booleans(), st.sampled_from(registry.names()))
def test_any_document_gives_a_sound_answer(value: Any, stream: bool, api: str) -> None:
    check_sound(run(lambda: registry.api(api).decoder(stream), [json.dumps(value).encode()]))


@given(st.lists(st.binary(max_size=60), max_size=8), st.sampled_from(registry.names()))
def test_random_bytes_never_crash(pieces: list[bytes], api: str) -> None:
    check_sound(run(lambda: registry.api(api).decoder(True), pieces))


@given(st.sampled_from(BODIES), st.integers(0, 20_000), st.binary(min_size=1, max_size=4))
def test_damaged_streams_never_crash(known: tuple[str, bytes], at: int, junk: bytes) -> None:
    api, data = known
    at %= len(data) + 1
    check_sound(run(lambda: registry.api(api).decoder(True), [data[:at] + junk + data[at + len(junk) :]]))


@given(
    st.one_of(st.binary(max_size=200), JSON.map(lambda value: json.dumps(value).encode())),
    st.one_of(st.none(), st.text()),
)
def test_any_error_body_gives_a_message(data: bytes, content_type: str | None) -> None:
    for error in (server_error(data, content_type), server_error(b"data: " + data + b"\n\n", content_type)):
        assert error.message
        assert all(part is None or part.encode() for part in (error.message, error.type, error.code, error.param))


@given(st.text(max_size=40), st.floats(0, 4e9))
def test_any_retry_after_is_a_wait_or_none(value: str, now: float) -> None:
    seconds = retry_after_s(value, now)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    "opening", [b'{"a":', b"[", b'{"choices":[', b'{"error":', b'{"choices":[{"delta":{"content":[']
)
@pytest.mark.parametrize("depth", [300, 900, 1010, 200_000])
def test_deep_json_never_crashes(opening: bytes, depth: int) -> None:
    closing = {ord("{"): b"}", ord("["): b"]"}
    ends = b"".join(closing[c] for c in reversed(opening) if c in closing)
    text = opening * depth + b"1" + ends * depth
    for data in (
        text,
        b"data: " + text + b"\n\n",
        b"event: error\ndata: " + text + b"\n\n",
        b"data: " + opening * depth,
    ):
        check_sound(run(chat, [data]))
        assert server_error(data, None).message
