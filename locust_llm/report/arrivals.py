"""When tokens arrived: how many inside a window, and second by second (metrics.md 4).

The one thing to know: an event brings its known ``m``, else ``n_stream / k`` of its exchange; where an exchange's
tokens are unknown (its usage never came, because it was cut), its events bring the mean of all exchanges whose tokens
are known, and what rests on that is shown apart as *estimated*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..wire.answer import TOKEN_KINDS
from .columns import Bools, Floats, Ints, Log
from .events import Events, walk
from .figures import KNOWN, Figures
from .window import Window

_SECOND_BITS = 40  # the rest of an int64 is the group
_DENSE_CELLS = 2_000_000

BINS = 400
"""Equal parts of the first window, for intervals of rates; so many that blocks of a 30 s run can be cut from them."""


@dataclass(frozen=True, slots=True)
class PerSecond:
    """Parallel, in order of ``group``: ``tokens`` arrived in second ``second`` of the window; failures are left out."""

    group: Ints
    second: Ints
    tokens: Floats

    def busiest(self, groups: Ints, seconds: int) -> float:
        """Return the most tokens the groups together received in one of the first ``seconds`` seconds."""
        rows = in_groups(self.group, groups)
        rows = rows[self.second[rows] < seconds]
        if not len(rows):
            return 0.0
        _, at = np.unique(self.second[rows], return_inverse=True)
        return float(np.bincount(at, self.tokens[rows]).max())


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What arrived inside one window, per record of the log.

    Attributes:
        tokens: output tokens that arrived (streamed, whole answers, hidden reasoning), estimated ones included.
        hidden: of these, reasoning tokens that were never streamed; they count at the first token event.
        estimated: of these, tokens of exchanges whose own count is unknown.
        chunks: token events; an answer that was not streamed is one.
    """

    tokens: Floats
    hidden: Floats
    estimated: Floats
    chunks: Floats
    per_second: PerSecond
    bins: Floats | None = None
    """Shape (groups, BINS): tokens of each part of the window, failures left out; None but for the first window."""

    def of(self, rows: Ints) -> Arrivals:
        """Return the arrivals of some rows."""
        return Arrivals(
            self.tokens[rows], self.hidden[rows], self.estimated[rows], self.chunks[rows], self.per_second, self.bins
        )  # fmt: skip


def in_groups(sorted_group: Ints, groups: Ints) -> Ints:
    """Return the positions in a sorted array of groups that belong to ``groups``."""
    ends = np.searchsorted(sorted_group, [groups, groups + 1])
    return np.concatenate([np.arange(a, b) for a, b in ends.T.tolist()] or [np.zeros(0, dtype=np.int64)])


def arrivals(log: Log, figures: Figures, windows: Sequence[Window], group: Ints) -> list[Arrivals]:
    """Return what arrived inside each window, of all measured records.

    Parameters:
        group: shape (records,), small numbers from 0, for ``per_second``.
    """
    distinct = list(dict.fromkeys((w.start_us, w.end_us) for w in windows))
    tallies = [_Tally(*bounds, group, figures.failed, fine=bounds == distinct[0]) for bounds in distinct]
    per_event, unknown = _weights(figures)
    for events in walk(log, TOKEN_KINDS, figures.measured & log.streamed):
        at_us = events.at_us(log.start_us)
        tokens = _event_tokens(events, per_event, figures)
        for tally in tallies:
            tally.add(events, at_us, per_event[events.rows], tokens)
    whole_at, whole = _whole_answers(log, figures)
    hidden_at, hidden = _hidden(log, figures)
    for tally in tallies:
        tally.add_single(np.flatnonzero(figures.measured & ~log.streamed), whole_at, whole, 1.0)
        tally.add_single(np.flatnonzero(hidden > 0), hidden_at, hidden, 0.0)
    results = [tally.result(hidden_at, hidden, unknown) for tally in tallies]
    return [results[distinct.index((w.start_us, w.end_us))] for w in windows]


