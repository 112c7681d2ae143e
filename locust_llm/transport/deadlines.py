"""Which deadline of an exchange is over next. Pure arithmetic: the timer that asks lives in ``stream``."""

from __future__ import annotations

from ..settings import Timeouts

LOOK_AGAIN = ""
_NEVER_S = 86400.0


def next_deadline(limits: Timeouts, elapsed_s: float, quiet_s: float, has_tokens: bool) -> tuple[float, str]:
    """Return the seconds until the next deadline (not positive: it is over) and which it is.

    Args:
        limits: 0 is no limit. ``connect`` is not looked at here.
        elapsed_s: since the exchange started.
        quiet_s: since the last byte came.
        has_tokens: a token has come; only then ``idle`` counts. Before, ``LOOK_AGAIN`` comes up after as long, for the
            first token moves no timer.
    """
    left = [(_NEVER_S, LOOK_AGAIN)]
    if limits.total:
        left.append((limits.total - elapsed_s, "total"))
    if has_tokens:
        if limits.idle:
            left.append((limits.idle - quiet_s, "idle"))
    else:
        if limits.first_token:
            left.append((limits.first_token - elapsed_s, "first_token"))
        if limits.idle:
            left.append((limits.idle, LOOK_AGAIN))
    return min(left)


def connect_deadline(limits: Timeouts, elapsed_s: float) -> tuple[float, str]:
    """Return the seconds left to connect (0: no limit) and which deadline sets them."""
    left = [
        (limit - spent, name)
        for limit, spent, name in (
            (limits.connect, 0.0, "connect"),
            (limits.first_token, elapsed_s, "first_token"),
            (limits.total, elapsed_s, "total"),
        )
        if limit
    ]
    seconds, name = min(left, default=(0.0, "connect"))
    return (max(seconds, 1e-3) if left else 0.0), name
