"""A slow, plain HTTP/1.1 response reader for tests: so that decoders can be judged without the transport."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class ResponseReader:
    """Bytes of a connection in, body bytes out; 1xx answers are skipped.

    Attributes:
        status, headers: of the final answer, once its head is complete.
        complete: the body ended as its framing says.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    _buffer: bytes = b""
    _left: int | None = None  # bytes of the chunk or body that are still to come
    _chunked: bool = False
    _trailers: bool = False

    def feed(self, data: bytes) -> bytes:
        """Return the body bytes that ``data`` brings."""
        self._buffer += data
        out = b""
        while not self.complete:
            if not self.status:
                if not self._head():
                    return out
                continue
            if self._trailers:
                line, found, rest = self._buffer.partition(b"\r\n")
                if not found:
                    return out
                self._buffer = rest
                self.complete = not line
            elif self._chunked and self._left is None:
                line, found, rest = self._buffer.lstrip(b"\r\n").partition(b"\r\n")
                if not found:
                    return out
                self._buffer = rest
                self._left = int(line.split(b";")[0], 16)
                if self._left == 0:
                    self._trailers = True
            else:
                take = len(self._buffer) if self._left is None else self._left
                piece, self._buffer = self._buffer[:take], self._buffer[take:]
                out += piece
                if self._left is not None:
                    self._left -= len(piece)
                    if self._left == 0:
                        self.complete = not self._chunked
                        self._left = None if self._chunked else 0
                if not self._buffer:
                    return out
        return out

    def close(self) -> None:
        """The connection was closed by the server."""
        if self.status and not self._chunked and self._left is None:
            self.complete = True

    def _head(self) -> bool:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return False
        self._buffer = rest
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(first.split()[1])
        if 100 <= status < 200:
            return True
        self.status = status
        self.headers = {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "")
        if not self._chunked and "content-length" in self.headers:
            self._left = int(self.headers["content-length"])
            self.complete = self._left == 0
        return True


def decompressor(encoding: str) -> Callable[[bytes], bytes]:
    """Return an incremental decompressor for a ``Content-Encoding``.

    Raises:
        ValueError: this helper knows no such encoding.
    """
    if encoding in ("", "identity"):
        return bytes
    if encoding in ("gzip", "deflate"):
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress
    if encoding == "br":
        import brotli

        return brotli.Decompressor().process
    raise ValueError(encoding)
