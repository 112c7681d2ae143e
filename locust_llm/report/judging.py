"""Did the run meet its objectives? ``pass``, ``fail`` or ``undecided``, and the exit code (metrics.md 4).

The one thing to know: it judges ``summary.json``, nothing else, so the end of a run and a report years later say the
same. An objective passes if the whole 95 % interval of its figure holds, failures at the worst end; it fails if none
of the interval does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .limits import OVERLOADED
from .metrics import LESS, PERCENTILES, POOLED
from .objectives import EXIT_FAIL, EXIT_MET, EXIT_SPOILT, Goal, Objective, figure
from .shares import CONCURRENCIES, MEMORIES, wilson
from .table import number

PASS, FAIL, UNDECIDED = "pass", "fail", "undecided"


def judge(summary: Mapping[str, Any], goal: Goal) -> dict[str, Any]:
    """Return what ``summary.json`` has under ``objectives``; {} without objectives.

    Returns:
        ``{"state", "exit_code", "window", "goodput", "results": [{"objective", "name"?, "metric", "statistic"?,
        "sign", "limit", "unit", "state", "value"?, "ci95"?, "count"?, "margin"?, "margin_share"?, "why",
        "spoilt_by"?}]}``. ``margin`` is the room between value and limit, in the unit; negative is beyond.
    """
    if not goal.objectives:
        return {}
    results = [_result(summary, objective, goal) for objective in goal.objectives]
    states = {result["state"] for result in results}
    state = FAIL if FAIL in states else UNDECIDED if UNDECIDED in states else PASS
    code = {FAIL: EXIT_FAIL, UNDECIDED: goal.exit_undecided, PASS: EXIT_MET}[state]
    if any("spoilt_by" in result for result in results):
        code = EXIT_SPOILT
    return {
        "state": state,
        "exit_code": code,
        "window": summary["window"]["kind"],
        "goodput": [str(limit) for limit in goal.goodput],
        "results": results,
    }


def written(value: float, unit: str) -> str:
    """Return a figure as people read it: ``123.4 ms``, ``2.31 s``, ``0.52 %``, ``2314 tokens/s``."""
    if unit == "share":
        return f"{value * 100:.3g} %" if value < 0.1 else f"{value * 100:.2f} %"
    if unit == "ms" and abs(value) >= 10_000:
        return f"{number(value / 1e3)} s"
    return f"{number(value)} {unit}"


# ---- helpers


def _result(summary: Mapping[str, Any], objective: Objective, goal: Goal) -> dict[str, Any]:
    result: dict[str, Any] = {
        "objective": str(objective),
        **({"name": objective.name} if objective.name is not None else {}),
        "metric": objective.metric,
        **({"statistic": objective.statistic} if objective.statistic else {}),
        "sign": objective.sign, "limit": objective.limit, "unit": objective.unit,
    }  # fmt: skip
    scope = _scope(summary, objective.name)
    if isinstance(scope, str):
        return result | {"state": UNDECIDED, "why": scope}
    found = _rate(scope, objective) if objective.statistic is None else _statistic(scope, objective)
    result |= found
    value = result.get("value")
    if value is not None:
        room = objective.limit - value if objective.sign == "<=" else value - objective.limit
        result["margin"] = room
        if objective.limit:
            result["margin_share"] = room / objective.limit
    spoilt = _spoilt_by(summary, objective, goal)
    if spoilt:
        result["spoilt_by"] = [reason["code"] for reason in spoilt]
        result["why"] += f"; not to be trusted: {spoilt[0]['effect']}"
    return result


def _scope(summary: Mapping[str, Any], name: str | None) -> dict[str, Any] | str:
    """Return the scope of a name, or why there is none."""
    if name is None:
        total: dict[str, Any] = summary["total"]
        return total
    found = [scope for scope in summary["names"] if scope["name"] == name]
    if len(found) == 1:
        scope: dict[str, Any] = found[0]
        return scope
    if found:
        models = ", ".join(scope["model"] for scope in found)
        return f"{name} stands for several: {models}; report one of them alone (--where model=…)"
    names = ", ".join(sorted({scope["name"] for scope in summary["names"]})[:20])
    return f"no exchange of this name was measured; names: {names}"


def _rate(scope: dict[str, Any], objective: Objective) -> dict[str, Any]:
    value = scope["rates"].get(objective.metric)
    if value is None:
        return {"state": UNDECIDED, "why": f"not measured: {scope['absent'].get(objective.metric, 'no such figure')}"}
    ends = scope.get("rates_ci95", {}).get(objective.metric)
    why = scope["absent"].get("rates_ci95", "there is no interval")
    return {"value": value} | _decided(objective, value, ends, why)


def _statistic(scope: dict[str, Any], objective: Objective) -> dict[str, Any]:
    metric, stat = objective.metric, objective.statistic or ""
    plain = scope["metrics"].get(metric)
    failed = scope.get("failures_at_worst", {}).get(metric)
    of = failed if failed is not None and stat in PERCENTILES else plain
    if of is None:
        absent = scope["absent"].get(metric, "no such figure")
        return {"state": FAIL if failed is not None else UNDECIDED, "why": f"not measured: {absent}"}
    why = scope["absent"].get("ci95", "there is no interval")
    out: dict[str, Any] = {"count": of["count"]}
    failures = of["count"] - (plain["count"] if plain else 0) if of is failed else 0
    if stat in of.get("infinite", ()):
        out |= _at_infinity(objective, of, failures, why)
    else:
        out["value"] = of[stat]
        out |= _decided(objective, of[stat], of.get("ci95", {}).get(stat), why)
    if "ci95" not in out and out["state"] == UNDECIDED and stat in PERCENTILES:
        out["state"] = _by_share(scope, objective, of)
        if out["state"] != UNDECIDED:
            out["why"] += (
                f"; yet {'hardly any exchange lies' if out['state'] == PASS else 'far too many lie'} beyond it"
            )
    if out["state"] == PASS and stat in of["thin"]:
        out |= {"state": UNDECIDED, "why": f"{of['count']} values are too few for {stat}"}
    if failures and metric not in POOLED and "value" in out:
        out["why"] += f"; {failures} failures count as beyond the limit"
    return out


def _decided(objective: Objective, value: float, ends: Any, why: str) -> dict[str, Any]:
    """Return state, interval and reason of a figure with a value."""
    unit = objective.unit
    room = f"limit {written(objective.limit, unit)}"
    if not ends:
        return {"state": UNDECIDED, "why": f"{written(value, unit)}, {room}: {why}"}
    low, high = ends
    text = f"{written(value, unit)}, 95 % interval {_interval(low, high, unit)}, {room}"
    bad, good = (low, high) if objective.sign == "<=" else (high, low)
    if good is not None and objective.holds(good):
        state = PASS
    elif bad is not None and not objective.holds(bad):
        state = FAIL
    else:
        state = UNDECIDED
        text += ": open, too few values" if good is None else ": it straddles the limit, a longer run would tell"
    return {"state": state, "ci95": [low, high], "why": text}


def _interval(low: float | None, high: float | None, unit: str) -> str:
    parts = ["…" if end is None else written(end, unit) for end in (low, high)]
    head, _, tail = parts[0].partition(" ")
    return f"{head} to {parts[1]}" if tail and parts[1].endswith(tail) else f"{parts[0]} to {parts[1]}"


def _at_infinity(objective: Objective, of: dict[str, Any], failures: int, why: str) -> dict[str, Any]:
    """A percentile that lies on a failure."""
    stat = objective.statistic
    failed = f"failed exchanges stand for {failures} of {of['count']} values"
    text = f"{stat} lies on a failed exchange ({failed})"
    ends = of.get("ci95", {}).get(stat)
    bad = None if not ends else ends[0] if figure(objective.metric).better == LESS else ends[1]
    if stat in of["surely_infinite"] or (bad is not None and not objective.holds(bad)):
        return {"state": FAIL, "why": text, **({"ci95": ends} if ends else {})}
    if bad is not None:
        begins = f"{text}, its interval begins at {written(bad, objective.unit)}"
        return {"state": UNDECIDED, "why": begins, "ci95": ends}
    return {"state": UNDECIDED, "why": f"{text}; {why}"}


def _by_share(scope: dict[str, Any], objective: Objective, of: dict[str, Any]) -> str:
    """Judge a percentile without an interval by the share of values beyond the limit, if that is clear.

    The percentiles say that at least ``least`` and at most ``most`` of the values lie beyond. Exchanges that were in
    flight together, or that the series remembers, count as one.
    """
    q = PERCENTILES[objective.statistic or ""]
    allowed = 1 - q if objective.sign == "<=" else q
    beyond = {
        (1 - level if objective.sign == "<=" else level): name in of.get("infinite", ())
        or not objective.holds(of[name])
        for name, level in PERCENTILES.items()
    }
    least = max((share for share, is_beyond in beyond.items() if is_beyond), default=0.0)
    most = min((share for share, is_beyond in beyond.items() if not is_beyond), default=1.0)
    alike = min(of["count"], sum(scope["outcomes"].values())) / max(
        1.0,
        CONCURRENCIES * float(scope["concurrency"]["in_flight"]["mean"]),
        scope.get("blocks", {}).get("exchanges", 0) / MEMORIES,
    )
    if wilson(least, max(alike, 1.0))[0] > allowed:
        return FAIL
    return PASS if wilson(most, max(alike, 1.0))[1] < allowed else UNDECIDED


def _spoilt_by(summary: Mapping[str, Any], objective: Objective, goal: Goal) -> list[dict[str, Any]]:
    """Return the reasons of an overloaded client that touch the objective's figure, or a limit behind its goodput."""
    figures = {objective.metric}
    if objective.metric.startswith("goodput"):
        figures |= {"itl" if limit.metric.startswith("itl_") else limit.metric for limit in goal.goodput}
    reasons = summary["verdict"]["reasons"]
    return [r for r in reasons if r["level"] == OVERLOADED and figures & set(r["figures"])]
