"""The slowest exchanges, token by token: one sees where each waited.

The one thing to know: rows are chosen by what was slow about them: the longest pause between two tokens, the longest
wait for the first, the longest in all; the median exchange stands below them to compare.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from ...wire.answer import TOKEN_KINDS
from ..columns import Floats, Log, kind_table
from ..scope import Measured
from .colours import BLUE, GREY, ORANGE
from .numbers import thin
from .parts import Chart

EACH = 3
MOST_TICKS = 400
_CANDIDATES = 60
_STALL = 3.0
"""A pause is shown as a stall if it is this many times the exchange's median gap."""
_ROW_PX = 46


def slowest(here: Measured) -> Chart | None:
    """Return the chart of the slowest successful streams of the headline window; None if no stream had two tokens."""
    log, figures = here.log, here.figures
    rows = np.flatnonzero(
        figures.counted & figures.ok & log.streamed & (figures.k >= 2) & here.window.inside(log.start_us)
    )
    if not len(rows):
        return None
    chosen = _choose(log, figures.values, rows)
    data: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    table: list[list[Any]] = []
    ticks: tuple[list[Any], list[Any]] = ([], [])
    for place, (row, why) in enumerate(chosen):
        y = len(chosen) - 1 - place
        times = _token_ms(log, row)
        gaps = np.diff(times)
        worst = int(np.argmax(gaps))
        stalled = float(gaps[worst]) > _STALL * float(np.median(gaps))
        data.append(_line([0.0, times[0]], y, GREY, 2, "waiting for the first token", place == 0, "dot"))
        if stalled:
            data.append(_line([times[worst], times[worst + 1]], y, ORANGE, 7, "stall", False))
        kept = _few(times)
        ticks[0].extend(thin(times[kept]))
        ticks[1].extend([y] * len(kept))
        letter = chr(ord("A") + place)
        annotations.append({
            "xref": "paper", "x": 0, "y": y + 0.36, "xanchor": "left", "showarrow": False, "align": "left",
            "font": {"size": 11}, "text": f"<b>{letter}</b> {why}",
        })  # fmt: skip
        at = (int(log.start_us[row]) - here.window.start_us) / 1e6
        cells = (at, *map(float, (times[0], times[-1], gaps[worst], np.median(gaps))), int(figures.k[row]))
        table.append([f"{letter}: {why}", log.name.at(row) or "", f"{log.worker.at(row)} {int(log.seq[row])}", *cells])
    data.append({
        "type": "scatter", "mode": "markers", "name": "token events", "x": ticks[0], "y": ticks[1],
        "marker": {"symbol": "line-ns-open", "size": 13, "color": BLUE, "line": {"width": 1}},
        "hovertemplate": "%{x:.5~g} ms<extra></extra>",
    })  # fmt: skip
    if any(trace["name"] == "stall" for trace in data):
        next(trace for trace in data if trace["name"] == "stall")["showlegend"] = True
    layout = {
        "annotations": annotations, "hovermode": "closest",
        "xaxis": {"title": {"text": "ms after the exchange started"}, "rangemode": "tozero"},
        "yaxis": {"showticklabels": False, "ticks": "", "showgrid": False, "zeroline": False,
                  "range": [-0.5, len(chosen) - 0.3], "fixedrange": True},
    }  # fmt: skip
    return Chart(
        key="slowest", title="The slowest exchanges, token by token",
        note=f"Each tick is a token event; a pause above {_STALL:g} times the exchange's median gap is drawn thick.",
        data=data, layout=layout, table_left=3,
        head=["exchange", "name", "worker, seq", "started, s in window", "TTFT ms", "last token ms", "longest gap ms",
              "median gap ms", "token events"],
        rows=table, height=_ROW_PX * len(chosen) + 110,
    )  # fmt: skip


def _choose(log: Log, values: dict[str, Floats], rows: Any) -> list[tuple[int, str]]:
    """Return rows of the log and why each is shown, no row twice."""
    chosen: dict[int, str] = {}
    pauses = {int(row): float(np.diff(_token_ms(log, int(row))).max()) for row in _by_any_gap(log, rows)}
    ttft, e2e = (_longest(values[name] * 1e3, rows) for name in ("ttft", "e2e_latency"))
    for label, found in (("longest pause", pauses), ("longest TTFT", ttft), ("longest e2e", e2e)):
        fresh = heapq.nlargest(EACH, (row for row in found if row not in chosen), key=found.__getitem__)
        for row in fresh:
            chosen[row] = f"{label}: {found[row]:,.0f} ms".replace(",", " ")
    middle = int(rows[_middle(values["e2e_latency"][rows])])
    if middle not in chosen:
        chosen[middle] = f"median e2e: {values['e2e_latency'][middle] * 1e3:,.0f} ms".replace(",", " ")
    return list(chosen.items())


def _longest(ms: Floats, rows: Any) -> dict[int, float]:
    """Return enough of the longest to have some left when those already chosen are taken out."""
    order = rows[_largest(ms[rows], 3 * EACH)]
    return {int(row): float(ms[row]) for row in order}


def _by_any_gap(log: Log, rows: Any) -> Any:
    """Return the rows with the longest gap between any two events: a cheap choice of where to look for token gaps."""
    bounds = np.stack([log.offsets[rows] + 1, log.offsets[rows + 1]], axis=1).reshape(-1)
    if bounds[-1] == len(log.gaps_us):
        bounds = bounds[:-1]  # reduceat goes to the end by itself; a copy with one more entry would double a long log
    longest = np.maximum.reduceat(log.gaps_us, bounds)[::2]
    return rows[_largest(longest, _CANDIDATES)]


def _largest(values: Any, number: int) -> Any:
    """Return the positions of the largest values, falling, the first of equal ones first; without sorting them all."""
    least = np.partition(values, -min(number, len(values)))[-min(number, len(values))]
    able = np.flatnonzero(values >= least)
    return able[np.argsort(-values[able], kind="stable")[:number]]


def _middle(values: Floats) -> int:
    """Return the position of the upper median."""
    half = len(values) // 2
    value = np.partition(values, half)[half]
    return int(np.flatnonzero(values == value)[half - int((values < value).sum())])


def _token_ms(log: Log, row: int) -> Floats:
    low, high = int(log.offsets[row]), int(log.offsets[row + 1])
    times = np.cumsum(log.gaps_us[low:high].astype(np.int64)) / 1e3
    tokens: Floats = times[kind_table(TOKEN_KINDS)[log.kinds[low:high]]]
    return tokens


def _few(times: Floats) -> Any:
    """Return positions to draw: all, or about ``MOST_TICKS`` at even distances in time."""
    if len(times) <= MOST_TICKS:
        return np.arange(len(times))
    cell = ((times - times[0]) / max(float(times[-1] - times[0]), 1e-9) * (MOST_TICKS - 1)).astype(np.int64)
    return np.unique(cell, return_index=True)[1]


def _line(
    x: list[float], y: int, colour: str, width: int, name: str, legend: bool, dash: str = "solid"
) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": name, "legendgroup": name, "showlegend": legend,
        "x": thin(x), "y": [y, y], "line": {"color": colour, "width": width, "dash": dash},
        "hovertemplate": f"{name}: %{{x:.5~g}} ms<extra></extra>",
    }  # fmt: skip
