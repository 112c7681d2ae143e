"""What all streams of one event loop share: since when it knows what is ready, and whose turn it is when streams end.

There is one of each for a loop, whatever the number of targets: two tiny callbacks a turn of the loop, and one budget
for the work between two looks at the sockets.
"""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from typing import Any

from gevent.hub import Waiter

from .gathering import Gathering

# A poll that spent more than this asleep found nothing ready at first and was woken.
SLEPT_NS = 50_000
PORTION_NS = 500_000
# A shorter turn cannot have waited for a processor for a time that matters.
LONG_TURN_NS = 200_000
LATE_NS = 1_000_000


# Second number: nanoseconds that this thread was to run and no processor was free for it; third: how often it began to.
_SCHEDSTAT = "/proc/thread-self/schedstat"


@functools.cache
def poll_clock(loop: Any) -> PollClock:
    """Return the poll clock of a gevent loop."""
    return PollClock(loop)


@functools.cache
def turns(loop: Any) -> Turns:
    """Return the turns of a gevent loop."""
    return Turns(loop, poll_clock(loop).gathering)


class Away:
    """Times between two polls, less what was meant as a wait, as counts by powers of two of 1.024 us.

    Attributes:
        max_ns: the longest.
        late_ns: sum of those longer than a millisecond, during which arrivals could only queue up.
    """

    __slots__ = ("_counts", "late_ns", "max_ns")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._counts = [0] * 64
        self.max_ns = 0
        self.late_ns = 0

    def add(self, ns: int) -> None:
        self._counts[(ns >> 10).bit_length()] += 1
        if ns > LATE_NS:
            self.late_ns += ns
            if ns > self.max_ns:
                self.max_ns = ns

    def at_most_ms(self, share: float) -> float:
        """Return a time that this share of the turns did not exceed; up to twice too long, never too short."""
        wanted, seen = share * sum(self._counts), 0
        for power, count in enumerate(self._counts):
            seen += count
            if seen >= wanted:
                return (1024 << power) / 1e6
        return 0.0


class Waits:
    """How long the thread that makes it waits for a processor, as the Linux scheduler counts it.

    Attributes:
        seen: the system tells; elsewhere ``since_last`` is (0, 0).
    """

    __slots__ = ("_file", "_ns", "_times", "seen")

    def __init__(self) -> None:
        self._ns = self._times = 0
        self.seen = False
        try:
            self._file = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
            self.since_last()
            self.seen = True
        except (OSError, ValueError):
            self._file = -1

    def since_last(self) -> tuple[int, int]:
        """Return the nanoseconds of waiting since this was asked last, and how often the thread began to run."""
        if self._file < 0:
            return 0, 0
        ns, times = self._ns, self._times
        _, now_ns, now_times = os.pread(self._file, 64, 0).split()
        self._ns, self._times = int(now_ns), int(now_times)
        return self._ns - ns, self._times - times


class PollClock:
    """Since when the event loop has known what is ready.

    This bounds the bytes of a read from below (metrics.md 5, stamp uncertainty): they came after the poll before, in
    which their socket was not ready; and if the loop was asleep in this poll, after it was woken, for the first byte
    would have woken it. It was woken before the poll's end by as long as the thread then waited for a processor. What
    came before the poll began was not slept over.

    Attributes:
        open: streams that are open. While there is none, nobody wants to know, and nobody is asked: pages that are
            touched once in a while are dear.
        gathering: waits before a poll while arrivals are dense.
        waits: the scheduler's word on that.
        begun_ns: start of the last poll.
        not_before_ns: the bound for bytes that came since then.
        previous_ns: the bound for earlier ones: the end of the poll before.
        away: how long the loop was away from its sockets between polls.
    """

    __slots__ = (
        "_check", "_cpu_ns", "_polled_ns", "_prepare", "away", "begun_ns", "gathering", "not_before_ns", "open",
        "previous_ns", "waits",
    )  # fmt: skip

    def __init__(self, loop: Any) -> None:
        self.open = 0
        self.away = Away()
        self.gathering = Gathering()
        self.waits = Waits()
        self.not_before_ns = self.previous_ns = self.begun_ns = self._polled_ns = time.monotonic_ns()
        self._cpu_ns = time.thread_time_ns()
        # Last before the poll, after gevent's own that runs greenlets: their work must not look like waiting.
        try:
            self._prepare = loop.prepare(ref=False, priority=loop.MINPRI)
            self._prepare.start(self._before_poll)
        except TypeError:  # libuv (Windows) has none: never seen waiting, so the bound is only wider
            self.begun_ns = 1 << 62
        self._check = loop.check(ref=False, priority=loop.MAXPRI)
        self._check.start(self._after_poll)

    def opened(self) -> None:
        """A stream is open now: count it."""
        if not self.open:
            self.waits.since_last()  # what came before does not matter any more
        self.open += 1

    def _before_poll(self) -> None:
        self.gathering.wait(self.begun_ns, self._polled_ns)
        if self.open:
            self._cpu_ns = time.thread_time_ns()
        self.begun_ns = time.monotonic_ns()
        away_ns = self.begun_ns - self._polled_ns
        self.away.add(away_ns - self.gathering.waited_ns)
        if self.open and away_ns > LONG_TURN_NS:
            self.waits.since_last()  # what it waited at work was no waking

    def _after_poll(self) -> None:
        now = time.monotonic_ns()
        took = now - self.begun_ns
        self.previous_ns = self.not_before_ns = self._polled_ns
        if self.open and took > SLEPT_NS:
            # Asleep: not at work on many sockets (that takes processor time), nor ready and kept waiting.
            waited, began = self.waits.since_last()
            if took - waited - (time.thread_time_ns() - self._cpu_ns) > SLEPT_NS:
                # Begun to run twice: woken, and then asleep again for Python's lock, nobody knows how long.
                self.not_before_ns = max(self.begun_ns, now - waited) if began < 2 else self.begun_ns
        self._polled_ns = now


class Turns:
    """Resumes waiting greenlets, for at most half a millisecond between two polls of the loop (one greenlet at least).

    When many streams end or many users start together, working on all of them at once (records, the next prompts, the
    next requests) would leave other streams' bytes unread for tens of milliseconds; bytes that queue up meanwhile lose
    their arrival times.
    """

    __slots__ = ("_armed", "_gathering", "_loop", "_next", "_ready")

    def __init__(self, loop: Any, gathering: Gathering) -> None:
        self._loop = loop
        self._gathering = gathering
        self._ready: deque[Any] = deque()
        self._next = loop.timer(0)
        self._armed = False

    def resume(self, waiter: Any) -> None:
        """Let the greenlet that waits on a gevent ``Waiter`` go on, soon."""
        self._ready.append(waiter)
        if not self._armed:
            self._armed = True
            self._gathering.urgent += 1
            self._loop.run_callback(self._portion)

    def wait(self) -> None:
        """Let the current greenlet go on in turn, with those that wait already."""
        waiter: Any = Waiter()
        self.resume(waiter)
        waiter.get()

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
                self._gathering.urgent -= 1
