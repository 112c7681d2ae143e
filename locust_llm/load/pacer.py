"""Pacers: the time from one arrival to the next, for the whole system. Tiny values that print themselves.

The one thing to know: a pacer is two methods, ``gap_s`` and ``at``; who sends which arrival is decided in ``schedule``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol, Self

FASTEST = 100_000.0
"""Arrivals per second beyond which a rate is taken for a slip of the pen."""


class Pacer(Protocol):
    """An arrival process. ``rate``: arrivals per second over all workers, in the long run."""

    @property
    def rate(self) -> float: ...

    def gap_s(self, draw: Random) -> float:
        """Return the seconds until the next arrival."""

    def at(self, rate: float) -> Pacer:
        """Return the same process at another rate."""


@dataclass(frozen=True, slots=True)
class _Timed:
    """What makes a pacer fit for ``wait_time``: Locust asks how long to wait after a task, and that is not at all."""

    rate: float

    def __call__(self, *_: Any) -> float:
        return 0.0

    def at(self, rate: float) -> Self:
        return replace(self, rate=rate)


@dataclass(frozen=True, slots=True)
class Constant(_Timed):
    """Evenly spaced arrivals."""

    def gap_s(self, draw: Random) -> float:
        return 1.0 / self.rate

    def __str__(self) -> str:
        return f"constant {self.rate:g}/s"


@dataclass(frozen=True, slots=True)
class Gamma(_Timed):
    """Gaps of a gamma distribution with mean ``1 / rate`` and shape ``burstiness``, as vLLM's ``--burstiness``.

    1 is a Poisson process; below it arrivals come in bursts, above it more evenly. The coefficient of variation of the
    gaps is ``burstiness ** -0.5``.
    """

    burstiness: float = 1.0

    def gap_s(self, draw: Random) -> float:
        if self.burstiness == 1.0:
            return draw.expovariate(self.rate)
        return draw.gammavariate(self.burstiness, 1.0 / (self.rate * self.burstiness))

    def __str__(self) -> str:
        if self.burstiness == 1.0:
            return f"poisson {self.rate:g}/s"
        return f"gamma {self.rate:g}/s, burstiness {self.burstiness:g}"
