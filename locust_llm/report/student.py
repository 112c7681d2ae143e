"""Student's t and binomial ranks: the two tables of every interval, computed, because scipy is not a dependency."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

import numpy as np

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


@cache
def binomial_ranks(n: int, q: float, tail: float) -> tuple[int, int]:
    """Return the ranks (from 1) of the order statistics that enclose a quantile with ``tail`` left out on each side.

    The textbook interval: with X binomial(n, q) it covers with P(low <= X < high). 0 and ``n + 1`` are ends that do
    not exist.
    """
    middle, spread = n * q, math.sqrt(n * q * (1 - q))
    first = max(0, math.floor(middle - _WIDE * spread - 5))
    last = min(n, math.ceil(middle + _WIDE * spread + 5))
    k = np.arange(first, last)
    steps = np.log((n - k) / (k + 1)) + math.log(q / (1 - q))
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    chances = np.exp(logs - logs.max())
    below = np.cumsum(chances) / chances.sum()
    low = first + int(np.searchsorted(below, tail, side="right"))
    high = first + int(np.searchsorted(below, 1 - tail)) + 1
    return low, high


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
