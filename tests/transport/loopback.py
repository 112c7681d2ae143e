"""Servers written by a test: a function gets each accepted connection, in native threads that gevent does not know.

``Server(script)`` listens on a free loopback port while its ``with`` block lasts; ``script(peer)`` plays one of its
connections. A ``Peer`` reads requests and writes raw bytes. Helpers make the bytes of answers.
"""

from __future__ import annotations

import json
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from authority import TlsSocket
from gevent import monkey

native = {name: monkey.get_original("socket", name) for name in ("socket", "socketpair")}
sleep: Callable[[float], None] = monkey.get_original("time", "sleep")
start_thread = monkey.get_original("_thread", "start_new_thread")
socket_module: Any = __import__("socket")

ROLE = {"role": "assistant", "content": ""}


def wait_for(condition: Callable[[], object]) -> None:
    """Wait natively until something is so."""
    for _ in range(20_000):
        if condition():
            return
        sleep(0.001)
    raise AssertionError("waited in vain")


def event(text: str | None = None, **members: Any) -> bytes:
    """Return one chat event: a piece of text, or a delta of one's own (``delta=``, ``finish=``)."""
    delta = members.get("delta", {"content": text} if text is not None else {})
    choice = {"index": 0, "delta": delta, "finish_reason": members.get("finish")}
    return b"data: " + json.dumps({"id": "r", "model": "m", "choices": [choice]}).encode() + b"\n\n"


FINISH = event(finish="stop")
DONE = b"data: [DONE]\n\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Return data as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(*pieces: str) -> bytes:
    """Return a complete good answer as HTTP bytes, one chunk an event."""
    events = [event(piece) for piece in (pieces or ("Hello", " world"))]
    return STREAM_HEAD + b"".join(map(chunk, [*events, FINISH, DONE])) + LAST_CHUNK


def plain(status: int, body: bytes = b"", *headers: str) -> bytes:
    """Return an answer with a Content-Length."""
    lines = [f"HTTP/1.1 {status} Status", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: Any, number: int) -> None:
        self.sock = sock
        self.number = number
        """How many connections the server had before this one."""
        self._buffer = b""

    def request(self) -> bytes:
        """Return the next request, head and body; raises EOFError when the client has left."""
        while True:
            head, found, body = self._buffer.partition(b"\r\n\r\n")
            lengths = [
                line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            ]
            length = int(lengths[0]) if lengths else 0
            if found and len(body) >= length:
                self._buffer = body[length:]
                return head + found + body[:length]
            data = self.sock.recv(65536)
            if not data:
                raise EOFError
            self._buffer += data

    def requests(self) -> Iterator[bytes]:
        """Yield requests until the client leaves."""
        with suppress(EOFError):
            while True:
                yield self.request()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def wait_for_end(self) -> None:
        """Wait until the client has closed the connection."""
        with suppress(OSError):
            while self.sock.recv(65536):
                pass

    def reset(self) -> None:
        """Close with RST."""
        self.sock.setsockopt(socket_module.SOL_SOCKET, socket_module.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class Server:
    """Listens on loopback; each connection is played by ``script``, over TLS if a context is given.

    Attributes:
        port: of 127.0.0.1, or of ::1.
        accepted: connections so far. ``errors``: what scripts raised, other than lost connections.
    """

    def __init__(
        self, script: Callable[[Peer], object], tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        family = socket_module.AF_INET6 if ":" in host else socket_module.AF_INET
        self._script = script
        self._tls = tls
        self._peers: list[Peer] = []
        self._listener = native["socket"](family, socket_module.SOCK_STREAM)
        self._listener.bind((host, 0))
        self._listener.listen(1024)
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        self.errors: list[BaseException] = []

    def __enter__(self) -> Self:
        start_thread(self._accept, ())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket_module.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            with suppress(OSError):
                peer.sock.shutdown(socket_module.SHUT_RDWR)
        if kind is None:
            assert not self.errors, self.errors

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                fd, _ = self._listener._accept()  # accept() would make a socket of gevent's
                sock = native["socket"](fileno=fd)
                sock.setsockopt(socket_module.IPPROTO_TCP, socket_module.TCP_NODELAY, 1)
                peer = Peer(sock, self.accepted)
                self.accepted += 1
                self._peers.append(peer)
                start_thread(self._play, (peer,))

    def _play(self, peer: Peer) -> None:
        try:
            if self._tls is not None:
                peer.sock = TlsSocket(peer.sock, self._tls)
            self._script(peer)
        except (OSError, EOFError):  # the client left, or was refused
            pass
        except BaseException as e:
            self.errors.append(e)
        finally:
            with suppress(OSError):
                peer.sock.close()
