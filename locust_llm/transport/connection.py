"""A kept-alive connection and the pool of idle ones.

Each connection has one read watcher for its whole life. While an exchange runs, its stream is the reader; while the
connection is idle, any readable byte or end of file means that the server is done with it, and it leaves the pool at
once. (llama.cpp closes after each stream although it promises to keep the connection.)
"""

from __future__ import annotations

import functools
import socket as stdlib_socket
from collections.abc import Callable
from typing import Any

import gevent

from .dial import STAMP_BYTES, Dialed, RawSocket

RECEIVE_BYTES = 65536
_ANCILLARY = stdlib_socket.CMSG_SPACE(STAMP_BYTES) if hasattr(stdlib_socket, "CMSG_SPACE") else 0
_HAS_RECVMSG = hasattr(RawSocket, "recvmsg")


class Connection:
    """A connected stream.

    Attributes:
        receive: reads what has arrived: (bytes, ancillary data with the kernel's stamp, …). Raises BlockingIOError,
            OSError. Made of C alone, for it is called for each token.
    """

    __slots__ = ("_watcher", "closed", "receive", "sock", "tls")

    def __init__(self, dialed: Dialed) -> None:
        self.sock = dialed.sock
        self.tls = dialed.tls
        self.closed = False
        self.receive: Callable[[], tuple[bytes, Any, int, Any]] = (
            functools.partial(self.sock.recvmsg, RECEIVE_BYTES, _ANCILLARY)
            if _HAS_RECVMSG
            else lambda: (self.sock.recv(RECEIVE_BYTES), (), 0, None)
        )
        self._watcher: Any = gevent.get_hub().loop.io(self.sock.fileno(), 1)
        self._watcher.start(_nobody)

    def read_by(self, reader: Callable[[], object]) -> None:
        """From now on the loop calls ``reader`` whenever bytes or the end of file wait to be read."""
        if not self.closed:
            self._watcher.callback = reader

    def forget_reader(self) -> None:
        """Nobody reads until there is a new reader: only between two that follow at once, for the loop would spin."""
        self.read_by(_nobody)

    def close(self) -> None:
        """Close the socket; more than once does no harm."""
        if not self.closed:
            self.forget_reader()
            self.closed = True
            self._watcher.stop()
            self._watcher.close()
            self.sock.close()


class Pool:
    """Idle connections to one server, last used first."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []
        self._closed = False

    def __len__(self) -> int:
        return len(self._idle)

    def take(self) -> Connection | None:
        """Return an idle connection that the server has not closed, or None."""
        while self._idle:
            connection = self._idle.pop()
            if _is_quiet(connection):
                return connection
            connection.close()
        return None

    def give(self, connection: Connection) -> None:
        """Take back a connection whose exchange ended as its framing said."""
        if self._closed:
            connection.close()
            return

        def on_readable() -> None:
            if not _is_quiet(connection):
                self._idle.remove(connection)
                connection.close()

        connection.read_by(on_readable)
        self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections, and those that are given back from now on."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


def _nobody() -> None:
    """Reader of a connection that is closed, or about to get its stream."""


def _is_quiet(connection: Connection) -> bool:
    """Whether an idle connection has neither ended nor received bytes of an answer nobody asked for."""
    try:
        data, _, _, _ = connection.receive()
    except BlockingIOError:
        return True
    except OSError:
        return False
    if not data or connection.tls is None:
        return False
    # TLS 1.3 sends session tickets whenever it likes; they are not an answer.
    return not connection.tls.receive(data) and not connection.tls.closed
