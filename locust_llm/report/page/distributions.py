"""How latencies are spread: the share of exchanges (or gaps) that is at most so slow, and TTFT against input length.

The one thing to know: latencies stand on a logarithmic axis, and p50, p95 and p99 are marked on each line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..columns import Bools, Floats
from ..scope import Measured, pooled
from ..shares import needed
from ..stats import Sample, quantile, sample
from .colours import BLUE, DASHES, SERIES, SYMBOLS, VERMILION, rgba
from .numbers import ecdf, log_ticks, some_of, thin
from .parts import Chart, text

MOST_NAMES = 6
MOST_POINTS = 1500
_QUANTILES = (
    ("p1", 0.01),
    ("p25", 0.25),
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
)
_MARKED = (0.5, 0.95, 0.99)
_LEAST_US = 1e-3


def latencies(here: Measured) -> Chart | None:
    """Return the chart of TTFT, ITL (or ICL) and e2e latency in the headline window; None if there is none of them."""
    figures = here.figures
    started = figures.counted & here.window.inside(here.log.start_us)
    itl, why = pooled(here, "itl", started)
    gaps = ("ICL per chunk", pooled(here, "icl", started)[0]) if why else ("ITL per token", itl)
    found: list[tuple[str, Sample]] = [
        ("TTFT", sample(figures.values["ttft"][started])),
        gaps,
        ("e2e latency", sample(figures.values["e2e_latency"][started])),
    ]
    lines = [(name, values) for name, values in found if values is not None and values.size]
    if not lines:
        return None
    note = "The share of all values that is at most so long. Marks: p50, p95, p99."
    return _chart("latencies", "Latencies", note, lines)


def ttft_by_name(here: Measured, groups: Sequence[tuple[str, Bools]]) -> Chart | None:
    """Return the chart of TTFT for the first names; None if fewer than two have it."""
    figures = here.figures
    started = figures.counted & here.window.inside(here.log.start_us)
    samples = [(name, sample(figures.values["ttft"][started & rows])) for name, rows in groups[:MOST_NAMES]]
    lines = [(name, values) for name, values in samples if values.size]
    if len(lines) < 2:
        return None
    left = len(groups) - MOST_NAMES
    note = f"The first {MOST_NAMES} of {len(groups)} names." if left > 0 else "One line a name."
    return _chart("ttft-by-name", "TTFT by name", note, lines)


def _chart(key: str, title: str, note: str, lines: Sequence[tuple[str, Sample]]) -> Chart:
    data: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for i, (name, values) in enumerate(lines):
        colour = SERIES[i % len(SERIES)]
        x, y = ecdf(values)
        data.append({
            "type": "scatter", "mode": "lines", "name": text(name), "legendgroup": str(i),
            "x": thin(np.maximum(x * 1e3, _LEAST_US)), "y": thin(y * 100),
            "line": {"color": colour, "dash": DASHES[i % len(DASHES)], "width": 2, "shape": "hv"},
            "hovertemplate": "%{y:.4~g} % are at most %{x:.4~g} ms",
        })  # fmt: skip
        marked = [q for q in _MARKED if values.size >= needed(q)]
        data.append({
            "type": "scatter", "mode": "markers", "name": text(name), "legendgroup": str(i), "showlegend": False,
            "x": thin(np.maximum([quantile(values, q) * 1e3 for q in marked], _LEAST_US)),
            "y": [q * 100 for q in marked],
            "marker": {"color": colour, "symbol": SYMBOLS[i % len(SYMBOLS)], "size": 8},
            "hovertemplate": "p%{y:.4~g}: %{x:.4~g} ms",
        })  # fmt: skip
        cells = [f"{quantile(values, q) * 1e3:.4g}{'~' if values.size < needed(q) else ''}" for _, q in _QUANTILES]
        rows.append([name, *cells, f"{float(values.values[-1]) * 1e3:.4g}", values.size])
    # Gaps of nothing (several tokens in one read) would stretch the axis over empty decades.
    low = min(max(quantile(values, 0.005), quantile(values, 0.5) / 50) for _, values in lines) * 1e3
    high = max(float(values.values[-1]) for _, values in lines) * 1e3
    low, high = max(low, _LEAST_US), max(high, _LEAST_US)
    layout = {
        "xaxis": {
            "type": "log",
            "range": [math.log10(low * 0.8), math.log10(high * 1.2)],
            "title": {"text": "ms (logarithmic)"},
            **log_ticks(low, high),
            "minor": {"ticks": "outside", "dtick": "D1"},
        },
        "yaxis": {"title": {"text": "% of values"}, "range": [0, 101]},
    }
    head = ["ms (~: too few values)", *(name for name, _ in _QUANTILES), "max", "n"]
    return Chart(key=key, title=title, note=note, data=data, layout=layout, head=head, rows=rows, height=380)


def ttft_by_input(here: Measured, effect: dict[str, Any]) -> Chart | None:
    """Return TTFT against input tokens, with the fitted line where there is one; None if either is unknown."""
    log, figures = here.log, here.figures
    ttft = figures.values["ttft"]
    started = figures.counted & here.window.inside(log.start_us) & ~np.isnan(ttft) & ~np.isnan(log.n_in)
    rows = np.flatnonzero(started)
    if len(rows) < 2:
        return None
    shown = some_of(rows, MOST_POINTS)
    x, y = log.n_in[shown], ttft[shown] * 1e3
    data: list[dict[str, Any]] = [{
        "type": "scatter", "mode": "markers", "name": "exchanges", "x": thin(x), "y": thin(y),
        "marker": {"color": rgba(BLUE, 0.45), "size": 5}, "hovertemplate": "%{x} tokens in: %{y:.4~g} ms",
    }]  # fmt: skip
    fit = effect.get("ttft", {})
    slope = fit.get("ms_per_input_token")
    note = (
        f"{len(shown)} of {len(rows)} exchanges of the window."
        if len(shown) < len(rows)
        else "Each dot is an exchange."
    )
    if slope:
        ends = np.array([log.n_in[rows].min(), log.n_in[rows].max()])
        output = fit.get("ms_per_output_token", {}).get("value", 0.0)
        typical = float(np.nanmean(figures.n[rows])) if output else 0.0
        line = fit["intercept_ms"] + slope["value"] * ends + output * typical
        data.append({
            "type": "scatter", "mode": "lines", "name": "least squares", "x": thin(ends), "y": thin(line),
            "line": {"color": VERMILION, "width": 2, "dash": "dash"}, "hovertemplate": "%{y:.4~g} ms",
        })  # fmt: skip
        low, high = slope["low"], slope["high"]
        note += f" Line: {slope['value']:.3g} ms more per input token (95 %: {low:.3g} to {high:.3g})."
    spread = float(np.percentile(ttft[rows], 99.5) / max(float(np.median(ttft[rows])), 1e-9))
    scale: dict[str, Any] = {"type": "log", "dtick": 1} if spread > 8 else {"rangemode": "tozero"}
    layout = {
        "xaxis": {"title": {"text": "input tokens"}, "rangemode": "tozero"},
        "yaxis": {**scale, "title": {"text": "TTFT, ms" + (" (logarithmic)" if spread > 8 else "")}},
    }
    return Chart(
        key="ttft-by-input", title="TTFT against input length", note=note, data=data, layout=layout,
        head=["input tokens", "mean input", "TTFT p50 ms", "TTFT p95 ms", "n"],
        rows=_by_length(log.n_in[rows], ttft[rows] * 1e3), height=380,
    )  # fmt: skip


def _by_length(n_in: Floats, ms: Floats) -> list[list[Any]]:
    """Return a row for each eighth of the exchanges, by input length."""
    edges = np.unique(np.quantile(n_in, np.linspace(0, 1, 9)))
    at = np.clip(np.searchsorted(edges, n_in, side="right") - 1, 0, max(len(edges) - 2, 0))
    out = []
    for i in range(max(len(edges) - 1, 1)):
        here = at == i
        if here.any():
            values = sample(ms[here])
            span = f"{n_in[here].min():.0f} to {n_in[here].max():.0f}"
            p95 = f"{quantile(values, 0.95):.4g}{'~' if values.size < needed(0.95) else ''}"
            out.append([span, float(n_in[here].mean()), quantile(values, 0.5), p95, values.size])
    return out
