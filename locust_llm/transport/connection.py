"""A kept-alive connection and the pool of idle ones.

Each connection has one read watcher for its whole life. While an exchange runs, its stream is the reader; while the connection is idle,
any readable byte or end of file means that the server is done with it, and it leaves the pool at once. (llama.cpp
closes after each stream although it promises to keep the connection.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent

from .dial import STAMP_BYTES, Dialed, RawSocket, stdlib_socket

RECEIVE_BYTES = 65536
# A poll that took longer than the call itself (some microseconds) found nothing ready at first and was woken.
WAITED_NS = 50_000
_ANCILLARY = stdlib_socket.CMSG_SPACE(STAMP_BYTES) if hasattr(stdlib_socket, "CMSG_SPACE") else 0
_HAS_RECVMSG = hasattr(RawSocket, "recvmsg")


class PollClock:
    """Since when the event loop has known what is ready.

    At a read, ``not_before_ns`` is the last moment at which this socket was known not to be ready: bytes read now cannot have come
    before it (metrics.md 5, stamp uncertainty). That is the end of the poll before, or, if the loop was waiting inside this poll, the
    poll's own end, for the first byte would have woken it. Two tiny callbacks a turn of the loop.
    """

    __slots__ = ("_check", "_polled_ns", "_prepare", "_waiting_since_ns", "not_before_ns")

    def __init__(self, loop: Any) -> None:
        self.not_before_ns = self._polled_ns = self._waiting_since_ns = time.monotonic_ns()
        self._prepare = loop.prepare(ref=False)
        self._prepare.start(self._before_poll)
        self._check = loop.check(ref=False)
        self._check.start(self._after_poll)

    def _before_poll(self) -> None:
        self._waiting_since_ns = time.monotonic_ns()

    def _after_poll(self) -> None:
        now = time.monotonic_ns()
        waited = now - self._waiting_since_ns > WAITED_NS
        self.not_before_ns = now if waited else self._polled_ns
        self._polled_ns = now


class Connection:
    """A connected stream. ``on_readable`` is called in the loop whenever bytes or the end of file wait to be read."""

    __slots__ = ("_watcher", "closed", "dialed", "on_readable", "sock", "tls")

    def __init__(self, dialed: Dialed) -> None:
        self.dialed = dialed
        self.sock = dialed.sock
        self.tls = dialed.tls
        self.closed = False
        self.on_readable: Callable[[], None] = self.close
        self._watcher = gevent.get_hub().loop.io(self.sock.fileno(), 1)
        self._watcher.start(self._readable)

    def _readable(self) -> None:
        self.on_readable()

    def receive(self) -> tuple[bytes, Any]:
        """Read what has arrived: (bytes, ancillary data with the kernel's stamp). Raises BlockingIOError, OSError."""
        if not _HAS_RECVMSG:
            return self.sock.recv(RECEIVE_BYTES), ()
        data, ancillary, _, _ = self.sock.recvmsg(RECEIVE_BYTES, _ANCILLARY)
        return data, ancillary

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._watcher.stop()
            self._watcher.close()
            self.sock.close()


class Pool:
    """Idle connections to one server, last used first."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []

    def take(self) -> Connection | None:
        """Return an idle connection that the server has not closed, or None."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and _is_quiet(connection):
                return connection
            connection.close()
        return None

    def give(self, connection: Connection) -> None:
        """Take back a connection whose exchange ended as its framing said."""

        def on_readable() -> None:
            if not _is_quiet(connection):
                connection.close()
                if connection in self._idle:
                    self._idle.remove(connection)

        connection.on_readable = on_readable
        self._idle.append(connection)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _is_quiet(connection: Connection) -> bool:
    """Whether an idle connection has neither ended nor received bytes of an answer nobody asked for."""
    try:
        data, _ = connection.receive()
    except BlockingIOError:
        return True
    except OSError:
        return False
    if not data or connection.tls is None:
        return False
    try:
        # TLS 1.3 sends session tickets whenever it likes; they are not an answer.
        return not connection.tls.receive(data) and not connection.tls.closed
    except OSError:
        return False
