"""Student's t and binomial ranks: the two tables of every interval, computed, because scipy is not a dependency."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

NORMAL_95 = NormalDist().inv_cdf(0.975)
_WIDE = 9.0  # standard deviations of a binomial that are summed


def t_tail(t: float, dof: float) -> float:
    """Return P(|T| >= |t|) of Student's distribution, by the incomplete beta function."""
    return _incomplete_beta(dof / 2, 0.5, dof / (dof + t * t))


@cache
def t_95(dof: float) -> float:
    """Return the t beyond which 2.5 % of the distribution lie."""
    low, high = 0.0, 1e3
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, dof) > 0.05 else (low, middle)
    return high


def t_95_of(values: float) -> float:
    """Return Student's t for so many independent values, rounded down, so that few different ones are worked out."""
    dof = max(1, int(values) - 1)
    return t_95(dof if dof < 30 else dof // 10 * 10 if dof < 200 else 200)


@cache
def binomial_ranks(n: int, q: float, tail: float) -> tuple[float, float]:
    """Return the ranks (from 1) that enclose a quantile with ``tail`` left out on each side; broken ones lie between
    two order statistics (Beran and Hall 1993: interpolated intervals), as whole ones alone leave out less than asked.

    The textbook interval: with X binomial(n, q) ranks cover with P(low <= X < high). Below 1 and above ``n`` are ends
    that do not exist.
    """
    import numpy as np  # not for whoever only wants Student's t

    middle, spread = n * q, math.sqrt(n * q * (1 - q))
    first = max(0, math.floor(middle - _WIDE * spread - 5))
    last = min(n, math.ceil(middle + _WIDE * spread + 5))
    k = np.arange(first, last)
    steps = np.log((n - k) / (k + 1)) + math.log(q / (1 - q))
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    chances = np.exp(logs - logs.max())
    below = np.cumsum(chances) / chances.sum()
    low, high = int(np.searchsorted(below, tail, side="right")), int(np.searchsorted(below, 1 - tail))
    before = np.concatenate(([0.0], below))
    spare = (tail - before[low]) / (below[low] - before[low]), (below[high] - 1 + tail) / (below[high] - before[high])
    return float(first + low + spare[0]), float(first + high + 1 - spare[1])


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    total = d
    for m in range(1, 300):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + step * d or tiny)
            c = 1 + step / c or tiny
            total *= c * d
        if abs(c * d - 1) < 1e-13:
            break
    return math.exp(front) * total / a
