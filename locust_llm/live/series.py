"""A run second by second, bounded: when there are too many points, neighbours merge and the step doubles.

The one thing to know: points are tallies, so they can still change (a stream that ends corrects the seconds in which
its tokens came); ``version`` of a point says when it last did.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .tally import Tally

MOST_POINTS = 1800
_FUTURE_S = 120


class Point:
    """A stretch of time: what was counted in it, and the Board's version when that changed last.

    Attributes:
        shown: what was made of it for a reader, and of what state that was.
    """

    __slots__ = ("shown", "tally", "version")

    def __init__(self) -> None:
        self.tally = Tally()
        self.version = 0
        self.shown: tuple[Any, dict[str, Any]] = (None, {})


class Series:
    """Points by index.

    Attributes:
        started: epoch second of point 0. step_s: length of a point. layout: grows when the points change their places.
    """

    def __init__(self, started: int, most: int = MOST_POINTS) -> None:
        self.started = started
        self.step_s = 1
        self.layout = 0
        self._most = most
        self._points: dict[int, Point] = {}

    def merge(self, second: int, tally: Tally, version: int, now: int) -> None:
        """Add what was counted in a second (epoch). Nothing lies before the start, and nothing far beyond ``now``."""
        if second < self.started or second > now + _FUTURE_S:
            return
        index = (second - self.started) // self.step_s
        while index >= self._most:
            self._double(version)
            index = (second - self.started) // self.step_s
        point = self._points.get(index)
        if point is None:
            point = self._points[index] = Point()
        point.tally.merge(tally)
        point.version = version

    def points(self, until: int) -> Iterator[tuple[int, Point]]:
        """Yield index and point of all that begin before a second, in order."""
        points, step_s = self._points, self.step_s  # a reader may rest between two of them, and the layout change
        for index in sorted(points):
            if self.started + index * step_s < until:
                yield index, points[index]

    def between(self, begin: int, end: int) -> Tally:
        """Return what was counted from one second to another, in whole points."""
        total = Tally()
        for index, point in self._points.items():
            if begin <= self.started + index * self.step_s < end:
                total.merge(point.tally)
        return total

    def _double(self, version: int) -> None:
        self.step_s *= 2
        self.layout += 1
        old, self._points = self._points, {}
        for index in sorted(old):
            point = self._points.get(index // 2)
            if point is None:
                point = self._points[index // 2] = old[index]
            else:
                point.tally.merge(old[index].tally)
            point.version = version
