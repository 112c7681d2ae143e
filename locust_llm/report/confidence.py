"""The intervals of a summary: ``ci95`` of every figure of the headline window, and percentiles with failures at the
worst end (metrics.md 4).

The one thing to know: one cut into blocks serves all figures of a scope, made by the memory of its TTFT and e2e
latency. A scope without enough blocks has no ``ci95``; ``absent["ci95"]`` says how long the run should have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .columns import Bools, Floats, Ints
from .exchange_intervals import Blocks, exchange_blocks, exchange_intervals, figure_intervals, level
from .gap_blocks import Cut, GapBlocks, gap_blocks
from .goodput import GOOD
from .intervals import (
    MIN_BLOCKS,
    Interval,
    share_interval,
)  # fmt: skip
from .metrics import LESS, METRICS, MORE, PERCENTILES, POOLED
from .queueing import in_flight_at_start
from .rate_intervals import rate_intervals
from .scope import Measured, pooled
from .shares import CONCURRENCIES, needed
from .stats import Sample, sample

MOST_NAMES = 50
_QUANTILES = np.array(list(PERCENTILES.values()))
_AT_WORST = "failures_at_worst"


@dataclass(frozen=True, slots=True)
class Part:
    """A scope: its members in the summary, its records (``rows`` of the log), its groups in ``of.arrived``."""

    into: dict[str, Any]
    of: Measured
    rows: Ints
    groups: Ints


def add_confidence(whole: Measured, parts: Sequence[Part]) -> None:
    """Add ``ci95``, ``rates_ci95``, ``blocks`` and ``failures_at_worst`` to the scopes.

    Parameters:
        whole: all records, with their events. parts: the total and the names; of names only the most frequent.
    """
    largest = sorted(parts[1:], key=lambda part: -part.into["outcomes"]["ok"])
    chosen = [*parts[:1], *(largest[:MOST_NAMES] if len(largest) > 1 else [])]
    for part in largest[MOST_NAMES:]:
        part.into["absent"]["ci95"] = f"intervals are given for the {MOST_NAMES} most frequent names"
    in_flight = in_flight_at_start(whole.log, whole.figures.measured)
    cut = [_Scope(part, in_flight) for part in chosen]
    for scope in cut:
        scope.exchanges()
        scope.rates()
    _add_pooled(whole, cut, "itl")
    gives = whole.figures.gives_gaps & whole.figures.counted
    if (whole.gaps.m == 1).all() and not (gives & ~whole.figures.gives_itl).any():
        for scope in cut:  # one token an event, everywhere: both are the same
            _copy_pooled(scope.into)
    else:
        _add_pooled(whole, cut, "icl")
    if len(largest) == 1:  # the only name is the total
        _copy(parts[0].into, largest[0].into)


class _Scope:
    """One scope while its intervals are made: its finished and cut exchanges in order of their start."""

    def __init__(self, part: Part, in_flight: Ints) -> None:
        self.part, self.of, self.into = part, part.of, part.into
        figures = self.of.figures
        self.order = in_order(self.of)
        self.mean_in_flight = float(self.into["concurrency"]["in_flight"]["mean"])
        self.least = CONCURRENCIES * self.mean_in_flight
        self.failed = figures.failed[self.order]
        self.in_flight = in_flight[part.rows[self.order]]
        blocks = self._blocks()
        self.memory, self.cut = blocks.measured, blocks.used
        self.labels = self.cut.labels(len(self.order))

    def _blocks(self) -> Blocks:
        into, size = self.into, len(self.order)
        series = [self.of.figures.values[name][self.order] for name in ("ttft", "e2e_latency")]
        found = exchange_blocks(series, self.in_flight, self.mean_in_flight)
        into["blocks"] = {"count": found.used.blocks, "exchanges": size // max(found.used.blocks, 1)}
        if found.measured.blocks:
            return found
        why = (
            f"too few exchanges: {size}, at least about {found.measured.needed} are needed for an interval "
            f"({MIN_BLOCKS} blocks of {found.measured.length} that hardly know each other)"
        )
        if found.used.blocks:
            into["blocks"]["queue_memory"] = round(found.queue_memory)
            into["absent"] |= {f"{name}.ci95": why for name in POOLED if name in into["metrics"]}
        else:
            into["blocks"]["exchanges"] = found.measured.length
            into["absent"]["ci95"] = why
        return found

    def at_worst(self) -> dict[str, Any]:
        """Return where the percentiles with failures belong."""
        members: dict[str, Any] = self.into.setdefault(_AT_WORST, {})
        return members

    def exchanges(self) -> None:
        """Add what rests on one value per exchange."""
        metrics = self.into["metrics"]
        for name, metric in METRICS.items():
            if name in POOLED:
                continue
            values = self.of.figures.values[name][self.order]
            there = ~np.isnan(values)
            known = sample(values)
            if name in metrics:
                found = self._intervals(values, there, metric.scale, known)
                if found:
                    metrics[name]["ci95"] = found
            if self.failed.any() and metric.better:
                if (there & self.failed).any():
                    known = sample(values[~self.failed])
                there |= self.failed
                values = np.where(self.failed, worst(metric.better), values)
                known = _with_worst(known, int(self.failed.sum()), worst(metric.better))
                found = self._intervals(values, there, metric.scale, known, means=False)
                self.at_worst()[name] = at_worst(known, metric.scale, found)

    def _intervals(
        self, values: Floats, there: Bools, scale: float, known: Sample, means: bool = True
    ) -> dict[str, Interval]:
        if not self.cut.blocks or not there.any():
            return {}
        return exchange_intervals(
            values[there], self.labels[there], self.cut.blocks, self.in_flight[there], self.mean_in_flight,
            scale, means, known,
        )  # fmt: skip

    def rates(self) -> None:
        """Add what rests on counts of the window."""
        log, figures, rates = self.of.log, self.of.figures, self.into["rates"]
        found: dict[str, Interval] = {}
        finished = self.order[(figures.ok | figures.failed)[self.order]]
        if "error_rate" in rates:
            found["error_rate"] = share_interval(figures.failed[finished].astype(np.float64), self.least)
        if "goodput" in rates:
            good = figures.values[GOOD][self.order]
            found["goodput"] = share_interval(good[~np.isnan(good)], self.least)
        residence_s = float(np.mean(log.end_us[finished])) / 1e6 if len(finished) else 0.0
        more, why = rate_intervals(self.of, self.part.groups, rates, CONCURRENCIES * residence_s)
        found |= more
        if found:
            self.into["rates_ci95"] = {name: list(ends) for name, ends in found.items()}
        if why:
            self.into["absent"]["rates_ci95"] = why


def at_worst(of: Sample, scale: float, found: dict[str, Interval]) -> dict[str, Any]:
    """Return percentiles with failures at the worst end: ``count``, ``p1`` …, ``thin``, ``ci95``.

    A percentile that lies on a failure is not a number: it is named in ``infinite``, and in ``surely_infinite`` if the
    whole interval does. An end of an interval that lies on a failure is open.
    """
    out: dict[str, Any] = {"count": of.size}
    infinite, surely = [], []
    for name, q in PERCENTILES.items():
        value = level(of, q)
        if np.isfinite(value):
            out[name] = value * scale
        else:
            infinite.append(name)
            inner = found.get(name, (None, None))
            if any(end is not None and not np.isfinite(end) for end in inner[:: 1 if value > 0 else -1][:1]):
                surely.append(name)
    out["infinite"], out["surely_infinite"] = infinite, surely
    out["thin"] = [name for name, q in PERCENTILES.items() if of.size < needed(q)]
    ends = {n: [e if e is not None and np.isfinite(e) else None for e in ci] for n, ci in found.items()}
    if ends := {n: e for n, e in ends.items() if e != [None, None]}:
        out["ci95"] = ends
    return out


def in_order(of: Measured) -> Ints:
    """Return the row numbers of the exchanges that started in the window, in order of their start."""
    started = np.flatnonzero(of.figures.counted & of.window.inside(of.log.start_us))
    return started[np.argsort(of.log.start_us[started], kind="stable")]


def worst(better: str) -> float:
    """Return where failures stand."""
    return {LESS: np.inf, MORE: -np.inf}[better]


def _with_worst(of: Sample, failures: int, at: float) -> Sample:
    """Return a sample with failures at one of its ends."""
    values, counts = np.full(failures, at), np.ones(failures, dtype=np.int64)
    parts = [(of.values, of.counts), (values, counts)][:: 1 if at > 0 else -1]
    return Sample(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _copy(source: dict[str, Any], into: dict[str, Any]) -> None:
    for key in ("blocks", "rates_ci95", _AT_WORST):
        if key in source:
            into[key] = source[key]
    into["absent"] |= {key: why for key, why in source["absent"].items() if key.endswith("ci95")}
    for name, metric in source["metrics"].items():
        if "ci95" in metric:
            into["metrics"][name]["ci95"] = metric["ci95"]


def _copy_pooled(into: dict[str, Any]) -> None:
    metrics, at_worst_ = into["metrics"], into.get(_AT_WORST, {})
    if "ci95" in metrics.get("itl", {}):
        metrics["icl"]["ci95"] = metrics["itl"]["ci95"]
    if "itl" in at_worst_:
        at_worst_["icl"] = at_worst_["itl"]


def _add_pooled(whole: Measured, scopes: Sequence[_Scope], name: str) -> None:
    """Add the intervals of ``itl`` or ``icl``, by resampling exchanges (in blocks), never single values."""
    able = [s for s in scopes if s.memory.blocks and name in s.into["metrics"]]
    # Names do not overlap, so one cut holds all of them; the total is one of its own.
    groups = [g for g in ([s for s in able if s is scopes[0]], [s for s in able if s is not scopes[0]]) if g]
    samples = [[_sample(scope, name) for scope in group] for group in groups]
    cuts = [_cut(whole, group, of) for group, of in zip(groups, samples, strict=True)]
    tables = gap_blocks(whole.log, whole.figures, cuts, name == "itl") if cuts else []
    for group, of_group, table in zip(groups, samples, tables, strict=True):
        first = 0
        for scope, of in zip(group, of_group, strict=True):
            cells = slice(first, first := first + scope.memory.blocks)
            mine = GapBlocks(table.count[cells], table.sum_s[cells], table.below[cells])
            found = figure_intervals(of, mine.sum_s, mine.count, mine.below, METRICS[name].scale)
            if found:
                scope.into["metrics"][name]["ci95"] = found
            if scope.failed.any():
                _pooled_at_worst(scope, name, of, mine)


def _sample(scope: _Scope, name: str) -> Sample:
    of = scope.of
    values: Sample = pooled(of, name, of.figures.counted & of.window.inside(of.log.start_us))[0]
    return values


def _pooled_at_worst(scope: _Scope, name: str, of: Sample, table: GapBlocks) -> None:
    """A failure stands for as many values as the mean of the other exchanges has."""
    scale = METRICS[name].scale
    each = of.size / max(int((~scope.failed).sum()), 1)
    lost = np.bincount(scope.labels, scope.failed, minlength=scope.memory.blocks) * each
    total = max(1, round(float(lost.sum())))
    with_lost = Sample(np.append(of.values, np.inf), np.append(of.counts, total))
    thresholds = np.array([level(with_lost, q) for q in _QUANTILES])
    finite = np.isfinite(thresholds)
    # The shares below thresholds that moved are those of the nearest percentile of the finite values.
    place = np.clip(np.searchsorted([level(of, q) for q in _QUANTILES], thresholds), 0, len(_QUANTILES) - 1)
    below = np.where(finite, table.below[:, place], (table.count + lost)[:, None])
    found = figure_intervals(with_lost, None, table.count + lost, below, scale)
    scope.at_worst()[name] = at_worst(with_lost, scale, found)


def _cut(whole: Measured, scopes: Sequence[_Scope], samples: Sequence[Sample]) -> Cut:
    cell = np.full(len(whole.log), -1, dtype=np.int64)
    number = np.zeros(len(whole.log), dtype=np.int64)
    first = 0
    for i, scope in enumerate(scopes):
        rows = scope.part.rows[scope.order]
        cell[rows], number[rows] = first + scope.labels, i
        first += scope.memory.blocks
    return Cut(cell, first, number, np.array([[level(of, q) for q in _QUANTILES] for of in samples]))
