"""A body that is one JSON array and grows element by element: each is a frame, complete at its last byte.

Only strings, escapes and the depth of brackets are followed; what an element holds is judged by who parses it. A split
anywhere, pretty printing and brackets inside strings make no difference; each byte is looked at once.
"""

from __future__ import annotations

import re

from .sse import Frame

_MOST_DEPTH = 1024  # deeper than any parser goes
# The next bracket, over whole strings and all else; or the quote of a string that does not end in the data.
_NEXT = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([{}\[\]"])', re.DOTALL)
_STRING_END = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BETWEEN = re.compile(rb"[ \t\r\n,]*")
_BARE_END = re.compile(rb"[,\]]")


class JsonArrayFraming:
    """Bytes in, elements out, whatever the split; see ``body.Framing``.

    Attributes:
        closed: the array's end has come, or it is nested too deeply to go on.
        open_bytes: bytes held of the element that is not complete yet.
    """

    __slots__ = (
        "_depth", "_element", "_escaped", "_opened", "_string",
        "at_frame_end", "closed", "comments", "known", "open_bytes", "stray",
    )  # fmt: skip

    def __init__(self) -> None:
        self.comments = 0
        self.known = True
        self.stray: bytes | None = None
        self.at_frame_end = False
        self.closed = False
        self.open_bytes = 0
        self._opened = False  # past the array's own bracket
        self._element = bytearray()  # the element at hand
        self._depth = 0  # of brackets within it
        self._string = False
        self._escaped = False  # the next byte belongs to a backslash

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes of the body; return the elements that they complete."""
        frames: list[Frame] = []
        at = 0
        if not self._opened and data:
            at = data.find(b"[") + 1  # what stands before it is blank
            self._opened = at > 0
            if not self._opened:
                return frames
        self.at_frame_end = False
        while at < len(data) and not self.closed:
            at = self._inside(data, at, frames) if self._depth else self._outside(data, at, frames)
        return frames

    def eof(self) -> list[Frame]:
        """The body ended well: return what an unfinished element holds."""
        rest = bytes(self._element)
        self._element.clear()
        self._depth = self.open_bytes = 0
        return [(None, rest)] if rest.strip() else []

    def _outside(self, data: bytes, at: int, frames: list[Frame]) -> int:
        """Look for the start of an element, or for the end of the array; return where to go on."""
        if not self._element:
            at = _skip(data, at)
            if data[at : at + 1] in (b"{", b"["):
                self._depth = 1
                self._keep(data[at : at + 1])
                return at + 1
        # A bare value, which no server sends, or nothing: up to the next comma or the end of the array.
        end = _BARE_END.search(data, at)
        self._keep(data[at : end.start() if end else len(data)])
        if end is None:
            return len(data)
        frames += self.eof()
        self.closed = end[0] == b"]"
        return end.end()

    def _inside(self, data: bytes, at: int, frames: list[Frame]) -> int:
        """Go on in an element; return where it ended, or the end of the data."""
        start = at
        if self._string:
            end = _STRING_END.match(data, at + self._escaped)
            if end is None:
                self._open_string(data, at)
                self._keep(data[at:])
                return len(data)
            self._string = self._escaped = False
            at = end.end()
        while (mark := _NEXT.match(data, at)) is not None:
            at = mark.end()
            char = mark[1]
            if char == b'"':
                self._open_string(data, at)
                break
            self._depth += 1 if char in b"{[" else -1
            if not self._depth:
                self._keep(data[start:at])
                frames += self.eof()
                self.at_frame_end = at == len(data)
                return at
            if self._depth > _MOST_DEPTH:
                self._keep(data[start:at])
                frames += self.eof()
                self.closed = True
                return len(data)
        self._keep(data[start:])
        return len(data)

    def _open_string(self, data: bytes, at: int) -> None:
        """The data ends inside a string, of which it holds what is from ``at`` on."""
        rest = data[at + self._escaped :]
        self._escaped = (len(rest) - len(rest.rstrip(b"\\"))) % 2 == 1
        self._string = True

    def _keep(self, piece: bytes) -> None:
        self._element += piece
        self.open_bytes = len(self._element)


def _skip(data: bytes, at: int) -> int:
    between = _BETWEEN.match(data, at)
    return between.end() if between else at
