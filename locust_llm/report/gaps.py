"""The gaps between token events, pooled: ``icl`` as they are, ``itl`` split on the tokens that came with them.

The one thing to know: gaps are counted, not kept: per group of exchanges, per number of tokens ``m`` in the event, how
often each gap (whole µs) occurs. From these counts any sample of any set of groups is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..wire.answer import TOKEN_KINDS
from .columns import Bools, Ints, Log
from .events import Events, walk
from .figures import KNOWN, Figures
from .stats import Sample, sample

_GAP_BITS = 38  # 76 hours; the rest of an int64 is the group


@dataclass(frozen=True, slots=True)
class GapCounts:
    """Parallel arrays: in ``group``, a gap of ``gap_us`` before an event of ``m`` tokens occurred ``count`` times."""

    group: Ints
    m: Ints
    gap_us: Ints
    count: Ints

    def icl(self, groups: Ints) -> Sample:
        """Return the raw gaps (seconds) of the groups."""
        return self._sample(np.isin(self.group, groups), split=False)

    def itl(self, groups: Ints) -> Sample:
        """Return ``m`` values ``gap / m`` (seconds) for each gap of the groups; all of their ``m`` must be known."""
        return self._sample(np.isin(self.group, groups), split=True)

    def _sample(self, rows: Bools, split: bool) -> Sample:
        gap_s, count = self.gap_us[rows] / 1e6, self.count[rows]
        if not split:
            return sample(gap_s, count)
        m = self.m[rows]
        return sample(gap_s / np.maximum(m, 1), count * m)


def count_gaps(log: Log, figures: Figures, group: Ints) -> GapCounts:
    """Count the gaps of the exchanges that give them (``figures.gives_gaps``).

    Parameters:
        group: shape (records,), small numbers from 0; records with -1 are left out.
    """
    rows = figures.gives_gaps & (group >= 0)
    parts: list[GapCounts] = []
    for events in walk(log, TOKEN_KINDS, rows):
        follows = ~events.first()
        if follows.any():
            parts += _count(events, np.diff(events.time_us)[follows[1:]], follows, figures, group)
    empty = np.zeros(0, dtype=np.int64)
    if not parts:
        return GapCounts(empty, empty, empty, empty)
    return GapCounts(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("group", "m", "gap_us", "count")))


def _count(events: Events, gap_us: Ints, follows: Bools, figures: Figures, group: Ints) -> list[GapCounts]:
    owner = events.owner[follows]
    key = (group[owner].astype(np.int64) << _GAP_BITS) | np.minimum(gap_us, (1 << _GAP_BITS) - 1)
    m = np.ones(len(owner), dtype=np.int64)
    if events.tokens is not None:
        known = figures.m_state[owner] == KNOWN
        m[known] = events.tokens[follows][known]
    out = []
    for tokens in np.unique(m).tolist():
        found, count = np.unique(key[m == tokens], return_counts=True)
        gaps = found & ((1 << _GAP_BITS) - 1)
        out.append(GapCounts(found >> _GAP_BITS, np.full(len(found), tokens), gaps, count))
    return out
