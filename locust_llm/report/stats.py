"""Mean, spread and percentiles of a set of values, each of which may stand for many (metrics.md 4).

The one thing to know: pooled gaps are kept as (value, how often) because log times are whole microseconds: millions of
gaps are a few thousand values, and every statistic stays exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from .columns import Floats, Ints
from .metrics import PERCENTILES
from .shares import needed


@dataclass(frozen=True, slots=True)
class Sample:
    """Values in rising order with how often each occurs; never NaN."""

    values: Floats
    counts: Ints
    ends: Ints = field(init=False, repr=False)
    """How many values lie at or before each place."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends", np.cumsum(self.counts))

    @property
    def size(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0


def sample(values: Floats, counts: Ints | None = None) -> Sample:
    """Return a sample of values (NaN left out), each standing for ``counts`` (default 1) equal ones."""
    if counts is None:  # a plain sort is many times faster than one that takes counts along
        known = np.sort(values[~np.isnan(values)])
        return Sample(known, np.ones(len(known), dtype=np.int64))
    there = ~np.isnan(values) & (counts > 0)
    values, counts = values[there], counts[there]
    order = np.argsort(values, kind="stable")
    return Sample(values[order], counts[order])


def quantile(of: Sample, q: float) -> float:
    """Return the ``q`` quantile of a sample that is not empty, linear between order statistics (numpy's ``linear``)."""
    ends = of.ends
    at = q * (float(ends[-1]) - 1)
    low = math.floor(at)
    below, above = of.values[np.searchsorted(ends, [low, min(low + 1, ends[-1] - 1)], side="right")]
    return float(below + (above - below) * (at - low))


def describe(of: Sample, scale: float = 1.0) -> dict[str, object]:
    """Return ``count mean std min p1 … p999 max thin`` of a sample that is not empty.

    ``std`` is the sample's (n - 1) and left out for one value; ``thin`` names the percentiles that have too few values.
    """
    n = of.size
    mean = float(np.dot(of.counts, of.values)) / n
    out: dict[str, object] = {"count": n, "mean": mean * scale}
    if n > 1:
        squares = float(np.dot(of.counts, (of.values - mean) ** 2))
        out["std"] = math.sqrt(squares / (n - 1)) * scale
    out["min"] = float(of.values[0]) * scale
    for name, q in PERCENTILES.items():
        out[name] = quantile(of, q) * scale
    out["max"] = float(of.values[-1]) * scale
    out["thin"] = [name for name, q in PERCENTILES.items() if n < needed(q)]
    return out
