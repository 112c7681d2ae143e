"""What all streams of one event loop share: since when it knows what is ready, and whose turn it is when streams end.

There is one of each for a loop, whatever the number of targets: two tiny callbacks a turn of the loop, and one budget
for the work between two looks at the sockets.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from typing import Any

# A poll that took longer than the call itself (some microseconds) found nothing ready at first and was woken.
WAITED_NS = 50_000
PORTION_NS = 500_000


@functools.cache
def poll_clock(loop: Any) -> PollClock:
    """Return the poll clock of a gevent loop."""
    return PollClock(loop)


@functools.cache
def turns(loop: Any) -> Turns:
    """Return the turns of a gevent loop."""
    return Turns(loop)


class PollClock:
    """Since when the event loop has known what is ready.

    At a read, ``not_before_ns`` is the last moment at which this socket was known not to be ready: bytes read now
    cannot have come before it (metrics.md 5, stamp uncertainty). That is the end of the poll before, or, if the loop
    was waiting inside this poll, the poll's own end, for the first byte would have woken it.
    """

    __slots__ = ("_check", "_polled_ns", "_prepare", "_waiting_since_ns", "not_before_ns")

    def __init__(self, loop: Any) -> None:
        self.not_before_ns = self._polled_ns = self._waiting_since_ns = time.monotonic_ns()
        # Last before the poll, after gevent's own that runs greenlets: their work must not look like waiting.
        try:
            self._prepare = loop.prepare(ref=False, priority=loop.MINPRI)
            self._prepare.start(self._before_poll)
        except TypeError:  # libuv (Windows) has none: never seen waiting, so the bound is only wider
            self._waiting_since_ns = 1 << 62
        self._check = loop.check(ref=False, priority=loop.MAXPRI)
        self._check.start(self._after_poll)

    def _before_poll(self) -> None:
        self._waiting_since_ns = time.monotonic_ns()

    def _after_poll(self) -> None:
        now = time.monotonic_ns()
        waited = now - self._waiting_since_ns > WAITED_NS
        self.not_before_ns = now if waited else self._polled_ns
        self._polled_ns = now


class Turns:
    """Resumes waiting greenlets, for at most half a millisecond between two polls of the loop (one greenlet at least).

    When many streams end together, working on all of them at once (records, the next prompts, the next requests) would
    leave other streams' bytes unread for tens of milliseconds; bytes that queue up meanwhile lose their arrival times.
    """

    __slots__ = ("_armed", "_loop", "_next", "_ready")

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._ready: deque[Any] = deque()
        self._next = loop.timer(0)
        self._armed = False

    def resume(self, waiter: Any) -> None:
        """Let the greenlet that waits on a gevent ``Waiter`` go on, soon."""
        self._ready.append(waiter)
        if not self._armed:
            self._armed = True
            self._loop.run_callback(self._portion)

    def _portion(self) -> None:
        ready, until_ns = self._ready, time.monotonic_ns() + PORTION_NS
        try:
            while ready:
                ready.popleft().switch(None)
                if time.monotonic_ns() >= until_ns:
                    break
        finally:  # whatever a greenlet raised into the loop, the others get their turn
            if ready:
                # A timer, not a callback: the loop polls before it runs timers.
                self._next.start(self._portion)
            else:
                self._armed = False
