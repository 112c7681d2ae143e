"""Events told by their bytes: whatever comes, the answer is the one that the parser gives."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from soundness import facts, run

from locust_llm.wire import registry
from locust_llm.wire.alike import alike
from locust_llm.wire.openai import OpenAIDecoder
from locust_llm.wire.openai_chat import plain_piece


def chat() -> OpenAIDecoder:
    decoder = registry.api("openai-chat").decoder(True)
    assert isinstance(decoder, OpenAIDecoder)
    return decoder


def careful() -> OpenAIDecoder:
    return OpenAIDecoder(lambda chunk, index: None)


def event(inside: bytes, more: bytes = b"") -> bytes:
    """Return an event whose text is these bytes of a JSON string. ``more``: members before the choices."""
    return b'data: {"id":"c1",%b"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n' % (
        more,
        inside,
    )


SHAPES = [
    event(b"@"),
    event(b"@").replace(b'"content"', b'"reasoning_content"'),
    event(b"@", b'"note":"@","created":7,'),
    event(b"@", b'"obfuscation":"#","created":7,'),
    event(b"@", b'"content":"@","text":"@",'),
    event(b"@").replace(b'"content":', b'"content" : '),
    event(b"@").replace(b'{"content":"@"}', b'{"content":"first","content":"@"}'),
    event(b"@").replace(b'{"content":"@"}', b'{"content":"@","reasoning_content":"@"}'),
    event(b"@").replace(b'{"content":"@"}', b'{"role":"assistant","content":"@"}'),
    event(b"@").replace(b"\n\n", b"\r\n\r\n"),
    event(b"@").replace(b"data: ", b"data:"),
    event(b"@").replace(b"data: ", b"id: 1\ndata: "),
    event(b"@").replace(b"data: ", b": ping\n\ndata: "),
    event(b"@").replace(b'"index":0', b'"index":1'),
    event(b"@").replace(b'{"content":"@"}', b'{"content":null,"reasoning":"@","role":"assistant"}'),
    event(b"@").replace(b'{"content":"@"}', b'{"reasoning":"@","reasoning_content":"@"}'),
    event(b"@").replace(b'"choices"', b'"usage":{"completion_tokens":3},"choices"'),
    event(b"").replace(b"]}\n", b'],"usage":null}\n'),
    b'data: {"choices":[{"index":0,"delta":{},"token_ids":[7]}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
]  # fmt: skip
CONTENT, REASONING = 0, 1
INSIDES = [
    b"a", b" word", b"0", b"c1", b"content", b"assistant", b"", b" ", "é".encode(), "語".encode(), "😀".encode(),
    b"\xff", b"\xed\xa0\x80", b"\t", b"\x00", b"\x7f", b"\xc2\xa0", b"\\n", b'\\"', b"\\\\", b"\\u00e9",
    b"\\ud83d", b"\\ude00", b'"', b'","content":"b', b'"},"finish_reason":"stop","x":{"y":"', b"\n\n", b"\r",
    b'"}}]}\n\ndata: {"choices":[{"delta":{"content":"',
]  # fmt: skip
EVENTS = st.lists(
    st.tuples(st.sampled_from([CONTENT, CONTENT, REASONING, REASONING, *range(len(SHAPES))]), st.sampled_from(INSIDES)),
    max_size=12,
)


@given(EVENTS)
def test_bytes_that_are_compared_give_what_parsing_gives(events: list[tuple[int, bytes]]) -> None:
    reads = [SHAPES[shape].replace(b"@", inside).replace(b"#", b"%d" % n) for n, (shape, inside) in enumerate(events)]
    assert facts(run(chat, reads), times=True) == facts(run(careful, reads), times=True)


@given(EVENTS, st.lists(st.integers(0, 4000), max_size=6))
def test_cuts_inside_events_change_nothing(events: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(SHAPES[shape].replace(b"@", inside) for shape, inside in events)
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[a:b] for a, b in pairwise(at)]
    assert facts(run(chat, pieces)) == facts(run(careful, [data]))


def parsed(reads: list[bytes]) -> int:
    """Return how often an event was parsed."""
    calls = 0

    def counting(chunk: Any, index: int) -> tuple[str, str] | None:
        nonlocal calls
        calls += 1
        return plain_piece(chunk, index)

    answer = run(lambda: OpenAIDecoder(counting), reads)
    assert facts(answer, times=True) == facts(run(careful, reads), times=True)
    return calls


def test_like_events_are_parsed_no_more() -> None:
    assert parsed([event(b"t%d" % n) for n in range(100)]) < 5


def test_reasoning_is_recognised_too() -> None:
    reads = [event(b"t%d" % n).replace(b'"content"', b'"reasoning_content"') for n in range(100)]
    assert parsed(reads + [event(b"t%d" % n) for n in range(100)]) < 10


def test_a_text_that_needs_an_escape_is_parsed_and_the_next_are_not() -> None:
    assert parsed([event(b"a" if n % 3 else b"\\n") for n in range(99)]) < 40
    assert parsed([event(b"\\n"), event(b"\\n"), *(event(b"a") for _ in range(97))]) < 8


def test_a_field_that_changes_with_each_event_ends_the_search() -> None:
    assert parsed([event(b"t", b'"n":%d,' % n) for n in range(100)]) < 110  # one an event, and a few for proofs


def test_a_field_that_changes_now_and_then_is_learned_again() -> None:
    assert parsed([event(b"t", b'"created":%d,' % (n // 20)) for n in range(200)]) < 30


@pytest.mark.parametrize("inside", [b"c1", b"id", b"content"])
def test_a_text_that_stands_elsewhere_too_is_found_in_its_place(inside: bytes) -> None:
    pattern = alike(event(inside), inside.decode(), plain_piece, 0)
    assert pattern is not None
    assert pattern.text(event(b"other")) == "other"
    assert pattern.text(event(inside).replace(b'"id":"c1"', b'"id":"c2"')) is None


def test_the_shape_is_checked_by_parsing() -> None:
    shape = json.dumps({"choices": [{"index": 0, "delta": {"content": "a"}}], "object": "a"})
    pattern = alike(b"data: %b\n\n" % shape.encode(), "a", plain_piece, 0)
    assert pattern is not None
    assert pattern.text(b"data: %b\n\n" % shape.replace('"content": "a"', '"content": "b"').encode()) == "b"
    assert pattern.text(b"data: %b\n\n" % shape.replace('"object": "a"', '"object": "b"').encode()) is None
