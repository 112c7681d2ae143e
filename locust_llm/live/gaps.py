"""Token events on their way into tallies: tokens by second of arrival, gaps between them by bucket.

The one thing to know: many small lists cost more than one long one, so gaps are only noted here, per name and second,
and counted together when there are enough of them (``flush``); numpy does that at about 0.1 us a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .histogram import counts_of
from .tally import Tally

SECOND_US = 1_000_000
_ENOUGH = 8192


class Spread:
    """Spreads events over tallies.

    Args:
        second_of: returns the tally of a second (epoch).
    """

    def __init__(self, second_of: Callable[[int], Tally]) -> None:
        import numpy as np  # before the load begins, not during it

        self._np = np
        self._second_of = second_of
        self._noted: dict[tuple[int, int, int, bool, bool], tuple[Tally, list[Any], list[Any]]] = {}
        self._size = 0

    def array(self, numbers: list[int]) -> Any:
        return self._np.array(numbers, dtype=self._np.int64)

    def add(
        self,
        row: Tally,
        start_us: int,
        at_us: Any,
        *,
        before_us: int = -1,
        weight: float | None = None,
        m: Any = None,
        itl: bool = False,
        gaps: bool = True,
        sign: int = 1,
        failed: bool = False,
        since_us: int = 0,
    ) -> dict[int, tuple[int, float]]:
        """Count token events and the gaps before them.

        Args:
            row: the tally of their name.
            start_us: start of the exchange (epoch).
            at_us: int64 array, offsets of the events from it.
            before_us: offset of the event before them; -1 if the first of these is the first of all.
            weight: tokens an event; None if nobody knows.
            m: int64 array, tokens of each event, where known; goes before ``weight``.
            itl: the gaps can be split on tokens. gaps: they count at all.
            sign: -1 takes back.
            since_us: tokens that arrived before (epoch) are not counted.

        Returns:
            Events and tokens that were counted, by second.
        """
        np = self._np
        counted: dict[int, tuple[int, float]] = {}
        number = len(at_us)
        if not number:
            return counted
        first, last = (start_us + int(at_us[0])) // SECOND_US, (start_us + int(at_us[-1])) // SECOND_US
        seconds = range(first, last + 1)
        if first == last:
            ends = [number]
        else:
            edges = np.arange(first + 1, last + 1, dtype=np.int64) * SECOND_US - start_us
            ends = [*np.searchsorted(at_us, edges).tolist(), number]
        diffs = np.diff(at_us) if before_us < 0 else np.diff(at_us, prepend=before_us)
        missing = 1 if before_us < 0 else 0
        begin = 0
        for second, end in zip(seconds, ends, strict=True):
            if end == begin:
                continue
            arrived = begin
            if start_us + int(at_us[begin]) < since_us:
                arrived = min(end, int(np.searchsorted(at_us, since_us - start_us)))
            if arrived < end:
                known = m is not None or weight is not None
                tokens = float(m[arrived:end].sum()) if m is not None else (weight or 0.0) * (end - arrived)
                self.arrived(row, second, sign * (end - arrived), sign * tokens, known, failed)
                counted[second] = (end - arrived, tokens)
            if gaps:
                part = diffs[max(begin - missing, 0) : end - missing]
                if len(part):
                    of_part = m[max(begin, missing) : end] if m is not None and itl else None
                    self._note(row, second, sign, itl, part, of_part)
            begin = end
        return counted

    def arrived(self, row: Tally, second: int, events: int, tokens: float, known: bool, failed: bool = False) -> None:
        """Count events that arrived, and their tokens if they are known."""
        if failed:
            row.add("failed_tokens" if known else "failed_chunks_unknown", tokens if known else events)
            return
        row.add("chunks", events)
        row.add("arrived" if known else "chunks_unknown", tokens if known else events)
        into = self._second_of(second)
        into.add("chunks", events)
        into.add("tokens" if known else "chunks_unknown", tokens if known else events)

    def flush(self) -> None:
        """Count what was noted."""
        np = self._np
        noted, self._noted, self._size = self._noted, {}, 0
        for (_, second, sign, itl, split), (row, lists, tokens) in noted.items():
            gaps = np.concatenate(lists)
            total = float(gaps.sum())
            counts = counts_of(gaps)
            into = self._second_of(second)
            row.of("icl").add_counts(counts, total, sign)
            if not itl:
                into.of("icl").add_counts(counts, total, sign)
                continue
            if split:
                m = np.concatenate(tokens)
                total = float(gaps[m > 0].sum())
                counts = counts_of(gaps / np.maximum(m, 1), m)
            row.of("itl").add_counts(counts, total, sign)
            into.of("itl").add_counts(counts, total, sign)

    def _note(self, row: Tally, second: int, sign: int, itl: bool, gaps: Any, m: Any) -> None:
        key = (id(row), second, sign, itl, m is not None)
        noted = self._noted.get(key)
        if noted is None:
            noted = self._noted[key] = (row, [], [])
        noted[1].append(gaps)
        if m is not None:
            noted[2].append(m)
        self._size += len(gaps)
        if self._size >= _ENOUGH:
            self.flush()
