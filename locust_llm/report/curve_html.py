"""The page of several runs: leaderboard tables, the latency–throughput curve and its readings, one row a run.

The one thing to know: ``report RUN…`` writes it as ``curve.html``, ``leaderboard --out`` as ``leaderboard.html``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .curve import Point, Series, readings
from .leaderboard import BOARDS, CAVEATS, HEADS, NO_SIZE, Entry, cells, configurations, grouped
from .objectives import Objective
from .page.card import META, meta_of
from .page.curve_charts import curve_charts
from .page.parts import Html, chart, document, join, section, table, tag
from .table import number


def curve_page(groups: Sequence[Series], limits: Sequence[Objective], entries: Sequence[Entry] = ()) -> str:
    """Return the text of the page; with ``entries`` the leaderboard comes first.

    Raises:
        UsageError: there are charts and plotly is not installed.
    """
    points = [p for series in groups for p in series.points]
    charts = curve_charts(groups) if len(points) > 1 else []
    title = "LLM leaderboard" if entries else "Latency and throughput"
    count = f"{len(points)} run{'' if len(points) == 1 else 's'}"
    parts = [tag("header", tag("h1", title), tag("p", count if points else "results of LLMPerf", class_="soft"))]
    if entries:
        parts += [section(name, *_board(entries, board)) for board, name in BOARDS]
    if charts:
        parts.append(section("How to read the curve", *(_readings(series, limits) for series in groups)))
        parts.append(section("The curve", *(chart(c) for c in charts)))
    if points:
        parts.append(section("The runs", _runs(groups), _facts(points)))
    if entries:
        parts.append(section("What was run", tag("ul", *(tag("li", line) for line in configurations(entries)))))
        thin = ("~ marks a percentile with too few requests behind it.",) if any(e.thin for e in entries) else ()
        parts.append(section("Read with care", tag("ul", *(tag("li", line) for line in (*CAVEATS, *thin)))))
    return document(f"{title} · locust-llm", join(parts), charts=bool(charts))


def _board(entries: Sequence[Entry], board: str) -> list[Html]:
    parts = []
    for size, group in grouped(entries):
        priced = board == "tps" and any(e.cost for e in group)
        head = ["Framework", "Model", *HEADS, *(["Cost per 1M tokens"] if priced else [])]
        rows = [[e.framework, e.model, *cells(e, board), *([e.cost or "–"] if priced else [])] for e in group]
        parts += [tag("h3", f"Models, {size}" if size == NO_SIZE else f"{size} models"), table(head, rows, left=2)]
    return parts


def _readings(series: Series, limits: Sequence[Objective]) -> Html:
    sentences = tag("ul", *(tag("li", sentence) for sentence in readings(series, limits)))
    return tag("div", tag("h3", series.name), sentences)


_COLUMNS = (("ttft", "p50"), ("ttft", "p95"), ("tpot", "p50"), ("e2e_latency", "p50"), ("output_tps_per_user", "p50"))
_HEAD = ("run", "series", "users or rate", "tokens/s", "requests/s", "TTFT p50 ms", "TTFT p95 ms", "TPOT p50 ms",
         "e2e p50 ms", "tokens/s per user", "errors %", "verdict")  # fmt: skip


def _runs(groups: Sequence[Series]) -> Html:
    rows = []
    for series in groups:
        for p in series.points:
            rates = p.total["rates"]
            failed = rates["error_rate"] * 100 if "error_rate" in rates else None
            cells_ = (*(_metric(p, *column) for column in _COLUMNS), failed, p.summary["verdict"]["state"])
            rows.append([p.label, series.name, p.short_load, p.tps, rates.get("requests_per_s"), *cells_])
    return join([table(_HEAD, rows, left=2), tag("p", "~ too few values for this percentile", class_="note")])


def _metric(p: Point, name: str, statistic: str) -> str:
    value = p.metric(name, statistic)
    return "–" if value is None else f"{number(value)}{'~' if p.thin(name, statistic) else ''}"


def _facts(points: Sequence[Point]) -> Html:
    """Return the facts of the run cards' meta: one column where all runs agree, else each with its values."""
    metas: list[dict[str, Any]] = [meta_of(p.card) for p in points]
    keys = [*META, *sorted({k for m in metas for k in m} - set(META))]
    rows: list[list[object]] = []
    for key in keys:
        values = list(dict.fromkeys(m[key] for m in metas if key in m))
        label = META[key][1] if key in META else key
        shown: object = (
            " / ".join(values) if values else tag("span", f"not given (--llm-meta {key}=…)", class_="absent")
        )
        rows.append([label, shown])
    return table(["fact", "value"], rows, left=2)
