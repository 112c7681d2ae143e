"""Lets arrivals gather while they are dense: fewer polls, each of which finds more sockets ready.

A poll, the waking after it and the caches that are cold by then cost as much as reading and decoding what it finds.
With the kernel's stamps a read that is later by less than a millisecond has the same times, as long as it holds one
event. So this is done where it bends nothing; what it bent all the same is bent by less than a millisecond, and on
record (``uncertain_reads``). Network cards do the same (interrupt moderation).
"""

from __future__ import annotations

import time

from gevent.monkey import get_original

GATHER_NS = 800_000
"""Polls are that far apart. A loop that is away for longer anyway does not wait."""
# Arrivals are dense if so many are expected while it waits; that is judged anew this often.
DENSE_READS = 2
JUDGED_NS = 50_000_000
# Most events that may be bent at once, and of all reads; more, and nothing is gathered for a while.
_BENT_EVENTS, _BENT_SHARE = 16.0, 0.02
PAUSE_NS = 5_000_000_000

_sleep = get_original("time", "sleep")


class Gathering:
    """Of one event loop.

    Attributes:
        allowed: all that the loop waits for has the kernel's stamps or can wait. Other users' requests do not.
        urgent: how many wait for a poll and have no such stamp, as who connects does, or for their turn after it.
        alarms: when something is due that no wait may outlast (monotonic ns), by whoever has it done.
        reads: reads of streams so far; they count them.
    """

    __slots__ = (
        "_credit",
        "_credited",
        "_dense",
        "_from_ns",
        "_seen",
        "_seen_ns",
        "_waited",
        "alarms",
        "allowed",
        "reads",
        "urgent",
    )

    def __init__(self) -> None:
        self.allowed = False
        self.urgent = 0
        self.alarms: dict[object, int] = {}
        self.reads = 0
        self._seen = self._seen_ns = 0
        self._dense = self._waited = False
        self._credit = _BENT_EVENTS
        self._credited = 0
        self._from_ns = 0

    def wait(self, begun_ns: int, polled_ns: int) -> None:
        """Wait before a poll, if arrivals are dense. ``begun_ns``, ``polled_ns``: start and end of the one before."""
        self._waited = False
        now_ns = time.monotonic_ns()
        since_ns = now_ns - self._seen_ns
        if since_ns > JUDGED_NS:
            self._dense = (self.reads - self._seen) * GATHER_NS >= DENSE_READS * since_ns
            self._seen, self._seen_ns = self.reads, now_ns
        if not self._dense or polled_ns - begun_ns >= GATHER_NS or self.urgent or not self.allowed:
            return
        left_ns = min([polled_ns + GATHER_NS, *self.alarms.values()]) - now_ns
        if left_ns > 0 and now_ns >= self._from_ns:
            self._waited = True
            _sleep(left_ns / 1e9)

    def bent(self, events: int) -> None:
        """A read held events that may have come before it: several at once, or without stamp. Was it the wait?"""
        if not self._waited:
            return
        earned = (self.reads - self._credited) * _BENT_SHARE
        self._credited = self.reads
        self._credit = min(self._credit + earned, _BENT_EVENTS) - events
        if self._credit < 0:
            self._from_ns = time.monotonic_ns() + PAUSE_NS
            self._credit = _BENT_EVENTS
