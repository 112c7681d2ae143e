"""One exchange on the wire: send a request, stamp and decode the answer as it comes, say how it ended.

The hot path is ``_Stream._readable``. It runs inside the event loop, one call a read, for all streams before any
finished one is worked on, so that work at the end of one stream does not delay the stamps of others. It never
blocks, never raises, and does nothing a token does not need.
"""

from __future__ import annotations

import struct
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

import gevent
from gevent.hub import Waiter
from gevent.socket import wait_write

from ..clock import event_time
from ..options import Timeouts
from ..outcome import TransportEnd
from ..wire.api import Decoder
from .connection import RECEIVE_BYTES, Connection, PollClock, Pool
from .dial import STAMP_BYTES, DialError, Route, dial
from .http1 import Decompressor, HTTPParseError, ResponseParser, decompressor
from .turns import Turns

LATE_JOINED_NS = 1_000_000
ERROR_BODY_BYTES = 65536
MAX_BODY_BYTES = 256 * 1024 * 1024
# A server that said its end mark but leaves the body open is done; more than this is not waited for.
DONE_GRACE_S = 1.0

_unpack_timespec = struct.Struct("@ll").unpack


@dataclass(slots=True)
class Transfer:
    """What one exchange did on the wire. Instants are monotonic ns, None where they were not reached."""

    start_ns: int = 0
    connected_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    end_ns: int = 0
    dns_ns: int | None = None
    tcp_ns: int | None = None
    tls_ns: int | None = None
    reused: bool = False
    resent: int = 0
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    error_body: bytes = b""
    bytes_in: int = 0
    """Body bytes as they came, before any content encoding is undone."""
    bytes_out: int = 0
    end: TransportEnd = TransportEnd("unfinished")
    kernel_stamped: bool = False
    """Every event so far has a kernel stamp."""
    lag_ns_max: int = 0
    uncertain_ns_max: int = 0
    late_joined: int = 0


class Transport:
    """Exchanges with one server over pooled connections."""

    def __init__(self, route: Route, timeouts: Timeouts) -> None:
        self.route = route
        self._timeouts = timeouts
        self._pool = Pool()
        self._active: set[_Stream] = set()
        self._polls = PollClock(gevent.get_hub().loop)
        self._turns = Turns(gevent.get_hub().loop)

    def exchange(self, request: bytes, decoder: Decoder, transfer: Transfer) -> None:
        """Send ``request`` (head and body) and read its answer into ``decoder``; ``transfer`` tells what happened.

        Failures do not raise. If the calling greenlet is killed, ``transfer`` is complete (``unfinished``) and the kill goes on.
        """
        transfer.start_ns = time.monotonic_ns()
        transfer.bytes_out = len(request)
        connection = self._pool.take()
        while True:
            transfer.reused = connection is not None
            try:
                if connection is None:
                    connection = self._connect(transfer)
                else:
                    transfer.connected_ns = transfer.start_ns
                stream = _Stream(connection, decoder, transfer, self._timeouts, self._polls, self._turns)
                self._active.add(stream)
                try:
                    stream.run(request)
                finally:
                    self._active.discard(stream)
            except DialError as e:
                transfer.end = TransportEnd("timeout" if e.kind == "connect" else "connection", e.kind, e.message)
                transfer.end_ns = time.monotonic_ns()
                return
            except BaseException:
                if not transfer.end_ns:  # else the answer was over, only its reader had not been told yet
                    transfer.end = TransportEnd("unfinished")
                    transfer.end_ns = time.monotonic_ns()
                if connection is not None:
                    connection.close()
                raise
            if stream.reusable:
                self._pool.give(connection)
                return
            connection.close()
            if not stream.stale:
                return
            # The pooled connection was dead before any byte of an answer: the request has not been served; once more, on a fresh one.
            transfer.resent += 1
            transfer.end_ns = 0
            connection = None

    def cut(self) -> None:
        """End every exchange in flight as ``unfinished``."""
        for stream in list(self._active):
            stream.cut()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def _connect(self, transfer: Transfer) -> Connection:
        dialed = dial(self.route, self._timeouts.connect)
        transfer.connected_ns = time.monotonic_ns()
        transfer.dns_ns, transfer.tcp_ns, transfer.tls_ns = dialed.dns_ns, dialed.tcp_ns, dialed.tls_ns
        return Connection(dialed)


