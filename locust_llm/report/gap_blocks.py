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

    Parameters:
        split: ``m`` values ``gap / m`` for a gap before ``m`` tokens (``itl``), else the gaps as they are (``icl``).
    """
    out, edges = [], []
    for cut in cuts:
        width = cut.thresholds.shape[1] + 1
        out.append((np.zeros(cut.cells), np.zeros(cut.cells), np.zeros(cut.cells * width)))
        # Scopes lie one behind the other on one axis, so that a single search serves all of them.
        edges.append((cut.thresholds + np.arange(len(cut.thresholds))[:, None] * _FAR_S).reshape(-1))
    rows = figures.gives_itl if split else figures.gives_gaps
    for events in walk(log, TOKEN_KINDS, rows):
        follows = np.flatnonzero(~events.first())
        if not len(follows):
            continue
        owner = events.owner[follows]
        gap_s = (events.time_us[follows] - events.time_us[follows - 1]) / 1e6
        m = None  # one token each
        if split and events.tokens is not None:
            known = figures.m_state[owner] == KNOWN
            m = np.where(known, events.tokens[follows], 1).astype(np.float64)
            gap_s = gap_s / np.maximum(m, 1)
        for cut, edge, (count, sum_s, below) in zip(cuts, edges, out, strict=True):
            c, g, w, of = cut.cell[owner], gap_s, m, owner
            inside = np.flatnonzero(c >= 0)
            if not len(inside):
                continue
            if len(inside) < len(c):
                c, g, of = c[inside], g[inside], of[inside]
                w = None if w is None else w[inside]
            width = cut.thresholds.shape[1] + 1
            if len(cut.thresholds) == 1:
                at = np.searchsorted(edge, g)
            else:
                s = cut.scope[of]
                at = np.searchsorted(edge, np.minimum(g, _FAR_S / 2) + s * _FAR_S) - s * (width - 1)
            count += np.bincount(c, w, minlength=cut.cells)
            sum_s += np.bincount(c, g if w is None else w * g, minlength=cut.cells)
            below += np.bincount(c * width + at, w, minlength=cut.cells * width)
    return [
        GapBlocks(count, sum_s, np.cumsum(below.reshape(cut.cells, -1), axis=1)[:, :-1])
        for cut, (count, sum_s, below) in zip(cuts, out, strict=True)
    ]


_FAR_S = 1e6
