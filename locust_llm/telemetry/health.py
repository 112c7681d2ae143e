"""How the client itself fared: CPU, time between two looks at the sockets, collector pauses (metrics.md 5).

Measured in every process from the start of the load to its end, at next to no cost: the processor's own clock, a few
counters in the poll clock that is there anyway, one callback per collection.
"""

from __future__ import annotations

import gc
import time
from dataclasses import asdict, dataclass
from typing import Any

import gevent

from ..transport.loop import poll_clock


@dataclass(frozen=True, slots=True)
class HealthReport:
    """One process over the load.

    Attributes:
        seconds: length of the observation.
        cpu: processor time per second, 1.0 is one core.
        loop_away_p99_ms, loop_away_max_ms: how long the event loop did not look at its sockets, over its turns, less
            what it meant to wait for arrivals to gather; the percentile is an upper bound, at most twice too long.
        loop_late_share: share of the time spent in turns of more than a millisecond, when arrivals could only queue up.
        gc_pauses, gc_ms, gc_max_ms: collections, their time in all and the longest.
        stolen: share of this machine's processors that its host gave to others (of a virtual machine); the clocks here
            stand still meanwhile, so nothing else can see it. None where the system does not tell.
    """

    seconds: float
    cpu: float
    loop_away_p99_ms: float
    loop_away_max_ms: float
    loop_late_share: float
    gc_pauses: int
    gc_ms: float
    gc_max_ms: float
    stolen: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, rounded to what can be known."""
        return {name: round(value, 4) for name, value in asdict(self).items() if value is not None}


class Health:
    """Observes this process from its creation; ``report`` tells, as often as asked."""

    def __init__(self) -> None:
        loop: Any = gevent.get_hub().loop
        self._polls = poll_clock(loop)
        self._polls.away.clear()
        self._began_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns()
        self._stolen = _stolen_and_all()
        self._pauses = 0
        self._pause_ns = 0
        self._longest_ns = 0
        self._collecting_since_ns = 0
        gc.callbacks.append(self._collected)

    def report(self) -> HealthReport:
        """Return what has been seen so far."""
        seconds = (time.monotonic_ns() - self._began_ns) / 1e9
        away = self._polls.away
        return HealthReport(
            seconds=seconds,
            cpu=(time.process_time_ns() - self._cpu_ns) / 1e9 / max(seconds, 1e-9),
            loop_away_p99_ms=away.at_most_ms(0.99),
            loop_away_max_ms=away.max_ns / 1e6,
            loop_late_share=away.late_ns / 1e9 / max(seconds, 1e-9),
            gc_pauses=self._pauses,
            gc_ms=self._pause_ns / 1e6,
            gc_max_ms=self._longest_ns / 1e6,
            stolen=self._stolen_since(),
        )

    def _stolen_since(self) -> float | None:
        now = _stolen_and_all()
        if self._stolen is None or now is None or now[1] <= self._stolen[1]:
            return None
        return (now[0] - self._stolen[0]) / (now[1] - self._stolen[1])

    def stop(self) -> None:
        """Observe no longer."""
        gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since_ns = time.monotonic_ns()
            return
        pause = time.monotonic_ns() - self._collecting_since_ns
        self._pauses += 1
        self._pause_ns += pause
        self._longest_ns = max(self._longest_ns, pause)


def _stolen_and_all() -> tuple[int, int] | None:
    """Return the stolen ticks of all processors and all of their ticks; None where there is no such count."""
    try:
        with open("/proc/stat", "rb") as stat:
            ticks = [int(n) for n in stat.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    return (ticks[7], sum(ticks)) if len(ticks) == 8 else None
