"""``report.html``: one file that can be read anywhere: verdict, run card, figures, charts, failures, slowest exchanges.

The one thing to know: the order is that of the questions a reader has: may I trust it, what was tested, what came out,
when, how spread, what failed. Figures are those of ``summary.json``; only the charts are made from the log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .columns import Bools
from .page.card import facts
from .page.distributions import latencies, ttft_by_input, ttft_by_name
from .page.figures import by_group, checks, costs, effects, figures_table, rates_table, tiles
from .page.over_time import failures_in_time, over_time
from .page.parts import Chart, Html, chart, details, document, join, section, table, tag
from .page.server import servers
from .page.timelines import slowest
from .page.trust import objectives, verdict
from .summary import Analysis, write_file

FILE = "report.html"


def write_html(analysis: Analysis, summary: dict[str, Any], folder: Path) -> Path:
    """Write ``report.html`` into a folder, whole or not at all; return its path.

    Raises:
        UsageError: the folder cannot be written to, or plotly is not installed.
    """
    path = folder / FILE
    write_file(path, page(analysis, summary).encode("utf-8", "replace"))
    return path


def page(analysis: Analysis, summary: dict[str, Any]) -> str:
    """Return the text of the page.

    Parameters:
        summary: ``summary.summary_of(analysis)``, with whatever else stands in ``summary.json`` (objectives, groups).

    Raises:
        UsageError: plotly is not installed.
    """
    charts = _charts(analysis, summary)
    effect = effects(summary)
    parts = [
        _head(analysis, summary),
        verdict(summary),
        objectives(summary),
        section("What was tested", _card(summary, analysis.card)),
        section(
            "What came out",
            tiles(summary),
            figures_table(summary),
            details("rates", rates_table(summary), open=True),
            checks(summary["total"]),
        ),
        section("In time", *(chart(c) for c in charts["time"])),
        section("Distributions", *(chart(c) for c in charts["spread"])) if charts["spread"] else "",
        section("What a token costs in time", *effect) if effect else "",
        section("What it costs", *costs(summary)) if "cost" in summary["total"] else "",
        section("What the server counted", *servers(summary)) if summary.get("server") else "",
        section("Failures", *_failures(summary, charts["failures"])),
        section("Slowest exchanges", *(chart(c) for c in charts["slow"])) if charts["slow"] else "",
        *(section(f"By {group['key']}", by_group(group)) for group in summary.get("by", [])),
        section("Where this comes from", _sources(summary)),
    ]
    return document(f"{_title(analysis)} · locust-llm report", join(parts), charts=any(charts.values()))


def _charts(analysis: Analysis, summary: dict[str, Any]) -> dict[str, list[Chart]]:
    here, overall = analysis.here, analysis.overall
    some = bool(overall.window.duration_s) and bool(overall.figures.counted.any())
    has_tokens = "system_output_tps" in summary["total_all"]["rates"]
    groups: list[tuple[str, Bools]] = [
        (f"{name} ({model})", np.asarray(analysis.name_ids == i)) for i, (name, _, model) in enumerate(analysis.names)
    ]
    spread = (latencies(here), ttft_by_name(here, groups), ttft_by_input(here, summary["total"]["input_effect"]))
    failures = summary["failures"]
    return {
        "time": [over_time(here, overall, has_tokens)] if some else [],
        "spread": [c for c in spread if c],
        "failures": [failures_in_time(failures, here, overall)] if failures["count"] and some else [],
        "slow": [c for c in (slowest(here),) if c],
    }


def _title(analysis: Analysis) -> str:
    name = analysis.card.get("name")
    runs = "+".join(analysis.here.log.run.names[:3])
    return f"{name} ({runs})" if isinstance(name, str) and name else runs


def _head(analysis: Analysis, summary: dict[str, Any]) -> Html:
    window = summary["window"]
    kind = {"steady": "steady window", "all": "whole run", "range": "chosen window"}[window["kind"]]
    begun = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(window["start"]))
    models = ", ".join(dict.fromkeys(model for _, _, model in analysis.names[:3]))
    lines = [tag("h1", _title(analysis))]
    if models:
        lines.append(tag("p", f"{models} · figures of the {kind}: {window['duration_s']:.1f} s from {begun}, "
                         f"{window['started']} exchanges started in it", class_="soft"))  # fmt: skip
    if analysis.where:
        lines.append(tag("p", "Only exchanges with ", tag("code", ", ".join(analysis.where)), class_="soft"))
    return tag("header", *lines)


def _card(summary: dict[str, Any], card: dict[str, Any]) -> Html:
    rows, last = [], ""
    for fact in facts(summary, card):
        value = tag("span", fact.why, class_="absent") if fact.value is None else fact.value
        rows.append(["" if fact.category == last else fact.category, fact.parameter, value])
        last = fact.category
    command = card.get("command")
    said = [str(word) for word in command] if isinstance(command, list) else []
    again = [tag("p", "Command: ", tag("code", " ".join(said)))] if said else []
    return join([table(["category", "parameter", "value"], rows, left=3, class_="card"), *again])


def _failures(summary: dict[str, Any], charts: Sequence[Chart]) -> list[Html]:
    failures, total = summary["failures"], summary["total"]
    if not failures["count"]:
        return [tag("p", "No exchange of the run failed.")]
    rows = [
        [str(e["outcome"]), _or_dash(e["status"]), _or_dash(e["kind"]), e["message"] or "–", e["count"]]
        for e in total["errors"]
    ]
    samples = [
        [f"{s['t_s']:.2f}", f"{s['after_s']:.2f}",
         *(_or_dash(s.get(k)) for k in ("name", "outcome", "status", "kind", "message", "token_events"))]
        for s in failures["samples"]
    ]  # fmt: skip
    kinds = table(["outcome", "status", "kind", "message", "count"], rows, left=4)
    if not rows:
        kinds = tag("p", "None of them started in the window that the figures are of.", class_="soft")
    head = ["started, s", "failed after, s", "name", "outcome", "status", "kind", "message", "token events before"]
    return [
        *(chart(c) for c in charts),
        kinds,
        details("samples", table(head, samples, left=7), open=len(samples) <= 12),
    ]


def _sources(summary: dict[str, Any]) -> Html:
    log = summary["log"]
    rows: list[list[object]] = [
        ["records read", f"{log['records']} ({log['preflight']} preflight, {log['warmup']} warm-up)"]
    ]
    rows += [[label, str(log[key])] for label, key in (
        ("records that came twice", "doubles"), ("record numbers that are skipped", "missing"),
        ("lines that are no records", "bad_lines"), ("bytes of a cut last line", "cut_bytes"),
    )]  # fmt: skip
    shown = log["files"][:10]
    rows.append(["files", ", ".join(Path(f).name for f in shown) + (" …" if len(log["files"]) > len(shown) else "")])
    note = "The server's counters were not read with this run." if not summary.get("server") else ""
    rules = "Every figure can be recomputed from the event log; docs/metrics.md says what each one means."
    return join([tag("p", f"{rules} {note}", class_="soft"), table(["log", ""], rows, left=2)])


def _or_dash(value: object) -> str:
    return "–" if value is None else str(value)
