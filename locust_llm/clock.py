"""Clocks: durations live on the monotonic clock, one wall anchor per process places them in the day.

Kernel receive stamps are wall clock; ``event_time`` maps them to the monotonic line at each read, so a clock that is
stepped (NTP) between two reads cannot bend a duration (metrics.md 1).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

REANCHOR_NS = 60_000_000_000
STEP_NS = 1_000_000  # a wall clock that moved by more than this against the monotonic one was stepped


def event_time(mono_ns: int, real_ns: int, kernel_ns: int, last_read_ns: int) -> int | None:
    """Return the monotonic time of a kernel stamp, or None if the stamp cannot be true.

    Args:
        mono_ns, real_ns: both clocks, read together right after the socket read.
        kernel_ns: the kernel's wall-clock stamp of the newest bytes of the read; 0 if it gave none.
        last_read_ns: monotonic time before which the bytes cannot have come (last read of this socket, or ``t_sent``).
    """
    lag = real_ns - kernel_ns
    if kernel_ns and 0 <= lag <= mono_ns - last_read_ns:
        return mono_ns - lag
    return None


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A jump of the wall clock, seen when the anchor was read again."""

    at_us: int
    by_us: int


class WallAnchor:
    """Wall time of monotonic instants, steady over a minute even if the wall clock is stepped meanwhile."""

    def __init__(self) -> None:
        self.steps: list[ClockStep] = []
        self._offset_ns = self._read()
        self._read_at_ns = time.monotonic_ns()

    def wall_us(self, mono_ns: int) -> int:
        """Return epoch microseconds of a monotonic instant."""
        if mono_ns - self._read_at_ns > REANCHOR_NS:
            self._reanchor(mono_ns)
        return (mono_ns + self._offset_ns) // 1000

    def _reanchor(self, mono_ns: int) -> None:
        offset = self._read()
        if abs(offset - self._offset_ns) > STEP_NS:
            self.steps.append(ClockStep((mono_ns + offset) // 1000, (offset - self._offset_ns) // 1000))
        self._offset_ns, self._read_at_ns = offset, mono_ns

    @staticmethod
    def _read() -> int:
        # The tightest of a few readings: one may have been torn apart by a context switch.
        best, best_gap = 0, 1 << 62
        for _ in range(5):
            before = time.monotonic_ns()
            real = time.time_ns()
            after = time.monotonic_ns()
            if after - before < best_gap:
                best, best_gap = real - (before + after) // 2, after - before
        return best
