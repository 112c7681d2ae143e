"""The server side of HTTP/1.1 as bytes, without I/O: requests out of a buffer, heads and chunks into bytes.

``RequestReader`` keeps what it was fed until it is asked for the next request, so a pipelined one waits here while
the answer before it is still being streamed. Each byte is looked at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

MAX_HEAD = 64 * 1024
MAX_BODY = 256 * 1024 * 1024

SERVER = "locust-llm-simulator"
LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpError(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status.
        message: what is wrong, for the ``error`` object.
        type: error type of the ``error`` object.
        param: the body field at fault, if one is.
        headers: further response headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        type: str = "BadRequestError",
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class Request:
    """One complete request. Header names are lower case; ``path`` is without its query."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    chunked_ok: bool
    """False for an HTTP/1.0 client, which can only read a stream that ends with the connection."""


class RequestReader:
    """Feed bytes, take requests. After an ``HttpError`` the connection cannot be read on."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._head: tuple[str, str, dict[str, str], bool, bool] | None = None
        self._body_length: int | None = None
        self._body = bytearray()
        self.continue_due = False
        """The client waits for ``100 Continue``; whoever sends it sets this back."""

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    def next(self) -> Request | None:
        """Return the next complete request, or None if more bytes are needed.

        Raises:
            HttpError: the bytes are no HTTP request this server reads.
        """
        if self._head is None and not self._take_head():
            return None
        assert self._head is not None
        done = self._take_chunks() if self._body_length is None else self._take_body(self._body_length)
        if not done:
            return None
        method, target, headers, keep_alive, chunked_ok = self._head
        request = Request(method, target.partition("?")[0], headers, bytes(self._body), keep_alive, chunked_ok)
        self._head, self._body, self._scanned, self.continue_due = None, bytearray(), 0, False
        return request

    def _take_head(self) -> bool:
        while self._buffer.startswith(b"\r\n"):  # a stray line end between two requests is legal
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n", max(0, self._scanned - 3))
        self._scanned = len(self._buffer)
        if (end if end >= 0 else self._scanned) > MAX_HEAD:
            raise HttpError(431, f"request head above {MAX_HEAD} bytes")
        if end < 0:
            return False
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        self._scanned = 0
        method, _, rest = lines[0].partition(" ")
        target, _, version = rest.rpartition(" ")
        if not (method and target) or version not in ("HTTP/1.1", "HTTP/1.0"):
            raise HttpError(400, "not an HTTP/1.1 request line")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise HttpError(400, "malformed header line")
            headers[name.lower()] = value.strip()
        connection = headers.get("connection", "").lower()
        modern = version == "HTTP/1.1"
        self._head = (
            method,
            target,
            headers,
            "close" not in connection if modern else "keep-alive" in connection,
            modern,
        )
        self._body_length = _body_length(headers)
        self.continue_due = headers.get("expect", "").lower() == "100-continue"
        return True

    def _take_body(self, length: int) -> bool:
        if len(self._buffer) < length:
            return False
        self._body = self._buffer[:length]
        del self._buffer[:length]
        return True

    def _take_chunks(self) -> bool:
        while True:
            end = self._buffer.find(b"\r\n", max(0, self._scanned - 1))
            if end < 0:
                self._scanned = len(self._buffer)
                if self._scanned > MAX_HEAD:
                    raise HttpError(400, "malformed chunk size")
                return False
            try:
                size = int(bytes(self._buffer[:end]).partition(b";")[0], 16)
            except ValueError:
                raise HttpError(400, "malformed chunk size") from None
            if size < 0 or len(self._body) + size > MAX_BODY:
                raise HttpError(413, f"request body above {MAX_BODY} bytes")
            if size == 0:
                return self._take_trailers(end)
            if len(self._buffer) < end + 2 + size + 2:
                self._scanned = end
                return False
            self._body += self._buffer[end + 2 : end + 2 + size]
            del self._buffer[: end + 2 + size + 2]
            self._scanned = 0

    def _take_trailers(self, size_end: int) -> bool:
        """Drop what follows the last chunk, up to the empty line."""
        end = self._buffer.find(b"\r\n\r\n", size_end)
        if end < 0:
            self._scanned = size_end
            return False
        del self._buffer[: end + 4]
        return True


def _body_length(headers: Mapping[str, str]) -> int | None:
    """Return the length of the body, None if it is chunked."""
    coding = headers.get("transfer-encoding", "").lower()
    if coding:
        if coding != "chunked":
            raise HttpError(501, f'transfer encoding "{coding}" is not supported')
        return None
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise HttpError(400, "malformed content-length")
    if len(text) > 18 or int(text) > MAX_BODY:
        raise HttpError(413, f"request body above {MAX_BODY} bytes")
    return int(text)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Return a response head."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"server: {SERVER}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Return ``data`` as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)
