"""Equal stretches of a window, and what happened in each: counts, percentiles, mean number in flight.

The one thing to know: widths are round (1, 2, 5, 10 … s) so that an axis reads well, and the last bin may be cut short
by the end of the window: ``seconds`` has each one's true length.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .columns import Floats, Ints
from .window import Window

_WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)


@dataclass(frozen=True, slots=True)
class Bins:
    """``count`` stretches of ``width_us`` from ``start_us`` (epoch) on."""

    start_us: int
    end_us: int
    width_us: int
    count: int

    @property
    def starts_s(self) -> Floats:
        """Seconds after the start of the window."""
        starts: Floats = np.arange(self.count, dtype=np.float64) * (self.width_us / 1e6)
        return starts

    @property
    def seconds(self) -> Floats:
        """True length of each."""
        edges = np.minimum(np.arange(self.count + 1) * self.width_us, self.end_us - self.start_us)
        seconds: Floats = np.diff(edges) / 1e6
        return seconds

    def index(self, times_us: Ints) -> Ints:
        """Return the bin of each epoch time; times outside go to the first or last."""
        at = (np.asarray(times_us) - self.start_us) // self.width_us
        return np.clip(at, 0, self.count - 1).astype(np.int64)


def bins_of(window: Window, most: int) -> Bins:
    """Return at most ``most`` bins of a round width over a window; at least one."""
    length = max(window.end_us - window.start_us, 1)
    width = next((w * 1_000_000 for w in _WIDTHS_S if w * 1_000_000 * most >= length), 0)
    width = width or -(-length // (most * 86_400_000_000)) * 86_400_000_000
    return Bins(window.start_us, window.end_us, width, max(1, -(-length // width)))


def percentiles(at: Ints, values: Floats, count: int, q: float) -> Floats:
    """Return the ``q`` quantile (linear) of the values of each bin, NaN for bins without one; NaN is no value."""
    there = ~np.isnan(values)
    at, values = at[there], values[there]
    values = values[np.argsort(at, kind="stable")]
    ends = np.concatenate(([0], np.cumsum(np.bincount(at, minlength=count))))
    for low, high in pairwise(ends.tolist()):
        values[low:high].sort()
    numbers = np.diff(ends)
    some = numbers > 0
    place = ends[:-1][some] + q * (numbers[some] - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, ends[1:][some] - 1)
    out = np.full(count, np.nan)
    out[some] = values[low] + (values[high] - values[low]) * (place - low)
    return out


def mean_level(start_us: Ints, end_us: Ints, bins: Bins) -> Floats:
    """Return how many of the stretches start..end lie in each bin, time-weighted."""
    edges = np.minimum(bins.start_us + np.arange(bins.count + 1) * bins.width_us, bins.end_us)
    covered = _covered(np.sort(start_us), edges) - _covered(np.sort(end_us), edges)
    level: Floats = np.diff(covered) / np.maximum(np.diff(edges), 1)
    return level


def _covered(times: Ints, edges: Ints) -> Floats:
    """Return, for each edge, the time since each of the (sorted) times that lie before it, in sum."""
    before = np.searchsorted(times, edges)
    origin = int(times[0]) if len(times) else 0
    sums = np.concatenate(([0], np.cumsum(times - origin)))
    covered: Floats = before * (edges - origin).astype(np.float64) - sums[before]
    return covered
