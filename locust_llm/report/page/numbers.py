"""Numbers on their way into a page: five digits, null for what is not there, few enough of them.

The one thing to know: what is thinned is only what a chart draws; tables and figures are made of everything.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..columns import Floats, Ints
from ..stats import Sample

_WIDE = 200.0


def thin(values: Any) -> list[Any]:
    """Return an array as a list of numbers with five digits, None for NaN."""
    array = np.asarray(values, dtype=np.float64)
    return [None if v != v else float(f"{v:.5g}") for v in array.tolist()]


def log_ticks(low: float, high: float) -> dict[str, Any]:
    """Return the ticks of a logarithmic axis, each with its number: plotly writes bare digits between decades."""
    steps = (1,) if high > _WIDE * low else (1, 2, 5)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return {"tickvals": ticks, "ticktext": [f"{tick:.10g}" for tick in ticks]}


def some_of(rows: Ints, most: int) -> Ints:
    """Return at most ``most`` of the rows, drawn evenly and always the same ones."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def ecdf(of: Sample, most: int = 160) -> tuple[Floats, Floats]:
    """Return (values, share of values that are at most that), thinned to order statistics, the tail kept fine."""
    ends = of.ends
    total = int(ends[-1])
    if len(of.values) <= most:
        return of.values, ends / total
    even = np.linspace(0, 1, most - 40)
    tail = 1 - np.geomspace(0.01, 1 / total, 40)
    place = np.unique(np.clip(np.ceil(np.sort(np.concatenate((even, tail))) * total).astype(np.int64), 1, total))
    at = np.unique(np.searchsorted(ends, place, side="left"))
    return of.values[at], ends[at] / total
