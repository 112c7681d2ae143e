"""Exchanges with one server over pooled connections: take or dial, run the stream, keep or close.

A request goes out twice in one case only: a pooled connection died before any byte of the answer.
"""

from __future__ import annotations

import time
from typing import Any

import gevent

from ..options import MAX_BODY_BYTES
from ..outcome import TransportEnd
from ..settings import Timeouts
from ..wire.api import Decoder
from .connection import Connection, Pool
from .deadlines import connect_deadline
from .dial import DialError, Route, dial
from .loop import poll_clock, turns
from .stream import Stream
from .transfer import UNFINISHED, Transfer


class Transport:
    """The way to one server; all users of a process that talk to it share one."""

    def __init__(self, route: Route, timeouts: Timeouts, max_bytes: int = MAX_BODY_BYTES) -> None:
        self.route = route
        self._timeouts = timeouts
        self._max_bytes = max_bytes
        self._pool = Pool()
        loop: Any = gevent.get_hub().loop
        self._polls, self._turns = poll_clock(loop), turns(loop)

    def exchange(self, request: bytes, decoder: Decoder, transfer: Transfer) -> None:
        """Send ``request`` (head and body) and read its answer into ``decoder``; ``transfer`` tells what happened.

        Failures do not raise. If the calling greenlet is killed, ``transfer`` is complete (``unfinished``, unless the
        answer was over already) and the kill goes on. A ``transfer`` that has started already goes on from there.
        """
        transfer.start_ns = transfer.start_ns or time.monotonic_ns()
        transfer.bytes_out += len(request)
        try:
            if self._once(request, decoder, transfer, self._pool.take()):
                # The pooled connection died before any byte of an answer: nothing was served.
                transfer.resent = 1
                transfer.end, transfer.end_ns = UNFINISHED, 0
                transfer.connected_ns = transfer.sent_ns = None
                self._once(request, decoder, transfer, None)
        except DialError:
            pass  # transfer.end says it
        finally:
            if not transfer.end_ns:
                transfer.end_ns = decoder.answer.done_ns or time.monotonic_ns()

    def open(self) -> None:
        """Connect, and keep the connection for an exchange to come, which will find it reused.

        Raises:
            DialError: no connection.
        """
        self._pool.give(Connection(dial(self.route, self._timeouts.connect)))

    def close(self) -> None:
        """Close the idle connections; those in use are closed when their exchanges end."""
        self._pool.close()

    def _once(self, request: bytes, decoder: Decoder, transfer: Transfer, connection: Connection | None) -> bool:
        """Send over a pooled connection, or a fresh one; return whether the request has to be sent once more."""
        transfer.reused = connection is not None
        if connection is None:
            connection = self._connect(transfer)
        else:
            transfer.connected_ns = transfer.start_ns
        stream = Stream(connection, decoder, transfer, self._timeouts, self._max_bytes, self._polls, self._turns)
        try:
            stream.run(request)
        finally:
            if stream.reusable:
                self._pool.give(connection)
            else:
                connection.close()
        return stream.stale

    def _connect(self, transfer: Transfer) -> Connection:
        limit_s, name = connect_deadline(self._timeouts, (time.monotonic_ns() - transfer.start_ns) / 1e9)
        self._polls.gathering.urgent += 1
        try:
            dialed = dial(self.route, limit_s)
        except DialError as e:
            expired = not e.kind
            transfer.end = TransportEnd("timeout" if expired else "connection", name if expired else e.kind, e.message)
            raise
        finally:
            self._polls.gathering.urgent -= 1
        transfer.connected_ns = time.monotonic_ns()
        transfer.dns_ns, transfer.tcp_ns, transfer.tls_ns = dialed.dns_ns, dialed.tcp_ns, dialed.tls_ns
        return Connection(dialed)
