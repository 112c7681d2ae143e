"""What two runs are compared by, and their blocks.

The one thing to know: a percentile is compared by the share of values beyond the percentile of both runs together, so
that blocks can be shuffled without sorting anything anew; failures lie at the worst end. The value shown is each run's
own percentile, from its summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .columns import Floats, Ints
from .confidence import in_order, worst
from .exchange_intervals import independent_blocks, level
from .gap_blocks import Cut, gap_blocks
from .intervals import Memory, block_labels
from .metrics import PERCENTILES, POOLED
from .objectives import figure
from .permutation import Units
from .queueing import in_flight_at_start
from .rate_intervals import window_series
from .runs import Run
from .scope import pooled
from .stats import Sample, sample


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the whole run. ``statistic`` is None for those of the window."""

    metric: str
    statistic: str | None = None

    @property
    def better(self) -> str:
        return figure(self.metric).better

    @property
    def is_share(self) -> bool:
        return figure(self.metric).unit == "share"

    def __str__(self) -> str:
        return self.metric + (f":{self.statistic}" if self.statistic else "")


def exchange_memory(run: Run) -> tuple[Memory, int]:
    """Return the blocks that a run's exchanges need, and how many exchanges there are."""
    of = run.analysis.here
    order = in_order(of)
    series = [of.figures.values[name][order] for name in ("ttft", "e2e_latency")]
    in_flight = in_flight_at_start(of.log, of.figures.measured)[order]
    mean = float(run.summary["total"]["concurrency"]["in_flight"]["mean"])
    return independent_blocks(series, in_flight, mean), len(order)


def units(figure_: Figure, base: Run, new: Run, blocks: tuple[int, int]) -> tuple[Units, Units] | None:
    """Return the blocks of both runs for a figure; None where one of them does not have it.

    Parameters:
        blocks: how many each run is cut into.
    """
    runs = (base, new)
    if figure_.statistic is None:
        both = [_window_units(run, figure_.metric, number) for run, number in zip(runs, blocks, strict=True)]
    elif figure_.metric in POOLED:
        both = _pooled_units(figure_, runs, blocks)
    else:
        both = exchange_units([_values(run, figure_) for run in runs], figure_.statistic or "", blocks)
    if both[0] is None or both[1] is None:
        return None
    return both[0], both[1]


def exchange_units(columns: Sequence[Floats], statistic: str, blocks: Sequence[int]) -> list[Units | None]:
    """Return the blocks of both runs for the mean, or for a percentile.

    Parameters:
        columns: one value per exchange in order of start, NaN where it has none, infinite where it failed.
    """
    there = [~np.isnan(c) for c in columns]
    if statistic == "mean":
        there = [np.isfinite(c) for c in columns]
    if not all(t.any() for t in there):
        return [None, None]
    if statistic != "mean":
        every = sample(np.concatenate([c[t] for c, t in zip(columns, there, strict=True)]))
        limit = level(every, PERCENTILES[statistic])
        columns = [(c > limit if np.isfinite(limit) else np.isinf(c)).astype(np.float64) for c in columns]
    return [
        _summed(block_labels(len(c), number)[t], c[t], number)
        for c, t, number in zip(columns, there, blocks, strict=True)
    ]


# ---- helpers


def _values(run: Run, figure_: Figure) -> Floats:
    """Return a run's values in order of start, failures at the worst end."""
    of = run.analysis.here
    order = in_order(of)
    values = of.figures.values[figure_.metric][order]
    if not figure_.better:
        return values
    return np.where(of.figures.failed[order], worst(figure_.better), values)


def _pooled_units(figure_: Figure, runs: Sequence[Run], blocks: Sequence[int]) -> list[Units | None]:
    name = figure_.metric
    samples: list[Sample] = []
    for run in runs:
        if name not in run.summary["total"]["metrics"]:
            return [None, None]
        of = run.analysis.here
        samples.append(pooled(of, name, of.figures.counted & of.window.inside(of.log.start_us))[0])
    every = sample(np.concatenate([s.values for s in samples]), np.concatenate([s.counts for s in samples]))
    q = PERCENTILES.get(figure_.statistic or "", 0.5)
    out: list[Units | None] = []
    for run, number in zip(runs, blocks, strict=True):
        of = run.analysis.here
        order = in_order(of)
        cell = np.full(len(of.log), -1, dtype=np.int64)
        cell[order] = block_labels(len(order), number)
        cut = Cut(cell, number, np.zeros(len(of.log), dtype=np.int64), np.array([[level(every, q)]]))
        (table,) = gap_blocks(of.log, of.figures, [cut], name == "itl")
        sums = table.sum_s if figure_.statistic == "mean" else table.count - table.below[:, 0]
        out.append(_without_empty(sums, table.count))
    return out


def _window_units(run: Run, name: str, blocks: int) -> Units | None:
    of = run.analysis.here
    if name not in run.summary["total"]["rates"]:
        return None
    if name in ("error_rate", "goodput"):
        order = in_order(of)
        figures = of.figures
        order = order[(figures.ok | figures.failed)[order]]
        hits = figures.failed[order] if name == "error_rate" else figures.values["good"][order] == 1
        return _summed(block_labels(len(order), blocks), hits.astype(np.float64), blocks)
    source = "requests_per_s" if name == "requests_per_min" else name
    series = window_series(of, np.arange(len(run.analysis.names)), run.summary["total"]["rates"]).get(source)
    if series is None:
        return None
    return _summed(block_labels(len(series), blocks), series, blocks)


def _summed(labels: Ints, values: Floats, blocks: int) -> Units:
    sums = np.bincount(labels, values, minlength=blocks).astype(np.float64)
    return _without_empty(sums, np.bincount(labels, minlength=blocks).astype(np.float64))


def _without_empty(sums: Floats, counts: Floats) -> Units:
    some = counts > 0
    return Units(sums[some], counts[some])
