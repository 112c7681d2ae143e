"""The gaps between token events, pooled: ``icl`` as they are, ``itl`` split on the tokens that came with them.

The one thing to know: gaps are counted, not kept: per group of exchanges, per number of tokens ``m`` in the event, how
often each gap (whole µs) occurs. From these counts any sample of any set of groups is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..wire.answer import TOKEN_KINDS
from .arrivals import add_up, in_groups
from .columns import Ints, Log
from .events import Events, walk
from .figures import KNOWN, Figures
from .stats import Sample, sample

_GAP_BITS = 38  # 76 hours; the rest of an int64 is the group
_LONGEST = (1 << _GAP_BITS) - 1
_FIRST = -1
_PENDING_KEYS = 4_000_000
_DENSE_CELLS = 2_000_000  # measured: a block of events is then still the greater part of the work


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
    groups = int(group.max(initial=0)) + 1
    found: dict[int, _Counts] = {}
    for events in walk(log, TOKEN_KINDS, rows):
        gap_us = np.minimum(events.gaps_us(), _LONGEST)
        of_rows = group[events.rows]
        if events.tokens is None:
            gap_us[events.starts] = 0  # no gap: counted with those of 0 µs, and taken out again
            found.setdefault(1, _Counts(groups)).add(events.each(of_rows), gap_us, of_rows)
            continue
        m = _tokens_of(events, figures)
        m[events.starts] = _FIRST
        each = events.each(of_rows)
        for tokens in (np.flatnonzero(np.bincount(m - _FIRST)) + _FIRST).tolist():
            if tokens != _FIRST:
                these = np.flatnonzero(m == tokens)
                found.setdefault(tokens, _Counts(groups)).add(each[these], gap_us[these], of_rows[:0])
    none = np.zeros(0, dtype=np.int64)
    parts = [GapCounts(none, none, none, none)]
    for tokens, counts in found.items():
        keys, count = counts.total()
        parts.append(GapCounts(keys >> _GAP_BITS, np.full(len(keys), tokens), keys & _LONGEST, count))
    columns = [np.concatenate([getattr(p, name) for p in parts]) for name in ("group", "m", "gap_us", "count")]
    order = np.argsort(columns[0], kind="stable")
    return GapCounts(*(column[order] for column in columns))


class _Counts:
    """How often each gap came in each group: those up to a width in a table, the few longer ones by key."""

    def __init__(self, groups: int) -> None:
        self.groups = groups
        self.width = max(_DENSE_CELLS // groups, 1)
        self.table = np.zeros((groups, 0), dtype=np.int64)
        self.keys: list[Ints] = []
        self.counts: list[Ints] = []
        self.size = 0
        self.limit = _PENDING_KEYS

    def add(self, groups: Ints, gap_us: Ints, not_gaps: Ints) -> None:
        """Add gaps with the group of each; ``not_gaps``: groups of which a gap of 0 µs is not to be counted."""
        longest = int(gap_us.max())
        if longest >= self.width:
            far = gap_us >= self.width
            self.add_far(groups[far], gap_us[far])
            groups, gap_us, longest = groups[~far], gap_us[~far], self.width - 1
        width = longest + 1
        found = np.bincount(groups * width + gap_us, minlength=self.groups * width).reshape(self.groups, width)
        found[:, 0] -= np.bincount(not_gaps, minlength=self.groups)
        if width > self.table.shape[1]:
            self.table = np.pad(self.table, ((0, 0), (0, width - self.table.shape[1])))
        self.table[:, :width] += found

    def add_far(self, groups: Ints, gap_us: Ints) -> None:
        keys, counts = np.unique((groups << _GAP_BITS) | gap_us, return_counts=True)
        self.keys.append(keys)
        self.counts.append(counts)
        self.size += len(keys)
        if self.size > self.limit:
            keys, counts = self.far()
            self.keys, self.counts, self.size = [keys], [counts], len(keys)
            self.limit = max(self.limit, 2 * self.size)

    def far(self) -> tuple[Ints, Ints]:
        keys, counts = add_up(self.keys, self.counts)
        return keys, counts.astype(np.int64)

    def total(self) -> tuple[Ints, Ints]:
        """Return the keys (group and gap) that came, rising, and how often."""
        groups, gap_us = np.nonzero(self.table)
        keys, counts = self.far()
        keys = np.concatenate(((groups << _GAP_BITS) | gap_us, keys))
        order = np.argsort(keys, kind="stable")
        return keys[order], np.concatenate((self.table[groups, gap_us], counts))[order]


def _tokens_of(events: Events, figures: Figures) -> Ints:
    """Return the tokens of each event, 1 where they are not said."""
    tokens = events.tokens
    assert tokens is not None
    known = events.each(figures.m_state[events.rows] == KNOWN)
    return np.where(known, tokens, 1).astype(np.int64)
