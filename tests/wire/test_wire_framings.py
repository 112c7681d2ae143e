"""The binary frames of AWS and the growing JSON array: any split, nothing that is no frame, nothing twice."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from typing import Any

import pytest
from frames import event, exception, frame, packed_frame
from hypothesis import given
from hypothesis import strategies as st

from locust_llm.wire.body import Framing
from locust_llm.wire.eventstream import EventStreamFraming
from locust_llm.wire.jsonarray import JsonArrayFraming
from locust_llm.wire.sse import Frame


def feed(framing: Framing, data: bytes, cuts: tuple[int, ...] | list[int] = (), end: bool = True) -> list[Frame]:
    edges = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    frames = [found for a, b in pairwise(edges) for found in framing.feed(data[a:b])]
    return frames + framing.eof() if end else frames


CUTS = st.lists(st.integers(0, 5000), max_size=8)

# ---- AWS's event stream


def test_a_frame_is_named_by_its_headers() -> None:
    error = {":message-type": "error", ":error-code": "InternalError", ":error-message": "broke"}
    data = event("messageStop", x=1) + exception("throttlingException", message="slow") + frame(error, b"")
    assert feed(EventStreamFraming(), data) == [
        ("event:messageStop", b'{"x": 1}'),
        ("exception:throttlingException", b'{"message": "slow"}'),
        ("error:InternalError", b"broke"),
    ]


def test_headers_of_all_types_are_passed_over() -> None:
    values = {
        0: b"",
        1: b"",
        2: b"\1",
        3: b"\1\1",
        4: b"\1" * 4,
        5: b"\1" * 8,
        6: b"\0\2ab",
        8: b"\1" * 8,
        9: b"\1" * 16,
    }
    packed = b"".join(b"\1h" + bytes([kind]) + value for kind, value in values.items())
    named = b"\x0b:event-type" + struct.pack(">BH", 7, 5) + b"chunk"
    assert feed(EventStreamFraming(), packed_frame(packed + named, b"{}")) == [("event:chunk", b"{}")]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\0\0\0\x10\0\0\0\0\0\0\0\0", b"a frame whose prelude has a wrong checksum"),
        (event("x")[:-1] + b"?", b"a frame with a wrong checksum"),
        (event("x").replace(b"{}", b"[]"), b"a frame with a wrong checksum"),
        (packed_frame(b"\5ab", b""), b"a frame whose headers cannot be read"),
        (packed_frame(b"\1a\x63", b""), b"a frame whose headers cannot be read"),
    ],
)
def test_what_is_no_frame_is_a_fault_and_ends_the_stream(data: bytes, fault: bytes) -> None:
    good = event("a")
    for cuts in ((), tuple(range(len(good + data)))):
        framing = EventStreamFraming()
        frames = feed(framing, good + data + event("b"), cuts)
        assert frames == [("event:a", b"{}"), ("fault:", fault)]
        assert framing.feed(event("c")) == []
        assert framing.open_bytes == 0


def test_a_body_that_ends_inside_a_frame_is_cut() -> None:
    for size in range(1, len(event("b"))):
        assert feed(EventStreamFraming(), event("a") + event("b")[:size]) == [("event:a", b"{}"), ("cut:", b"")]


def test_the_end_of_a_frame_and_what_is_held_are_known() -> None:
    framing = EventStreamFraming()
    framing.feed(event("a"))
    assert (framing.at_frame_end, framing.open_bytes) == (True, 0)
    framing.feed(event("b")[:20])
    assert (framing.at_frame_end, framing.open_bytes) == (False, 20)
    framing.feed(event("b")[20:] + event("c")[:5])
    assert (framing.at_frame_end, framing.open_bytes) == (False, 5)


@given(st.lists(st.tuples(st.text("abc:-", max_size=9), st.binary(max_size=40)), max_size=5), CUTS)
def test_any_split_of_frames_gives_what_botocore_reads(messages: list[tuple[str, bytes]], cuts: list[int]) -> None:
    eventstream = pytest.importorskip("botocore.eventstream")
    data = b"".join(frame({":event-type": name}, payload) for name, payload in messages)
    buffer = eventstream.EventStreamBuffer()
    buffer.add_data(data)
    expected = [(f"event:{message.headers[':event-type']}", message.payload) for message in buffer]
    assert feed(EventStreamFraming(), data, cuts) == expected
    assert len(expected) == len(messages)


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_random_bytes_are_never_a_frame(pieces: list[bytes]) -> None:
    framing = EventStreamFraming()
    frames = [found for piece in pieces for found in framing.feed(piece)] + framing.eof()
    assert [name for name, _ in frames] in ([], ["fault:"], ["cut:"])


# ---- the growing array

JSON = st.recursive(
    st.one_of(st.none(), st.integers(), st.text('ab"\\[]{},é', max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text('"]}', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
ELEMENT = st.one_of(st.lists(JSON, max_size=3), st.dictionaries(st.text('a"\\]}', max_size=3), JSON, max_size=3))


@given(st.lists(ELEMENT, max_size=5), st.sampled_from([None, 2]), st.booleans(), CUTS)
def test_any_split_of_an_array_gives_its_elements(
    elements: list[Any], indent: int | None, ascii_only: bool, cuts: list[int]
) -> None:
    data = b" \r\n" + json.dumps(elements, indent=indent, ensure_ascii=ascii_only).encode() + b"\n"
    frames = feed(JsonArrayFraming(), data, cuts)
    assert [json.loads(found) for _, found in frames] == elements


@given(st.lists(st.integers(0, 99), max_size=5), CUTS)
def test_bare_values_are_elements_too(numbers: list[int], cuts: list[int]) -> None:
    assert [json.loads(found) for _, found in feed(JsonArrayFraming(), json.dumps(numbers).encode(), cuts)] == numbers


def test_an_element_is_there_with_its_last_byte() -> None:
    framing = JsonArrayFraming()
    assert framing.feed(b'[{"a": "]}"') == []
    assert (framing.at_frame_end, framing.open_bytes) == (False, 10)
    assert framing.feed(b"}") == [(None, b'{"a": "]}"}')]
    assert (framing.at_frame_end, framing.open_bytes) == (True, 0)
    assert framing.feed(b"\n,\n") == []
    assert framing.feed(b'{"b"') == []
    assert framing.eof() == [(None, b'{"b"')]


def test_nothing_after_the_arrays_end_counts() -> None:
    framing = JsonArrayFraming()
    assert feed(framing, b'[{"a":1}] {"b":2} [{"c":3}]') == [(None, b'{"a":1}')]
    assert framing.closed
