"""The gaps between token events, pooled: ``icl`` as they are, ``itl`` split on the tokens that came with them.

The one thing to know: gaps are counted, not kept: per group of exchanges, per number of tokens ``m`` in the event, how
often each gap (whole µs) occurs. From these counts any sample of any set of groups is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..wire.answer import TOKEN_KINDS
from .arrivals import add_up, in_groups
from .columns import Bools, Ints, Log
from .events import Events, walk
from .figures import KNOWN, Figures
from .stats import Sample, sample

_GAP_BITS = 38  # 76 hours; the rest of an int64 is the group
_PENDING_KEYS = 4_000_000
_DENSE_CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class GapCounts:
    """Parallel, in order of ``group``: a gap of ``gap_us`` before an event of ``m`` tokens came ``count`` times."""

    group: Ints
    m: Ints
    gap_us: Ints
    count: Ints

    def icl(self, groups: Ints) -> Sample:
        """Return the raw gaps (seconds) of the groups."""
        return self._sample(groups, split=False)

    def itl(self, groups: Ints) -> Sample:
        """Return ``m`` values ``gap / m`` (seconds) for each gap of the groups; all of their ``m`` must be known."""
        return self._sample(groups, split=True)

    def _sample(self, groups: Ints, split: bool) -> Sample:
        rows = in_groups(self.group, groups)
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
    found: dict[int, _Counts] = {}
    for events in walk(log, TOKEN_KINDS, rows):
        follows = ~events.first()
        if follows.any():
            _count(events, np.diff(events.time_us)[follows[1:]], follows, figures, group, found)
    none = np.zeros(0, dtype=np.int64)
    parts = [GapCounts(none, none, none, none)]
    for tokens, counts in found.items():
        keys, count = counts.total()
        gaps = keys & ((1 << _GAP_BITS) - 1)
        parts.append(GapCounts(keys >> _GAP_BITS, np.full(len(keys), tokens), gaps, count))
    columns = [np.concatenate([getattr(p, name) for p in parts]) for name in ("group", "m", "gap_us", "count")]
    order = np.argsort(columns[0], kind="stable")
    return GapCounts(*(column[order] for column in columns))


class _Counts:
    """How often each key came, added up now and then so that memory is that of the distinct keys."""

    def __init__(self) -> None:
        self.keys: list[Ints] = []
        self.counts: list[Ints] = []
        self.size = 0
        self.limit = _PENDING_KEYS

    def add(self, keys: Ints, counts: Ints) -> None:
        self.keys.append(keys)
        self.counts.append(counts)
        self.size += len(keys)
        if self.size > self.limit:
            keys, counts = self.total()
            self.keys, self.counts, self.size = [keys], [counts], len(keys)
            self.limit = max(self.limit, 2 * self.size)

    def total(self) -> tuple[Ints, Ints]:
        keys, counts = add_up(self.keys, self.counts)
        return keys, counts.astype(np.int64)


def _count(
    events: Events, gap_us: Ints, follows: Bools, figures: Figures, group: Ints, found: dict[int, _Counts]
) -> None:
    owner = events.owner[np.flatnonzero(follows)]
    groups = group[owner].astype(np.int64)
    if events.tokens is None:
        found.setdefault(1, _Counts()).add(*_tally(groups, gap_us))
        return
    m = np.ones(len(owner), dtype=np.int64)
    known = figures.m_state[owner] == KNOWN
    m[known] = events.tokens[follows][known]
    for tokens in np.unique(m).tolist():
        these = np.flatnonzero(m == tokens)
        found.setdefault(tokens, _Counts()).add(*_tally(groups[these], gap_us[these]))


def _tally(groups: Ints, gap_us: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys (group and gap) and how often each came; counted in a table where that is small."""
    gap_us = np.minimum(gap_us, (1 << _GAP_BITS) - 1)
    width, low = int(gap_us.max()) + 1, int(groups.min())
    if (int(groups.max()) - low + 1) * width > _DENSE_CELLS:
        keys, counts = np.unique((groups << _GAP_BITS) | gap_us, return_counts=True)
        return keys, counts
    table = np.bincount((groups - low) * width + gap_us)
    cells = np.flatnonzero(table)
    return ((cells // width + low) << _GAP_BITS) | (cells % width), table[cells]
