"""Mergeable histograms of positive values: logarithmic buckets, exact count, sum, least and greatest.

The one thing to know: a bucket is 1/128 of an octave, and a value is taken for the middle of its bucket, so that each
order statistic, and what is interpolated between two of them, is within 0.4 %. Counts may be taken back
(``Histogram.take_back``): what was counted for a stream that is still open is put right when its record comes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

_STEPS_BITS = 7
_STEPS = 1 << _STEPS_BITS
_LOWEST = 32
"""Octaves below 1 that are told apart; whatever is less counts as zero."""
_MOST_KEY = (96 << _STEPS_BITS) - 1
ZERO = 0

RELATIVE_ERROR = 0.5 / _STEPS
"""The most by which a value differs from the middle of its bucket."""


def key_of(value: float) -> int:
    """Return the bucket of a value; all that is not positive lies in bucket ``ZERO``."""
    if value <= 0:
        return ZERO
    if value == math.inf:
        return _MOST_KEY
    mantissa, exponent = math.frexp(value)
    key = ((exponent + _LOWEST) << _STEPS_BITS) + int(mantissa * (2 * _STEPS)) - _STEPS
    return min(max(key, ZERO), _MOST_KEY)


def counts_of(values: Iterable[float], weights: Iterable[int] | None = None) -> dict[int, int]:
    """Return how many values lie in each bucket. ``weights``: each stands for so many.

    Gaps are whole microseconds and many are alike, so equal values are put together first, which is done in C.
    """
    alike: Mapping[float, int]
    if weights is None:
        alike = Counter(values)
    else:
        alike = {}
        for value, weight in zip(values, weights, strict=True):
            alike[value] = alike.get(value, 0) + weight
    counts: dict[int, int] = {}
    for value, number in alike.items():
        key = key_of(value)
        counts[key] = counts.get(key, 0) + number
    return counts


def middle(key: int) -> float:
    """Return the value that stands for a bucket."""
    if key <= ZERO:
        return 0.0
    exponent, step = divmod(key, _STEPS)
    return math.ldexp(_STEPS + step + 0.5, exponent - _LOWEST - _STEPS_BITS - 1)


class Histogram:
    """Counts by bucket.

    Attributes:
        counts: by key, none of them 0; less than 0 only in a difference that is to be merged into something greater.
        n, total: number and sum of the values, exact.
        low, high: least and greatest of the values that were not provisional, exact; inf and -inf if there is none.
    """

    __slots__ = ("counts", "high", "low", "n", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.n = 0
        self.total = 0.0
        self.low = math.inf
        self.high = -math.inf

    def add_all(self, values: list[float]) -> None:
        """Count many values."""
        self.stretch(min(values), max(values))
        self.add_counts(counts_of(values), sum(values))

    def add(self, value: float) -> None:
        """Count a value."""
        self._count(key_of(value), 1)
        self.total += value
        self.stretch(value, value)

    def add_provisional(self, value: float, times: int = 1) -> None:
        """Count a value that may be taken back (``times=-1``)."""
        self._count(key_of(value), times)
        self.total += times * value

    def add_counts(self, counts: Mapping[int, int], total: float, sign: int = 1) -> None:
        """Count many provisional values by bucket (``counts_of``), or take them back (``sign=-1``).

        Args:
            total: their sum.
        """
        for key, count in counts.items():
            self._count(key, sign * count)
        self.total += sign * total

    def stretch(self, low: float, high: float) -> None:
        """Take note of the extremes of values that are here to stay."""
        self.low = min(self.low, low)
        self.high = max(self.high, high)

    def merge(self, other: Histogram) -> None:
        """Add all that another one has counted, or has taken back."""
        for key, count in other.counts.items():
            self._count(key, count)
        self.total += other.total
        self.stretch(other.low, other.high)

    def ends(self) -> tuple[float, float]:
        """Return the least and the greatest value: exact unless a provisional one lies beyond in another bucket."""
        keys = self._keys()
        return self._ends(keys[0], keys[-1])

    def quantiles(self, shares: Iterable[float], beyond: int = 0) -> list[float]:
        """Return quantiles, linear between order statistics, for shares in rising order.

        Args:
            beyond: so many further values are infinite (failures).

        Raises:
            ValueError: there is no value.
        """
        keys = self._keys()
        low, high = self._ends(keys[0], keys[-1])
        found, at, seen = [], 0, self.counts[keys[0]]
        for share in shares:
            place = share * (self.n + beyond - 1)
            rank = math.floor(place)
            while rank >= seen and at + 1 < len(keys):
                at += 1
                seen += self.counts[keys[at]]
            below = self._order_statistic(rank, keys[at], low, high)
            following = keys[at] if rank + 1 < seen or at + 1 == len(keys) else keys[at + 1]
            above = self._order_statistic(min(rank + 1, self.n + beyond - 1), following, low, high)
            found.append(below if above == below else below + (above - below) * (place - rank))
        return [math.inf if math.isnan(value) else value for value in found]

    def up_to(self, limits: Sequence[float]) -> list[int]:
        """Return, for each of some limits in rising order, how many values are not greater; a bucket is on one side."""
        counts = [0] * (len(limits) + 1)
        for key, count in self.counts.items():
            counts[bisect_left(limits, middle(key))] += count
        return list(accumulate(counts[:-1]))

    def above(self, limit: float) -> int:
        """Return how many values are greater than a limit; those of its own bucket are split in proportion."""
        key = key_of(limit)
        count = sum(count for other, count in self.counts.items() if other > key)
        inside = self.counts.get(key, 0)
        if inside > 0 and key > ZERO:
            step = middle(key + 1) - middle(key)
            count += round(inside * min(max((middle(key) + step / 2 - limit) / step, 0.0), 1.0))
        return count

    def block(self, scale: float = 1.0) -> dict[str, float]:
        """Return ``count mean min max p50 p90 p95 p99`` (``p99.9`` from 1000 values), times ``scale``; {} if empty."""
        if self.n <= 0:
            return {}
        shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99} | ({"p99.9": 0.999} if self.n >= 1000 else {})
        quantiles = self.quantiles(shares.values())
        low, high = self.ends()
        block = {"count": self.n, "mean": self.total / self.n * scale, "min": low * scale, "max": high * scale}
        return block | {name: value * scale for name, value in zip(shares, quantiles, strict=True)}

    def to_plain(self) -> list[Any]:
        """Return it as plain data: sum, extremes, then key and count in turn."""
        ends = [None, None] if self.low > self.high else [self.low, self.high]
        return [self.total, *ends, *(number for pair in self.counts.items() for number in pair)]

    @staticmethod
    def from_plain(data: list[Any]) -> Histogram:
        """Read what ``to_plain`` made.

        Raises:
            ValueError, TypeError: it is nothing of the kind.
        """
        total, low, high, *flat = data
        if len(flat) % 2 or not {type(number) for number in flat} <= {int}:
            raise ValueError("no histogram")
        own = Histogram()
        own.counts = dict(zip(flat[::2], flat[1::2], strict=True))
        if own.counts and not ZERO <= min(own.counts) <= max(own.counts) <= _MOST_KEY:
            raise ValueError("no such bucket")
        own.n = sum(flat[1::2])
        own.total = float(total)
        if low is not None:
            own.low, own.high = float(low), float(high)
        return own

    def _keys(self) -> list[int]:
        """Return the buckets that hold something, in rising order."""
        if self.n <= 0:
            raise ValueError("no values")
        return sorted(key for key, count in self.counts.items() if count > 0)

    def _ends(self, first: int, last: int) -> tuple[float, float]:
        low = self.low if key_of(self.low) <= first else middle(first)
        return low, self.high if key_of(self.high) >= last else middle(last)

    def _order_statistic(self, rank: int, key: int, low: float, high: float) -> float:
        if rank >= self.n:
            return math.inf
        if rank == 0:
            return low
        return high if rank == self.n - 1 else min(max(middle(key), low), high)

    def _count(self, key: int, times: int) -> None:
        counts = self.counts
        count = counts.get(key, 0) + times
        if count:
            counts[key] = count
        else:
            counts.pop(key, None)
        self.n += times
