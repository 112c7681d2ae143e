"""Permissions to start an exchange, for runs of exactly N.

The quota is kept once, by the local process or the master; each worker holds tickets out of it, asked for in lots so
that no exchange waits for a message as a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gevent.event import Event


@dataclass(slots=True)
class Quota:
    """Exchanges that may still be started, over all workers."""

    left: int

    def grant(self, wanted: int) -> tuple[int, bool]:
        """Return how many are granted and whether there will be more."""
        number = min(max(0, wanted), self.left)
        self.left -= number
        return number, self.left > 0


@dataclass(slots=True)
class Tickets:
    """What one process may still start.

    ``ask`` is called with a number when more are wanted, ``grant`` is the answer.
    """

    ask: Callable[[int], None]
    left: int = 0
    more: bool = True
    """False once the last have been granted."""
    _asked: bool = False
    _granted: Event = field(default_factory=Event)

    def take(self, lot: int) -> bool:
        """Take one, waiting for a grant if need be; False when there are no more. ``lot``: how many to ask for."""
        while self.left == 0:
            if not self.more:
                return False
            granted = self._granted
            self._request(lot)
            granted.wait()
        self.left -= 1
        if self.left <= lot // 2:
            self._request(lot)
        return True

    def grant(self, number: int, more: bool) -> None:
        self.left += number
        self.more = more
        self._asked = False
        granted, self._granted = self._granted, Event()
        granted.set()

    @property
    def used_up(self) -> bool:
        return self.left == 0 and not self.more

    def _request(self, lot: int) -> None:
        if self.more and not self._asked:
            self._asked = True
            self.ask(lot)
