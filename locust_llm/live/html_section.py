"""The LLM section in Locust's own HTML report (``--html``, and the page's "Download Report").

The one thing to know: Locust's report has no place for others, so the function that renders it is wrapped, and our
section, tables and charts that need no script, goes before the end of the page. Locust writes ``--html`` before the
last figures of the workers are in, and not at all after SIGTERM; so it is written once more when everything is known.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import locust.html

from ..report.page.colours import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from ..report.page.parts import Html, figure_text, join, table, tag
from .svg import Line, clock, line_chart

logger = logging.getLogger(__name__)

_PERCENTILES = (("p50", 1), ("p95", 2), ("p99", 3))
_MOST_NAMES = 100
_STATES = {
    "sound": "✓ The measurement is sound",
    "doubtful": "! Some figures are doubtful",
    "overloaded": "✗ The client was overloaded: do not trust the latencies",
}
_BLOCKS = (("ttft", "TTFT"), ("itl", "ITL"), ("tpot", "TPOT"), ("e2e_latency", "e2e"))
_desk: weakref.ref[Any] | None = None
_locust_html: Any = locust.html
_render = _locust_html.render_template_from


def attach(desk: Any) -> None:
    """Put the section into every report that Locust renders from now on; of several desks the last one counts."""
    global _desk
    _desk = weakref.ref(desk)
    _locust_html.render_template_from = _with_section


def write_again(environment: Any) -> None:
    """Write ``--html`` with all that came in since Locust wrote it, or for the first time after SIGTERM."""
    options = environment.parsed_options
    if options is None or not options.html_file or environment.runner is None:
        return
    _locust_html.process_html_filename(options)
    path = Path(options.html_file)
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        page: str = _locust_html.get_html_report(environment, show_download_link=False)
        beside.write_text(page, encoding="utf-8")
        beside.replace(path)
    except OSError as e:
        logger.error("--html %s: %s", path, e.strerror)


def section(snapshot: dict[str, Any], dark: bool = False) -> Html:
    """Return the section; nothing if there was no run."""
    if not snapshot.get("run"):
        return Html("")
    style = _STYLE + (_DARK if dark else "")
    parts = [tag("h2", "LLM"), *_head(snapshot)]
    parts += [_names(snapshot), *_errors(snapshot), tag("div", *_charts(snapshot), class_="charts"), *_marks(snapshot)]
    return tag("section", tag("style", Html(style)), *parts, id="locust-llm")


def _with_section(file: Any, *args: Any, **kwargs: Any) -> str:
    page: str = _render(file, *args, **kwargs)
    desk = _desk() if _desk is not None else None
    if file != "report.html" or desk is None:
        return page
    try:
        ours = section(desk.snapshot(0), kwargs.get("theme") == "dark")
    except Exception:  # Locust's report must come out whatever is wrong with ours
        logger.exception("no LLM section in the HTML report")
        return page
    before, body, after = page.rpartition("</body>")
    return f"{before}{ours}{body}{after}"


def _head(snapshot: dict[str, Any]) -> Iterator[Html]:
    verdict = snapshot.get("verdict", {})
    reasons = [tag("li", f"{r['level']}: {r['effect']}") for r in verdict.get("reasons", [])]
    words = _STATES.get(str(verdict.get("state")), "Too early to judge the measurement")
    total, head = snapshot["total"], snapshot.get("head", {})
    figures = [f"run {snapshot['run']}", f"{total['counts'].get('exchanges', 0)} exchanges"]
    figures += [f"{figure_text(total['system_output_tps'])} output tokens/s"] if "system_output_tps" in total else []
    figures += [f"error rate {head['error_rate']:.2%}"] if "error_rate" in head else []
    yield tag("p", " · ".join(figures))
    yield tag("p", tag("b", words))
    if reasons:
        yield tag("ul", *reasons)
    if snapshot.get("incomplete"):
        yield tag("ul", *(tag("li", text) for text in snapshot["incomplete"]))
    for one in snapshot.get("objectives", []):
        yield tag("p", tag("b", str(one["state"])), " ", tag("code", one["text"]), " ", one.get("value", "–"))


def _names(snapshot: dict[str, Any]) -> Html:
    head = ["Name", "Exchanges", "Failed", "Requests/s", "Output tokens/s"]
    head += [f"{label} {p}, ms" for _, label in _BLOCKS for p, _ in _PERCENTILES]
    rows = [_row("All names", snapshot["total"])]
    rows += [_row(str(row["name"]), row) for row in snapshot.get("names", [])[:_MOST_NAMES]]
    return table(head, rows)


def _row(label: str, row: dict[str, Any]) -> list[object]:
    cells: list[object] = [label, row["counts"].get("exchanges", 0), row.get("failed", 0)]
    cells += [_maybe(row.get("requests_per_s")), _maybe(row.get("system_output_tps"))]
    return cells + [_maybe(row.get(block, {}).get(p)) for block, _ in _BLOCKS for p, _ in _PERCENTILES]


def _maybe(value: Any) -> float | None:
    return None if value is None else float(value)


def _errors(snapshot: dict[str, Any]) -> Iterator[Html]:
    errors = snapshot.get("errors", [])
    if errors:
        rows = [[str(e["kind"]), str(e.get("name", "–")), str(e.get("example", "–")), e["count"]] for e in errors]
        yield table(["Error", "Name", "Example", "Count"], rows, left=3)


def _charts(snapshot: dict[str, Any]) -> Iterator[Html]:
    series = snapshot.get("series", {})
    points: Sequence[dict[str, Any]] = series.get("points", [])
    if not points:
        return
    step_s = float(series.get("step_s", 1))
    length = max(point["i"] for point in points) + 1
    marks = [(mark["t"] - series["started"], str(mark["text"])) for mark in snapshot.get("marks", [])]

    def line(label: str, key: str, colour: int) -> Line:
        values: list[float | None] = [None] * length
        for point in points:
            values[point["i"]] = point.get(key)
        return Line(label, values, colour)

    def latency(title: str, name: str) -> Html:
        lines = [line(p, f"{name}_{p}_ms", colour) for p, colour in _PERCENTILES]
        return line_chart(title, "ms", step_s, lines, marks)

    streams = [line("in flight", "in_flight", 1), line("decoding", "decoding", 4), line("users", "users", 7)]
    requests = [line("succeeded", "requests_per_s", 1), line("asked rate", "rate_asked", 7)]
    yield line_chart("Output tokens", "tokens/s", step_s, [line("output", "output_tps", 1)], marks)
    yield latency("Time to first token (TTFT)", "ttft")
    yield latency("Inter-token latency (ITL)", "itl")
    yield line_chart("Streams and users", "number", step_s, streams, marks)
    yield line_chart("Requests", "1/s", step_s, requests, marks)
    yield latency("End-to-end latency", "e2e_latency")
    yield line_chart("Input tokens", "tokens/s", step_s, [line("input", "input_tps", 4)], marks)


def _marks(snapshot: dict[str, Any]) -> Iterator[Html]:
    started = snapshot.get("series", {}).get("started", 0.0)
    words = [f"{clock(mark['t'] - started)} {mark['text']}" for mark in snapshot.get("marks", [])]
    if words:
        yield tag("p", join([" · ".join(words[-20:])]), class_="soft")


_DASHED, _DOTTED = "6 4", "2 3"
_COLOURS = (
    (BLUE, ""), (VERMILION, _DASHED), (PURPLE, _DOTTED), (GREEN, _DASHED), (ORANGE, _DASHED), (SKY, _DOTTED),
    (GREY, _DOTTED),
)  # fmt: skip
_STYLE = """
#locust-llm { --line: #dde2e7; --soft: #5b6570; max-width: 1200px; margin: 0 auto 40px; padding: 0 24px;
  font: 14px/1.5 Roboto, Helvetica, Arial, sans-serif; font-variant-numeric: tabular-nums; }
