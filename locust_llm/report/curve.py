"""Several runs as points of one latency–throughput curve, its knee, and what it says to two kinds of reader.

The one thing to know: a point is what was measured; nothing is interpolated between points. Runs of the same model,
lengths and framework form a series, in order of their load: users in closed loop, the rate asked for in open loop.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from .limits import OVERLOADED
from .metrics import METRICS
from .objectives import Objective, parse_objectives
from .open_loop import asked_rates
from .page.card import meta_of, of_dict
from .table import number

DEFAULT_LIMIT = "ttft:p95<=500ms"
LEAST_POINTS = 3
"""A knee needs a load below it and one above."""

_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_LATENCIES = ("ttft", "tpot", "itl", "icl", "e2e_latency")


@dataclass(frozen=True, slots=True)
class Point:
    """One run: where it is on the curve, and its summary and card. ``load``: users, or arrivals/s if ``rated``."""

    label: str
    load: float
    rated: bool
    series: tuple[str, ...]
    summary: dict[str, Any]
    card: dict[str, Any]

    @property
    def total(self) -> dict[str, Any]:
        total: dict[str, Any] = self.summary["total"]
        return total

    def metric(self, name: str, statistic: str) -> float | None:
        """Return a statistic (ms, or tokens/s), None where it is absent."""
        value: float | None = self.total["metrics"].get(name, {}).get(statistic)
        return value

    def thin(self, name: str, statistic: str) -> bool:
        """Whether there are too few values for it."""
        return statistic in self.total["metrics"].get(name, {}).get("thin", ())

    @property
    def tps(self) -> float | None:
        value: float | None = self.total["rates"].get("system_output_tps")
        return value

    @property
    def overloaded(self) -> bool:
        """Whether the client itself was the bottleneck: such a point says nothing of the server."""
        return bool(self.summary["verdict"]["state"] == OVERLOADED)

    @property
    def short_load(self) -> str:
        return f"{self.load:g}/s" if self.rated else f"{self.load:g}"

    @property
    def load_in_words(self) -> str:
        if self.rated:
            return f"{self.load:g} arrivals per second"
        return f"{self.load:g} user{'' if self.load == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Series:
    """Points in order of load, and a name that tells this series from the others."""

    name: str
    points: tuple[Point, ...]


def limits_of(text: str) -> list[Objective]:
    """Read latency budgets, ``ttft:p95<=500ms, e2e:p90<=8s``, in the grammar of objectives.

    Raises:
        UsageError: what cannot be read, or is no upper limit of a latency of all exchanges.
    """
    found = list(parse_objectives(text, "--limit"))
    for each in found:
        if each.name is not None or each.statistic is None or each.unit != "ms" or each.sign != "<=":
            raise UsageError(f"--limit: {each} is no latency budget; write one such as {DEFAULT_LIMIT}")
    return found


def _label(metric: str, statistic: str | None) -> str:
    return f"{METRICS[metric].label.split(' (')[0]} {'p99.9' if statistic == 'p999' else statistic}"


def point(summary: dict[str, Any], card: dict[str, Any]) -> Point:
    """Return the point of a run."""
    users = of_dict(card, "load").get("users")
    rate = sum(asked_rates(card).values())
    load = rate or (float(users) if isinstance(users, int | float) and users > 0 else round(_in_flight(summary), 1))
    meta = meta_of(card)
    models = "+".join(sorted({str(name["model"]) for name in summary["names"]}))
    framework = " ".join(meta[k] for k in ("framework", "framework_version") if k in meta)
    loop = "open loop" if rate else ""
    series = (models, _lengths(summary, card), framework, meta.get("gpu", ""), loop)
    return Point(summary["run"], load, rate > 0, series, summary, card)


def series_of(points: Sequence[Point]) -> list[Series]:
    """Group points into series; a series is named by what differs between them."""
    keys = list(dict.fromkeys(p.series for p in points))
    alone = [True, True, False, False, True]
    differs = [len({key[i] for key in keys}) > 1 for i in range(len(alone))] if len(keys) > 1 else alone
    out = []
    for key in keys:
        name = ", ".join(part for part, shown in zip(key, differs, strict=True) if shown and part) or key[0]
        out.append(Series(name, tuple(sorted((p for p in points if p.series == key), key=lambda p: p.load))))
    return out


def knee(series: Series) -> Point | None:
    """Return the point with the most throughput per latency (Kleinrock's power, tokens/s over mean e2e latency).

    None if there are fewer than three loads, or the most is at the highest load: then the knee lies beyond it.
    """
    powers = [
        (p.tps / e2e, p)
        for p in series.points
        if p.tps is not None and not p.overloaded and (e2e := p.metric("e2e_latency", "mean"))
    ]
    if len({p.load for _, p in powers}) < LEAST_POINTS:
        return None
    best = max(powers, key=lambda pair: pair[0])[1]
    return None if best.load == max(p.load for _, p in powers) else best


def readings(series: Series, limits: Sequence[Objective]) -> list[str]:
    """Return the ways to read the curve as sentences: from a latency budget, from a load; knee and cost."""
    budgets = (_from_budget(series, each) for each in limits)
    return [*budgets, *_from_load(series, limits), _knee(series), *_cheapest(series)]


def _from_budget(series: Series, of: Objective) -> str:
    statistic, budget = of.statistic or "p50", f"At {_label(of.metric, of.statistic)} ≤ {of.limit:g} ms"
    known = [(v, p) for p in series.points if (v := p.metric(of.metric, statistic)) is not None and p.tps is not None]
    sure = [(v, p) for v, p in known if not p.thin(of.metric, statistic) and not p.overloaded]
    few = [p.load_in_words for v, p in known if p.thin(of.metric, statistic) and not p.overloaded]
    notes = [f"too few exchanges to say it of {', '.join(few)}"] if few else []
    if spoilt := [p.load_in_words for _, p in known if p.overloaded]:
        notes.append(f"the client was overloaded at {', '.join(spoilt)}")
    note = f" ({'; '.join(notes)})" if notes else ""
    met = [(v, p) for v, p in sure if of.holds(v)]
    if met:
        value, best = max(met, key=lambda pair: pair[1].tps or 0.0)
        return f"{budget}: {best.load_in_words}, {number(best.tps or 0)} tokens/s (measured {number(value)} ms){note}."
    if sure:
        value, best = min(sure, key=lambda pair: pair[0])
        return f"{budget}: none of the loads; the fastest is {number(value)} ms at {best.load_in_words}{note}."
    return f"{budget}: nothing can be said{note or ', for it was not measured'}."


def _from_load(series: Series, limits: Sequence[Objective]) -> Iterator[str]:
    for p in series.points:
        parts = []
        for each in dict.fromkeys((x.metric, x.statistic or "p50") for x in limits):
            value, label = p.metric(*each), _label(*each)
            parts.append(
                f"{label} {'unknown' if value is None else f'{number(value)} ms'}{'~' if p.thin(*each) else ''}"
            )
        parts.append("tokens/s unknown" if p.tps is None else f"{number(p.tps)} tokens/s")
        if (each_user := p.metric("output_tps_per_user", "p50")) is not None:
            parts.append(f"{number(each_user)} tokens/s per user")
        yield f"At {p.load_in_words}: {', '.join(parts)}{' (the client was overloaded)' if p.overloaded else ''}."


def _knee(series: Series) -> str:
    best = knee(series)
    if best is not None:
        tps, e2e = number(best.tps or 0), number(best.metric("e2e_latency", "mean") or 0)
        beyond = "beyond it latency grows faster than throughput"
        return f"The knee is at {best.load_in_words}: {tps} tokens/s at a mean e2e latency of {e2e} ms; {beyond}."
    loads = len({p.load for p in series.points if not p.overloaded})
    if loads < LEAST_POINTS:
        return f"No knee can be found: {loads} load{'' if loads == 1 else 's'}, {LEAST_POINTS} are needed."
    return "No knee within these loads: up to the highest, throughput grows faster than latency; try a higher load."


def _cheapest(series: Series) -> Iterator[str]:
    key = "per_1m_output_tokens"
    for by, words in (("tokens", "by token price"), ("hour", "by the price of the hour")):
        found = [
            (c[key], p) for p in series.points if not p.overloaded and key in (c := p.total.get("cost", {}).get(by, {}))
        ]
        if found:
            least, best = min(found, key=lambda pair: pair[0])
            yield f"Cheapest {words}: {least:.4g} per 1M output tokens, at {best.load_in_words}."


def render_curve(groups: Sequence[Series], limits: Sequence[Objective]) -> str:
    """Return the curve as text: a table and the readings of each series."""
    lines: list[str] = []
    for series in groups:
        lines += [series.name, "".join(f"{head:>{width}}" for head, width in _HEADS)]
        for p in series.points:
            cells = (
                p.short_load,
                _cell(p.tps),
                *(_of(p, *which) for which in _SHOWN),
                _rate(p),
                p.summary["verdict"]["state"],
            )
            lines.append("".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, _HEADS, strict=True)))
        lines += [*(f"  {sentence}" for sentence in readings(series, limits)), ""]
    return "\n".join(lines)


_HEADS = (("load", 7), ("tokens/s", 10), ("TTFT p50", 11), ("TTFT p95", 11), ("TPOT p50", 10), ("e2e p50", 10),
          ("tok/s/user", 12), ("errors", 9), ("verdict", 12))  # fmt: skip
_SHOWN = (("ttft", "p50"), ("ttft", "p95"), ("tpot", "p50"), ("e2e_latency", "p50"), ("output_tps_per_user", "p50"))


def to_csv(groups: Sequence[Series]) -> str:
    """Return one row a run, with a header; an empty cell is a figure that is absent."""
    rows = [row(p, series.name) for series in groups for p in series.points]
    out = io.StringIO()
    writer = csv.DictWriter(
        out, list(dict.fromkeys(key for each in rows for key in each)), lineterminator="\n", restval=""
    )
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def row(p: Point, series: str) -> dict[str, Any]:
    """Return a run as one flat row: what was asked, what came out; times in ms."""
    total, window = p.total, p.summary["window"]
    out: dict[str, Any] = {
        "run": p.label, "series": series, "users": "" if p.rated else f"{p.load:g}",
        "rate": f"{p.load:g}" if p.rated else "", "model": p.series[0], "lengths": p.series[1],
        "framework": p.series[2], "gpu": p.series[3], "window": window["kind"], "duration_s": window["duration_s"],
        "exchanges": window["started"], "verdict": p.summary["verdict"]["state"],
        "in_flight_mean": total["concurrency"]["in_flight"]["mean"], **total["rates"],
    }  # fmt: skip
    for name in (*_LATENCIES, "output_tps_per_user", "input_tokens", "output_tokens"):
        unit = "_ms" if METRICS[name].unit == "ms" else ""
        values = total["metrics"].get(name, {})
        out |= {f"{name}_{s}{unit}": values[s] for s in _STATISTICS if s in values}
    for by, costs in total.get("cost", {}).items():
        if by in ("tokens", "hour"):
            out |= {f"cost_by_{by}_{key}": value for key, value in costs.items()}
    return out


def _in_flight(summary: dict[str, Any]) -> float:
    return float(summary["total"]["concurrency"]["in_flight"]["mean"])


def _lengths(summary: dict[str, Any], card: dict[str, Any]) -> str:
    """Return "200 in, 200 out": as asked in the card, else as measured, to two digits."""
    asked = of_dict(card, "lengths")
    found = []
    for which, word in (("input", "in"), ("output", "out")):
        given = asked.get(f"{which}_tokens")
        mean = summary["total"]["metrics"].get(f"{which}_tokens", {}).get("mean")
        if given and not asked.get("prompts"):
            found.append(f"{str(given).removesuffix(',0')} {word}")
        elif mean is not None:
            found.append(f"about {float(f'{mean:.2g}'):g} {word}")
    return ", ".join(found)


def _cell(value: float | None) -> str:
    return "-" if value is None else number(value)


def _of(p: Point, name: str, statistic: str) -> str:
    return _cell(p.metric(name, statistic)) + ("~" if p.thin(name, statistic) else " ")


def _rate(p: Point) -> str:
    rate = p.total["rates"].get("error_rate")
    return "-" if rate is None else f"{rate:.2%}"
