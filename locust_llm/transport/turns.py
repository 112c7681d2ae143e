"""Finished streams get their turn in small portions, so that the loop looks at its sockets in between.

When many streams end together, working on all of them at once (records, the next prompts, the next requests) would leave other streams'
bytes unread for tens of milliseconds; bytes that queue up meanwhile lose their own arrival times.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

PORTION_NS = 500_000


class Turns:
    """Resumes waiting greenlets, for at most half a millisecond between two polls of the loop (one greenlet at least)."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._ready: deque[Any] = deque()
        self._next = loop.timer(0)
        self._armed = False

    def resume(self, waiter: Any) -> None:
        """Let the greenlet that waits on a gevent ``Waiter`` go on, soon."""
        self._ready.append(waiter)
        if not self._armed:
            self._armed = True
            self._loop.run_callback(self._portion)

    def _portion(self) -> None:
        ready, until_ns = self._ready, time.monotonic_ns() + PORTION_NS
        while ready:
            ready.popleft().switch(None)
            if time.monotonic_ns() >= until_ns:
                break
        if ready:
            # A timer, not a callback: the loop polls before it runs timers.
            self._next.start(self._portion)
        else:
            self._armed = False
