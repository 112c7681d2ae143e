"""What must hold of Anthropic, Responses, Gemini, Cohere and Bedrock for any events, sensible or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from cases import body, load
from frames import chunk, exception, frame
from hypothesis import given, settings
from hypothesis import strategies as st
from soundness import check_sound, facts, run

from locust_llm.outcome import TransportEnd, judge
from locust_llm.wire import registry
from locust_llm.wire.api import Decoder
from locust_llm.wire.body import MAX_EVENT_BYTES
from locust_llm.wire.converse import EVENTS as CONVERSE

APIS = ("anthropic", "openai-responses", "gemini", "cohere", "bedrock")
BODIES = [(case.api, b"".join(data for _, _, data in body(case))) for case in load(*APIS)]

TEXT = st.sampled_from(
    ["", "a", " b", "é\n", "\ud83d", "\ude00", "x\ud83d", "stop", "error", "STOP", "malformed_tool_use"]
)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(-2, 9), st.sampled_from([2.5, float("nan"), 10**30]), TEXT)
JSON = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)), max_leaves=8
)


def objects(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: st.one_of(value, value, JSON) for name, value in members.items()})


def names(*values: str) -> st.SearchStrategy[str]:
    return st.sampled_from(values)


COUNT = st.integers(0, 9)
ERROR = objects(type=TEXT, code=TEXT, message=TEXT, status=TEXT, details=st.lists(objects(retryDelay=names("5s", "s"))))
BLOCK = objects(type=names("text", "thinking", "tool_use"), text=TEXT, thinking=TEXT, id=TEXT, name=TEXT, input=JSON)
ANTHROPIC_USAGE = objects(input_tokens=COUNT, output_tokens=COUNT, cache_read_input_tokens=COUNT)
ITEM = objects(
    type=names("message", "reasoning", "function_call"), id=TEXT, call_id=TEXT, role=TEXT, name=TEXT, arguments=TEXT,
    content=st.lists(objects(type=names("output_text", "refusal"), text=TEXT, refusal=TEXT), max_size=2),
    summary=st.lists(objects(text=TEXT), max_size=2),
)  # fmt: skip
RESPONSE = objects(
    id=TEXT, model=TEXT, status=names("completed", "incomplete", "failed", "queued"), output=st.lists(ITEM, max_size=2),
    error=ERROR, incomplete_details=objects(reason=TEXT),
    usage=objects(input_tokens=COUNT, output_tokens=COUNT, output_tokens_details=objects(reasoning_tokens=COUNT)),
)  # fmt: skip
RESPONSE_EVENTS = names(
    *(f"response.{name}" for name in (
        "created", "output_item.added", "output_item.done", "output_text.delta", "output_text.done", "refusal.delta",
        "reasoning_summary_text.delta", "function_call_arguments.delta", "function_call_arguments.done",
        "output_audio.delta", "completed", "incomplete", "failed",
    )), "error", "new",
)  # fmt: skip
PART = objects(
    text=TEXT, thought=st.booleans(), functionCall=objects(name=TEXT, args=JSON, id=TEXT, partialArgs=JSON),
    inlineData=objects(data=TEXT), executableCode=objects(code=TEXT),
)  # fmt: skip
COHERE_CALL = objects(id=TEXT, function=objects(name=TEXT, arguments=TEXT))
CONTENT = objects(type=names("text", "thinking"), text=TEXT, thinking=TEXT)
CONVERSE_EVENT = objects(
    role=TEXT, contentBlockIndex=COUNT, stopReason=TEXT, metrics=objects(latencyMs=COUNT),
    start=objects(toolUse=objects(toolUseId=TEXT, name=TEXT)),
    delta=objects(text=TEXT, toolUse=objects(input=TEXT), reasoningContent=objects(text=TEXT, signature=TEXT)),
    usage=objects(inputTokens=COUNT, outputTokens=COUNT, cacheReadInputTokens=COUNT),
)  # fmt: skip
EVENTS: dict[str, st.SearchStrategy[Any]] = {
    "anthropic": objects(
        type=names(
            "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
            "message_stop", "ping", "error", "new",
        ),
        index=COUNT, message=objects(id=TEXT, model=TEXT, usage=ANTHROPIC_USAGE), content_block=BLOCK, error=ERROR,
        delta=objects(
            type=names("text_delta", "thinking_delta", "input_json_delta", "signature_delta"), text=TEXT,
            thinking=TEXT, partial_json=TEXT, stop_reason=TEXT,
        ),
        usage=ANTHROPIC_USAGE, content=st.lists(BLOCK, max_size=2), stop_reason=TEXT,
    ),
    "openai-responses": objects(
        type=RESPONSE_EVENTS, delta=TEXT, text=TEXT, arguments=TEXT, output_index=COUNT, item_id=TEXT, item=ITEM,
        response=RESPONSE, logprobs=st.lists(COUNT, max_size=2), message=TEXT, code=TEXT, error=ERROR,
    ),
    "gemini": objects(
        candidates=st.lists(
            objects(
                index=st.integers(0, 1), content=objects(role=TEXT, parts=st.lists(PART, max_size=2)),
                finishReason=TEXT, finishMessage=TEXT,
            ),
            max_size=2,
        ),
        usageMetadata=objects(promptTokenCount=COUNT, candidatesTokenCount=COUNT, thoughtsTokenCount=COUNT),
        promptFeedback=objects(blockReason=TEXT), error=ERROR, responseId=TEXT, modelVersion=TEXT,
    ),
    "cohere": objects(
        type=names(
            "message-start", "content-start", "content-delta", "content-end", "tool-plan-delta", "tool-call-start",
            "tool-call-delta", "message-end", "new",
        ),
        id=TEXT, index=COUNT, logprobs=objects(token_ids=st.lists(COUNT, max_size=2)),
        delta=objects(
            message=objects(content=CONTENT, tool_plan=TEXT, tool_calls=COHERE_CALL), finish_reason=TEXT, error=TEXT,
            usage=objects(tokens=objects(input_tokens=COUNT, output_tokens=COUNT), billed_units=objects()),
        ),
        message=objects(content=st.lists(CONTENT, max_size=2), tool_plan=TEXT, tool_calls=st.lists(COHERE_CALL)),
    ),
    "bedrock": st.one_of(
        CONVERSE_EVENT,
        st.dictionaries(st.sampled_from(sorted(CONVERSE)), CONVERSE_EVENT, max_size=1),
        objects(
            generation=TEXT, outputText=TEXT, stop_reason=TEXT, completionReason=TEXT, generation_token_count=COUNT,
            outputs=st.lists(objects(text=TEXT, stop_reason=TEXT), max_size=2), output=objects(message=JSON),
            choices=st.lists(objects(delta=objects(content=TEXT), finish_reason=TEXT), max_size=2), message=TEXT,
        ),
    ),
}  # fmt: skip


def binary(draw: Callable[[st.SearchStrategy[Any]], Any], event: Any) -> bytes:
    """Return an event as one frame: of Converse, of Invoke, or an exception."""
    form = draw(st.integers(0, 5))
    if form == 0:
        return exception(draw(TEXT.filter(str.isascii)), message="x")
    if form < 3 and isinstance(event, dict):
        return chunk(**event)
    name = draw(st.sampled_from([*sorted(CONVERSE), "new"]))
    return frame({":event-type": name, ":message-type": "event"}, json.dumps(event).encode())


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    """An API and a body of its events, with odd things among them; sometimes one document, for Gemini an array."""
    api = draw(st.sampled_from(APIS))
    events = draw(st.lists(st.one_of(EVENTS[api], EVENTS[api], EVENTS[api], JSON), max_size=7))
    form = draw(st.integers(0, 7))
    if form == 0:
        return api, json.dumps((events or [{}])[0]).encode()
    if form == 1:
        return api, json.dumps(events, indent=draw(st.sampled_from([None, 1]))).encode()
    if api == "bedrock":
        data = b"".join(binary(draw, event) for event in events)
        return api, data + draw(st.sampled_from([b"", b"\0\0\0", b"\0\0\0\x20\0\0\0\0????"]))
    named = draw(st.booleans())
    parts = []
    for event in events:
        kind = event.get("type") if isinstance(event, dict) else None
        name = f"event: {kind}\n" if named and isinstance(kind, str) and kind.isascii() and kind.strip() else ""
        parts.append(f"{name}data: {json.dumps(event)}\n\n".encode())
    return api, b"".join(parts) + draw(st.sampled_from([b"", b"data: [DONE]\n\n", b"data: {", b"\xff\n\n", b": x\n\n"]))


def maker(api: str) -> Callable[[], Decoder]:
    return lambda: registry.api(api).decoder(True)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


CUTS = st.lists(st.integers(0, 5000), max_size=8)


@given(bodies(), CUTS)
@settings(max_examples=300)
def test_any_events_give_a_sound_answer_the_same_by_any_split(known: tuple[str, bytes], cuts: list[int]) -> None:
    api, data = known
    whole = run(maker(api), [data])
    check_sound(whole)
    assert facts(run(maker(api), split(data, cuts))) == facts(whole)


@given(st.sampled_from(BODIES), CUTS)
def test_any_split_of_a_real_answer_gives_the_same(known: tuple[str, bytes], cuts: list[int]) -> None:
    api, data = known
    assert facts(run(maker(api), split(data, cuts))) == facts(run(maker(api), [data]))


@given(st.sampled_from(BODIES), st.integers(0, 5000), st.binary(min_size=1, max_size=4))
def test_damaged_answers_never_crash(known: tuple[str, bytes], at: int, junk: bytes) -> None:
    api, data = known
    at %= len(data) + 1
    check_sound(run(maker(api), [data[:at] + junk + data[at + len(junk) :]]))


@given(st.lists(st.binary(max_size=60), max_size=8), st.sampled_from(APIS))
def test_random_bytes_never_crash(pieces: list[bytes], api: str) -> None:
    check_sound(run(maker(api), pieces))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("depth", [300, 1010, 100_000])
def test_deep_json_never_crashes(api: str, depth: int) -> None:
    deep = b'{"delta":' * depth + b"1" + b"}" * depth
    for data in (deep, b"[" + deep + b"]", b"data: " + deep + b"\n\n", frame({":event-type": "metadata"}, deep)):
        check_sound(run(maker(api), [data]))


@pytest.mark.parametrize(
    ("api", "start", "again"),
    [
        ("anthropic", b"event: content_block_delta\ndata: ", b"abcdefgh"),
        ("gemini", b'[{"candidates": "', b"abcdefgh"),
        ("gemini", b'[{"a":', b"[{[{[{[{"),
        ("gemini", b"[7", b"77777777"),
        ("bedrock", b"\0\xff\xff\xff\0\0\0\0", b"abcdefgh"),
        ("bedrock", frame({}, bytes(MAX_EVENT_BYTES))[:12], bytes(8)),
    ],
    ids=["sse", "array-string", "array-depth", "array-bare", "frame-false", "frame-huge"],
)
def test_an_endless_event_is_held_to_its_bound(api: str, start: bytes, again: bytes) -> None:
    decoder = registry.api(api).decoder(True)
    piece = again * 8192
    decoder.feed(start, 0)
    for at_ns in range(1, 2 * MAX_EVENT_BYTES // len(piece)):
        decoder.feed(piece, at_ns)
    decoder.eof(0)
    assert decoder.answer.malformed is not None
    assert judge(decoder.answer, 200, TransportEnd("complete"), None)[0] == "malformed"


@pytest.mark.parametrize(
    ("api", "document"),
    [
        ("anthropic", {"content": [{"type": ["text"]}, {"type": {}}], "stop_reason": []}),
        ("openai-responses", {"status": ["queued"], "output": [{"type": []}]}),
        ("gemini", {"candidates": [{"finishReason": {}, "index": []}]}),
        ("cohere", {"message": {"content": [[]]}, "finish_reason": {}}),
        ("bedrock", {"output": {"message": {"content": [{"text": []}]}}, "stopReason": []}),
    ],
)
def test_lists_and_objects_where_a_name_belongs_are_no_names(api: str, document: dict[str, Any]) -> None:
    check_sound(run(maker(api), [json.dumps(document).encode()]))