#locust-llm h2 { font-size: 34px; font-weight: 400; margin: 0 0 8px; }
#locust-llm p { margin: 4px 0; } #locust-llm ul { margin: 4px 0; padding-left: 20px; }
#locust-llm .scroll { overflow-x: auto; margin: 12px 0; }
#locust-llm table { border-collapse: collapse; width: 100%; font-size: 13px; }
#locust-llm th, #locust-llm td { padding: 5px 8px; text-align: right; border-bottom: 1px solid var(--line); }
#locust-llm th { vertical-align: bottom; color: var(--soft); }
#locust-llm .t { text-align: left; overflow-wrap: anywhere; min-width: 7em; }
#locust-llm .charts { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr)); }
#locust-llm figure { margin: 0; break-inside: avoid; }
#locust-llm .keys { display: flex; gap: 14px; font-size: 12.5px; }
#locust-llm figcaption, #locust-llm .keys, #locust-llm .soft { color: var(--soft); }
#locust-llm figcaption b { color: CanvasText; }
#locust-llm text { font-size: 11px; fill: var(--soft); } #locust-llm line.grid { stroke: var(--line); }
#locust-llm line.mark { stroke: var(--soft); stroke-dasharray: 2 3; }
#locust-llm path { fill: none; stroke-width: 1.8; stroke-linecap: round; stroke-linejoin: round; }
""" + "".join(
    f"#locust-llm .c{n} {{ stroke: {colour};{f' stroke-dasharray: {dash};' if dash else ''} }}\n"
    for n, (colour, dash) in enumerate(_COLOURS, 1)
)
_DARK = """#locust-llm { --line: #343a40; --soft: #a7b0b8; color: #fff; } #locust-llm figcaption b { color: #fff; }
#locust-llm .c1 { stroke: #56b4e9; } #locust-llm .c2 { stroke: #ff8a3d; }
"""
