"""JSON lines: cut anywhere, ended by any line end that holds an LF, bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locust_llm.wire.ndjson import NdjsonFraming


def lines(*pieces: bytes) -> list[bytes]:
    framing = NdjsonFraming()
    frames = [frame for piece in pieces for frame in framing.feed(piece)] + framing.eof()
    assert all(name is None for name, _ in frames)
    return [data for _, data in frames]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        (b'\n \r\n{"a":1}\n\n\n{"b":2}\n\r\n', [b'{"a":1}', b'{"b":2}']),
        (b"", []),
        (b"\n", []),
        (b'{"a":"x\xe2\x80\xa8y"}\n', [b'{"a":"x\xe2\x80\xa8y"}']),  # U+2028 ends no line
    ],
)
def test_a_line_ends_with_lf_and_blank_ones_are_none(body: bytes, expected: list[bytes]) -> None:
    assert lines(body) == expected
    assert lines(*[body[i : i + 1] for i in range(len(body))]) == expected


def test_the_cr_of_crlf_is_white_space_of_json() -> None:
    assert [line.strip() for line in lines(b'{"a":1}\r\n{"b":2}\r\n')] == [b'{"a":1}', b'{"b":2}']


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b" ", b"{}", b"\n\n"]), max_size=30), st.data())
def test_any_split_gives_the_same_lines(parts: list[bytes], data: st.DataObject) -> None:
    body = b"".join(parts)
    at = data.draw(st.integers(0, len(body)))
    assert lines(body[:at], body[at:]) == lines(body) == [line for line in body.split(b"\n") if line.strip()]


def test_it_knows_whether_a_line_is_open_and_how_long() -> None:
    framing = NdjsonFraming()
    states = []
    for piece in (b'{"a":', b"1}", b"\n", b'{"b":2}\n{', b"\n", b"\n"):
        framing.feed(piece)
        states.append((framing.at_frame_end, framing.open_bytes))
    assert states == [(False, 5), (False, 7), (True, 0), (False, 1), (True, 0), (False, 0)]
