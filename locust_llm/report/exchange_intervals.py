"""Intervals of figures that each exchange has once, and of those whose values are counted by block (metrics.md 4).

The one thing to know: two sources say how much the exchanges know of each other, their blocks (``intervals.py``) and
what was in flight when they started (``queueing.py``); the interval is made by whichever says more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .columns import Floats, Ints
from .intervals import (
    MAX_BLOCKS,
    MIN_BLOCKS,
    Interval,
    Memory,
    inflation,
    mean_interval,
    memory,
    quantile_interval,
    queued_mean_interval,
    reach,
)
from .metrics import PERCENTILES
from .queueing import correlation, level_correlations, queue_memory
from .shares import CONCURRENCIES, MEMORIES
from .stats import Sample, quantile, sample

_QUANTILES = np.array(list(PERCENTILES.values()))
_ENDS = (0.1, 0.9)
RUN_PER_IN_FLIGHT = 150
"""A run that a queue keeps waiting has intervals from so many exchanges on for each in flight: it lasts so many times
as long as one. Shorter runs tell too little of their queue: those that look calm enough would be wrong too often."""
_BEYOND_PER_IN_FLIGHT = 35
"""For the same reason a percentile has its outer end if so many exchanges for each in flight lie beyond it."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """How exchanges are cut into blocks.

    Attributes:
        measured: by the memory that the series shows; none where the run is too short for its queue. used: the same,
            or ``MAX_BLOCKS`` where that is too long for the run but the queue tells its memory. queue_memory: exchanges
            that the queue remembers; 1 without one.
    """

    measured: Memory
    used: Memory
    queue_memory: float


def exchange_blocks(series: Sequence[Floats], in_flight: Ints, mean_in_flight: float) -> Blocks:
    """Return the blocks of a scope.

    Parameters:
        series: TTFT and e2e latency in order of start, NaN where an exchange has none.
        in_flight: exchanges in flight when each started; their mean over time is ``mean_in_flight``.
    """
    there = [(values[known], in_flight[known]) for values in series if (known := ~np.isnan(values)).any()]
    least = CONCURRENCIES * mean_in_flight
    measured = memory([values for values, _ in there], least)
    remembers = [float(queue_memory(correlation(v, k), len(v), mean_in_flight)) for v, k in there]
    queue = max(remembers, default=1.0)
    size = len(in_flight)
    if queue > 1:
        length = math.ceil(max(RUN_PER_IN_FLIGHT * mean_in_flight / MIN_BLOCKS, queue, MIN_BLOCKS))
        if size < MIN_BLOCKS * length:
            length = max(length, measured.length)
            measured = Memory(length, 0, MIN_BLOCKS * length)
        elif not measured.blocks:
            return Blocks(measured, Memory(size // MAX_BLOCKS, MAX_BLOCKS, measured.needed), queue)
    return Blocks(measured, measured, queue)


@dataclass(frozen=True, slots=True)
class Queued:
    """What the queue says of a figure (``queueing``): values that are worth one, for the mean and each percentile.

    Attributes:
        variance: of a single value. falls: the figure falls as the queue grows. in_flight: exchanges, on average.
    """

    mean: float
    levels: Floats
    variance: float
    falls: bool
    in_flight: float


def independent_blocks(series: Sequence[Floats], in_flight: Ints, mean_in_flight: float) -> Memory:
    """Return blocks that hardly know each other, by the series' memory and the queue's: what a comparison needs.

    Parameters: as of ``exchange_blocks``.
    """
    queue = exchange_blocks(series, in_flight, mean_in_flight).queue_memory
    least = max(CONCURRENCIES * mean_in_flight, MEMORIES * queue if queue > 1 else 1.0)
    known = [values[~np.isnan(values)] for values in series]
    return memory([values for values in known if len(values)], least)


def exchange_intervals(
    values: Floats, labels: Ints, blocks: int, in_flight: Ints, mean_in_flight: float,
    scale: float = 1.0, means: bool = True, of: Sample | None = None,
) -> dict[str, Interval]:  # fmt: skip
    """Return the intervals of a figure that each exchange has once.

    Parameters:
        values: without NaN; labels: the block of each. in_flight: exchanges in flight when each started.
        means: whether the mean is wanted; infinities are allowed if not. of: the sample of the values, if it is there.
    """
    of = of or sample(values)
    thresholds = np.array([level(of, q) for q in _QUANTILES])
    at = np.zeros(len(values), dtype=np.int8)  # how many lie below: a few comparisons are cheaper than a search
    for threshold in thresholds:
        at += values > threshold
    width = len(thresholds) + 1
    below = np.bincount(labels * width + at, minlength=blocks * width).reshape(blocks, width)
    counts = np.bincount(labels, minlength=blocks).astype(np.float64)
    sums = np.bincount(labels, values, minlength=blocks).astype(np.float64) if means else None
    finite = np.isfinite(values)
    r = correlation(values[finite], in_flight[finite]) if finite.any() else 0.0
    remembers = float(queue_memory(r, of.size, mean_in_flight))
    # Whether a value lies below a level is the queue's doing in part only, and the rest forgets at once.
    part = level_correlations(at, len(thresholds), in_flight)
    levels = np.maximum(queue_memory(part, of.size, mean_in_flight) * np.abs(part), 1.0)
    # The end that the queue stretches remembers as long as the mean, though few values of it tell so.
    end = _ENDS[0] >= _QUANTILES if r < 0 else _ENDS[1] <= _QUANTILES
    levels[end] = np.maximum(levels[end], remembers)
    queued = Queued(remembers, levels, float(values.var()) if means else 0.0, r < 0, mean_in_flight)
    return figure_intervals(of, sums, counts, np.cumsum(below, axis=1)[:, :-1].astype(np.float64), scale, queued)


def figure_intervals(
    of: Sample, sums: Floats | None, counts: Floats, below: Floats, scale: float = 1.0, queued: Queued | None = None
) -> dict[str, Interval]:
    """Return the intervals of the mean (where ``sums`` are given) and of each percentile, in the unit of people.

    Parameters:
        counts, sums: per block. below: blocks × percentiles, how many values lie at or below each percentile.
        queued: what the queue says; None where that is not known.
    """
    out: dict[str, Interval] = {}
    if sums is not None and queued is not None and queued.mean > 1:
        out["mean"] = queued_mean_interval(sums, counts, queued.variance, of.size / queued.mean, queued.falls)
    elif sums is not None:
        out["mean"] = mean_interval(sums, counts)
    blocks = int((counts > 0).sum())
    by_blocks = outwards([inflation(below[:, i], counts) for i in range(len(_QUANTILES))])
    by_queue = outwards(queued.levels) if queued is not None else np.ones(len(_QUANTILES))
    for i, (name, q) in enumerate(PERCENTILES.items()):
        said = [(by_blocks[i], float(blocks)), (by_queue[i], of.size / by_queue[i])]
        if name != "p50":  # where few values tell of the memory, no more is believed of it than so many blocks can say
            said[1] = (by_queue[i], min(said[1][1], blocks))
        widest = max(said, key=lambda one: reach(*one))
        low, high = quantile_interval(of, q, *widest) if blocks >= 2 else (None, None)
        if queued is not None and queued.mean > 1:
            beyond, least = of.size * (q if queued.falls else 1 - q), _BEYOND_PER_IN_FLIGHT * queued.in_flight
            if beyond < least:
                low, high = (None, high) if queued.falls else (low, None)
        out[name] = low, high
    return {
        name: tuple(None if end is None else end * scale for end in ends)  # type: ignore[misc]
        for name, ends in out.items()
        if ends != (None, None)
    }


def outwards(inflated: Sequence[float] | Floats) -> Floats:
    """Return the inflation of each percentile, at least that of what lies nearer the median: few values tell the memory
    of a tail."""
    middle = list(PERCENTILES).index("p50")
    out = np.array(inflated, dtype=np.float64)
    out[middle:] = np.maximum.accumulate(out[middle:])
    out[: middle + 1] = np.maximum.accumulate(out[middle::-1])[::-1]
    return out


def level(of: Sample, q: float) -> float:
    """Return the ``q`` quantile of a sample that may hold infinities."""
    with np.errstate(invalid="ignore"):
        value = quantile(of, q)
    if not np.isnan(value):
        return value
    ends = of.ends
    around = of.values[np.searchsorted(ends, [np.floor(q * (ends[-1] - 1)), np.ceil(q * (ends[-1] - 1))], side="right")]
    return float(around[1] if around[1] > 0 else around[0])
