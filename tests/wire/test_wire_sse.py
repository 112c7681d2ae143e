"""SSE framing as the WHATWG text has it, plus the two things it says it does differently."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locust_llm.wire.sse import Frame, SseFraming


def frames(*pieces: bytes, end: bool = False) -> list[Frame]:
    sse = SseFraming()
    found = [frame for piece in pieces for frame in sse.feed(piece)]
    return found + sse.eof() if end else found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"data: a\n\n", [(None, b"a")]),
        (b"data:a\n\n", [(None, b"a")]),
        (b"data:  a \n\n", [(None, b" a ")]),  # one space goes, no more
        (b"data: a\ndata: b\ndata:\n\n", [(None, b"a\nb\n")]),
        (b"data\n\n", [(None, b"")]),
        (b"data:\n\ndata: \n\n", [(None, b""), (None, b"")]),
        (b"event: e\ndata: a\n\ndata: b\n\n", [("e", b"a"), (None, b"b")]),
        (b"data: a\nevent: late\n\n", [("late", b"a")]),
        (b"event: a\nevent: b\ndata: x\n\n", [("b", b"x")]),
        (b"event:\ndata: x\n\n", [(None, b"x")]),
        (b"event: lonely\n\ndata: x\n\n", [(None, b"x")]),  # the name does not outlive its block
        (b"id: 7\nretry: 10\nfoo: bar\nfoo\ndata: x\n\n", [(None, b"x")]),
        (b" data: x\n\n", []),  # the name is " data"
        (b"DATA: x\n\n", []),
        (b"\n\n\ndata: x\n\n\n\n\n", [(None, b"x")]),
        (b": c\ndata: x\n: d\n\n", [(None, b"x")]),
        (b"data: a: b\n\n", [(None, b"a: b")]),
        (b"data: a\n", []),
        (b"data: a", []),
        ("data: a\u2028b\u0085c\x0bd\x0ce\n\n".encode(), [(None, "a\u2028b\u0085c\x0bd\x0ce".encode())]),
        (b'error: {"a":1}\n\n', [("error", b'{"a":1}')]),
        (b"error: x\ndata: y\n\n", [("error", b"x"), (None, b"y")]),
        (b"\xef\xbb\xbfdata: x\n\n", [(None, b"x")]),
        (b"data: x\n\n\xef\xbb\xbfdata: y\n\n", [(None, b"x")]),  # a BOM is one only at the start
    ],
)
def test_an_example_gives_its_frames_with_any_line_end_and_cut(text: bytes, expected: list[Frame]) -> None:
    for line_end in (b"\n", b"\r\n", b"\r"):
        told = text.replace(b"\n", line_end)
        assert frames(told) == expected
        assert frames(*(told[i : i + 1] for i in range(len(told)))) == expected
        for at in range(1, len(told)):
            assert frames(told[:at], told[at:]) == expected


def test_an_event_is_complete_at_its_cr_without_waiting_for_a_line_feed() -> None:
    sse = SseFraming()
    assert sse.feed(b"data: x\r\n\r") == [(None, b"x")]
    assert sse.feed(b"\ndata: y\r\n\r\n") == [(None, b"y")]


def test_a_line_feed_after_a_cut_is_a_line_of_its_own_only_if_no_cr_came_before() -> None:
    assert frames(b"data: x\r", b"\n", b"data: y\n\n") == [(None, b"x\ny")]
    assert frames(b"data: x\n", b"\n", b"data: y\n\n") == [(None, b"x"), (None, b"y")]


def test_an_event_that_is_not_closed_is_given_at_the_end() -> None:
    assert frames(b"data: a\n\ndata: [DONE]", end=True) == [(None, b"a"), (None, b"[DONE]")]
    assert frames(b"event: e\ndata: a\n", end=True) == [("e", b"a")]
    assert frames(b"data: a\n\n", end=True) == [(None, b"a")]
    assert frames(b"\xef\xbb", end=True) == []


def test_comments_are_counted_also_between_the_fields_of_an_event() -> None:
    sse = SseFraming()
    sse.feed(b":\n\n: a\n\n:b\ndata: x\n: c\n\n")
    assert sse.comments == 4


def test_what_is_no_sse_is_remembered() -> None:
    page, stream = SseFraming(), SseFraming()
    page.feed(b"<html>\n<body>\n")
    stream.feed(b"HTTP warning\n\n:\n\n")
    assert (page.known, page.stray) == (False, b"<html>")
    assert (stream.known, stream.stray) == (True, b"HTTP warning")


def test_a_huge_line_costs_time_in_proportion_to_its_length() -> None:
    line = b"data: " + b"x" * 16_000_000 + b"\n\n"
    start = time.thread_time()
    found = frames(*(line[i : i + 1400] for i in range(0, len(line), 1400)))
    assert len(found[0][1]) == 16_000_000
    assert time.thread_time() - start < 10  # each read scanning what came before would be 90 GB


_LINES = st.sampled_from(
    [
        b"data: ",
        b"data:",
        b"data",
        b"event: e",
        b":",
        b"x",
        b" ",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\xef\xbb\xbf",
        b"error: ",
    ]
)


@given(st.lists(_LINES, max_size=40), st.lists(st.integers(0, 120), max_size=8))
def test_any_split_gives_the_same_frames(parts: list[bytes], cuts: list[int]) -> None:
    text = b"".join(parts)
    edges = sorted({0, len(text), *(min(at, len(text)) for at in cuts)})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    whole, cut = SseFraming(), SseFraming()
    expected = whole.feed(text) + whole.eof()
    found = [frame for piece in pieces for frame in cut.feed(piece)] + cut.eof()
    assert found == expected
    assert (cut.comments, cut.known, cut.stray) == (whole.comments, whole.known, whole.stray)


@given(st.binary(max_size=200))
def test_any_bytes_agree_with_a_plain_reading_of_the_text(text: bytes) -> None:
    assert frames(text, end=True) == _plain_reading(text)


def _plain_reading(text: bytes) -> list[Frame]:
    """The WHATWG algorithm written down without any care for speed."""
    found: list[Frame] = []
    event, data, error = "", b"", b""
    lines = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    for line in [*lines, b""]:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if error:
                found.append(("error", error[:-1]))
            if data:
                found.append((event or None, data[:-1]))
            event, data, error = "", b"", b""
        elif name == b"data":
            data += value + b"\n"
        elif name == b"error":
            error += value + b"\n"
        elif name == b"event":
            event = value.decode("utf-8", "replace")
    return found
