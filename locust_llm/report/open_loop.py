"""Open loop against what was asked for: delivered rate, lag of the schedule, arrivals that were never sent.

The one thing to know: a server that stalls, or users that are too few, make arrivals wait before they are sent.
Latencies from ``t_start`` do not show that wait, those from ``t_scheduled`` do (coordinated omission).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .client_health import RATES, Reason
from .limits import NOTE, Limits
from .scope import Measured
from .window import STEADY

_FELT = ["ttft", "e2e_latency"]
_RATES = list(RATES)


def open_loop(of: Measured, card: dict[str, Any], limits: Limits) -> Iterator[Reason]:
    """Yield what a verdict has to say of arrivals; nothing in closed loop."""
    log, figures = of.log, of.figures
    rows = figures.counted & ~np.isnan(log.scheduled_us)
    inside = rows & of.window.inside(log.start_us)
    if not inside.any():
        return
    lag_ms = (log.start_us[inside] - log.scheduled_us[inside]) / 1e3
    p99 = float(np.percentile(lag_ms, 99))
    yield from _rate(of, card, int(inside.sum()), p99, limits)
    if p99 > limits["schedule_lag_p99"]:
        effect = (
            f"arrivals were sent late, by {float(np.median(lag_ms)):.0f} ms in the median and {p99:.0f} ms at p99: "
            "users (-u) were too few, or the client was busy. ttft and e2e_latency begin when a request was sent and "
            "do not show that wait; scheduled_ttft and scheduled_latency do"
        )
        yield Reason("schedule_lag", effect, _FELT, value=p99, limit=limits["schedule_lag_p99"])
    yield from _unsent(card, int(rows.sum()))


def _rate(of: Measured, card: dict[str, Any], started: int, p99_ms: float, limits: Limits) -> Iterator[Reason]:
    asked, seconds = asked_rates(card), of.window.duration_s
    if not asked or of.window.kind != STEADY or seconds <= 0:
        return
    rate = sum(asked.values())
    delivered = started / seconds
    said = f"{delivered:.2f} of {rate:g} arrivals per second were sent"
    chance = 3 * (rate * seconds) ** 0.5 / seconds
    if delivered < rate * (1 - limits["rate_short"]) - chance:
        effect = f"{said}: users are too few, or the client cannot; the load was not the one asked for (raise -u)"
        short = 1 - delivered / rate
        yield Reason("rate_not_delivered", effect, [*_RATES, *_FELT], value=short, limit=limits["rate_short"])
    else:
        yield Reason("open_loop", f"open loop: {said}, schedule lag p99 {p99_ms:.1f} ms", [], NOTE)


def _unsent(card: dict[str, Any], sent: int) -> Iterator[Reason]:
    """Arrivals that were due and neither sent nor waiting for a user at the end: a worker died with them."""
    arrivals, load = card.get("arrivals"), card.get("load")
    if not isinstance(arrivals, dict) or (isinstance(load, dict) and load.get("requests")):
        return  # with a number of exchanges to send, arrivals beyond it are not missed
    due, waiting = arrivals.get("due"), arrivals.get("waiting")
    if not isinstance(due, int) or not isinstance(waiting, int):
        return
    lost = due - waiting - sent
    gone = arrivals.get("taken_over_from") or []
    if gone and lost > 0:
        effect = (
            f"{lost} of {due} arrivals are lost: due at {', '.join(map(str, gone))}, which left, before others took "
            "over (or in flight there when it died)"
        )
        yield Reason("arrivals_lost", effect, ["requests_per_s", "system_output_tps"])
    if waiting:
        effect = f"{waiting} of {due} arrivals still waited for a user when the load was stopped, and were never sent"
        yield Reason("arrivals_waiting", effect, ["requests_per_s", *_FELT])


def asked_rates(card: dict[str, Any]) -> dict[str, float]:
    """Return the rates asked for last, by stream."""
    arrivals = card.get("arrivals")
    asked = arrivals.get("asked") if isinstance(arrivals, dict) else None
    if not isinstance(asked, dict):
        return {}
    rates = {name: one.get("rate") for name, one in asked.items() if isinstance(one, dict)}
    return {name: float(rate) for name, rate in rates.items() if isinstance(rate, int | float)}
