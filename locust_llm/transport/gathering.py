"""Lets arrivals gather while they are dense: fewer polls, each of which finds more sockets ready.

A poll, the sleep before it and the caches that are cold after it cost as much as reading and decoding eight events.
With the kernel's stamps a read that comes later has the same times, as long as it holds one event. So this is done
where it bends nothing; what it bent all the same is on record (``uncertain_reads``), and so little that no figure that
is called sound is off by it. Network cards do the same (interrupt moderation).
"""

from __future__ import annotations

import time

from gevent.monkey import get_original

# What to wait for, and how far apart polls then are. A loop that is away for so long anyway does not wait.
GATHERED_READS = 25
SHORTEST_NS, LONGEST_NS = 800_000, 2_500_000
# Arrivals are dense if so many are expected in the longest wait; that is judged anew this often.
DENSE_READS = 6
JUDGED_NS = 50_000_000
# Answers of fewer reads are short: half a wait, by which a user's next request is late, counts. A first
# token, which is one read of so many or of more, counts as so many.
SHORT_READS = 50
# As long as no more than this is bent, on average over all reads, p99 of the ITL is off by less than 1 ms, p95 by 0.2.
BENT_NS = 10_000
# When more is, nothing is gathered for so long. The average is over at most as long.
PAUSE_NS = 5_000_000_000

_sleep = get_original("time", "sleep")


class Gathering:
    """Of one event loop.

    Attributes:
        allowed: all that the loop waits for has the kernel's stamps or can wait. Other users' requests do not.
        urgent: how many wait for a poll and have no such stamp, as who connects does, or for their turn after it.
        alarms: when something is due that no wait may outlast (monotonic ns), by whoever has it done.
        reads, ended: reads of streams, and streams that are over; they count themselves.
        waited_ns: how long it meant to wait before the last poll.
    """

    __slots__ = (
        "_budget_ns",
        "_budgeted",
        "_ended",
        "_from_ns",
        "_gap_ns",
        "_judged_ns",
        "_most_ns",
        "_read",
        "alarms",
        "allowed",
        "ended",
        "reads",
        "urgent",
        "waited_ns",
    )

    def __init__(self) -> None:
        self.allowed = False
        self.urgent = 0
        self.alarms: dict[object, int] = {}
        self.reads = self.ended = 0
        self.waited_ns = 0
        self._gap_ns = 0
        self._judged_ns = self._read = self._ended = 0
        self._budget_ns = self._most_ns = self._budgeted = 0
        self._from_ns = 0

    def wait(self, begun_ns: int, polled_ns: int) -> None:
        """Wait before a poll, if arrivals are dense. ``begun_ns``, ``polled_ns``: start and end of the one before."""
        self.waited_ns = 0
        now_ns = time.monotonic_ns()
        if now_ns - self._judged_ns > JUDGED_NS:
            self._judge(now_ns)
        # A poll that took as long slept: arrivals are not dense at this moment.
        if polled_ns - begun_ns >= self._gap_ns or self.urgent or not self.allowed or now_ns < self._from_ns:
            return
        until_ns = polled_ns + self._gap_ns
        if self.alarms:
            until_ns = min(until_ns, *self.alarms.values())
        if until_ns > now_ns:
            self.waited_ns = until_ns - now_ns
            _sleep(self.waited_ns / 1e9)

    def _judge(self, now_ns: int) -> None:
        since_ns = now_ns - self._judged_ns
        reads, ended = self.reads - self._read, self.ended - self._ended
        self._judged_ns, self._read, self._ended = now_ns, self.reads, self.ended
        self._gap_ns = 0
        if reads * LONGEST_NS >= DENSE_READS * since_ns and reads >= SHORT_READS * ended:
            self._gap_ns = min(max(GATHERED_READS * since_ns // reads, SHORTEST_NS), LONGEST_NS)
            self._most_ns = BENT_NS * reads * PAUSE_NS // since_ns

    def bent(self, events: int, by_ns: int, ttft: bool) -> None:
        """A read after a wait held events that may have come as much before it: several, or without stamp.

        ``ttft``: the first token is one of them.
        """
        if ttft:
            events += SHORT_READS
        earned_ns = (self.reads - self._budgeted) * BENT_NS
        self._budgeted = self.reads
        # Only what it meant to wait: a system that wakes nobody for a while does so without it, too.
        bent_ns = events * min(by_ns, self.waited_ns)
        self._budget_ns = min(self._budget_ns + earned_ns, self._most_ns) - bent_ns
        if self._budget_ns < 0:
            self._budget_ns = 0
            self._from_ns = time.monotonic_ns() + PAUSE_NS
