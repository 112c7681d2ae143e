"""How far the clock of each worker is off the master's, by round trips: the one that took least knows best.

The one thing to know: an answer that took ``d`` places the worker's clock to within ``d / 2`` (as NTP does it). A few
round trips are made when a worker joins and now and then; each such look gives one point, the best of its round trips.
Nothing is corrected here: the points go into the run card, and whoever places records of several workers in time
(``report.workers``) shifts them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import gevent

logger = logging.getLogger(__name__)

ROUND_TRIPS = 8
APART_S = 0.01
ANSWERED_S = 0.5
"""Answers that take longer say nothing of use."""
EVERY_S = 15.0
MOST_POINTS = 240
"""An even number; beyond it, neighbours are merged."""
WORTH_SAYING_US = 1_000_000

Point = tuple[int, int, int]
"""When (the worker's clock, epoch µs), how much it is ahead of the master's (µs), uncertain by (µs)."""


class Clocks:
    """Compares the workers' clocks with the master's.

    Args:
        ask: sends a node a question, whose answer comes to ``answered``.
        nodes: those that take part.

    Attributes:
        offsets_us: what ``offset_us`` says of each node, for those who only look.
    """

    def __init__(self, ask: Callable[[str, dict[str, Any]], None], nodes: Callable[[], Iterable[str]]) -> None:
        self._ask = ask
        self._nodes = nodes
        self._wall_us: Callable[[int], int] = lambda mono_ns: 0
        self._run = 0
        self.offsets_us: dict[str, int] = {}
        self._points: dict[str, list[Point]] = {}
        self._best: dict[str, Point] = {}
        """Of the look that is under way."""

    def begin(self, wall_us: Callable[[int], int]) -> None:
        """A new run begins. ``wall_us``: its wall clock at monotonic instants."""
        self._run += 1
        self._wall_us = wall_us
        for kept in (self._points, self._best, self.offsets_us):
            kept.clear()
        gevent.spawn(self._follow, self._run)

    def end(self) -> None:
        """The run is over."""
        self._run += 1

    def look(self, node: str) -> None:
        """Make round trips to a node, in the background."""
        gevent.spawn(self._look, node, self._run)

    def answered(self, node: str, answer: dict[str, Any]) -> None:
        """Take an answer; called where messages are received."""
        now_ns = time.monotonic_ns()
        asked_ns, at_us = int(answer["asked_ns"]), int(answer["at_us"])
        if answer["run"] != self._run or not 0 <= now_ns - asked_ns <= ANSWERED_S * 1e9:
            return
        offset_us = at_us - self._wall_us((asked_ns + now_ns) // 2)
        point = (at_us, offset_us, (now_ns - asked_ns) // 2000 + 1)
        best = self._best.get(node)
        if best is None or point[2] < best[2]:
            self._best[node] = point

    def points(self, node: str) -> list[Point]:
        """Return what has been found out about a node's clock, oldest first."""
        found = self._points.get(node, [])
        best = self._best.get(node)
        return [*found, best] if best is not None else list(found)

    def knows(self, node: str) -> bool:
        return bool(self.points(node))

    def offset_us(self, node: str) -> int:
        """Return how much a node's clock is ahead of the master's, 0 if that cannot be told from nothing."""
        points = self.points(node)
        if not points:
            return 0
        _, offset_us, uncertain_us = points[-1]
        return offset_us if abs(offset_us) > uncertain_us else 0

    # ---- helpers

    def _follow(self, run: int) -> None:
        while True:
            gevent.sleep(EVERY_S)
            for node in list(self._nodes()):
                if run != self._run:
                    return
                self.look(node)
                gevent.sleep(APART_S)

    def _look(self, node: str, run: int) -> None:
        for _ in range(ROUND_TRIPS):
            if run != self._run:
                return
            try:
                self._ask(node, {"run": run, "asked_ns": time.monotonic_ns()})
            except OSError as e:
                logger.debug("worker %s cannot be asked for its time: %s", node, e)
                return
            gevent.sleep(APART_S)
        gevent.sleep(ANSWERED_S)
        best = self._best.pop(node, None) if run == self._run else None
        if best is None:
            return
        points = self._points.setdefault(node, [])
        points.append(best)
        self.offsets_us[node] = self.offset_us(node)
        if len(points) == 1 and abs(best[1]) > max(WORTH_SAYING_US, best[2]):
            logger.warning(
                "the clock of worker %s is %.3f s off this one (within %.1f ms): the report allows for that",
                node, best[1] / 1e6, best[2] / 1e3,
            )  # fmt: skip
        if len(points) > MOST_POINTS:
            pairs = zip(points[:-1:2], points[1:-1:2], strict=True)  # their number is odd: the newest stays
            points[:] = [*(min(pair, key=lambda p: p[2]) for pair in pairs), points[-1]]


def answer(question: dict[str, Any], at_us: int) -> dict[str, Any]:
    """Return a worker's answer to ``question``. ``at_us``: its clock, by which it times its records."""
    return question | {"at_us": at_us}
