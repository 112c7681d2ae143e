"""The server's own counters beside our figures: what it counted between the two readings, and the difference.

The one thing to know: the counters hold everything the server did in that time, so ours are of the whole run (all
measured records, failed and cut ones included), never of a window. Preflight and warm-up lie before the first reading.
What the server has more than we is other traffic, or exchanges whose end we did not see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..exchange import MEASURE
from ..telemetry.counters import ENGINES, Engine, counter, sum_and_count
from .columns import Bools, Floats, Log
from .figures import Figures
from .scope import Measured

COUNTS: Mapping[str, str] = {
    "prompt_tokens": "prompt tokens",
    "computed_prompt_tokens": "prompt tokens, cached ones left out",
    "cache_hits": "prompt tokens from the prefix cache",
    "cache_queries": "prompt tokens looked up in it",
    "generation_tokens": "generated tokens",
    "requests": "requests",
    "preemptions": "preemptions",
}
MEANS: Mapping[str, str] = {
    "ttft": "mean TTFT ms",
    "itl": "mean ITL ms",
    "e2e_latency": "mean e2e latency ms",
    "queue_time": "mean time in its queue ms",
}
LABELS: Mapping[str, str] = {**COUNTS, **MEANS}
USAGE = "usage"


def server(overall: Measured, card: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one entry per server whose counters the run card has, or says why it has not.

    Returns:
        ``{"url", "state": "compared" | "restarted" | "absent", "engine", "seconds", "figures": {name: {"server",
        "ours", "difference", "difference_share"}}, "cache_hit_share", "notes": […]}``; times are ms; ``why`` where it
        is not compared. ``ours`` and what follows are left out where we do not know the figure.
    """
    return [_entry(overall, card, entry) for entry in _entries(card)]


def restarts(card: dict[str, Any]) -> list[str]:
    """Return a sentence for each server that was restarted while the load ran, as far as its counters tell."""
    pairs = ((entry, _pair(entry)) for entry in _entries(card))
    return [f"{entry.get('url')}: {why}" for entry, pair in pairs if pair is not None and (why := _restart(*pair))]


def _entries(card: dict[str, Any]) -> list[dict[str, Any]]:
    told = card.get("server_metrics")
    return [entry for entry in told if isinstance(entry, dict)] if isinstance(told, list) else []