class _Stream:
    """The reading side of one exchange."""

    __slots__ = (
        "_answer",
        "_at_ns",
        "_connection",
        "_deadlines",
        "_decoder",
        "_decompress",
        "_error_body",
        "_fed",
        "_grace",
        "_last_read_ns",
        "_loop",
        "_over",
        "_parser",
        "_polls",
        "_received",
        "_timer",
        "_transfer",
        "_turns",
        "_waiter",
        "reusable",
        "stale",
    )

    def __init__(
        self,
        connection: Connection,
        decoder: Decoder,
        transfer: Transfer,
        deadlines: Timeouts,
        polls: PollClock,
        turns: Turns,
    ) -> None:
        self._connection = connection
        self._decoder = decoder
        self._answer = decoder.answer
        self._transfer = transfer
        self._deadlines = deadlines
        self._polls = polls
        self._turns = turns
        self._parser = ResponseParser(self._on_head, self._on_body)
        self._decompress: Decompressor | None = None
        self._error_body: bytearray | None = None
        self._loop = gevent.get_hub().loop
        self._waiter: Any = Waiter()
        self._timer: Any = None
        self._at_ns = 0
        self._last_read_ns = 0
        self._received = 0
        self._fed = 0
        self._grace = False
        self._over = False
        self.reusable = False
        self.stale = False
        transfer.kernel_stamped = True

    def run(self, request: bytes) -> None:
        """Send, then wait until the answer is over."""
        self._connection.on_readable = self._readable
        try:
            self._send(request)
            if not self._over and self._timer is None:
                self._arm(max(0.0, self._next_deadline_s()))
            self._waiter.get()
        finally:
            self._over = True
            self._connection.on_readable = self._connection.close
            if self._timer is not None:
                self._timer.stop()
                self._timer.close()

    def cut(self) -> None:
        """Stop reading: the run is over."""
        self._at_ns = time.monotonic_ns()
        self._finish(TransportEnd("unfinished"))

    def _send(self, request: bytes) -> None:
        tls, sock = self._connection.tls, self._connection.sock
        transfer = self._transfer
        try:
            rest = memoryview(tls.send(request) if tls else request)
            while not self._over:
                # An answer cannot have come before this; t_sent itself may be read a little after the first byte came back.
                self._last_read_ns = time.monotonic_ns()
                try:
                    rest = rest[sock.send(rest) :]
                except BlockingIOError:
                    self._wait_writable(sock)
                if not rest:
                    break
        except OSError as e:
            self._connection_failed(e)
        transfer.sent_ns = time.monotonic_ns()

    def _wait_writable(self, sock: Any) -> None:
        limit = self._deadlines.total or self._deadlines.first_token or None
        try:
            wait_write(sock.fileno(), limit, TimeoutError())
        except TimeoutError:
            self._finish(TransportEnd("timeout", "total", "the server did not take the request"))

    # ---- in the event loop

    def _readable(self) -> None:
        try:
            self._read()
        except Exception as e:  # the loop must go on for the other streams, whatever this one holds
            self._finish(TransportEnd("connection", "framing", f"unexpected {type(e).__name__}: {e}"))

    def _read(self) -> None:
        while not self._over:
            try:
                data, ancillary = self._connection.receive()
            except BlockingIOError:
                return
            except OSError as e:
                self._connection_failed(e)
                return
            mono_ns, real_ns = time.monotonic_ns(), time.time_ns()
            if not data:
                self._at_ns = mono_ns
                self._end_of_file()
                return
            self._stamp_and_feed(data, ancillary, mono_ns, real_ns)
            if len(data) < RECEIVE_BYTES:
                return

    def _stamp_and_feed(self, data: bytes, ancillary: Any, mono_ns: int, real_ns: int) -> None:
        kernel_ns = 0
        if ancillary:
            stamp = ancillary[0][2]
            if len(stamp) == STAMP_BYTES:
                seconds, nanos = _unpack_timespec(stamp)
                kernel_ns = seconds * 1_000_000_000 + nanos
        at_ns = event_time(mono_ns, real_ns, kernel_ns, self._last_read_ns)
        transfer = self._transfer
        by_kernel = at_ns is not None
        if at_ns is None:
            at_ns = mono_ns
        elif mono_ns - at_ns > transfer.lag_ns_max:
            transfer.lag_ns_max = mono_ns - at_ns
        self._at_ns = at_ns
        self._received += len(data)

        times = self._answer.times_ns
        events = len(times)
        self._feed(data)
        events = len(times) - events
        if events:
            if not by_kernel:
                transfer.kernel_stamped = False
            uncertain = events - 1 if by_kernel else events
            if uncertain:
                width = at_ns - max(self._polls.not_before_ns, self._last_read_ns)
                if width > transfer.uncertain_ns_max:
                    transfer.uncertain_ns_max = width
                if width > LATE_JOINED_NS:
                    transfer.late_joined += uncertain
        self._last_read_ns = mono_ns

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        tls = self._connection.tls
        try:
            if tls is not None:
                data = tls.receive(data)
            if data:
                parser.feed(data)
        except HTTPParseError as e:
            if not parser.complete:
                self._finish(TransportEnd("connection", "framing", f"not valid HTTP: {e}"))
                return
            parser.dirty = True
        except OSError as e:  # ssl.SSLError is one
            self._finish(TransportEnd("connection", "tls", f"TLS: {e}"))
            return
        if parser.complete:
            self._message_complete()
        elif tls is not None and tls.closed:
            self._end_of_file()
        elif self._answer.done_ns is not None and not self._grace:
            self._grace = True
            self._arm(DONE_GRACE_S)

    def _on_head(self) -> None:
        transfer = self._transfer
        transfer.headers_ns = self._at_ns
        transfer.status = self._parser.status
        transfer.headers = self._parser.headers
        if not 200 <= self._parser.status < 300:
            self._error_body = bytearray()
        try:
            self._decompress = decompressor(self._parser.headers.get("content-encoding", ""))
        except ValueError as e:
            self._answer.malformed = str(e)

    def _on_body(self, data: bytes) -> None:
        self._transfer.bytes_in += len(data)
        if self._decompress is not None:
            try:
                data = self._decompress(data)
            except (ValueError, zlib.error) as e:
                self._answer.malformed = self._answer.malformed or f"Content-Encoding: {e}"
                return
        if self._error_body is not None:
            self._error_body += data[: ERROR_BODY_BYTES - len(self._error_body)]
            return
        self._fed += len(data)
        if self._fed > MAX_BODY_BYTES:
            self._answer.malformed = f"body larger than {MAX_BODY_BYTES >> 20} MiB"
            self._finish(TransportEnd("complete"))
        elif data and self._answer.malformed is None:
            self._decoder.feed(data, self._at_ns)

    def _message_complete(self) -> None:
        parser = self._parser
        tls = self._connection.tls
        self.reusable = not parser.dirty and parser.should_keep_alive() and not (tls is not None and tls.closed)
        self._finish(TransportEnd("complete"))

    def _end_of_file(self) -> None:
        if self._received == 0:
            self.stale = self._transfer.reused
            self._finish(TransportEnd("connection", "reset", "the server closed the connection without an answer"))
            return
        try:
            self._parser.feed(b"")
        except HTTPParseError:
            pass
        if self._parser.complete:
            self._finish(TransportEnd("complete"))
        else:
            what = "in the middle of the answer" if self._parser.head_complete else "in the middle of the head"
            self._finish(TransportEnd("connection", "framing", f"the server closed the connection {what}"))

    def _connection_failed(self, e: OSError) -> None:
        self._at_ns = time.monotonic_ns()
        self.stale = self._transfer.reused and self._received == 0
        self._finish(TransportEnd("connection", "reset", f"connection lost: {e.strerror or e}"))

    # ---- deadlines: one lazy timer a stream, looked at when it fires, never touched by a token

    def _deadline(self) -> None:
        now = time.monotonic_ns()
        self._at_ns = now
        if self._grace:
            self._finish(TransportEnd("complete"))
            return
        left = self._next_deadline_s()
        if left > 0:
            self._arm(left)
            return
        limits, elapsed_s = self._deadlines, (now - self._transfer.start_ns) / 1e9
        if limits.total and elapsed_s >= limits.total:
            end = TransportEnd("timeout", "total", f"not over after {limits.total:g} s")
        elif not self._answer.has_tokens():
            end = TransportEnd("timeout", "first_token", f"no token within {limits.first_token:g} s")
        else:
            end = TransportEnd("timeout", "idle", f"no byte for {limits.idle:g} s after the first token")
        self._finish(end)

    def _next_deadline_s(self) -> float:
        """Seconds to the next moment at which some deadline could be over; 0 or less if one is."""
        limits, now = self._deadlines, time.monotonic_ns()
        elapsed_s = (now - self._transfer.start_ns) / 1e9
        left = [limits.total - elapsed_s] if limits.total else []
        if self._answer.has_tokens():
            if limits.idle:
                left.append(limits.idle - (now - self._last_read_ns) / 1e9)
        else:
            if limits.first_token:
                left.append(limits.first_token - elapsed_s)
            if limits.idle and (not left or min(left) > 0):
                left.append(limits.idle)  # the first token may come any moment
        return min(left, default=86400.0)

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
        self._timer = self._loop.timer(seconds)
        self._timer.start(self._deadline)

    def _finish(self, end: TransportEnd) -> None:
        if self._over:
            return
        self._over = True
        transfer = self._transfer
        if end.kind == "complete" and self._error_body is None and self._answer.malformed is None:
            self._decoder.eof(self._at_ns)
        if self._error_body is not None:
            transfer.error_body = bytes(self._error_body)
        transfer.end = end
        transfer.end_ns = self._answer.done_ns or self._at_ns
        # After the reads of this turn of the loop, not between them.
        self._turns.resume(self._waiter)
