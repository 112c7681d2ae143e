"""The arrival clock of one stream in one process: hands each due ticket to a user that waits for one.

A ticket is the monotonic time at which an exchange is due. One that finds no idle user waits for one and keeps its
time; none is ever dropped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import gevent
from gevent.hub import Waiter

from .alarm import Alarm


class ArrivalClock:
    """Tickets and the users that wait for them.

    Attributes:
        due: tickets that have come due.
        taken: tickets that a user has taken.
    """

    def __init__(self) -> None:
        self.due = 0
        self.taken = 0
        self._loop: Any = gevent.get_hub().loop
        self._alarm = Alarm(self._ring)
        self._due: Iterator[int] = iter(())
        self._base_ns = 0
        self._next_ns: int | None = None
        self._later: deque[tuple[int, Iterator[int]]] = deque()
        self._idle: deque[list[Any]] = deque()
        self._waiting: deque[int] = deque()

    def plan(self, from_ns: int, due: Iterator[int]) -> None:
        """From a monotonic time on tickets are those of ``due`` (ns after it); until then those planned before."""
        self._later.append((from_ns, due))
        self._arm()

    def stop(self) -> None:
        """No more tickets come due."""
        self._later.clear()
        self._next_ns = None
        self._due = iter(())
        self._alarm.close()

    def take(self) -> int:
        """Wait for a ticket; returns when it was due (monotonic ns)."""
        if self._waiting:
            self.taken += 1
            return self._waiting.popleft()
        entry: list[Any] = [Waiter(), None]
        self._idle.append(entry)
        try:
            entry[0].get()
        except BaseException:  # the user is killed; what it was handed meanwhile is somebody else's
            if entry[1] is None:
                self._idle.remove(entry)
            else:
                self.taken -= 1
                self._hand(entry[1], first=True)
            raise
        ticket: int = entry[1]
        return ticket

    @property
    def waiting(self) -> int:
        """Tickets that wait for a user."""
        return len(self._waiting)

    @property
    def oldest_ns(self) -> int | None:
        """When the first of those was due."""
        return self._waiting[0] if self._waiting else None

    # ---- helpers

    def _peek(self) -> int | None:
        """Return when the next ticket is due, going on to the next plan where it begins; None without any."""
        while True:
            if self._next_ns is None:
                offset = next(self._due, None)
                self._next_ns = None if offset is None else self._base_ns + offset
            if not self._later or (self._next_ns is not None and self._next_ns < self._later[0][0]):
                return self._next_ns
            self._base_ns, self._due = self._later.popleft()
            self._next_ns = None

    def _arm(self) -> None:
        at_ns = self._peek()
        if at_ns is not None:
            self._alarm.at(at_ns)

    def _ring(self) -> None:
        now_ns = time.monotonic_ns()
        while (at_ns := self._peek()) is not None and at_ns <= now_ns:
            self._next_ns = None
            self.due += 1
            self._hand(at_ns)
        self._arm()

    def _hand(self, ticket: int, first: bool = False) -> None:
        if self._idle:
            entry = self._idle.popleft()
            entry[1] = ticket
            self.taken += 1
            self._loop.run_callback(entry[0].switch, None)
        elif first:
            self._waiting.appendleft(ticket)
        else:
            self._waiting.append(ticket)