def _pair(entry: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    before, after = (_reading(entry.get(end)) for end in ("before", "after"))
    return None if before is None or after is None else (before, after)


def _restart(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return how one sees that the server was restarted between two readings, "" if one sees nothing."""
    old, new = before["samples"], after["samples"]
    fell = sorted(name for name, value in old.items() if new.get(name, value) < value)
    other_start = before.get("started") != after.get("started") or before["engine"] != after["engine"]
    how = f"{fell[0]} fell" if fell else "its start time changed" if other_start else ""
    return how and f"the server was restarted while the load ran ({how})"


def _entry(overall: Measured, card: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"url": str(entry.get("url"))}
    pair = _pair(entry)
    if pair is None:
        return out | {"state": "absent", "why": str(entry.get("note") or "its counters were not read to the end")}
    before, after = pair
    engine = ENGINES[before["engine"]]
    out["engine"] = f"simulated {engine.title}" if card.get("simulated") else engine.title
    out["seconds"] = after["t"] - before["t"]
    if why := _restart(before, after):
        return out | {"state": "restarted", "why": why}
    if len(overall.log.run.names) > 1:
        return out | {"state": "absent", "why": "the log mixes several runs, the counters are of one"}
    delta = {name: value - before["samples"].get(name, 0.0) for name, value in after["samples"].items()}
    rows = overall.log.phase.isin(MEASURE) & _of_classes(overall.log, entry.get("user_classes"))
    ours = dict(_ours(overall.log, overall.figures, rows))
    figures = dict(_figures(engine, delta, ours))
    out |= {"state": "compared", "figures": figures}
    if (queries := figures.get("cache_queries", {}).get("server")) and "cache_hits" in figures:
        out["cache_hit_share"] = figures["cache_hits"]["server"] / queries
    return out | {"notes": list(_notes(overall, card, entry, after, figures, rows))}


def _reading(data: Any) -> dict[str, Any] | None:
    """Return a reading of the card if it is one."""
    if not isinstance(data, dict) or data.get("engine") not in ENGINES or not isinstance(data.get("samples"), dict):
        return None
    samples = {str(name): float(v) for name, v in data["samples"].items() if isinstance(v, int | float)}
    t = data.get("t")
    return {**data, "samples": samples, "t": float(t)} if isinstance(t, int | float) else None


def _of_classes(log: Log, names: Any) -> Bools:
    return log.user_class.isin(*map(str, names)) if isinstance(names, list) else np.ones(len(log), dtype=bool)


def _ours(log: Log, figures: Figures, rows: Bools) -> Iterator[tuple[str, float]]:
    """Our figures of these records, as far as we know them. Times: seconds."""
    counted_in = rows & log.in_source.isin(USAGE) & ~np.isnan(log.n_in)
    counted_out = rows & log.out_source.isin(USAGE) & ~np.isnan(log.n_out)
    cached = counted_in & ~np.isnan(log.n_cached)
    if counted_in.any():
        n_in = float(log.n_in[counted_in].sum())
        yield "prompt_tokens", n_in
        yield "computed_prompt_tokens", n_in - float(log.n_cached[cached].sum())
    if cached.any():
        yield "cache_hits", float(log.n_cached[cached].sum())
    if counted_out.any():
        yield "generation_tokens", float(log.n_out[counted_out].sum())
    yield "requests", float((rows & (log.status >= 200) & (log.status < 300)).sum())
    for name in ("ttft", "e2e_latency"):
        if (mean := _mean(figures.values[name][rows])) is not None:
            yield name, mean
    tpot = figures.values["tpot"]
    decodes = rows & (tpot > 0)
    spans_s = (figures.ek_us[decodes] - figures.e1_us[decodes]) / 1e6
    if decodes.any():  # weighted by tokens, as a histogram of single gaps is
        yield "itl", float(spans_s.sum() / (spans_s / tpot[decodes]).sum())


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _figures(
    engine: Engine, delta: Mapping[str, float], ours: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, float]]]:
    cache_is_off = counter(engine, "cache_queries", delta) == 0
    for name in COUNTS:
        value = counter(engine, name, delta)
        if value is not None and not (cache_is_off and name.startswith("cache_")):
            yield name, _row(value, ours.get(name))
    for name in MEANS:
        both = sum_and_count(engine, name, delta)
        if both is not None and both[1] > 0:
            mine = ours.get(name)
            yield name, _row(both[0] / both[1] * 1e3, None if mine is None else mine * 1e3)


def _row(theirs: float, mine: float | None) -> dict[str, float]:
    if mine is None:
        return {"server": theirs}
    row = {"server": theirs, "ours": mine, "difference": theirs - mine}
    return {**row, "difference_share": (theirs - mine) / mine} if mine else row


def _notes(
    overall: Measured, card: dict[str, Any], entry: dict[str, Any], after: dict[str, Any],
    figures: Mapping[str, dict[str, float]], rows: Bools,
) -> Iterator[str]:  # fmt: skip
    log = overall.log
    tokens = ("prompt_tokens", "computed_prompt_tokens", "generation_tokens", "requests")
    more = [COUNTS[name] for name in tokens if figures.get(name, {}).get("difference", 0.0) > 0]
    less = [COUNTS[name] for name in tokens if figures.get(name, {}).get("difference", 0.0) < 0]
    answered = rows & (log.status >= 200) & (log.status < 300)
    unseen = int((answered & ~log.out_source.isin(USAGE)).sum())
    if unseen:
        yield f"{unseen} exchanges of ours ended without its count (cut or failed) and are on its side alone"
    records = card.get("records")
    unread = records - len(log) if isinstance(records, int) else 0
    if more:
        why = "that is other traffic"
        if unseen or unread > 0 or card.get("workers_missing"):
            why = f"{'these, ' if unseen else ''}what is missing on our side, or other traffic"
        yield f"the server has more {' and '.join(more)} than we: {why}"
    if less:
        yield (
            f"the server has fewer {' and '.join(less)} than we: its counters may be those of one instance among "
            "several behind this address"
        )
    if not entry.get("settled", True):
        yield "its counters still moved when they were read last: other traffic, or streams that were cut went on"
    models = after.get("models")
    if isinstance(models, list) and len(models) > 1:
        yield f"the counters are of {len(models)} models together: {', '.join(map(str, models[:5]))}"
    if unread > 0:
        yield f"{unread} records of the run were not read, so our side is short of them"
    if card.get("workers_missing"):
        yield "workers were lost: what they had in flight, and did not send, is on its side alone"
