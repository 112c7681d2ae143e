"""The latency–throughput curve as charts: system tokens/s against TTFT, TPOT, e2e latency, and tokens/s per user.

The one thing to know: each point is a run and is labelled with its users; the ring is the knee.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..curve import Point, Series, knee
from .colours import BLACK, DASHES, SERIES, SYMBOLS
from .numbers import log_ticks, thin
from .parts import Chart, text

AXES = (
    ("ttft", "p50", "TTFT, median", "ms"),
    ("ttft", "p95", "TTFT, p95", "ms"),
    ("tpot", "p50", "TPOT (NVIDIA's ITL), median", "ms"),
    ("e2e_latency", "p50", "e2e latency, median", "ms"),
    ("output_tps_per_user", "p50", "tokens/s per user, median", "tokens/s"),
)


_WIDE = 8.0


def curve_charts(groups: Sequence[Series]) -> list[Chart]:
    """Return a chart for each latency that at least one run has."""
    return [c for axis in AXES if (c := _chart(groups, *axis))]


_POSITIONS = ("top left", "bottom right", "top right", "bottom left")
"""Of the labels, so that those of series that lie close do not cover each other."""


def _chart(groups: Sequence[Series], metric: str, statistic: str, label: str, unit: str) -> Chart | None:
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for i, series in enumerate(groups):
        points = [(x, p) for p in series.points if (x := p.metric(metric, statistic)) is not None and p.tps is not None]
        if not points:
            continue
        colour = SERIES[i % len(SERIES)]
        data.append({
            "type": "scatter", "mode": "lines+markers+text", "name": text(series.name),
            "x": thin([x for x, _ in points]), "y": thin([p.tps for _, p in points]),
            "text": [p.short_load for _, p in points], "textfont": {"color": colour},
            "textposition": _POSITIONS[i % len(_POSITIONS)],
            "line": {"color": colour, "dash": DASHES[i % len(DASHES)], "width": 1.8}, "cliponaxis": False,
            "marker": {
                "color": colour, "size": 8,
                "symbol": [SYMBOLS[i % len(SYMBOLS)] + ("-open" if p.overloaded else "") for _, p in points],
            },
            "hovertemplate": f"%{{text}} users: %{{y:.4~g}} tokens/s at %{{x:.4~g}} {unit}",
        })  # fmt: skip
        best = knee(series)
        data += [_ring(x, p, not any(t["name"] == "knee" for t in data)) for x, p in points if p is best]
        rows += [[series.name, p.short_load, x, p.tps] for x, p in points]
    if not rows:
        return None
    values = [row[2] for row in rows]
    wide = min(values) > 0 and max(values) > _WIDE * min(values)
    scale: dict[str, Any]
    scale = {"type": "log", **log_ticks(min(values), max(values))} if wide else {"rangemode": "tozero"}
    layout = {
        "showlegend": True, "hovermode": "closest",
        "xaxis": {**scale, "title": {"text": f"{label}, {unit}{' (logarithmic)' if wide else ''}"}},
        "yaxis": {"title": {"text": "system output, tokens/s"}, "rangemode": "tozero"},
    }  # fmt: skip
    return Chart(
        key=f"curve-{metric}-{statistic}".replace("_", "-"), title=f"Throughput against {label}",
        note="Each point is a run, labelled with its users or its rate. Hollow: the client was overloaded.",
        data=data, layout=layout, table_left=1,
        head=["series", "users or rate", f"{label}, {unit}", "tokens/s"], rows=rows, height=400,
    )  # fmt: skip


def _ring(x: float, p: Point, legend: bool) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": "knee", "showlegend": legend, "x": thin([x]), "y": thin([p.tps]),
        "marker": {"symbol": "circle-open", "size": 18, "color": BLACK, "line": {"width": 2}}, "hoverinfo": "skip",
    }  # fmt: skip
