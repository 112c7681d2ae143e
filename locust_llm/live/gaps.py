"""Token events on their way into tallies: tokens by second of arrival, gaps between them by bucket.

The one thing to know: many small lists cost more than one long one, so gaps are only noted here, per name and second,
and counted together now and then (``flush``), once for all histograms that they belong to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from .histogram import counts_of
from .tally import Tally

SECOND_US = 1_000_000
_ENOUGH = 16384


class Spread:
    """Spreads events over tallies.

    Args:
        second_of: returns the tally of a second (epoch).
    """

    def __init__(self, second_of: Callable[[int], Tally]) -> None:
        self._second_of = second_of
        self._noted: dict[tuple[int, int, int, bool, bool], tuple[Tally, list[int], list[int]]] = {}
        self._size = 0
        self.since_us = 0
        """Tokens that arrived before (epoch) are not counted."""

    def add(
        self,
        row: Tally,
        start_us: int,
        at_us: Sequence[int],
        gaps_us: Sequence[int],
        *,
        weight: float | None = None,
        m: Sequence[int] | None = None,
        itl: bool = False,
        counts: bool = True,
        sign: int = 1,
        failed: bool = False,
    ) -> None:
        """Count token events and the gaps before them.

        Args:
            row: the tally of their name.
            start_us: start of the exchange (epoch).
            at_us: offsets of the events from it.
            gaps_us: the gap before each; one less than events if the first of them has none.
            weight: tokens an event; None if nobody knows.
            m: tokens of each event, where known; goes before ``weight``.
            itl: the gaps can be split on tokens. counts: they count at all.
            sign: -1 takes back.
        """
        first = len(at_us) - len(gaps_us)
        for second, begin, end in pieces(start_us, at_us):
            arrived = begin
            if start_us + at_us[begin] < self.since_us:
                arrived = bisect_left(at_us, self.since_us - start_us, begin, end)
            if arrived < end:
                tokens = sum(m[arrived:end]) if m is not None else (weight or 0.0) * (end - arrived)
                known = m is not None or weight is not None
                self.arrived(row, second, sign * (end - arrived), sign * tokens, known, failed)
            if counts and end > first:
                start = max(begin, first)
                self._note(row, second, sign, itl, gaps_us[start - first : end - first], m and m[start:end])

    def arrived(self, row: Tally, second: int, events: int, tokens: float, known: bool, failed: bool = False) -> None:
        """Count events that arrived, and their tokens if they are known."""
        name, number = ("tokens", tokens) if known else ("chunks_unknown", events)
        if failed:
            row.add(f"failed_{name}", number)
            return
        for into in (row, self._second_of(second)):
            into.add(name, number)
            into.add("chunks", events)

    def flush(self, pause: Callable[[], None] = lambda: None) -> None:
        """Count what was noted. ``pause`` is called now and then; what is not counted by then stays noted."""
        while self._noted:
            (_, second, sign, itl, split), (row, numbers, tokens) = self._noted.popitem()
            self._size -= len(numbers)
            self._count(row, self._second_of(second), numbers, tokens if split else None, itl, sign)
            pause()

    def _count(
        self, row: Tally, into: Tally, numbers: list[int], tokens: list[int] | None, itl: bool, sign: int
    ) -> None:
        counts, total = counts_of(numbers), float(sum(numbers))
        row.of("icl").add_counts(counts, total, sign)
        if not itl:
            into.of("icl").add_counts(counts, total, sign)
            return
        if tokens is not None:
            split = [(gap / m, m) for gap, m in zip(numbers, tokens, strict=True) if m > 0]
            counts = counts_of((gap for gap, _ in split), (m for _, m in split))
            total = float(sum(gap for gap, m in zip(numbers, tokens, strict=True) if m > 0))
        row.of("itl").add_counts(counts, total, sign)
        into.of("itl").add_counts(counts, total, sign)

    def _note(
        self, row: Tally, second: int, sign: int, itl: bool, gaps: Sequence[int], m: Sequence[int] | None
    ) -> None:
        key = (id(row), second, sign, itl, itl and m is not None)
        noted = self._noted.get(key)
        if noted is None:
            noted = self._noted[key] = (row, [], [])
        noted[1].extend(gaps)
        if m is not None:
            noted[2].extend(m)
        self._size += len(gaps)
        if self._size >= _ENOUGH:
            self.flush()


def pieces(start_us: int, at_us: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each second (epoch) in which events came, and from which to which of them: second, begin, end.

    Args:
        start_us: epoch. at_us: rising offsets from it.
    """
    begin, number = 0, len(at_us)
    while begin < number:
        second = (start_us + at_us[begin]) // SECOND_US
        edge = (second + 1) * SECOND_US - start_us
        end = number if at_us[-1] < edge else bisect_left(at_us, edge, begin)
        yield second, begin, end
        begin = end
