"""The side of the arrivals that the local process or the master keeps: who sends which share, at which rate.

A new segment begins when the load is there, when a worker comes or goes, and when the rate is changed. It begins
``LEAD_S`` after it was decided, so that all workers hear of it in time and each arrival is sent by exactly one of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gevent

from ..errors import UsageError
from . import arrivals
from .open_loop import to_message
from .pacer import Pacer
from .schedule import Share, count_until, due_ns

LEAD_S = 0.3
LOOK_S = 0.2

Members = Mapping[str, tuple[str, ...]]
"""Nodes by stream, in the order of their shares."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the run in which rates and shares stay the same. ``number`` counts from 0."""

    number: int
    at_us: int
    pacers: Mapping[str, Pacer]
    members: Members


class Lead:
    """Decides segments.

    Args:
        pacers: the processes asked for, by stream.
        seed: the run's.
        members: who sends now: nodes with users of a stream.
        tell: takes a node and its segment as a message.
        mark: takes what goes into the run card's events.
    """

    def __init__(
        self,
        pacers: Mapping[str, Pacer],
        seed: int,
        members: Callable[[], Members],
        tell: Callable[[str, dict[str, Any]], None],
        mark: Callable[..., None],
    ) -> None:
        self._pacers = dict(pacers)
        self._seed = seed
        self._members = members
        self._tell = tell
        self._mark = mark
        self.segments: list[Segment] = []
        self.end_us: int | None = None

    def start(self) -> None:
        """The load is there: let arrivals come, and follow workers that come and go."""
        if not self.segments:
            self._begin()
            gevent.spawn(self._follow)

    def set_rate(self, rate: float, stream: str = arrivals.ALL) -> None:
        """Change a rate while the run goes on.

        Raises:
            UsageError: there is no such stream, or no such rate.
        """
        if stream not in self._pacers:
            known = ", ".join(name or "--llm-rate" for name in self._pacers) or "none: this run is closed loop"
            raise UsageError(f"no arrivals to change under {stream or '--llm-rate'}; there are {known}")
        arrivals.checked_rate("the rate", rate)
        before = self._pacers[stream].rate
        self._pacers[stream] = self._pacers[stream].at(rate)
        if self.segments:
            segment = self._begin()
            self._mark("load_changed", rate=rate, rate_before=before, stream=stream, from_us=segment.at_us)

    def stop(self) -> None:
        if self.end_us is None:
            self.end_us = time.time_ns() // 1000

    @property
    def pacers(self) -> Mapping[str, Pacer]:
        return self._pacers

    def nodes(self) -> list[str]:
        """Return all nodes that ever had a share."""
        return sorted({n for segment in self.segments for nodes in segment.members.values() for n in nodes})

    def has_left(self, node: str) -> bool:
        """Whether a node's share was taken over by others."""
        return not any(node in nodes for nodes in self.segments[-1].members.values())

    def due_of(self, node: str) -> int:
        """Return how many arrivals were due in a node's shares until others took them over, or the run ended."""
        number = 0
        for segment, following in zip(self.segments, [*self.segments[1:], None], strict=True):
            end_us = following.at_us if following else self.end_us or time.time_ns() // 1000
            for stream, nodes in segment.members.items():
                if node in nodes:
                    share = Share(nodes.index(node), len(nodes))
                    due = due_ns(segment.pacers[stream], self._seed, stream, segment.number, share)
                    number += count_until(due, (end_us - segment.at_us) * 1000)
        return number

    def card(self) -> dict[str, Any]:
        """Return what was asked for, for the run card."""
        return {stream or "--llm-rate": {"process": str(p), "rate": p.rate} for stream, p in self._pacers.items()}

    # ---- helpers

    def _begin(self) -> Segment:
        members = {stream: nodes for stream, nodes in self._members().items() if stream in self._pacers}
        at_us = time.time_ns() // 1000 + int(LEAD_S * 1e6)
        segment = Segment(len(self.segments), at_us, dict(self._pacers), members)
        before = {n for nodes in self.segments[-1].members.values() for n in nodes} if self.segments else set()
        self.segments.append(segment)
        for node in {n for nodes in members.values() for n in nodes} | before:
            streams = {
                stream: (pacer.rate, Share(nodes.index(node), len(nodes)) if node in nodes else None)
                for stream, pacer in self._pacers.items()
                for nodes in (members.get(stream, ()),)
            }
            self._tell(node, to_message(segment.number, segment.at_us, streams))
        return segment

    def _follow(self) -> None:
        while self.end_us is None:
            gevent.sleep(LOOK_S)
            before, now = self.segments[-1].members, self._members()
            if self.end_us is None and any(before.get(s) != now.get(s) for s in self._pacers) and any(now.values()):
                segment = self._begin()
                gone = {n for nodes in before.values() for n in nodes} - {n for nodes in now.values() for n in nodes}
                self._mark("shares_changed", workers=len(set().union(*now.values())), gone=sorted(gone),
                           from_us=segment.at_us)  # fmt: skip
