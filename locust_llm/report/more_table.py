"""What the console table shows only on request or in passing: groups, what tokens cost in time and money, token checks.

The one thing to know: like ``table`` it is made from ``summary.json`` alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from .cost import KEYS
from .effect import RATIO
from .page.figures import ratio_sentence
from .server import COUNTS, LABELS
from .table import WIDTH, number
from .token_check import sentence

_COLUMNS = (("started", 9), ("tokens/s", 10), ("req/s", 8), ("TTFT p50", 10), ("TTFT p95", 11), ("TPOT p50", 10),
            ("e2e p50", 9), ("errors", 9))  # fmt: skip
_LABEL = WIDTH - sum(width for _, width in _COLUMNS)
_SERVER_CELL = 11
_COST = {"tokens": "by token price", "hour": "by the price of the hour"}


def render_more(summary: dict[str, Any]) -> str:
    """Return further lines of a report, "" if there are none."""
    lines = [*_effect(summary["total"]), *_costs(summary["total"]), *_check(summary["total"])]
    for each in summary.get("server", []):
        lines += ["", *_server(each)] if each["state"] != "absent" else []
    for group in summary.get("by", []):
        lines += ["", *_group(group)]
    return "".join(f"{''.join(c if c.isprintable() else '?' for c in line).rstrip()}\n" for line in lines)


def _effect(total: dict[str, Any]) -> Iterator[str]:
    parts = []
    for name, label in (("ttft", "TTFT"), ("e2e_latency", "e2e")):
        fit = total["input_effect"].get(name, {})
        for part, word in (("ms_per_input_token", "input"), ("ms_per_output_token", "output")):
            if part in fit and (name, word) != ("ttft", "output"):
                found = fit[part]
                ends = f"{found['low']:.3g} to {found['high']:.3g}"
                parts.append(f"{label} {found['value']:.3g} ms ({ends}) per {word} token")
    if parts:
        yield from _wrap(f"a token takes: {', '.join(parts)}")
    if RATIO in total["input_effect"].get("e2e_latency", {}):
        yield f"  {ratio_sentence(total)}"


def _costs(total: dict[str, Any]) -> Iterator[str]:
    of = total.get("cost", {})
    for kind, label in _COST.items():
        if kind in of:
            shown = (f"{of[kind][key]:.4g} {key.replace('_', ' ')}" for key in KEYS if key in of[kind])
            yield from _wrap(f"cost {label}: {', '.join(shown)}")
    for kind, why in of.get("absent", {}).items():
        yield f"no cost {_COST[kind]}: {why}"


def _check(total: dict[str, Any]) -> Iterator[str]:
    if "token_check" in total:
        yield from _wrap(sentence(total["token_check"]))
    elif "token_check" in total["absent"]:
        yield f"no usage against tokenizer: {total['absent']['token_check']}"


def _server(each: dict[str, Any]) -> Iterator[str]:
    """The server's counters beside ours; a server without any is told in the page and in ``summary.json`` only."""
    head = f"counted by the server ({each['engine']}) in {number(each['seconds'])} s"
    if "figures" not in each:
        yield from _wrap(f"{head}: {each['why']}")
        return
    columns = ("server", "ours", "difference")
    label = WIDTH - len(columns) * _SERVER_CELL - _SERVER_CELL
    yield f"{head:<{label}}" + "".join(f"{column:>{_SERVER_CELL}}" for column in columns)
    for name, of in each["figures"].items():
        show = _whole if name in COUNTS else number
        cells = [show(of[column]) if column in of else "-" for column in columns]
        share = f"{of['difference_share']:+.1%}" if of.get("difference_share") else ""
        yield f"  {LABELS[name]:<{label - 2}}" + "".join(f"{cell:>{_SERVER_CELL}}" for cell in [*cells, share])
    if "cache_hit_share" in each:
        yield f"  its prefix cache had {each['cache_hit_share']:.1%} of the prompt tokens"
    for note in each["notes"]:
        yield from _wrap(f"  {note}")


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _group(group: dict[str, Any]) -> Iterator[str]:
    key = group["key"]
    if "absent" in group:
        yield from _wrap(f"by {key}: {group['absent']}")
        return
    yield f"{'by ' + key:<{_LABEL}}" + "".join(f"{head:>{width}}" for head, width in _COLUMNS)
    for of in group["groups"]:
        label = f"  {of.get('value', f'(no {key})')}"
        cells = _cells(of)
        yield f"{label[:_LABEL]:<{_LABEL}}" + "".join(f"{c:>{w}}" for c, (_, w) in zip(cells, _COLUMNS, strict=True))
    if group.get("left_out"):
        yield f"  {group['left_out']} smaller groups are left out"


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _cells(of: dict[str, Any]) -> Iterator[str]:
    yield str(sum(of["outcomes"].values()))
    for rate in ("system_output_tps", "requests_per_s"):
        yield number(of["rates"][rate]) if rate in of["rates"] else "-"
    for metric, statistic in (("ttft", "p50"), ("ttft", "p95"), ("tpot", "p50"), ("e2e_latency", "p50")):
        found = of["metrics"].get(metric)
        yield "-" if found is None else number(found[statistic]) + ("~" if statistic in found["thin"] else "")
    yield f"{of['rates']['error_rate']:.2%}" if "error_rate" in of["rates"] else "-"
