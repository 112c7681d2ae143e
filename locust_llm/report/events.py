"""Walk over the events of a log in blocks, so that memory stays bounded however long the log is.

The one thing to know: a block holds whole records, and its events are flat, sorted by record and time. What is the same
for all events of a record is kept per record (``rows``, ``counts``), and what rests on that should be computed there:
events are a hundred times as many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from .columns import Bools, Floats, Ints, Log, kind_table

_BLOCK_EVENTS = 250_000  # measured: larger blocks fall out of the caches, smaller ones cost calls
_AHEAD = 2
_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Events:
    """Events of consecutive records.

    Attributes:
        rows, counts: records that have events here, and how many each has; parallel, rising.
        starts: where the events of each record begin.
        clock_us: time of each event on a clock that is common to all of the block; ``begin_us`` per record, when it
            started on that clock.
    """

    rows: Ints
    counts: Ints
    starts: Ints
    clock_us: Ints
    begin_us: Ints
    _log: Log = field(repr=False)
    _places: slice | Ints

    def __len__(self) -> int:
        return len(self.clock_us)

    @property
    def kinds(self) -> npt.NDArray[np.uint8]:
        return self._log.kinds[self._places]

    @property
    def tokens(self) -> npt.NDArray[np.int32] | None:
        return None if self._log.tokens is None else self._log.tokens[self._places]

    @property
    def unsure_us(self) -> Ints:
        """By how much the time of each event may be too late."""
        at, to = int(self.rows[0]), int(self.rows[-1]) + 1
        low, ends = int(self._log.offsets[at]), self._log.unsure_offsets[at : to + 1]
        first, count, us = self._log.unsure[ends[0] : ends[-1]].T
        first = first + np.repeat(self._log.offsets[at:to] - low, np.diff(ends))
        out = np.zeros(int(self._log.offsets[to]) - low, dtype=np.int64)
        inside = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        out[np.repeat(first, count) + inside] = np.repeat(us, count)
        if isinstance(self._places, slice):
            return out[self._places.start - low : self._places.stop - low]
        return out[self._places - low]

    @property
    def owner(self) -> Ints:
        """To which row of the log each event belongs."""
        return self.each(self.rows)

    @property
    def time_us(self) -> Ints:
        """Offset of each event from its record's start."""
        return self.clock_us - self.each(self.begin_us)

    def at_us(self, start_us: Ints) -> Ints:
        """Return the epoch time of each event; ``start_us`` is that of all records of the log."""
        return self.clock_us + self.each(start_us[self.rows] - self.begin_us)

    def gaps_us(self) -> Ints:
        """Return the time since the event before in the same record; of the first one, since the start."""
        gaps = np.diff(self.clock_us, prepend=0)
        gaps[self.starts] = self.clock_us[self.starts] - self.begin_us
        return gaps

    def each(self, of_rows: npt.NDArray[_T]) -> npt.NDArray[_T]:
        """Return for each event the value of its record; ``of_rows`` is parallel to ``rows``."""
        return np.repeat(of_rows, self.counts)


def walk(log: Log, kinds: frozenset[str] | None = None, rows: Bools | None = None) -> Iterator[Events]:
    """Yield the events of a log in order, a quarter of a million at a time, none without events.

    The next blocks are made by a thread while one is looked at; numpy lets both run.

    Parameters:
        kinds: only events of these kinds.
        rows: mask over records; only events of these.
    """
    table = None if kinds is None else kind_table(kinds)
    bounds = _bounds(log)
    if len(bounds) <= 2:
        blocks: Iterator[Events] = (_block(log, at, to, table, rows) for at, to in bounds)
        yield from (events for events in blocks if len(events))
        return
    with ThreadPoolExecutor(1, thread_name_prefix="walk") as pool:
        ahead: deque[Future[Events]] = deque()
        for at, to in [*bounds, *[(0, 0)] * _AHEAD]:
            ahead.append(pool.submit(_block, log, at, to, table, rows))
            if len(ahead) > _AHEAD:
                events = ahead.popleft().result()
                if len(events):
                    yield events


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
        rows, starts, clock, begin = events.rows, events.starts, events.clock_us, events.begin_us
        count[rows] = events.counts
        first[rows] = clock[starts] - begin
        last[rows] = clock[starts + events.counts - 1] - begin
        many = events.counts > 1
        second[rows[many]] = clock[starts[many] + 1] - begin[many]
    return Span(first, second, last, count)


def _bounds(log: Log) -> list[tuple[int, int]]:
    """Return (first record, record after the last) of each block."""
    bounds = []
    at = 0
    while at < len(log):
        limit = log.offsets[at] + _BLOCK_EVENTS
        to = max(at + 1, int(np.searchsorted(log.offsets, limit, side="right")) - 1)
        bounds.append((at, to))
        at = to
    return bounds


def _block(log: Log, at: int, to: int, table: Bools | None, rows: Bools | None) -> Events:
    low, high = int(log.offsets[at]), int(log.offsets[to])
    edges = log.offsets[at : to + 1] - low
    clock = np.zeros(high - low + 1, dtype=np.int64)
    np.cumsum(log.gaps_us[low:high], out=clock[1:])
    begin = clock[edges[:-1]]  # what the records before it in the block add up to
    clock = clock[1:]
    places: slice | Ints = slice(low, high)
    wanted = None if table is None else table[log.kinds[low:high]]
    if rows is not None and not rows[at:to].all():
        of_rows = np.repeat(rows[at:to], np.diff(edges))
        wanted = of_rows if wanted is None else wanted & of_rows
    if wanted is not None:
        chosen = np.flatnonzero(wanted)  # measured: a third of the time that the mask itself takes
        edges = np.searchsorted(chosen, edges)
        clock, places = clock[chosen], chosen + low
    counts = np.diff(edges)
    some = np.flatnonzero(counts)
    return Events(some + at, counts[some], edges[:-1][some], clock, begin[some], log, places)
