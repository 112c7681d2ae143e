"""Reasons to stop a run early: failures in a row (``--llm-stop-after-failures``), and a server that is gone.

Each process counts its own exchanges. One that ends well begins the count again; one that was cancelled, or cut by the
end of the run, says nothing either way.
"""

from __future__ import annotations

import time

from ..exchange import CANCELLED, CONNECTION, FAILURES, UNFINISHED, Exchange

GONE_KINDS = frozenset({"refused", "dns"})
GONE_S = 30.0
"""Nothing but refused connections for so long: the server does not restart, it is gone."""
GONE_LEAST = 10


class Failures:
    """Watches finished exchanges of one run in one process.

    Args:
        most: failures in a row after which to stop; 0: never for these.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_row = 0
        self._gone = 0
        self._gone_since_s = 0.0
        self._said = False

    def look(self, record: Exchange, now_s: float | None = None) -> str | None:
        """Take a finished exchange; returns why the run should stop, once. ``now_s``: monotonic, default now."""
        if self._said or record.outcome in (CANCELLED, UNFINISHED):
            return None
        now_s = time.monotonic() if now_s is None else now_s
        failed = record.outcome in FAILURES
        self._in_row = self._in_row + 1 if failed else 0
        error = record.error
        if not (record.outcome == CONNECTION and error is not None and error.kind in GONE_KINDS):
            self._gone = 0
        else:
            self._gone_since_s = self._gone_since_s if self._gone else now_s
            self._gone += 1
        message = error.message[:200] if error is not None else record.outcome
        if self._most and self._in_row >= self._most:
            self._said = True
            return f"{self._in_row} failures in a row (--llm-stop-after-failures), the last: {message}"
        if self._gone >= GONE_LEAST and now_s - self._gone_since_s >= GONE_S:
            self._said = True
            return f"the server is gone: for {GONE_S:g} s no connection was accepted ({message})"
        return None
