"""HTTP/1.1 without I/O: request heads out, an answer's head and body in, over llhttp (geventhttpclient's C parser)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from geventhttpclient._parser import HTTPParseError, HTTPResponseParser

__all__ = ["Decompressor", "HTTPParseError", "ResponseParser", "decompressor", "request_head"]

MAX_HEAD_BYTES = 256 * 1024


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
    """One answer's HTTP. Interim 1xx heads are passed over; body pieces go to ``on_body`` as they come.

    Attributes:
        status: final status once ``head_complete``; 0 before.
        headers: final head, names lower-case, repeated ones joined by a comma.
        complete: the message ended as its framing says.
        dirty: bytes came after the end of the message; the connection must not be used again.
    """

    def __init__(self, on_head: Callable[[], None], on_body: Callable[[bytes], None]) -> None:
        super().__init__()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_complete = False
        self.complete = False
        self.dirty = False
        self._on_head = on_head
        self._sink = on_body
        self._name: list[str] = []
        self._value: list[str] = []
        self._head_bytes = 0

    # llhttp calls these; names are its.

    def _on_message_begin(self) -> None:
        if self.complete:
            self.dirty = True
        self.headers = {}

    def _on_status(self, message: str) -> None:
        pass

    def _on_header_field(self, text: str) -> None:
        if self._value:
            self._store()
        self._name.append(text)
        self._bound_head(text)

    def _on_header_value(self, text: str) -> None:
        self._value.append(text)
        self._bound_head(text)

    def _on_headers_complete(self) -> bool:
        self._store()
        code = self.get_code()
        if code >= 200 and not self.complete:
            self.status = code
            self.head_complete = True
            self._on_head()
        return False

    def _on_body(self, data: Any) -> None:
        if not self.complete:
            self._sink(bytes(data))

    def _on_message_complete(self) -> None:
        if self.head_complete:
            self.complete = True

    def _bound_head(self, text: str) -> None:
        self._head_bytes += len(text)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HTTPParseError(f"head larger than {MAX_HEAD_BYTES} bytes")

    def _store(self) -> None:
        if self._name:
            name, value = "".join(self._name).lower(), "".join(self._value).strip()
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        self._name.clear()
        self._value.clear()


class Decompressor(Protocol):
    """Undo a content encoding piece by piece."""

    def __call__(self, data: bytes) -> bytes:
        """Return what these bytes decode to; raise ValueError or zlib.error if they cannot be read."""


def decompressor(encoding: str) -> Decompressor | None:
    """Return the inverse of a Content-Encoding, None for identity.

    Raises:
        ValueError: an encoding that is not known here.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress
    if encoding == "br":
        import brotli

        def decode(data: bytes, process: Callable[[bytes], bytes] = brotli.Decompressor().process) -> bytes:
            try:
                return process(data)
            except brotli.error as e:
                raise ValueError(str(e)) from None

        return decode
    raise ValueError(f"unknown Content-Encoding {encoding!r}")
