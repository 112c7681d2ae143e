"""95 % intervals of means, percentiles, shares and rates of a series that remembers (metrics.md 4).

The one thing to know: exchanges are not independent (they wait in one queue), so everything rests on *blocks*, runs of
consecutive exchanges long enough that one block hardly knows the one before. Fewer than ``MIN_BLOCKS`` of these: no
interval, and how long the run should have been. docs/statistics.md shows how often these intervals are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

from .columns import Floats, Ints
from .shares import MEMORIES, wilson
from .stats import Sample
from .student import NORMAL_95, binomial_ranks, t_95, t_95_of

MIN_BLOCKS, MAX_BLOCKS = 8, 20
RESAMPLES = 2000
SEED = 20260101

End = float | None
Interval = tuple[End, End]
"""Lower and upper end; None is open."""


@dataclass(frozen=True, slots=True)
class Memory:
    """How a series is cut into blocks.

    Attributes:
        length: values in a block. blocks: how many there are; 0 if fewer than ``MIN_BLOCKS`` would fit.
        needed: values that ``MIN_BLOCKS`` blocks need.
    """

    length: int
    blocks: int
    needed: int

    def labels(self, values: int) -> Ints:
        """Return the block of each of the values, in order of time."""
        return block_labels(values, self.blocks)


def memory(series: Sequence[Floats], least: float = 1.0) -> Memory:
    """Return the blocks for series that stand side by side, by the one that remembers longest.

    The memory at length L is L times the variance of means of L values over the variance of single values; for L that
    is long enough it is the integrated autocorrelation time (Alexopoulos and Seila, batch means). The block is the
    shortest that is ``MEMORIES`` times the greatest memory seen at any length up to its own.

    Parameters:
        series: values in order of time, without NaN. least: the shortest block allowed, in values.
    """
    length, greatest = 1, 1.0
    size = max((len(values) for values in series), default=0)
    sums = [np.concatenate(([0.0], np.cumsum(values - values.mean()))) for values in series if len(values) > 1]
    variances = [float(values.var()) for values in series if len(values) > 1]
    while size // length >= MIN_BLOCKS:
        for total, variance in zip(sums, variances, strict=True):
            means = np.diff(total[::length]) / length
            if len(means) > 2 and variance > 0:
                greatest = max(greatest, length * float(means.var(ddof=1)) / variance)
        if length >= max(MEMORIES * greatest, least):
            return Memory(length, min(MAX_BLOCKS, size // length), MIN_BLOCKS * length)
        length = max(length + 1, math.floor(length * 1.41))
    needed = max(length, math.ceil(MEMORIES * greatest), math.ceil(least))
    return Memory(needed, 0, MIN_BLOCKS * needed)


def block_labels(values: int, blocks: int) -> Ints:
    """Return the block of each of the values, in order of time; blocks are as equal as they can be."""
    return np.arange(values) * blocks // max(values, 1)


def mean_interval(sums: Floats, counts: Floats) -> Interval:
    """Return the interval of ``sum(sums) / sum(counts)`` over blocks.

    Blocks are resampled (bootstrap), the percentiles widened for few of them (Hesterberg 2015), and stretched by what
    neighbouring blocks still share (Skart: Tafazzoli, Wilson and others 2011).
    """
    there = counts > 0
    sums, counts = sums[there], counts[there]
    n = len(sums)
    if n < MIN_BLOCKS:
        return None, None
    mean = float(sums.sum() / counts.sum())
    weights = _weights(n)
    drawn = (weights @ sums) / (weights @ counts)
    tail = NormalDist().cdf(-math.sqrt(n / (n - 1)) * t_95(n - 1))
    low, high = (float(x) for x in np.quantile(drawn, [tail, 1 - tail]))
    stretch = math.sqrt(shared(sums - mean * counts))
    if low > 0:  # on the scale of ratios, as queues are skewed
        low, high = mean * (low / mean) ** stretch, mean * (high / mean) ** stretch
    else:
        low, high = mean + stretch * (low - mean), mean + stretch * (high - mean)
    return min(low, mean), max(high, mean)  # not out by a rounding where all values are alike


def queued_mean_interval(sums: Floats, counts: Floats, variance: float, alike: float, falls: bool = False) -> Interval:
    """Return the interval of a mean where a queue is known to remember longer than blocks may show.

    The wider of two: by the blocks, and by the number of independent values that the queue's memory leaves, each with
    its own Student's t. Near saturation the error of a mean grows with its square (Whitt 1989: planning queueing
    simulations), so the interval is made on the scale of 1 / mean; its upper end is open where nothing bounds it.

    Parameters:
        variance: of single values. alike: how many independent ones they are worth, by the queue.
        falls: the figure falls when the queue grows (tokens/s): it is itself on the scale of 1 / latency.
    """
    there = counts > 0
    sums, counts = sums[there], counts[there]
    n, total = len(sums), float(counts.sum())
    if n < MIN_BLOCKS:
        return None, None
    mean = float(sums.sum()) / total
    rest = sums - mean * counts
    by_blocks = n / (n - 1) * float(rest @ rest) / total**2 * shared(rest)
    alike = max(alike, 2.0)
    half = max(t_95(n - 1) * math.sqrt(by_blocks), t_95_of(alike) * math.sqrt(variance / (alike - 1)))
    if falls or mean <= 0:
        return mean - half, mean + half
    return mean / (1 + half / mean), mean / (1 - half / mean) if half < mean else None


def inflation(below: Floats, counts: Floats) -> float:
    """Return how many values are worth one independent value, for the share ``sum(below) / sum(counts)`` over blocks.

    1 unless it is more than its own error above 1; 1 too for fewer than two blocks and for a share of 0 or 1.
    """
    there = counts > 0
    below, counts = below[there], counts[there]
    n, total = len(below), float(counts.sum())
    share = float(below.sum()) / total if total else 0.0
    if n < 2 or not 0 < share < 1:
        return 1.0
    rest = below - share * counts
    variance = n / (n - 1) * float(rest @ rest) * shared(rest)
    inflated = variance / (total * share * (1 - share))
    return inflated if inflated > 1 + math.sqrt(2 / (n - 1)) else 1.0


def quantile_interval(of: Sample, q: float, inflated: float, blocks: float) -> Interval:
    """Return binomial order statistics around a quantile, as if there were ``of.size / inflated`` values.

    Parameters:
        inflated: see ``inflation``; above 1 it is an estimate from ``blocks`` blocks, and Student's t allows for that.
    """
    size = of.size
    alike = max(1, round(size / inflated))
    tail = 0.025 if inflated <= 1 else NormalDist().cdf(-t_95_of(blocks))
    low, high = binomial_ranks(alike, q, tail)

    def at(rank: float) -> float:
        rank = min(max((rank - 0.5) * size / alike + 0.5, 1.0), size)  # a value stands for the middle of its share
        below = math.floor(rank)
        one, next_ = (float(of.values[np.searchsorted(of.ends, min(r, size))]) for r in (below, below + 1))
        if rank == below or one == next_:
            return one
        if not math.isfinite(next_ - one):  # beside a failure: on it
            return next_ if math.isinf(next_) else one
        return one + (rank - below) * (next_ - one)

    return None if low < 1 else at(low), None if high > alike else at(high)


def reach(inflated: float, blocks: float) -> float:
    """Return how many standard errors of independent values an interval with this inflation reaches."""
    return math.sqrt(inflated) * (NORMAL_95 if inflated <= 1 else t_95_of(blocks))


def share_interval(hits: Floats, least: float = 1.0) -> tuple[float, float]:
    """Return the interval of a share: hits (0 or 1) in order of time, not empty.

    Unlike the others it is always there; where the run is too short for its memory it comes from ``MIN_BLOCKS`` blocks.
    """
    size = len(hits)
    cut = memory([hits], least)
    blocks = cut.blocks or min(MIN_BLOCKS, size)
    labels = block_labels(size, blocks)
    per_block, sizes = (np.bincount(labels, w).astype(np.float64) for w in (hits, np.ones(size)))
    inflated = inflation(per_block, sizes)
    return wilson(float(hits.mean()), size / inflated, blocks if inflated > 1 else 0)


@cache
def _weights(blocks: int) -> Floats:
    """How often each block is drawn in each resample."""
    drawn = np.random.default_rng(SEED).multinomial(blocks, np.full(blocks, 1 / blocks), RESAMPLES)
    return drawn.astype(np.float64)


def shared(rest: Floats) -> float:
    """Return the factor on a variance for what each block shares with the next: (1 + r) / (1 - r), r >= 0."""
    square = float(rest @ rest)
    r = float(rest[1:] @ rest[:-1]) / square if square > 0 else 0.0
    r = min(max(r, 0.0), 0.8)
    return (1 + r) / (1 - r)
