"""What can be said of a run while it is on: is the client sound, are the objectives met, which exchanges were good.

The one thing to know: limits and grammar are the report's, the judgement is of the whole run so far and takes
exchanges for independent beyond those in flight together; the report, which knows the steady window and the memory of
the series, has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..exchange import OK, UNFINISHED
from ..report.intervals import CONCURRENCIES, wilson
from ..report.judging import FAIL, PASS, UNDECIDED, written
from ..report.metrics import METRICS, MORE, PERCENTILES, POOLED
from ..report.objectives import Goal, Objective, figure
from ..report.open_loop import LIMITS as OPEN_LOOP_LIMITS
from ..report.stats import needed
from ..report.verdict import DOUBTFUL, LIMITS, NOTE, OVERLOADED, SOUND
from .board import Board
from .rows import US, exchanges, failed, finished
from .tally import Tally

UNKNOWN = "unknown"

Reason = tuple[str, str, str]


def verdict(total: Tally, board: Board) -> dict[str, Any]:
    """Return ``{"state", "reasons": [{"code", "effect", "level"}]}``, gravest first; ``unknown`` at the start."""
    if not exchanges(total):
        return {"state": UNKNOWN, "reasons": []}
    grave = [OVERLOADED, DOUBTFUL, NOTE]
    reasons = sorted(_reasons(total, board), key=lambda reason: grave.index(reason[2]))
    worst = reasons[0][2] if reasons else NOTE
    told = [{"code": code, "effect": effect, "level": level} for code, effect, level in reasons]
    return {"state": SOUND if worst == NOTE else worst, "reasons": told}


def objectives(board: Board, goal: Goal) -> list[dict[str, Any]]:
    """Return how each objective stands: ``text``, ``scope``, ``state``, and ``value`` and ``margin`` where known."""
    return [_objective(board, objective) for objective in goal.objectives]


def goodput(total: Tally, goal: Goal, seconds: float) -> dict[str, Any]:
    """Return what ``summary.json`` has under ``goodput``, and the share and rate where there are any."""
    good, of, lost = (int(total.number(name)) for name in ("good", "good_of", "good_failed"))
    told: dict[str, Any] = {"limits": [str(limit) for limit in goal.goodput], "good": good, "of": of, "failed": lost}
    told["missed"] = {
        str(limit): {"over": int(total.number(f"over {limit}")), "absent": int(total.number(f"absent {limit}"))}
        for limit in goal.goodput
    }
    if of:
        told["goodput"] = good / of
    if seconds > 0:
        told["goodput_per_s"] = good / seconds
    return told


# ---- helpers


def _reasons(total: Tally, board: Board) -> Iterator[Reason]:
    if finished(total) and not total.number(OK):
        yield "nothing_ok", "no exchange has succeeded, so there are no latencies", DOUBTFUL
    if events := total.number("events"):
        share = total.number("late_joined") / events
        if share > LIMITS["late_joined_share"]:
            level = OVERLOADED if share > LIMITS["late_joined_share_overloaded"] else DOUBTFUL
            effect = (
                f"the client came late to {share:.1%} of the events and cannot say to within 1 ms when they arrived: "
                "fewer streams a process, or more processes (--processes)"
            )
            yield "late_joined", effect, level
    lag = total.histograms.get("client_lag")
    if lag is not None and lag.n > 0:
        p50, p99 = (value * US for value in lag.quantiles([0.5, 0.99]))
        if p99 > LIMITS["lag_p99_ms"]:
            level = OVERLOADED if p50 > LIMITS["lag_p50_ms_overloaded"] else DOUBTFUL
            effect = (
                f"the client read late: the longest wait of an answer in its socket was {p50:.1f} ms in the median "
                f"exchange, {p99:.1f} ms at p99; the next requests left late by as much"
            )
            yield "lag", effect, level
    scheduled = total.histograms.get("schedule_lag")
    if scheduled is not None and scheduled.n > 0:
        p50, p99 = (value * US for value in scheduled.quantiles([0.5, 0.99]))
        if p99 > OPEN_LOOP_LIMITS["schedule_lag_p99_ms"]:
            effect = (
                f"arrivals were sent late, by {p50:.0f} ms in the median and {p99:.0f} ms at p99: users (-u) were too "
                "few, or the client was busy"
            )
            yield "schedule_lag", effect, DOUBTFUL
    cut = total.number(UNFINISHED)
    if cut / exchanges(total) > LIMITS["censored_share"]:
        effect = (
            f"{cut:.0f} of {exchanges(total):.0f} exchanges were cut by the end of the run, and the slow ones are the "
            "ones cut: let them finish (--llm-drain)"
        )
        yield "censored", effect, DOUBTFUL
    lost = sum(process.gauges.lost_records for process in board.processes.values())
    if lost:
        yield "log_write_failed", f"{lost} records could not be written", DOUBTFUL
    for line in board.incomplete:
        yield "incomplete", line, DOUBTFUL
    if stamps := int(total.number("user_stamps")):
        effect = f"events of {stamps} exchanges have no kernel stamp: how late Python read them is not known"
        yield "user_stamps", effect, NOTE


def _objective(board: Board, objective: Objective) -> dict[str, Any]:
    told: dict[str, Any] = {"text": str(objective), "scope": objective.name or "total"}
    tally = _scope(board, objective.name)
    if tally is None:
        return told | {"state": UNDECIDED, "why": "no exchange of this name yet"}
    found = _share(tally, objective) if objective.metric in ("error_rate", "goodput") else None
    if found is None:
        found = _statistic(board, tally, objective) if objective.statistic else _rate(board, tally, objective)
    value, state, why = found
    if value is not None:
        told["value"] = written(value, objective.unit) if math.isfinite(value) else "failed exchanges"
        room = objective.limit - value if objective.sign == "<=" else value - objective.limit
        if math.isfinite(room):
            told["margin"] = ("+" if room >= 0 else "−") + written(abs(room), objective.unit)
    return told | {"state": state} | ({"why": why} if why else {})


def _scope(board: Board, name: str | None) -> Tally | None:
    if name is None:
        return board.total
    found = [tally for key, tally in board.names.items() if key[0] == name]
    if len(found) <= 1:
        return found[0] if found else None
    merged = Tally()
    for tally in found:
        merged.merge(tally)
    return merged


Found = tuple[float | None, str, str]


def _share(tally: Tally, objective: Objective) -> Found:
    of = finished(tally) if objective.metric == "error_rate" else tally.number("good_of")
    hits = failed(tally) if objective.metric == "error_rate" else tally.number("good")
    if not of:
        return None, UNDECIDED, "no exchange has finished"
    low, high = wilson(hits / of, max(of, 1))
    return hits / of, _decided(objective, low, high), ""


def _rate(board: Board, tally: Tally, objective: Objective) -> Found:
    """Rates of a run that goes on are told; what they are worth only the report can say."""
    value = board.rate(tally, objective.metric)
    return value, UNDECIDED, "rates are decided by the report" if value is not None else "not known yet"


def _statistic(board: Board, tally: Tally, objective: Objective) -> Found:
    metric, statistic = objective.metric, objective.statistic or ""
    histogram = tally.histograms.get(metric)
    scale = US if METRICS[metric].unit == "ms" else 1.0
    failures = int(failed(tally))
    if histogram is None or histogram.n <= 0:
        state = FAIL if failures and statistic in PERCENTILES else UNDECIDED
        return None, state, "no exchange that can give it"
    if statistic == "mean":
        return histogram.total / histogram.n * scale, UNDECIDED, "means are decided by the report"
    q = PERCENTILES[statistic]
    better = figure(metric).better
    lost = failures
    if metric in POOLED:
        lost = round(failures * histogram.n / max(exchanges(tally) - failures, 1))
    n = histogram.n + lost
    if better == MORE:  # failures are at the lower end
        place = q * (n - 1) - lost
        value = -math.inf if place < 0 else histogram.quantiles([place / max(n - 1 - lost, 1)])[0]
    else:
        value = histogram.quantiles([q], beyond=lost)[0]
    value *= scale
    over = histogram.above(objective.limit / scale)
    beyond = (over if objective.sign == "<=" else histogram.n - over) + lost
    in_flight = sum(process.gauges.in_flight for process in board.processes.values())
    alike = min(n, exchanges(tally)) / max(1.0, CONCURRENCIES * in_flight)
    low, high = wilson(min(beyond / n, 1.0), max(alike, 1.0))
    allowed = 1 - q if objective.sign == "<=" else q
    state = FAIL if low > allowed else PASS if high < allowed and n >= needed(q) else UNDECIDED
    return value, state, ""


def _decided(objective: Objective, low: float, high: float) -> str:
    bad, good = (low, high) if objective.sign == "<=" else (high, low)
    if objective.holds(good):
        return PASS
    return UNDECIDED if objective.holds(bad) else FAIL
