"""Walk over the events of a log in blocks, so that memory stays bounded however long the log is.

The one thing to know: a block holds whole records, and everything in it is flat and parallel, sorted by record and
time; ``owner`` says to which row of the log an event belongs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .columns import Bools, Floats, Ints, Log, kind_table

_BLOCK_EVENTS = 500_000  # measured: larger blocks fall out of the caches, smaller ones cost calls


@dataclass(frozen=True, slots=True)
class Events:
    """Events of consecutive records. All arrays have the same length."""

    owner: Ints
    time_us: Ints
    """Offset from the record's start."""
    kinds: npt.NDArray[np.uint8]
    tokens: npt.NDArray[np.int32] | None

    def select(self, events: Bools) -> Events:
        """Return the events in a mask."""
        at = np.flatnonzero(events)  # measured: a third of the time that the mask itself takes
        tokens = None if self.tokens is None else self.tokens[at]
        return Events(self.owner[at], self.time_us[at], self.kinds[at], tokens)

    def first(self) -> Bools:
        """Which events are the first of their record."""
        return np.concatenate((np.ones(min(len(self.owner), 1), dtype=bool), np.diff(self.owner) != 0))


def walk(log: Log, kinds: frozenset[str] | None = None, rows: Bools | None = None) -> Iterator[Events]:
    """Yield the events of a log in order, half a million at a time.

    Parameters:
        kinds: only events of these kinds.
        rows: mask over records; only events of these.
    """
    table = None if kinds is None else kind_table(kinds)
    at = 0
    while at < len(log):
        limit = log.offsets[at] + _BLOCK_EVENTS
        to = max(at + 1, int(np.searchsorted(log.offsets, limit, side="right")) - 1)
        events = _block(log, at, to)
        wanted = None if table is None else table[events.kinds]
        if rows is not None:
            of_rows = rows[events.owner]
            wanted = of_rows if wanted is None else wanted & of_rows
        yield events if wanted is None else events.select(wanted)
        at = to


@dataclass(frozen=True, slots=True)
class Span:
    """First and last event of certain kinds, per record: µs from the start, NaN where there is none, and how many."""

    first_us: Floats
    second_us: Floats
    last_us: Floats
    count: Ints


def span(log: Log, kinds: frozenset[str]) -> Span:
    """Return where the events of ``kinds`` begin and end in each record."""
    n = len(log)
    first, second, last = (np.full(n, np.nan) for _ in range(3))
    count = np.zeros(n, dtype=np.int64)
    for events in walk(log, kinds):
        starts = np.flatnonzero(events.first())
        if not len(starts):
            continue
        owners = events.owner[starts]
        ends = np.append(starts[1:], len(events.owner))
        count[owners] = ends - starts
        first[owners] = events.time_us[starts]
        last[owners] = events.time_us[ends - 1]
        many = ends - starts > 1
        second[owners[many]] = events.time_us[starts[many] + 1]
    return Span(first, second, last, count)


def _block(log: Log, at: int, to: int) -> Events:
    low, high = int(log.offsets[at]), int(log.offsets[to])
    counts = np.diff(log.offsets[at : to + 1])
    gaps = log.gaps_us[low:high].astype(np.int64)
    running = np.concatenate(([0], np.cumsum(gaps)))
    before = running[log.offsets[at:to] - low]  # what the records before it in the block add up to
    return Events(
        owner=np.repeat(np.arange(at, to), counts),
        time_us=running[1:] - np.repeat(before, counts),
        kinds=log.kinds[low:high],
        tokens=None if log.tokens is None else log.tokens[low:high],
    )
