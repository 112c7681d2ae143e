"""Do two sides differ? A permutation test over blocks, Welch's t over runs, intervals of a change, Holm's correction.

The one thing to know: what is shuffled are *units* that hardly know each other: time blocks of two runs, or whole runs
where a side has several; never single exchanges, which wait in one queue and would raise false alarms to 17–89 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .columns import Floats
from .intervals import SEED, Interval, shared
from .student import t_95, t_tail

SHUFFLES = 4000
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Units:
    """Sums and counts of each unit (block) of one side; its figure is ``sum(sums) / sum(counts)``."""

    sums: Floats
    counts: Floats

    def __len__(self) -> int:
        return len(self.sums)


def permutation_p(base: Units, new: Units, adjacent: bool = True) -> float:
    """Return the two-sided p of "the units of both sides come from one hat".

    The statistic is the difference over its standard error (Janssen 1997), so a side that merely scatters more is no
    alarm. What neighbouring blocks still share widens the error of what was seen.

    Parameters:
        adjacent: the units of a side are in order of time.
    """
    sums, counts = np.concatenate((base.sums, new.sums)), np.concatenate((base.counts, new.counts))
    members = np.zeros((SHUFFLES, len(sums)))
    order = np.random.default_rng(SEED).random(members.shape).argsort(axis=1)
    np.put_along_axis(members, order[:, : len(base)], 1.0, axis=1)
    seen = np.zeros((1, len(sums)))
    seen[0, : len(base)] = 1.0
    factors = [shared(u.sums - _ratio(u) * u.counts) if adjacent else 1.0 for u in (base, new)]
    found = float(_statistic(seen, sums, counts, factors[0], factors[1])[0])
    shuffled = _statistic(members, sums, counts)
    if not np.isfinite(found):
        return 1.0 if np.isnan(found) else 1 / (SHUFFLES + 1)
    return float((np.abs(shuffled) >= abs(found) - 1e-12).sum() + 1) / (SHUFFLES + 1)


def welch(base: Sequence[float], new: Sequence[float]) -> tuple[float, float, float]:
    """Return p, and low and high of the 95 % interval of ``mean(new) - mean(base)``; each side at least two values."""
    a, b = np.asarray(base, dtype=np.float64), np.asarray(new, dtype=np.float64)
    parts = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    error = math.sqrt(sum(parts))
    change = float(b.mean() - a.mean())
    if error == 0:
        return (1.0 if change == 0 else 0.0), change, change
    dof = error**4 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    half = t_95(round(dof, 3)) * error
    return t_tail(change / error, dof), change - half, change + half


def change_interval(base: float, base_ci: Interval, new: float, new_ci: Interval) -> Interval:
    """Return the interval of ``new - base`` from theirs (MOVER: Zou and Donner 2008); an open end leaves one open."""
    change = new - base
    low = high = None
    if new_ci[0] is not None and base_ci[1] is not None:
        low = change - math.hypot(new - new_ci[0], base_ci[1] - base)
    if new_ci[1] is not None and base_ci[0] is not None:
        high = change + math.hypot(new_ci[1] - new, base - base_ci[0])
    return low, high


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values corrected for there being many (Holm 1979), in the order given."""
    corrected, worst = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        worst = max(worst, min(1.0, ps[i] * (len(ps) - rank)))
        corrected[i] = worst
    return corrected


# ---- helpers


def _ratio(of: Units) -> float:
    return float(of.sums.sum() / of.counts.sum())


def _statistic(
    members: Floats, sums: Floats, counts: Floats, factor_in: float = 1.0, factor_out: float = 1.0
) -> Floats:
    """Return the difference between members and others over its standard error, for each row of members."""
    values, variances = [], []
    for rows, factor in ((members, factor_in), (1 - members, factor_out)):
        number, total = rows.sum(axis=1), rows @ counts
        value = rows @ sums / total
        squares = rows @ sums**2 - 2 * value * (rows @ (sums * counts)) + value**2 * (rows @ counts**2)
        values.append(value)
        variances.append(factor * np.maximum(squares, 0) * number / np.maximum(number - 1, 1) / total**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic: Floats = (values[1] - values[0]) / np.sqrt(variances[0] + variances[1])
    return statistic
