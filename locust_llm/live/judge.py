"""What can be said of a run while it is on: is the client sound, are the objectives met, which exchanges were good.

The one thing to know: limits and grammar are the report's, the judgement is of the whole run so far and takes
exchanges for independent beyond those in flight together; the report, which knows the steady window and the memory of
the series, has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..exchange import OK, UNFINISHED
from ..report.client_health import ARRIVED, GRAVE, RATES, Reads, Reason, judge_processes, judge_reads, state
from ..report.judging import FAIL, PASS, UNDECIDED, written
from ..report.limits import DOUBTFUL, NOTE, OVERLOADED, Limits
from ..report.metrics import METRICS, MORE, PERCENTILES, POOLED
from ..report.objectives import Goal, Objective, figure
from ..report.shares import CONCURRENCIES, needed, wilson
from .board import Board
from .histogram import Histogram
from .rows import US, exchanges, failed, finished
from .tally import Tally

UNKNOWN = "unknown"


def verdict(total: Tally, board: Board, limits: Limits) -> dict[str, Any]:
    """Return ``{"state", "reasons"}`` as the report does (``report.verdict``); ``unknown`` at the start.

    How wrong a percentile can be only the report can say. Until then a share of late-joined events stands for it: of
    more than 1 in 100 the 99th percentile, of more than half of them the median may be one.
    """
    if not exchanges(total):
        return {"state": UNKNOWN, "reasons": []}
    reasons = sorted(_reasons(total, board, limits), key=lambda reason: GRAVE.index(reason.level))
    return {"state": state(reasons), "reasons": [reason.to_json() for reason in reasons]}


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


def _reasons(total: Tally, board: Board, limits: Limits) -> Iterator[Reason]:
    if finished(total) and not total.number(OK):
        yield Reason("nothing_ok", "no exchange has succeeded, so there are no latencies", list(ARRIVED))
    for reason in judge_reads(_reads(total), limits):
        if reason.code == "late_joined":
            reason = replace(reason, level=OVERLOADED if (reason.value or 0) > 0.5 else DOUBTFUL)
        yield reason
    yield from judge_processes({p.worker: p.gauges.health for p in board.processes.values()}, limits)
    scheduled, limit = total.histograms.get("schedule_lag"), limits["schedule_lag_p99"]
    if scheduled is not None and scheduled.n > 0:
        p50, p99 = (value * US for value in scheduled.quantiles([0.5, 0.99]))
        if p99 > limit:
            effect = (
                f"arrivals were sent late, by {p50:.0f} ms in the median and {p99:.0f} ms at p99: users (-u) were too "
                "few, or the client was busy"
            )
            yield Reason("schedule_lag", effect, ["ttft", "e2e_latency"], value=p99, limit=limit)
    cut, limit = total.number(UNFINISHED) / exchanges(total), limits["censored_share"]
    if cut > limit:
        effect = (
            f"{total.number(UNFINISHED):.0f} of {exchanges(total):.0f} exchanges were cut by the end of the run, and "
            "the slow ones are the ones cut: let them finish (--llm-drain)"
        )
        yield Reason("censored", effect, ["tpot", "e2e_latency"], value=cut, limit=limit)
    lost = sum(process.gauges.lost_records for process in board.processes.values())
    if lost:
        yield Reason("log_write_failed", f"{lost} records could not be written", list(RATES))
    for line in board.incomplete:
        yield Reason("incomplete", line, list(RATES))
    if stamps := int(total.number("user_stamps")):
        effect = f"events of {stamps} exchanges have no kernel stamp: their times are those at which Python read them"
        yield Reason("user_stamps", effect, list(ARRIVED), NOTE)


def _reads(total: Tally) -> Reads:
    events = total.number("events")
    uncertain = total.histograms.get("uncertain")
    lag_p50, lag_p99 = _p50_p99(total.histograms.get("client_lag"))
    send_p50, send_p99 = _p50_p99(total.histograms.get("send_lag"))
    return Reads(
        late_joined_share=total.number("late_joined") / events if events else None,
        uncertain_max_ms=uncertain.ends()[1] * US if uncertain is not None and uncertain.n > 0 else None,
        lag_p50_ms=lag_p50, lag_p99_ms=lag_p99, send_lag_p50_ms=send_p50, send_lag_p99_ms=send_p99,
    )  # fmt: skip


def _p50_p99(of: Histogram | None) -> tuple[float | None, float | None]:
    """Return two percentiles in ms."""
    if of is None or of.n <= 0:
        return None, None
    p50, p99 = of.quantiles([0.5, 0.99])
    return p50 * US, p99 * US


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
