"""Notices a run that cannot succeed: its first exchanges all ended in the same error that no waiting mends.

One success, or one failure of another kind, and it never says so again in that run.
"""

from __future__ import annotations

from .exchange import CANCELLED, CONNECTION, HTTP_STATUS, UNFINISHED, Exchange

STATUSES = frozenset({401, 403, 404})
CONNECTION_KINDS = frozenset({"refused", "dns"})
LEAST = 10


class Hopeless:
    """Watches finished exchanges of one run in one process."""

    def __init__(self) -> None:
        self._cause: int | str | None = None
        self._count = 0
        self._who: set[str] = set()
        self._watching = True

    def look(self, record: Exchange, users: int) -> str | None:
        """Take a finished exchange; returns why the run should stop, once.

        That is after ten of a kind, one at least of each of the ``users`` so far: those that are slower may succeed.
        """
        if not self._watching or record.outcome in (CANCELLED, UNFINISHED):
            return None
        cause = _cause(record)
        if cause is None or self._cause not in (None, cause):
            self._watching = False
            return None
        self._cause = cause
        self._count += 1
        self._who.add(record.tags.get("user", ""))
        if self._count < LEAST or len(self._who) < users:
            return None
        self._watching = False
        message = record.error.message[:200] if record.error else ""
        return f"the first {self._count} exchanges all ended in the same error ({message})"


def _cause(record: Exchange) -> int | str | None:
    """Return the status or the kind of the error, None if another try could end differently."""
    if record.outcome == HTTP_STATUS and record.status in STATUSES:
        return record.status
    if record.outcome == CONNECTION and record.error is not None and record.error.kind in CONNECTION_KINDS:
        return record.error.kind
    return None
