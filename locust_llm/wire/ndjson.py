"""Newline-delimited JSON as bytes: one JSON text a line, an event is complete at its LF. Incremental, in O(n).

A CR before the LF and blank lines mean nothing; a last line without LF is given when the body ends well (``eof``).
"""

from __future__ import annotations

from .sse import Frame

_BOM = b"\xef\xbb\xbf"


class NdjsonFraming:
    """Bytes in, lines out, whatever the split. It has the members of ``sse.SseFraming``.

    Attributes:
        at_frame_end: the last byte so far completed a line.
        open_bytes: bytes of the line that is not complete yet.
    """

    __slots__ = ("_first", "_line", "at_frame_end", "comments", "known", "open_bytes", "stray")

    def __init__(self) -> None:
        self.comments = 0
        self.known = True
        self.stray: bytes | None = None
        self.at_frame_end = False
        self.open_bytes = 0
        self._first = True
        self._line = bytearray()  # an unfinished line, never scanned again

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes of the body; return the lines that they complete."""
        if self._first:
            # A body's form is judged by its first byte that is not blank, so a BOM comes whole.
            self._first = False
            data = data.removeprefix(_BOM)
        *lines, rest = data.split(b"\n")
        if not lines:
            self._keep(data)
            return []
        if self._line:
            lines[0] = bytes(self._line) + lines[0]
            self._line.clear()
        frames: list[Frame] = [(None, line) for line in lines if line and not line.isspace()]
        self.at_frame_end = bool(frames) and lines[-1] is frames[-1][1]
        self._keep(rest)
        return frames

    def eof(self) -> list[Frame]:
        """The body ended well: return what stands after the last LF."""
        line = bytes(self._line)
        self._line.clear()
        return [(None, line)] if line.strip() else []

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._line += piece
            self.at_frame_end = False
        self.open_bytes = len(self._line)
