"""Server-sent events as bytes: the framing of the WHATWG text, incremental, in O(n).

A line ends with LF, CR or CRLF, each judged by itself; an event is complete at its blank line, without waiting for what
may follow. Two things differ from that text, on purpose: an event that is not closed when the body ends well is still
given (``eof``), and a field named ``error`` (llama.cpp until 2025) is given as an event of that name.
"""

from __future__ import annotations

Frame = tuple[str | None, bytes]
"""Event name (None: none was given) and data; the values of several data lines are joined with LF."""

_BOM = b"\xef\xbb\xbf"
_LF, _CR, _COLON = 10, 13, 58
# What a line costs beside its length while it is held.
_LINE_BYTES = 48


class SseFraming:
    """Bytes in, frames out, whatever the split.

    Attributes:
        comments: comment lines so far.
        known: a field or comment of SSE has been seen.
        stray: the first line that was neither, None if there was none.
        at_frame_end: the last byte so far completed a frame.
        open_bytes: bytes held for the event that is not complete yet.
        idle: between two events, nothing open.
    """

    __slots__ = (
        "_after_cr", "_bom", "_data", "_error", "_event", "_line",
        "at_frame_end", "comments", "idle", "known", "open_bytes", "stray",
    )  # fmt: skip

    def __init__(self) -> None:
        self.comments = 0
        self.known = False
        self.stray: bytes | None = None
        self.at_frame_end = False
        self.open_bytes = 0
        self._bom: bytes | None = b""  # start of the body while it may still be a BOM
        self.idle = False
        self._after_cr = False  # an LF that comes next belongs to the CR before it
        self._line = bytearray()  # an unfinished line, never scanned again
        self._event: str | None = None
        self._data: list[bytes] = []
        self._error: list[bytes] = []

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes of the body; return the frames that they complete."""
        frames: list[Frame] = []
        at = 0
        if not self.idle:
            # What is open is finished with care, up to the first blank line; the rest may be plain again.
            blank = data.find(b"\n\n")
            if blank < 0:
                self._careful(data, frames)
                return frames
            at = blank + 2
            self._careful(data[:at], frames)
        if self.idle and b"\r" not in data:
            # The usual event: a line "data: …", perhaps one "event: …" before it, and a blank line.
            start = line = at
            name = None
            while True:
                if data.startswith(b"event: ", at):
                    line = data.find(b"\n", at) + 1
                    if line == 0:
                        break
                    name = data[at + 7 : line - 1].decode("utf-8", "replace") or None
                if not data.startswith(b"data: ", line):
                    break
                end = data.find(b"\n", line)
                if not data.startswith(b"\n\n", end):
                    break
                frames.append((name, data[line + 6 : end]))
                at = line = end + 2
                name = None
            if at > start:
                self.known = self.at_frame_end = True
        if at < len(data):
            self._careful(data[at:], frames)
        return frames

    def eof(self) -> list[Frame]:
        """The body ended well: return what an unclosed last event holds."""
        frames: list[Frame] = []
        if self._bom:
            self._line += self._bom
        if self._line:
            line = bytes(self._line)
            self._line.clear()
            self._take(line, frames)
        if self._data or self._error:
            self._dispatch(frames)
        return frames

    # ---- the careful way: any line end, any field, cut anywhere

    def _careful(self, data: bytes, frames: list[Frame]) -> None:
        if self._bom is not None:
            data = self._bom + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._bom = data
                return
            self._bom = None
            data = data.removeprefix(_BOM)
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == _LF:
                data = data[1:]
        for line in data.splitlines(keepends=True):  # of bytes: at CR, LF and CRLF only
            last = line[-1]
            if last == _LF:
                line = line[:-2] if line[-2:-1] == b"\r" else line[:-1]
            elif last == _CR:
                line = line[:-1]
            else:
                self._line += line
                self.open_bytes += len(line)
                self.at_frame_end = False
                break
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            self._take(line, frames)
        self._after_cr = data.endswith(b"\r") or (self._after_cr and not data)
        self.idle = not (self._after_cr or self._line or self._event or self._data or self._error)

    def _take(self, line: bytes, frames: list[Frame]) -> None:
        """Work on one whole line, its end removed."""
        if not line:
            self._dispatch(frames)
            return
        self.at_frame_end = False
        if line[0] == _COLON:
            self.comments += 1
            self.known = True
            return
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._data.append(value)
            self.open_bytes += len(value) + _LINE_BYTES
        elif field == b"event":
            self._event = value.decode("utf-8", "replace") or None
        elif field == b"error":
            self._error.append(value)
            self.open_bytes += len(value) + _LINE_BYTES
        elif field not in (b"id", b"retry"):
            if self.stray is None:
                self.stray = line
            return
        self.known = True

    def _dispatch(self, frames: list[Frame]) -> None:
        self.at_frame_end = bool(self._error or self._data)
        self.open_bytes = 0
        if self._error:
            frames.append(("error", b"\n".join(self._error)))
            self._error.clear()
        if self._data:
            frames.append((self._event, b"\n".join(self._data)))
            self._data.clear()
        self._event = None
