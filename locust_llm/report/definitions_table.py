"""Several tools' figures of one log side by side, as text for a console.

The one thing to know: the first column is ours over the whole run, because that is what the other tools measure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from .definitions import Definition
from .table import WIDTH, number

OURS = "locust-llm"
_LABEL = 18
_ROWS = (
    ("TTFT ms", "ttft"),
    ("ITL ms", "itl"),
    ("TPOT ms", "tpot"),
    ("e2e ms", "e2e_latency"),
)
_STATISTICS = ("mean", "p50", "p99")
_RATES = (("output tokens/s", "output_tps", "system_output_tps"), ("requests/s", "requests_per_s", "requests_per_s"))


def render_definitions(definitions: Sequence[Definition], total_all: dict[str, Any]) -> str:
    """Return the table: a column per tool after ours, then one line per tool on why its figures differ.

    Parameters:
        total_all: the summary's scope of the whole run.
    """
    width = max(9, min(11, (WIDTH - _LABEL) // (len(definitions) + 1)))
    lines = ["the same exchanges under other tools' rules (whole run)"]
    lines.append(_row("", [OURS, *(d.tool for d in definitions)], width))
    for label, key in _ROWS:
        for statistic in _STATISTICS:
            ours = _value(total_all["metrics"].get(key), statistic, 1.0)
            theirs = [_value(d.metrics.get(key), statistic, 1e3) for d in definitions]
            lines.append(_row(f"{label} {statistic}", [ours, *theirs], width))
    for label, key, our_key in _RATES:
        lines.append(
            _row(label, [_rate(total_all["rates"], our_key), *(_rate(d.rates, key) for d in definitions)], width)
        )
    for d in definitions:
        text = f"{d.tool}: {d.why}. Tokens: {d.tokens}. Window: {d.window}. Percentiles: {d.percentiles}."
        lines += textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join([*lines, ""])


def _row(label: str, cells: list[str], width: int) -> str:
    return f"{label:<{_LABEL}}" + "".join(f"{cell:>{width}}" for cell in cells)


def _value(of: dict[str, Any] | None, statistic: str, scale: float) -> str:
    return number(of[statistic] * scale) if of and statistic in of else "-"


def _rate(rates: dict[str, float], key: str) -> str:
    return number(rates[key]) if key in rates else "-"
