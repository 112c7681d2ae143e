"""HTTP/1.1 without I/O: request heads out, an answer's head and body in, over llhttp (geventhttpclient's C parser)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from geventhttpclient._parser import HTTPParseError, HTTPResponseParser

__all__ = ["Decompressor", "HTTPParseError", "ResponseParser", "decompressor", "request_head"]

MAX_HEAD_BYTES = 64 * 1024
# What one read (at most 64 kB) may decode to: an answer made to fill memory, or other streams' time, ends there.
MAX_INFLATED_BYTES = 4 * 1024 * 1024
_INTERIM_HEAD_BYTES = 16


def request_head(method: str, target: str, host: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return a request's head up to, but without, Content-Length and the blank line.

    Headers of the caller replace the defaults of the same name. ``Accept-Encoding: identity`` because a compressor
    that is not flushed after each event holds tokens back.
    """
    fields = {
        "host": ("Host", host),
        "user-agent": ("User-Agent", "locust-llm"),
        "accept": ("Accept", "*/*"),
        "accept-encoding": ("Accept-Encoding", "identity"),
        "content-type": ("Content-Type", "application/json"),
    }
    for name, value in headers:
        fields[name.lower()] = (name, value)
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.values()), ""]
    return "\r\n".join(lines).encode("latin-1")


class ResponseParser(HTTPResponseParser):
    """One answer's HTTP. Interim 1xx heads are passed over.

    Attributes:
        pieces: of the body, as they come; who takes them clears the list.
        status: final status once ``head_complete``; 0 before.
        headers: final head, names lower-case, repeated ones joined by a comma; no trailers.
        complete: the message ended as its framing says.
        dirty: bytes came after the end of the message; the connection must not be used again.
    """

    # Of a class in C that has no dict: with one, each look at a member would be a slow one.
    __slots__ = (
        "_head_bytes", "_name", "_on_body", "_on_head", "_value",
        "complete", "dirty", "head_complete", "headers", "pieces", "status",
    )  # fmt: skip

    def __init__(self, on_head: Callable[[], None]) -> None:
        super().__init__()
        self.pieces: list[bytearray] = []
        # Called for each token: the list's own method, no frame of Python.
        self._on_body: Callable[[bytearray], object] = self.pieces.append
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_complete = False
        self.complete = False
        self.dirty = False
        self._on_head: Callable[[], None] | None = on_head
        self._name: list[str] = []
        self._value: list[str] = []
        self._head_bytes = 0

    def release(self) -> None:
        """Let go of the callback: a finished exchange must leave no cycle to the garbage collector."""
        self._on_head = None

    # llhttp calls these; names are its.

    def _on_message_begin(self) -> None:
        self._bound_head(_INTERIM_HEAD_BYTES)
        if self.complete:
            self.dirty = True
        else:
            self.headers = {}

    def _on_status(self, message: str) -> None:
        self._bound_head(len(message))

    def _on_header_field(self, text: str) -> None:
        self._bound_head(len(text))
        if self.head_complete:  # a trailer, or what follows the message
            return
        if self._value:
            self._store()
        self._name.append(text)

    def _on_header_value(self, text: str) -> None:
        self._bound_head(len(text))
        if not self.head_complete:
            self._value.append(text)

    def _on_headers_complete(self) -> bool:
        self._store()
        code = self.get_code()
        if code >= 200 and not self.head_complete:
            self.status = code
            self.head_complete = True
            if self._on_head is not None:
                self._on_head()
        return False

    def _on_message_complete(self) -> None:
        if self.head_complete:
            self.complete = True
            self._on_body = _ignore  # what follows is of no message of ours

    def _bound_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HTTPParseError(f"a head of more than {MAX_HEAD_BYTES} bytes")

    def _store(self) -> None:
        if self._name:
            name, value = "".join(self._name).lower(), "".join(self._value).strip()
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        self._name.clear()
        self._value.clear()


def _ignore(data: bytearray) -> None:
    pass


class Decompressor(Protocol):
    """Undo a content encoding piece by piece."""

    def __call__(self, data: bytes) -> bytes:
        """Return what these bytes decode to; raise ValueError if they cannot be read or expand beyond measure."""


def decompressor(encoding: str) -> Decompressor | None:
    """Return the inverse of a Content-Encoding, None for identity.

    Raises:
        ValueError: an encoding that is not known here.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Inflate()
    if encoding == "br":
        return _brotli()
    raise ValueError(f"Content-Encoding {encoding[:40]!r} is not known here")


class _Inflate:
    """zlib, gzip of any number of members, and the bare deflate that some servers send by that name."""

    def __init__(self) -> None:
        self._z: Any = None

    def __call__(self, data: bytes) -> bytes:
        out = b""
        while data:
            if self._z is None or self._z.eof:
                bare = data[0] & 0x0F != 8 and data[0] != 0x1F
                self._z = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
            try:
                out += self._z.decompress(data, MAX_INFLATED_BYTES - len(out) + 1)
            except zlib.error as e:
                raise ValueError(f"Content-Encoding: {e}") from None
            if len(out) > MAX_INFLATED_BYTES:
                raise _too_much()
            data = self._z.unused_data
        return out


def _brotli() -> Decompressor:
    import brotli

    stream = brotli.Decompressor()

    def decode(data: bytes) -> bytes:
        try:
            out: bytes = stream.process(data, output_buffer_limit=MAX_INFLATED_BYTES)
        except brotli.error as e:
            raise ValueError(f"Content-Encoding: {e}") from None
        if not stream.can_accept_more_data():
            raise _too_much()
        return out

    return decode


def _too_much() -> ValueError:
    return ValueError(f"Content-Encoding: a read expands to more than {MAX_INFLATED_BYTES >> 20} MiB")