class _Tally:
    """Running sums of one window; a class because the log is walked once for all windows."""

    def __init__(self, start_us: int, end_us: int, group: Ints, failed: Bools, fine: bool) -> None:
        self.start_us, self.end_us, self.group, self.failed = start_us, end_us, group, failed
        self.tokens, self.chunks = np.zeros(len(group)), np.zeros(len(group))
        groups = int(group.max(initial=-1)) + 1
        self.bins = np.zeros(groups * BINS) if fine and groups * BINS <= _DENSE_CELLS else None
        self.keys: list[Ints] = []
        self.sums: list[npt.NDArray[Any]] = []

    def inside(self, at_us: Ints) -> Bools:
        inside: Bools = (at_us >= self.start_us) & (at_us <= self.end_us)
        return inside

    def add(self, events: Events, at_us: Ints, each: Floats, tokens: Floats | None) -> None:
        """Add the events of a block.

        Parameters:
            at_us: when each came. each: tokens that every event of a record brings. tokens: those of each event, where
                they differ.
        """
        rows, counts = events.rows, events.counts
        at_first, at_last = at_us[events.starts], at_us[events.starts + counts - 1]
        if not (self.inside(at_first) & self.inside(at_last)).all():
            inside = self.inside(at_us)
            at_us = at_us[inside]
            tokens = None if tokens is None else tokens[inside]
            counts = np.add.reduceat(inside, events.starts, dtype=np.int64)
            some = np.flatnonzero(counts)
            rows, counts, each = rows[some], counts[some], each[some]
        if len(rows):
            self._add(rows, counts, at_us, each, tokens)

    def add_single(self, rows: Ints, at_us: Ints, tokens: Floats, chunks: float) -> None:
        """Add one arrival for each of the rows, at its time with its tokens, as so many chunks."""
        rows = rows[self.inside(at_us[rows])]
        if len(rows):
            self._add(rows, np.ones(len(rows), dtype=np.int64), at_us[rows], tokens[rows], None)
            self.chunks[rows] += chunks - 1.0

    def _add(self, rows: Ints, counts: Ints, at_us: Ints, each: Floats, tokens: Floats | None) -> None:
        starts = np.cumsum(counts) - counts
        self.chunks[rows] += counts
        self.tokens[rows] += counts * each if tokens is None else np.add.reduceat(tokens, starts)
        since_us = at_us - self.start_us
        second, sums, of = _runs(since_us // 1_000_000, starts, each, tokens)
        shown = ~self.failed[rows[of]]
        keys, sums = _sum_by_second(self.group[rows[of]][shown], second[shown], sums[shown])
        self.keys.append(keys)
        self.sums.append(sums)
        if self.bins is not None:
            at, sums, of = _runs(bin_of(at_us, self.start_us, self.end_us), starts, each, tokens)
            shown = ~self.failed[rows[of]]
            cell = self.group[rows[of]] * BINS + at
            self.bins += np.bincount(cell[shown], sums[shown], minlength=len(self.bins))

    def result(self, hidden_at: Ints, hidden: Floats, unknown: Bools) -> Arrivals:
        keys, sums = add_up(self.keys, self.sums)
        return Arrivals(
            tokens=self.tokens,
            hidden=np.where(self.inside(hidden_at), hidden, 0.0),
            estimated=np.where(unknown, self.tokens, 0.0),
            chunks=self.chunks,
            per_second=PerSecond(keys >> _SECOND_BITS, keys & ((1 << _SECOND_BITS) - 1), sums),
            bins=None if self.bins is None else self.bins.reshape(-1, BINS),
        )


def _runs(place: Ints, starts: Ints, each: Floats, tokens: Floats | None) -> tuple[Ints, Floats, Ints]:
    """Put neighbouring events of one record in one place together: place, tokens and record of each such run.

    Answers stay in one second for many tokens, so what follows has a tenth of the work.

    Parameters:
        place: of each event. starts: where records begin; the third of what is returned counts these.
    """
    change = np.empty(len(place), dtype=bool)
    np.not_equal(place[1:], place[:-1], out=change[1:])
    change[starts] = True
    at = np.flatnonzero(change)
    of = np.cumsum(np.bincount(np.searchsorted(at, starts), minlength=len(at))) - 1
    sums = np.diff(at, append=len(place)) * each[of] if tokens is None else np.add.reduceat(tokens, at)
    return place[at], sums, of


def bin_of(at_us: Ints, start_us: int, end_us: int) -> Ints:
    """Return which of the ``BINS`` parts of a window each epoch time inside it lies in."""
    at: Ints = ((at_us - start_us) * (BINS / max(end_us - start_us, 1))).astype(np.int64)
    return np.minimum(at, BINS - 1)


def add_up(keys: list[Ints], amounts: list[npt.NDArray[Any]]) -> tuple[Ints, Floats]:
    """Return the distinct keys in rising order and what belongs to each in sum."""
    if not keys:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    distinct, at = np.unique(np.concatenate(keys), return_inverse=True)
    return distinct, np.bincount(at, np.concatenate(amounts)).astype(np.float64)


def _sum_by_second(group: Ints, second: Ints, tokens: Floats) -> tuple[Ints, npt.NDArray[Any]]:
    """Return (group, second) keys that occur and the sum of tokens of each."""
    if not len(second):
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    low, length = int(second.min()), int(second.max() - second.min()) + 1
    groups = int(group.max()) + 1
    if groups * length <= _DENSE_CELLS:
        cell = second - low
        sums = np.bincount(cell if groups == 1 else cell + group * length, tokens)
        cells = np.flatnonzero(sums)
        return ((cells // length) << _SECOND_BITS) | (cells % length + low), sums[cells]
    keys, at = np.unique((group << _SECOND_BITS) | second, return_inverse=True)
    return keys, np.bincount(at, tokens)


def _weights(figures: Figures) -> tuple[Floats, Bools]:
    """Return tokens per token event of each record, and which of them are only the mean of the others."""
    events = np.maximum(figures.k, 1)
    known = figures.measured & figures.ok & (figures.k > 0) & ~np.isnan(figures.n_stream)
    streamed, taken = float(figures.n_stream[known].sum()), int(figures.k[known].sum())
    unknown = np.isnan(figures.n_stream) & (figures.m_state != KNOWN)
    return np.where(unknown, streamed / taken if taken else 0.0, figures.n_stream / events), unknown


def _event_tokens(events: Events, per_event: Floats, figures: Figures) -> Floats | None:
    """Return the tokens of each event; None where each brings what ``per_event`` says of its record."""
    tokens = events.tokens
    if tokens is None:
        return None
    known = events.each(figures.m_state[events.rows] == KNOWN)
    return np.where(known, tokens, events.each(per_event[events.rows]))


def _whole_answers(log: Log, figures: Figures) -> tuple[Ints, Floats]:
    """Return when answers that came at once arrived (epoch µs) and their tokens; 0 for those that were streamed."""
    at_once = figures.measured & ~log.streamed & ~np.isnan(figures.n)
    return log.start_us + log.end_us, np.where(at_once, figures.n, 0.0)


def _hidden(log: Log, figures: Figures) -> tuple[Ints, Floats]:
    """Return when hidden reasoning counts as arrived (the first token event, else the end) and its tokens."""
    at_us = log.start_us + np.where(figures.k > 0, figures.e1_us, log.end_us).astype(np.int64)
    return at_us, np.where(figures.measured, figures.hidden, 0.0)
