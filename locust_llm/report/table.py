"""The report as text for a console: at most 100 columns, plain characters, one block per name and one in total.

The one thing to know: it is made from ``summary.json`` alone, so what is printed is what is written. ``~`` marks a
percentile with too few exchanges behind it; a figure that is not there shows the reason instead.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from typing import Any

from .client_health import in_words
from .metrics import METRICS, RATES

WIDTH = 100
_COLUMNS = ("mean", "p50", "p90", "p95", "p99")
_LABEL, _CELL, _COUNT = 43, 9, 9
_ERRORS = 8

_ROWS = ("ttft", "ttfvt", "tpot", "itl", "e2e_latency", "output_tps_per_user")
_SCHEDULED_ROWS = ("scheduled_ttft", "scheduled_latency", "schedule_lag")


def render(summary: dict[str, Any]) -> str:
    """Return the tables of a summary, lines ended by LF, the verdict last."""
    return "\n".join([*(plain(line) for line in _lines(summary)), ""])


def number(value: float) -> str:
    """Return a figure with about four digits: 0.123, 12.35, 123.5, 12346."""
    magnitude = abs(value)
    if magnitude >= 1000:
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 100 else f"{value:.2f}" if magnitude >= 1 or value == 0 else f"{value:.3f}"


def _lines(summary: dict[str, Any]) -> Iterator[str]:
    window = summary["window"]
    yield f"run {summary['run']}"
    yield from _wrap(f"{_window_text(window)}; {window['started']} exchanges started in it")
    yield ""
    yield " " * _LABEL + "".join(f"{name:>{_CELL}}" for name in _COLUMNS) + f"{'n':>{_COUNT}}"
    names = summary["names"]
    titles = [_title(name) for name in names]
    if len(names) == 1:
        yield from _metrics(titles[0], summary["total"])
    else:
        for title, name in zip(titles, names, strict=True):
            yield from _metrics(title, name)
            yield ""
        yield from _metrics("total", summary["total"])
    if _has_thin(summary):
        yield "~ too few values for this percentile"
    yield ""
    if len(names) > 1:
        yield from _rates_by_name(titles, names)
    yield from _system(summary)
    yield ""
    yield from _objectives(summary.get("objectives"))
    if health := in_words(summary.get("client", {}), summary["verdict"].get("bounds", {})):
        yield from _wrap(f"client: {health}")
    yield from _verdict(summary["verdict"])


def _window_text(window: dict[str, Any]) -> str:
    clock = [time.strftime("%H:%M:%S", time.gmtime(window[end])) for end in ("start", "end")]
    day = time.strftime("%Y-%m-%d", time.gmtime(window["start"]))
    kind = {"steady": "steady window", "all": "whole run", "range": "window"}[window["kind"]]
    return f"{kind} of {window['duration_s']:.1f} s, {day} {clock[0]} to {clock[1]} UTC"


def _title(name: dict[str, Any]) -> str:
    return f"{name['name']} ({name['api']}, {name['model']})"


def _metrics(title: str, of: dict[str, Any]) -> Iterator[str]:
    yield title[:WIDTH]
    for key in (*_ROWS, *(key for key in _SCHEDULED_ROWS if key in of["metrics"])):
        if key == "itl" and key not in of["metrics"] and "icl" in of["metrics"]:
            yield from _metric("icl", of)
            yield from _wrap(f"no {METRICS['itl'].label}: {of['absent']['itl']}", indent=4)
        else:
            yield from _metric(key, of)


def _metric(key: str, of: dict[str, Any]) -> Iterator[str]:
    metric = METRICS[key]
    label = f"  {metric.label}"
    label += f" {metric.unit}" if metric.unit not in label else ""
    values = of["metrics"].get(key)
    if values is None:
        yield from _wrap(f"{label:<{_LABEL}}  - {of['absent'].get(key, '')}", hang=_LABEL + 4)
        return
    cells = (_cell(number(values[name]), name in values["thin"]) for name in _COLUMNS)
    yield f"{label:<{_LABEL}}" + "".join(cells) + f"{values['count']:>{_COUNT - 1}}"


def _cell(text: str, thin: bool) -> str:
    return f"{text:>{_CELL - 1}}{'~' if thin else ' '}"


def _has_thin(summary: dict[str, Any]) -> bool:
    scopes = [summary["total"], *summary["names"]]
    return any(set(m["thin"]) & set(_COLUMNS) for of in scopes for m in of["metrics"].values())


def _rates_by_name(titles: list[str], names: list[dict[str, Any]]) -> Iterator[str]:
    for title, name in zip(titles, names, strict=True):
        shown = ", ".join(f"{RATES[key].label} {_rate(name, key)}" for key in ("system_output_tps", "requests_per_s"))
        yield from _wrap(f"{title}: {shown}; {_outcomes(name)}", hang=2)


def _system(summary: dict[str, Any]) -> Iterator[str]:
    total, total_all = summary["total"], summary["total_all"]
    both = [total] if summary["window"]["kind"] == "all" else [total, total_all]
    heads = {"steady": "steady", "all": "all", "range": "window"}
    columns = [heads[summary["window"]["kind"]], "all"][: len(both)]
    yield f"{'':<{_LABEL}}" + "".join(f"{head:>{2 * _CELL}}" for head in columns)
    for key, rate in RATES.items():
        if key in ("error_rate", "output_chunks_per_s") and not (
            key not in total["rates"] or _needs_chunks(total, key)
        ):
            continue
        if not any(key in of["rates"] or key in of["absent"] for of in both):
            continue
        cells = [number(of["rates"][key]) if key in of["rates"] else "-" for of in both]
        yield f"{rate.label:<{_LABEL}}" + "".join(f"{cell:>{2 * _CELL}}" for cell in cells)
        if key in total["absent"] and key not in total["rates"]:
            yield from _wrap(f"no {rate.label}: {total['absent'][key]}", indent=4)
    for key, label in (
        ("in_flight", "exchanges in flight, mean / peak"),
        ("decoding", "of these decoding, mean / peak"),
    ):
        cells = [f"{number(of['concurrency'][key]['mean'])} / {of['concurrency'][key]['peak']}" for of in both]
        yield f"{label:<{_LABEL}}" + "".join(f"{cell:>{2 * _CELL}}" for cell in cells)
    yield ""
    yield from _facts(total)
    yield from _errors(total["errors"])


def _needs_chunks(total: dict[str, Any], key: str) -> bool:
    return key == "output_chunks_per_s" and "system_output_tps" not in total["rates"]


def _facts(total: dict[str, Any]) -> Iterator[str]:
    yield from _wrap(f"outcomes: {_outcomes(total)}", hang=2)
    reasons, ok = total["finish_reasons"], total["outcomes"]["ok"]
    if reasons:
        yield from _wrap("finish reasons: " + ", ".join(f"{r} {n / ok:.1%}" for r, n in reasons.items()), hang=2)
    for which, lengths in total["lengths"].items():
        asked, got = number(lengths["asked_mean"]), number(lengths["got_mean"])
        short = (
            f" ({lengths['short_share']:.1%} of the answers short)" if which == "output" and lengths["short"] else ""
        )
        yield from _wrap(f"{which} tokens, mean: asked {asked}, got {got}{short}", hang=2)
    yield from _wrap(f"token counts: {_tokens(total['tokens'])}", hang=2)
    yield from _wrap(f"connections: {_connection(total['connection'])}", hang=2)


def _outcomes(of: dict[str, Any]) -> str:
    shown = [f"{outcome} {n}" for outcome, n in of["outcomes"].items() if n or outcome == "ok"]
    if of["retries"]:
        shown.append(f"{of['retries']} earlier attempts")
    rate = of["rates"].get("error_rate")
    return ", ".join(shown) + (f"; error rate {rate:.2%}" if rate is not None else "")


def _tokens(tokens: dict[str, Any]) -> str:
    parts = [f"{which} {tokens[which]}" for which in ("output", "input") if which in tokens]
    for which, source in (("output", "source"), ("input", "input_source")):
        if tokens[source]:
            parts.append(f"{which} by " + ", ".join(f"{name} ({n})" for name, n in tokens[source].items()))
    if tokens.get("reasoning"):
        parts.append(f"reasoning {tokens['reasoning']}")
    if "cached_share" in tokens:
        parts.append(f"cached input {tokens['cached_share']:.1%}")
    return "; ".join(parts) or "no tokens"


def _connection(connection: dict[str, Any]) -> str:
    parts = [f"{connection['new']} new, {connection['reused']} reused"]
    if "tcp_connect_p50_ms" in connection:
        parts.append(f"TCP connect p50 {number(connection['tcp_connect_p50_ms'])} ms")
    if "ttft_share" in connection:
        parts.append(f"connecting is {connection['ttft_share']:.1%} of the median TTFT")
    return "; ".join(parts)


def _errors(errors: list[dict[str, Any]]) -> Iterator[str]:
    if errors:
        yield "errors:"
    for error in errors[:_ERRORS]:
        kind = " ".join(str(error[key]) for key in ("outcome", "status", "kind") if error[key] is not None)
        message = " ".join((error["message"] or "").split())
        yield _clip(f"  {error['count']:>6}  {kind}{': ' if message else ''}{message}")
    if len(errors) > _ERRORS:
        yield f"          {len(errors) - _ERRORS} more kinds in summary.json"


def _objectives(judged: dict[str, Any] | None) -> Iterator[str]:
    if not judged:
        return
    yield f"objectives: {judged['state']}"
    for result in judged["results"]:
        share = result.get("margin_share")
        room = "" if share is None else f" ({abs(share):.1%} {'room' if share >= 0 else 'beyond'})"
        yield from _wrap(f"  {result['state']:<10}{result['objective']}: {result['why']}{room}", hang=12)
    yield ""


def _verdict(verdict: dict[str, Any]) -> Iterator[str]:
    reasons = verdict["reasons"]
    yield f"verdict: {verdict['state']}{'' if reasons else ', nothing to distrust'}"
    for reason in reasons:
        yield from _wrap(f"  {reason['code']} ({reason['level']}): {reason['effect']}", hang=4)


def _rate(of: dict[str, Any], key: str) -> str:
    return number(of["rates"][key]) if key in of["rates"] else "-"


def plain(line: str) -> str:
    """Names and messages come from outside: no control characters into a terminal."""
    return "".join(c if c.isprintable() else "?" for c in line).rstrip()


def _clip(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _wrap(text: str, indent: int = 0, hang: int | None = None) -> list[str]:
    hang = indent + 2 if hang is None else hang
    lead = " " * (len(text) - len(text.lstrip())) if not indent else " " * indent
    return textwrap.wrap(
        text.lstrip() if indent or lead else text, WIDTH, initial_indent=lead, subsequent_indent=" " * hang,
        break_on_hyphens=False, drop_whitespace=True,
    ) or [""]  # fmt: skip
