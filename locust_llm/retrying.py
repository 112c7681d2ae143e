"""Which failures ``--llm-retries`` sends again, and how long it waits before. Pure; ``client`` does the sending.

Only what the server refused for now, or what never reached it: status 429, 503 or 529 (also as an error inside a 2xx
answer, before any token), and a connection that gave no byte of an answer. Never after a token: the answer had begun,
and a second one would be another. The wait is what the server asked for, at most ``LONGEST_ASKED_S``; else it doubles
from ``FIRST_WAIT_S``, with jitter, so that users who were refused together do not come back together.
"""

from __future__ import annotations

from .exchange import CONNECTION, HTTP_STATUS, IN_BAND_ERROR, TIMEOUT, Exchange
from .wire.answer import TOKEN_KINDS

STATUSES = frozenset({429, 503, 529})
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
LONGEST_ASKED_S = 60.0

_CODES = frozenset({*map(str, STATUSES), "overloaded", "overloaded_error", "rate_limit_error", "rate_limit_exceeded"})


def may_retry(record: Exchange) -> bool:
    """Return whether an attempt that ended so may be sent again."""
    error = record.error
    if error is None or not TOKEN_KINDS.isdisjoint(record.kind_names):
        return False
    if record.outcome == HTTP_STATUS:
        return record.status in STATUSES
    if record.outcome == IN_BAND_ERROR:
        return error.code in _CODES or error.kind in _CODES
    if record.outcome == TIMEOUT:
        return error.kind == "connect"
    return record.outcome == CONNECTION and record.headers_us is None and error.kind not in ("framing", "tls")


def wait_s(record: Exchange, retry: int, jitter: float) -> float:
    """Return how long to wait before a retry.

    Args:
        record: of the attempt that failed.
        retry: which one it is going to be, from 1.
        jitter: from 0 to 1; takes up to half of a wait away that the server did not ask for.
    """
    asked_s = record.error.retry_after_s if record.error else None
    if asked_s is not None:
        return min(asked_s, LONGEST_ASKED_S)
    return min(FIRST_WAIT_S * 2.0 ** (retry - 1), LONGEST_WAIT_S) * (1 - jitter / 2)
