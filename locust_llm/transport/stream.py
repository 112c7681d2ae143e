"""One exchange on the wire: send a request, stamp and decode the answer as it comes, say how it ended.

The hot path is ``Stream._readable``. It runs inside the event loop, one read a call, for all streams before any
finished one is worked on, so that work at the end of one stream does not delay the stamps of others. It never
blocks, never raises, and does nothing a token does not need.
"""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from typing import Any

import gevent
from gevent.hub import Waiter

from ..clock import event_time
from ..outcome import TransportEnd
from ..settings import Timeouts
from ..wire.answer import TOKEN_KINDS
from ..wire.api import Decoder
from .connection import Connection
from .deadlines import next_deadline
from .dial import STAMP_BYTES
from .http1 import Decompressor, HTTPParseError, ResponseParser, decompressor
from .loop import PollClock, Turns
from .transfer import Transfer

LATE_JOINED_NS = 1_000_000
# No figure that is read in milliseconds is bent by less.
NOTED_NS = 100_000
ERROR_BODY_BYTES = 65536
# A server that said its end mark but leaves the body open is done; more than this is not waited for.
DONE_GRACE_S = 1.0

_TLS_ALERT = b"\x15\x03"
_unpack_timespec = struct.Struct("@ll").unpack
_COMPLETE = TransportEnd("complete")


