"""AWS's binary framing, ``application/vnd.amazon.eventstream``: a frame is complete at its last byte.

A frame is: total length, length of the headers (both 4 bytes, big-endian), CRC-32 of these 8; headers; payload; CRC-32
of all before it. The first checksum is looked at as soon as it is there: no length is believed that is none.
"""

from __future__ import annotations

import zlib
from struct import Struct, error

from .sse import Frame

_PRELUDE = Struct(">III")
_LENGTHS = Struct(">II")
_CRC = Struct(">I")
_SHORT = Struct(">H")
_LEAST_BYTES = 16
# Bytes of a header's value by its type; 6 (bytes) and 7 (string) say their length themselves.
_VALUE_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_STRING, _BYTES = 7, 6


class EventStreamFraming:
    """Bytes in, frames out, whatever the split; see ``body.Framing``.

    The name of a frame is ``event:NAME``, ``exception:NAME`` or ``error:CODE``, as its headers say, and its data the
    payload (of an ``error`` without one: its message). Two more are made here: ``fault:`` (its data says what cannot
    be read; nothing comes after it) and, where a body ends inside a frame, ``cut:``.

    Attributes:
        open_bytes: bytes held of the frame that is not complete yet.
    """

    __slots__ = ("_broken", "_buffer", "_need", "at_frame_end", "comments", "known", "open_bytes", "stray")

    def __init__(self) -> None:
        self.comments = 0
        self.known = True
        self.stray: bytes | None = None
        self.at_frame_end = False
        self.open_bytes = 0
        self._buffer = bytearray()
        self._need = 0  # length of the frame at hand; 0: not known yet
        self._broken = False

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes of the body; return the frames that they complete."""
        frames: list[Frame] = []
        if self._broken:
            return frames
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= (self._need or _PRELUDE.size):
            if not self._need:
                fault = self._prelude(at)
                if fault:
                    return self._break(frames, fault)
                continue
            end = at + self._need
            frame = _read(memoryview(buffer)[at:end].tobytes())
            if isinstance(frame, str):
                return self._break(frames, frame)
            frames.append(frame)
            at, self._need = end, 0
        del buffer[:at]
        self.open_bytes = len(buffer)
        if data:
            self.at_frame_end = bool(frames) and not buffer
        return frames

    def eof(self) -> list[Frame]:
        """The body ended well: say so if it ended inside a frame."""
        cut = bool(self._buffer)
        self._buffer.clear()
        return [("cut:", b"")] if cut else []

    def _prelude(self, at: int) -> str | None:
        """Read the lengths of the next frame; return what is wrong with them."""
        total, headers, checksum = _PRELUDE.unpack_from(self._buffer, at)
        if zlib.crc32(self._buffer[at : at + _LENGTHS.size]) != checksum:
            return "a frame whose prelude has a wrong checksum"
        if total < _LEAST_BYTES + headers:
            return "a frame that is shorter than its headers"
        self._need = total
        return None

    def _break(self, frames: list[Frame], fault: str) -> list[Frame]:
        self._broken = True
        self._buffer.clear()
        self.open_bytes = 0
        return [*frames, ("fault:", fault.encode())]


def _read(frame: bytes) -> Frame | str:
    """Return a complete frame's name and payload, or what is wrong with it."""
    (checksum,) = _CRC.unpack_from(frame, len(frame) - _CRC.size)
    if zlib.crc32(memoryview(frame)[: -_CRC.size]) != checksum:
        return "a frame with a wrong checksum"
    _, size = _LENGTHS.unpack_from(frame)
    start = _PRELUDE.size + size
    headers = _headers(frame[_PRELUDE.size : start])
    if headers is None:
        return "a frame whose headers cannot be read"
    payload = frame[start : -_CRC.size]
    kind = headers.get(":message-type", "event")
    if kind == "exception":
        return f"exception:{headers.get(':exception-type', 'exception')}", payload
    if kind == "error":
        return f"error:{headers.get(':error-code', 'error')}", payload or headers.get(":error-message", "").encode()
    return f"event:{headers.get(':event-type', '')}", payload


def _headers(data: bytes) -> dict[str, str] | None:
    """Return the headers that are strings; None if the bytes are no headers."""
    found = {}
    at = 0
    try:
        while at < len(data):
            name = data[at + 1 : at + 1 + data[at]]
            at += 1 + data[at]
            kind = data[at]
            at += 1
            if kind in (_BYTES, _STRING):
                (size,) = _SHORT.unpack_from(data, at)
                at += _SHORT.size
            else:
                size = _VALUE_BYTES[kind]
            if kind == _STRING:
                found[name.decode("utf-8", "replace")] = data[at : at + size].decode("utf-8", "replace")
            at += size
    except (IndexError, KeyError, error):
        return None
    return found if at == len(data) else None
