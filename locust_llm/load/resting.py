"""How long a user rests after it got no connection, so that a server that is gone is not called in a busy loop.

A refused connection takes a fraction of a millisecond: a few users would log thousands of failures a second about
nothing. The rest doubles from ``FIRST_S`` to ``LONGEST_S``: a server that comes back is found within a second. Only the
closed loop rests; in an open loop the arrivals are the schedule. Pure; ``client`` and ``warming`` do the waiting.
"""

from __future__ import annotations

from ..exchange import CONNECTION, Exchange

FIRST_S = 0.1
LONGEST_S = 1.0


class Rest:
    """What one user, or a timed warm-up, has seen of failed connections in a row."""

    def __init__(self) -> None:
        self._in_row = 0
        self._until_s = 0.0

    def after(self, record: Exchange, now_s: float, jitter: float) -> None:
        """Take a finished exchange.

        Args:
            record: of it; where anything of an answer came, the user need not rest.
            now_s: monotonic.
            jitter: from 0 to 1; takes up to half of the time away, so that users do not come back together.
        """
        if record.outcome != CONNECTION or record.headers_us is not None:
            self._in_row = 0
            return
        self._in_row += 1
        self._until_s = now_s + min(FIRST_S * 2.0 ** min(self._in_row - 1, 10), LONGEST_S) * (1 - jitter / 2)

    def left_s(self, now_s: float) -> float:
        """Return how much longer the user should rest; 0 after an answer."""
        return max(0.0, self._until_s - now_s) if self._in_row else 0.0
