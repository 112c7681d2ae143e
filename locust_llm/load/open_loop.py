"""Open loop in one process: the arrival clocks of its streams, and a warning while users are too few.

Users are the cap on concurrency: each takes a ticket, sends, and comes back for the next. By Little's law it takes
``rate x latency`` of them on average; while there are fewer, tickets wait and the lag of the schedule grows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from math import ceil
from typing import Any

import gevent

from . import arrivals
from .clock import ArrivalClock
from .pacer import Pacer
from .schedule import Share, due_ns

logger = logging.getLogger(__name__)

LOOK_S = 2.0
OLD_S = 1.0
"""A ticket that has waited for so long says that users are too few, not that arrivals came in a burst."""
SAY_AGAIN_S = 30.0


class OpenLoop:
    """The arrivals that this process sends.

    Args:
        pacers: the processes of the whole system, by stream.
        seed: the run's.
    """

    def __init__(self, pacers: Mapping[str, Pacer], seed: int) -> None:
        self.pacers = dict(pacers)
        self._seed = seed
        self._clocks = {stream: ArrivalClock() for stream in pacers}
        self._segment = -1
        self._shares: dict[str, Share] = {}
        self.unsent = 0
        """Tickets that a user had taken when the run was told to stop."""
        self._most_waiting = 0
        self._seconds = 0.0
        self._ended = 0
        self._said_s = -SAY_AGAIN_S
        self._stopped = False
        self._watch = gevent.spawn(self._watch_users)

    def begin(self, number: int, at_us: int, streams: Mapping[str, tuple[float, Share | None]]) -> None:
        """Go over to a segment: from ``at_us`` (epoch) on, each stream has this rate, and we this share of it."""
        if self._stopped or number <= self._segment:
            return
        self._segment = number
        from_ns = time.monotonic_ns() + at_us * 1000 - time.time_ns()
        for stream, (rate, share) in streams.items():
            clock = self._clocks.get(stream)
            if clock is None:
                continue
            pacer = self.pacers[stream] = self.pacers[stream].at(rate)
            due = due_ns(pacer, self._seed, stream, number, share) if share is not None else iter(())
            clock.plan(from_ns, due)
            self._shares[stream] = share or Share(0, 1)

    def take(self, user_class: str) -> int | None:
        """Wait until a user of this class may start; returns when it was due (monotonic ns), None in closed loop."""
        stream = arrivals.stream_of(self.pacers, user_class)
        return None if stream is None else self._clocks[stream].take()

    def ended(self, seconds: float) -> None:
        """An exchange took so long, from its start."""
        self._seconds += seconds
        self._ended += 1

    def stop(self) -> None:
        """No more arrivals come due."""
        if not self._stopped:
            self._look()
            self._stopped = True
            for clock in self._clocks.values():
                clock.stop()
            self._watch.kill(block=False)

    def report(self) -> dict[str, int]:
        """Return how many tickets have come due, still wait for a user, and waited at the worst look."""
        clocks = self._clocks.values()
        return {
            "due": sum(clock.due for clock in clocks),
            "waiting": self.waiting + self.unsent,
            "most_waiting": self._most_waiting,
        }

    @property
    def waiting(self) -> int:
        return sum(clock.waiting for clock in self._clocks.values())

    # ---- helpers

    def _watch_users(self) -> None:
        while not self._stopped:
            gevent.sleep(LOOK_S)
            self._look()

    def _look(self) -> None:
        """Warn where tickets wait for users."""
        now_s = time.monotonic()
        self._most_waiting = max(self._most_waiting, self.waiting)
        for stream, clock in self._clocks.items():
            old_s = now_s - clock.oldest_ns / 1e9 if clock.oldest_ns is not None else 0.0
            if old_s > OLD_S and now_s - self._said_s > SAY_AGAIN_S:
                self._said_s = now_s
                logger.warning("%s", self._too_few(stream, clock.waiting, old_s))

    def _too_few(self, stream: str, waiting: int, old_s: float) -> str:
        pacer, who = self.pacers[stream], f"{stream}: " if stream else ""
        text = f"{who}{waiting} arrivals wait for a user, the first for {old_s:.1f} s: "
        if not self._ended:
            return text + f"users are too few for {pacer}; raise -u"
        latency_s = self._seconds / self._ended
        needed = ceil(pacer.rate * latency_s)
        return text + (
            f"{pacer} at {latency_s:.2f} s an exchange needs about {needed} users on average, more for bursts; raise -u"
        )


def hint(pacers: Mapping[str, Pacer], users: int, latency_s: float | None) -> list[str]:
    """Return what to say at the start about users and rates, a line a stream.

    Args:
        users: the cap, over all classes.
        latency_s: how long an exchange took in the warm-up; None if nobody knows yet.
    """
    lines = []
    for stream, pacer in pacers.items():
        carried = f"{users} users (-u) carry it while an exchange takes less than {users / pacer.rate:.3g} s"
        if latency_s is not None:
            needed = ceil(pacer.rate * latency_s)
            carried += f"; at the {latency_s:.2f} s of the warm-up it needs about {needed}"
            if needed > users:
                carried += f": too few, give -u {2 * needed}"
        lines.append(f"open loop: {stream + ': ' if stream else ''}{pacer}; {carried} (users = rate x latency)")
    return lines


def to_message(number: int, at_us: int, streams: Mapping[str, tuple[float, Share | None]]) -> dict[str, Any]:
    """Return a segment as plain data."""
    shares = {stream: [rate, share and share.index, share and share.of] for stream, (rate, share) in streams.items()}
    return {"number": number, "at_us": at_us, "streams": shares}


def from_message(data: Mapping[str, Any]) -> tuple[int, int, dict[str, tuple[float, Share | None]]]:
    """Read what ``to_message`` made."""
    streams = {
        stream: (float(rate), None if index is None else Share(int(index), int(of)))
        for stream, (rate, index, of) in data["streams"].items()
    }
    return int(data["number"]), int(data["at_us"]), streams