class Stream:
    """The reading side of one exchange.

    Attributes:
        reusable: the connection can carry another exchange.
        stale: a pooled connection turned out dead before any byte of the answer.
    """

    __slots__ = (
        "_answer",
        "_at_ns",
        "_connection",
        "_deadlines",
        "_decoder",
        "_decompress",
        "_error_body",
        "_fed",
        "_gathering",
        "_grace",
        "_loop",
        "_max_bytes",
        "_odd",
        "_over",
        "_parser",
        "_piece",
        "_polls",
        "_read_at_ns",
        "_receive",
        "_sent",
        "_started",
        "_timer",
        "_tls",
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
        max_bytes: int,
        polls: PollClock,
        turns: Turns,
    ) -> None:
        self._connection = connection
        self._receive, self._tls = connection.receive, connection.tls
        self._decoder = decoder
        self._answer = decoder.answer
        self._transfer = transfer
        self._deadlines = deadlines
        self._max_bytes = max_bytes
        self._polls = polls
        self._gathering = polls.gathering
        self._turns = turns
        self._parser = ResponseParser(self._on_head)
        self._decompress: Decompressor | None = None
        self._error_body: bytearray | None = None
        self._odd = False  # one of these two is there
        self._loop = gevent.get_hub().loop
        self._waiter: Any = Waiter()
        self._timer: Any = None
        self._at_ns = 0
        # What a read has not brought cannot have come before that read began.
        self._read_at_ns = 0
        self._piece = b""
        self._fed = 0
        self._sent = False
        self._started = False
        self._grace = False
        self._over = False
        self.reusable = False
        self.stale = False

    def run(self, request: bytes) -> None:
        """Send, then wait until the answer is over."""
        self._connection.read_by(self._readable)
        self._polls.opened()
        try:
            self._send(request)
            if not self._over:
                if self._timer is None:
                    self._look_at_deadlines()
                self._waiter.get()
        finally:
            self._over = True
            self._polls.open -= 1
            self._connection.forget_reader()
            self._parser.release()
            if self._timer is not None:
                self._timer.close()

    def _send(self, request: bytes) -> None:
        tls, sock = self._tls, self._connection.sock
        try:
            rest = memoryview(tls.send(request) if tls else request)
            while not self._over:
                # An answer cannot have come before this; t_sent may be read after its first byte came back.
                self._read_at_ns = time.monotonic_ns()
                try:
                    rest = rest[sock.send(rest) :]
                except BlockingIOError:
                    self._wait_writable()
                    continue
                if not rest:
                    self._sent = True
                    break
        except OSError as e:
            # A server may say why before it hangs up; what it said is still there.
            while not self._over and self._readable():
                pass
            if not self._over:
                self._connection_failed(e)
        if self._sent:
            self._transfer.sent_ns = time.monotonic_ns()

    def _wait_writable(self) -> None:
        """Wait until the kernel takes more of the request, or the exchange is over."""
        if self._timer is None:
            self._look_at_deadlines()
        writable = self._loop.io(self._connection.sock.fileno(), 2)
        self._gathering.urgent += 1
        try:
            writable.start(self._waiter.switch, None)
            self._waiter.get()
            self._waiter.clear()
        finally:
            self._gathering.urgent -= 1
            writable.close()

    # ---- in the event loop, for each read: few frames, for in Python a call costs as much as what is done in it

    def _readable(self) -> bool:
        """Read once; False if there was nothing."""
        if self._over:
            return False
        receive = self._receive  # as a method call CPython could not make it fast: it is no method of the class
        began_ns = time.monotonic_ns()
        try:
            try:
                data, ancillary, _, _ = receive()
            except BlockingIOError:
                return False
            except OSError as e:
                self._connection_failed(e)
                return True
            mono_ns, real_ns = time.monotonic_ns(), time.time_ns()
            if data:
                self._stamp_and_feed(data, ancillary, mono_ns, real_ns)
                self._read_at_ns = began_ns
            else:
                self._at_ns = mono_ns
                self._end_of_file()
        except Exception as e:  # the loop must go on for the other streams, whatever this one holds
            self._finish(TransportEnd("connection", "framing", f"unexpected {type(e).__name__}: {e}"))
        return True

    def _stamp_and_feed(self, data: bytes, ancillary: Any, mono_ns: int, real_ns: int) -> None:
        self._gathering.reads += 1
        kernel_ns = 0
        if ancillary:
            stamp = ancillary[0][2]
            if len(stamp) == STAMP_BYTES:
                seconds, nanos = _unpack_timespec(stamp)
                kernel_ns = seconds * 1_000_000_000 + nanos
        at_ns = event_time(mono_ns, real_ns, kernel_ns, self._read_at_ns)
        transfer = self._transfer
        body = transfer.bytes_in
        by_kernel = at_ns is not None
        if at_ns is None:
            at_ns = mono_ns
        elif mono_ns - at_ns > transfer.lag_ns_max:
            transfer.lag_ns_max = mono_ns - at_ns
        self._at_ns = at_ns

        tls = self._tls
        if tls is not None:
            data = tls.receive(data)
        times = self._answer.times_ns
        events = len(times)
        if data:
            self._started = True
            self._feed(data)
        if tls is not None and tls.closed and not self._over:
            self._end_of_file()

        if not by_kernel and transfer.bytes_in != body:
            transfer.kernel_stamped = False
        events = len(times) - events
        if events:
            polls = self._polls
            bound = polls.not_before_ns if at_ns >= polls.begun_ns else polls.previous_ns
            if bound < self._read_at_ns:
                bound = self._read_at_ns
            width = at_ns - bound
            if width > NOTED_NS:
                kinds, first = self._answer.kinds, len(times) - events
                if by_kernel and self._ends_with_event(data):
                    events -= 1
                # Servers send the finish, usage and [DONE] in one piece; only when tokens came is a figure.
                tokens = 0
                for kind in kinds[first : first + events]:
                    tokens += kind in TOKEN_KINDS
                if tokens:
                    transfer.uncertain_reads += (first, events, width // 1000)
                    if width > transfer.uncertain_ns_max:
                        transfer.uncertain_ns_max = width
                    if width > LATE_JOINED_NS:
                        transfer.late_joined += tokens
                    if self._gathering.waited_ns:
                        # A last token that came with the finish is one a stream, not worth reading all sooner.
                        tokens -= by_kernel and kinds[-1] not in TOKEN_KINDS
                        self._gathering.bent(tokens, width, TOKEN_KINDS.isdisjoint(kinds[:first]))

    def _ends_with_event(self, data: bytes) -> bool:
        """Whether a read ended with the bytes that completed its last event, so that its stamp is that event's own.

        The end of a chunk, or of the message, belongs to the event.
        """
        if not self._decoder.at_event_end:
            return False
        tail = self._piece[-8:]
        return data.endswith((tail + b"\r\n", tail)) or self._parser.complete

    def _feed(self, data: bytes) -> None:
        parser, transfer = self._parser, self._transfer
        broken: HTTPParseError | None = None
        try:
            try:
                parser.feed(data)
            except HTTPParseError as e:
                broken = e
            feed, at_ns, fed, most = self._decoder.feed, self._at_ns, self._fed, self._max_bytes
            for raw in parser.pieces:
                piece = self._piece = bytes(raw)
                transfer.bytes_in += len(piece)
                if self._odd:
                    piece = self._decoded(piece)
                fed += len(piece)
                if fed > most and fed - self._answer.repeated > most:
                    self._unreadable(f"a body of more than {most} bytes (--llm-max-bytes)")
                feed(piece, at_ns)
            self._fed = fed
        except _Enough:
            self._finish(_COMPLETE)  # but not of the decoder's making: no eof
            return
        parser.pieces.clear()
        if broken is not None:
            if not parser.complete:
                hint = "" if parser.head_complete or data[:2] != _TLS_ALERT else " (is this an https:// server?)"
                self._finish(TransportEnd("connection", "framing", f"not valid HTTP: {broken.args[0]}{hint}"))
                return
            parser.dirty = True
        if parser.complete:
            tls = self._tls
            alive = self._sent and not parser.dirty and parser.should_keep_alive()
            self.reusable = alive and not (tls is not None and tls.closed)
            self._finish(_COMPLETE, eof=True)
        elif self._answer.done_ns is not None and not self._grace:
            self._grace = True
            self._arm(DONE_GRACE_S)

    def _on_head(self) -> None:
        transfer, parser = self._transfer, self._parser
        transfer.headers_ns = self._at_ns
        transfer.status = parser.status
        transfer.headers = parser.headers
        if not 200 <= parser.status < 300:
            self._error_body = bytearray()
        try:
            self._decompress = decompressor(parser.headers.get("content-encoding", ""))
        except ValueError as e:
            self._unreadable(str(e))
        self._odd = self._error_body is not None or self._decompress is not None

    def _decoded(self, data: bytes) -> bytes:
        """Return what the decoder is to get of a piece: its content decoded, or nothing of an error's body."""
        if self._decompress is not None:
            try:
                data = self._decompress(data)
            except ValueError as e:
                self._unreadable(str(e))
        if self._error_body is None:
            return data
        self._error_body += data[: ERROR_BODY_BYTES - len(self._error_body)]
        if len(self._error_body) == ERROR_BODY_BYTES:
            raise _Enough
        return b""

    def _unreadable(self, why: str) -> None:
        """Nothing more of this answer can be read, or is worth to be: end it."""
        if self._error_body is None:
            self._answer.malformed = self._answer.malformed or why
        raise _Enough

    def _end_of_file(self) -> None:
        tls = self._tls
        fault = tls.fault if tls is not None else None
        if not self._started:
            self.stale = self._transfer.reused
            what = "without an answer"
        else:
            with suppress(HTTPParseError):
                self._parser.feed(b"")
            if self._parser.complete and fault is None:
                self._finish(_COMPLETE, eof=True)
                return
            what = "in the middle of the answer" if self._parser.head_complete else "in the middle of the head"
        detail = "tls" if fault else "framing" if self._started else "reset"
        said = f": TLS {fault}" if fault else ""
        self._finish(TransportEnd("connection", detail, f"the server closed the connection {what}{said}"))

    def _connection_failed(self, e: OSError) -> None:
        self._at_ns = time.monotonic_ns()
        self.stale = self._transfer.reused and not self._started
        self._finish(TransportEnd("connection", "reset", f"connection lost: {e.strerror or e}"))

    # ---- deadlines: one lazy timer a stream, looked at when it fires, never touched by a token

    def _look_at_deadlines(self) -> None:
        now_ns = time.monotonic_ns()
        if self._grace:
            self._at_ns = now_ns
            self._finish(_COMPLETE, eof=True)
            return
        limits = self._deadlines
        left_s, which = next_deadline(
            limits,
            elapsed_s=(now_ns - self._transfer.start_ns) / 1e9,
            quiet_s=(now_ns - self._read_at_ns) / 1e9,
            has_tokens=self._answer.has_tokens(),
        )
        if left_s > 0:
            self._arm(left_s)
            return
        self._at_ns = now_ns
        said = {
            "total": f"not over after {limits.total:g} s",
            "first_token": f"no token within {limits.first_token:g} s",
            "idle": f"no byte for {limits.idle:g} s after the first token",
        }
        self._finish(TransportEnd("timeout", which, said[which]))

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.close()
        self._timer = self._loop.timer(seconds)
        self._timer.start(self._look_at_deadlines)

    def _finish(self, end: TransportEnd, eof: bool = False) -> None:
        """The exchange is over. ``eof``: its body ended as it should, and what the decoder still holds counts."""
        if self._over:
            return
        self._over = True
        self._gathering.ended += 1
        transfer, answer = self._transfer, self._answer
        if self._error_body is not None:
            transfer.error_body = bytes(self._error_body)
        elif eof:
            self._decoder.eof(self._at_ns)
        transfer.end = end
        transfer.end_ns = answer.done_ns or self._at_ns
        # After the reads of this turn of the loop, not between them.
        self._turns.resume(self._waiter)


class _Enough(Exception):
    """Nothing more of this answer is wanted."""
