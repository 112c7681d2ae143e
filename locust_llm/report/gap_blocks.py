"""Pooled gaps by block: how many of a block's ``itl`` or ``icl`` values lie at or below given thresholds.

The one thing to know: one walk over the events serves all scopes; a scope is a cut, a number for each record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..wire.answer import TOKEN_KINDS
from .columns import Floats, Ints, Log
from .events import walk
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
        follows = ~events.first()
        if not follows.any():
            continue
        owner = events.owner[follows]
        gap_us = np.diff(events.time_us)[follows[1:]]
        m = None
        if split and events.tokens is not None:
            known = figures.m_state[owner] == KNOWN
            m = np.where(known, events.tokens[follows], 1).astype(np.float64)
        for tally in tallies:
            tally.add(owner, gap_us, m)
    return [tally.result(every) for tally in tallies]


class _Tally:
    """Running counts of one cut; a class because all cuts share one walk."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self.width = cut.thresholds.shape[1] + 1
        self.counts = np.zeros(cut.cells * self.width)
        self.sum_s = np.zeros(cut.cells)
        # Gaps are whole microseconds, so up to the highest threshold a table says where each lies.
        last = min(float(cut.thresholds.max(initial=0.0)) * 1e6, _TABLE_US)
        gaps_s = np.arange(int(last) + 2) / 1e6
        self.table = np.stack([np.searchsorted(t, gaps_s) for t in cut.thresholds]).astype(np.uint8)

    def add(self, owner: Ints, gap_us: Ints, m: Floats | None) -> None:
        cell = self.cut.cell[owner]
        if cell.min() < 0:
            inside = cell >= 0
            cell, owner, gap_us = cell[inside], owner[inside], gap_us[inside]
            m = None if m is None else m[inside]
        scope = self.cut.scope[owner] if len(self.table) > 1 else np.zeros(1, dtype=np.int64)
        if m is None:
            at = self.table[scope, np.minimum(gap_us, self.table.shape[1] - 1)].astype(np.int64)
            far = np.flatnonzero(gap_us >= self.table.shape[1])
        else:
            at = np.zeros(len(gap_us), dtype=np.int64)
            far = np.arange(len(gap_us))
        if len(far):
            each = gap_us[far] / 1e6 / (1.0 if m is None else np.maximum(m[far], 1))
            of = np.broadcast_to(scope, gap_us.shape)[far]
            for i in np.unique(of).tolist():
                mine = of == i
                at[far[mine]] = np.searchsorted(self.cut.thresholds[i], each[mine])
        # A gap before m tokens is m values, which add up to the gap.
        self.counts += np.bincount(cell * self.width + at, m, minlength=len(self.counts))
        self.sum_s += np.bincount(cell, gap_us / 1e6, minlength=len(self.sum_s))

    def result(self, times: int) -> GapBlocks:
        table = self.counts.reshape(self.cut.cells, self.width) * times
        return GapBlocks(table.sum(axis=1), self.sum_s * times, np.cumsum(table, axis=1)[:, :-1])


_TABLE_US = 1_000_000.0
