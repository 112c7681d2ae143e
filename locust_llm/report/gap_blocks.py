"""Pooled gaps by block: how many of a block's ``itl`` or ``icl`` values lie at or below given thresholds.

The one thing to know: one walk over the events serves all scopes; a scope is a cut, a number for each record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..wire.answer import TOKEN_KINDS
from .columns import Floats, Ints, Log
from .events import Events, walk
from .figures import KNOWN, Figures

MOST_EVENTS = 20_000_000


@dataclass(frozen=True, slots=True)
class Cut:
    """Records of some scopes. ``cell``: the block of each record, over all scopes, -1 for none; ``scope`` likewise.
    ``thresholds``: rising, in seconds, per scope, all of one length."""

    cell: Ints
    cells: int
    scope: Ints
    thresholds: Floats


@dataclass(frozen=True, slots=True)
class GapBlocks:
    """Per cell: how many values, their sum (s), and how many lie at or below each threshold (cells × thresholds)."""

    count: Floats
    sum_s: Floats
    below: Floats


def gap_blocks(log: Log, figures: Figures, cuts: Sequence[Cut], split: bool) -> list[GapBlocks]:
    """Return the gaps of each cut.

    Of a log with more than ``MOST_EVENTS`` events only every so many-th exchange is looked at, and counted as often:
    blocks then scatter a little more, so intervals are wider, not narrower.

    Parameters:
        split: ``m`` values ``gap / m`` for a gap before ``m`` tokens (``itl``), else the gaps as they are (``icl``).
    """
    tallies = [_Tally(cut) for cut in cuts]
    rows = figures.gives_itl if split else figures.gives_gaps
    every = -(-len(log.gaps_us) // MOST_EVENTS) or 1
    if every > 1:
        rows = rows & (np.arange(len(log)) % every == 0)
    for events in walk(log, TOKEN_KINDS, rows):
        gap_us = events.gaps_us()
        tokens = events.tokens if split else None
        m = None
        if tokens is not None:
            m = np.where(events.each(figures.m_state[events.rows] == KNOWN), tokens, 1).astype(np.float64)
            m[events.starts] = 0.0
        sum_us = events.clock_us[events.starts + events.counts - 1] - events.clock_us[events.starts]
        for tally in tallies:
            tally.add(events, gap_us, m, sum_us)
    return [tally.result(every) for tally in tallies]


class _Tally:
    """Running counts of one cut; a class because all cuts share one walk."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self.width = cut.thresholds.shape[1] + 1
        self.counts = np.zeros((cut.cells + 1) * self.width)  # the last cell is that of records in none
        self.sum_s = np.zeros(cut.cells + 1)
        # Gaps are whole microseconds, so up to the highest threshold a table says where each lies.
        last = min(float(cut.thresholds.max(initial=0.0)) * 1e6, _TABLE_US)
        gaps_s = np.arange(int(last) + 2) / 1e6
        self.size = len(gaps_s)
        self.table = np.concatenate([np.searchsorted(t, gaps_s) for t in cut.thresholds]).astype(np.uint8)

    def add(self, events: Events, gap_us: Ints, m: Floats | None, sum_us: Ints) -> None:
        """Add gaps, the first of each record being none; ``m``: tokens after each; ``sum_us``: per record."""
        cell = self.cut.cell[events.rows]
        cell = np.where(cell < 0, self.cut.cells, cell)
        scope = self.cut.scope[events.rows]
        # A gap before m tokens is m values, which add up to the gap.
        if m is None:
            at = self._levels(events, scope, gap_us)
            at[events.starts] = 0
            cells = events.each(cell * self.width) + at
            counts = np.bincount(cells, minlength=len(self.counts))
            counts[: len(counts) : self.width] -= np.bincount(cell, minlength=self.cut.cells + 1)
        else:
            at = self._where(events.each(scope), gap_us / 1e6 / np.maximum(m, 1))
            counts = np.bincount(events.each(cell * self.width) + at, m, minlength=len(self.counts))
        self.counts += counts
        self.sum_s += np.bincount(cell, sum_us / 1e6, minlength=len(self.sum_s))

    def _levels(self, events: Events, scope: Ints, gap_us: Ints) -> Ints:
        """Return how many thresholds lie below each gap."""
        place = np.minimum(gap_us, self.size - 1)
        if len(self.table) > self.size:
            place += events.each(scope * self.size)
        at: Ints = self.table[place].astype(np.int64)
        far = np.flatnonzero(gap_us >= self.size)
        if len(far):
            at[far] = self._where(events.each(scope)[far], gap_us[far] / 1e6)
        return at

    def _where(self, scope: Ints, each_s: Floats) -> Ints:
        at = np.zeros(len(each_s), dtype=np.int64)
        for i in np.unique(scope).tolist():
            mine = scope == i
            at[mine] = np.searchsorted(self.cut.thresholds[i], each_s[mine])
        return at

    def result(self, times: int) -> GapBlocks:
        table = self.counts.reshape(-1, self.width)[:-1] * times
        return GapBlocks(table.sum(axis=1), self.sum_s[:-1] * times, np.cumsum(table, axis=1)[:, :-1])


_TABLE_US = 1_000_000.0
