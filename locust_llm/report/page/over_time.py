"""The run in time: tokens per second, TTFT, TPOT, exchanges in flight, one below another on one axis; and failures.

The one thing to know: the time axis is seconds after the first start of the run, and the headline window is shaded.
``Row`` is the place for what a server tells of itself: further rows stand beneath, aligned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..columns import Floats
from ..scope import Measured
from ..table import number
from ..timebins import Bins, bins_of, mean_level, percentiles
from .colours import BLUE, GREEN, PATTERNS, PURPLE, SERIES, SKY, VERMILION, rgba
from .numbers import thin
from .parts import Chart, text

MOST_BINS = 240
_ROW_PX = 150
_GAP = 0.045
_FEW = 40


@dataclass(frozen=True, slots=True)
class Line:
    """One value per bin, NaN where there is none."""

    name: str
    values: Floats
    colour: str
    dash: str = "solid"
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One strip of the chart: a title with its unit, and lines."""

    title: str
    unit: str
    lines: Sequence[Line]


def over_time(here: Measured, overall: Measured, has_tokens: bool, more: Sequence[Row] = ()) -> Chart:
    """Return the chart of a run.

    Parameters:
        has_tokens: whether the tokens of the exchanges are known (else no tokens per second are shown).
        more: further rows, for instance the server's own metrics, in bins of ``run_bins(overall)``.
    """
    bins = run_bins(overall)
    rows = [*_rows(overall, bins, has_tokens), *more]
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "hovermode": "x unified",
        "shapes": _shade(here, bins),
        "xaxis": {
            "title": {"text": "seconds after the first start"}, "anchor": f"y{len(rows)}" if len(rows) > 1 else "y",
            "range": [0, float(bins.starts_s[-1] + bins.seconds[-1])],
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
    }  # fmt: skip
    x = thin(bins.starts_s + bins.seconds / 2)
    share = 1 / len(rows)
    for i, row in enumerate(rows):
        axis = "y" if i == 0 else f"y{i + 1}"
        top = 1 - i * share
        title = f"{row.title}<br>{row.unit}"
        layout["yaxis" + axis[1:]] = {
            "domain": [max(0.0, top - share + (_GAP if i + 1 < len(rows) else 0)), top],
            "rangemode": "tozero", "title": {"text": title, "font": {"size": 11}}, "anchor": "x",
        }  # fmt: skip
        data += [_trace(line, row, x, axis) for line in row.lines]
    lines = [(row, line) for row in rows for line in row.lines]
    head = ["from s", *(f"{line.name}, {row.unit}" for row, line in lines)]
    columns = [bins.starts_s.tolist(), *([_or_none(v) for v in line.values.tolist()] for _, line in lines)]
    return Chart(
        key="over-time", title="The run in time",
        note=f"Bins of {bins.width_us / 1e6:g} s. TTFT and TPOT stand where their exchange started, tokens where they "
        f"arrived. {_shade_note(here)}",
        data=data, layout=layout, head=head, rows=list(zip(*columns, strict=True)), height=_ROW_PX * len(rows) + 90,
    )  # fmt: skip


def run_bins(overall: Measured) -> Bins:
    """Return the bins that every row of the chart has."""
    return bins_of(overall.window, MOST_BINS)


