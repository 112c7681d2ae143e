"""What was counted of some exchanges: named counters, named histograms, and when the first began and the last ended.

The one thing to know: everything in it adds up, so tallies of processes, names and stretches of time are merged
without loss. Times are microseconds, as in the record.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from .histogram import Histogram


class Tally:
    """Counters and histograms by name.

    Attributes:
        numbers: counters; those that are 0 may be missing. Outcomes are counted under their own names.
        histograms: by figure; times in us.
        noted: values that ``fold`` will count in histograms; nothing else looks at them.
        first_us, last_us: start of the first exchange and end of the last (epoch); inf and -inf if there is none.
    """

    __slots__ = ("first_us", "histograms", "last_us", "noted", "numbers")

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self.histograms: dict[str, Histogram] = {}
        self.noted: defaultdict[str, list[float]] = defaultdict(list)
        self.first_us = math.inf
        self.last_us = -math.inf

    def __bool__(self) -> bool:
        return bool(self.numbers or self.histograms)

    def add(self, name: str, number: float = 1) -> None:
        """Add to a counter."""
        self.numbers[name] = self.numbers.get(name, 0) + number

    def number(self, name: str) -> float:
        return self.numbers.get(name, 0)

    def of(self, name: str) -> Histogram:
        """Return a histogram to count in."""
        found = self.histograms.get(name)
        if found is None:
            found = self.histograms[name] = Histogram()
        return found

    def seen(self, start_us: float, end_us: float) -> None:
        """Take note of when an exchange began and ended."""
        self.first_us = min(self.first_us, start_us)
        self.last_us = max(self.last_us, end_us)

    def merge(self, other: Tally) -> None:
        """Add all that another one has counted."""
        for name, number in other.numbers.items():
            self.add(name, number)
        for name, histogram in other.histograms.items():
            self.of(name).merge(histogram)
        self.seen(other.first_us, other.last_us)

    def fold(self) -> None:
        """Count the values that were noted: many at once cost less than one by one."""
        if self.noted:
            noted, self.noted = self.noted, defaultdict(list)
            for name, values in noted.items():
                self.of(name).add_all(values)

    def to_plain(self) -> list[Any]:
        """Return it as plain data."""
        ends = [None, None] if self.first_us > self.last_us else [self.first_us, self.last_us]
        return [self.numbers, {name: one.to_plain() for name, one in self.histograms.items()}, *ends]

    @staticmethod
    def from_plain(data: list[Any]) -> Tally:
        """Read what ``to_plain`` made.

        Raises:
            ValueError, TypeError, AttributeError: it is nothing of the kind.
        """
        numbers, histograms, first_us, last_us = data
        own = Tally()
        own.numbers = {str(name): number for name, number in numbers.items()}
        if not {type(number) for number in own.numbers.values()} <= {int, float}:
            raise ValueError("no counters")
        own.histograms = {str(name): Histogram.from_plain(one) for name, one in histograms.items()}
        if first_us is not None:
            own.first_us, own.last_us = float(first_us), float(last_us)
        return own