def _rows(of: Measured, bins: Bins, has_tokens: bool) -> list[Row]:
    log, figures = of.log, of.figures
    rows = []
    if has_tokens:
        per_second = of.arrived.per_second
        at = bins.index(bins.start_us + per_second.second * 1_000_000)
        tokens = np.bincount(at, per_second.tokens, minlength=bins.count) / np.maximum(bins.seconds, 1e-9)
        rows.append(Row("output", "tokens/s", [Line("output tokens/s", tokens, BLUE, filled=True)]))
    started = np.flatnonzero(figures.counted)
    at = bins.index(log.start_us[started])
    for name, title, colour in (("ttft", "TTFT", VERMILION), ("tpot", "TPOT", PURPLE)):
        values = figures.values[name][started] * 1e3
        if not np.isnan(values).all():
            lines = [
                Line(f"{title} {label}", percentiles(at, values, bins.count, q), colour, dash)
                for label, q, dash in (("p50", 0.5, "solid"), ("p95", 0.95, "dot"))
            ]
            rows.append(Row(title, "ms", lines))
    measured = figures.measured
    level = mean_level(log.start_us[measured], (log.start_us + log.end_us)[measured], bins)
    rows.append(Row("in flight", "exchanges", [Line("exchanges in flight", level, GREEN, filled=True)]))
    return rows


def _trace(line: Line, row: Row, x: list[Any], axis: str) -> dict[str, Any]:
    few = len(x) <= _FEW
    return {
        "type": "scatter", "mode": "lines+markers" if few else "lines", "name": line.name,
        "x": x, "y": thin(line.values),
        "xaxis": "x", "yaxis": axis, "connectgaps": False,
        "marker": {"size": 5}, "line": {"color": line.colour, "dash": line.dash, "width": 1.6},
        "hovertemplate": f"%{{y:.4~g}} {row.unit}",
        **({"fill": "tozeroy", "fillcolor": rgba(line.colour, 0.18)} if line.filled and len(x) > 1 else {}),
    }  # fmt: skip


def _shade(here: Measured, bins: Bins) -> list[dict[str, Any]]:
    if here.window.kind == "all":
        return []
    ends = [(t - bins.start_us) / 1e6 for t in (here.window.start_us, here.window.end_us)]
    return [{
        "type": "rect", "xref": "x", "yref": "paper", "x0": ends[0], "x1": ends[1], "y0": 0, "y1": 1,
        "fillcolor": rgba(SKY, 0.13), "line": {"color": SKY, "width": 1, "dash": "dot"}, "layer": "below",
    }]  # fmt: skip


def _shade_note(here: Measured) -> str:
    if here.window.kind == "all":
        return "There is no steady window: the figures are of the whole run."
    name = "steady window" if here.window.kind == "steady" else "chosen window"
    return f"Shaded: the {name}, which the figures are of."


def failures_in_time(failures: dict[str, Any], here: Measured, overall: Measured) -> Chart:
    """Return the chart of a run's failures (``failures.failures``), in bins of their end."""
    bins = bins_of(overall.window, MOST_BINS)
    outcomes = list(dict.fromkeys(k for each in failures["bins"] for k in each if k != "t_s"))
    width = failures["bin_s"]
    data = [
        {
            "type": "bar", "name": text(outcome), "width": width, "offset": 0,
            "x": [each["t_s"] for each in failures["bins"] if outcome in each],
            "y": [each[outcome] for each in failures["bins"] if outcome in each],
            "marker": {"color": SERIES[(i + 1) % len(SERIES)], "pattern": {"shape": PATTERNS[i % len(PATTERNS)]}},
            "hovertemplate": "%{y}",
        }
        for i, outcome in enumerate(outcomes)
    ]  # fmt: skip
    layout = {
        "barmode": "stack", "hovermode": "x unified", "shapes": _shade(here, bins), "showlegend": True,
        "xaxis": {"title": {"text": "seconds after the first start"}, "range": [0, overall.window.duration_s]},
        "yaxis": {"title": {"text": f"failures in {width:g} s"}, "rangemode": "tozero"},
    }  # fmt: skip
    return Chart(
        key="failures", title="Failures in time",
        note=f"{failures['count']} failures, the first after {number(failures['first_s'])} s, the last after "
        f"{number(failures['last_s'])} s; each stands where it ended.",
        data=data, layout=layout, head=["from s", *outcomes],
        rows=[[each["t_s"], *(each.get(o, 0) for o in outcomes)] for each in failures["bins"]], height=280,
    )  # fmt: skip


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
