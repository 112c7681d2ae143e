"""Which requests were good: met every limit of ``--llm-goodput`` (metrics.md 4).

The one thing to know: a failure, or a figure that a request does not have, is a miss; what was cut or cancelled is
neither good nor a miss. The answer is one more figure per exchange, ``GOOD``: 1, 0, or NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..wire.answer import TOKEN_KINDS
from .columns import Bools, Floats, Log
from .events import walk
from .figures import KNOWN, Figures
from .metrics import METRICS
from .objectives import OF_GAPS, Limit
from .window import Window

GOOD = "good"


def with_goodput(log: Log, figures: Figures, limits: Sequence[Limit]) -> Figures:
    """Return the figures with ``GOOD``, and with those of single requests that a limit names; unchanged without
    limits."""
    if not limits:
        return figures
    values = dict(figures.values)
    if any(limit.metric in OF_GAPS for limit in limits):
        values["itl_mean"] = np.where(figures.gives_itl, values["tpot"], np.nan)
        values["itl_max"] = _longest_itl(log, figures)
    finished = figures.counted & (figures.ok | figures.failed)
    good = finished & figures.ok
    for limit in limits:
        good &= _meets(values[limit.metric], limit)
    values[GOOD] = np.where(finished, good, np.nan).astype(np.float64)
    return replace(figures, values=values)


def goodput(log: Log, figures: Figures, window: Window, limits: Sequence[Limit]) -> tuple[dict[str, float], Any]:
    """Return the rates ``goodput`` and ``goodput_per_s`` of a scope, and what was missed.

    The share is of the finished exchanges that started in the window; per second are good ones that ended in it.

    Returns:
        The second is ``{"limits": […], "good", "of", "failed", "missed": {limit: {"over", "absent"}}}``; an exchange
        can miss several.
    """
    good = figures.values[GOOD]
    rows = ~np.isnan(good) & window.inside(log.start_us)
    numbers: dict[str, float] = {}
    if rows.any():
        numbers["goodput"] = float(good[rows].mean())
    if window.duration_s > 0:
        ended = window.inside(log.start_us + log.end_us)
        numbers["goodput_per_s"] = float((good[ended] == 1).sum()) / window.duration_s
    ok = rows & figures.ok
    missed = {}
    for limit in limits:
        values = figures.values[limit.metric][ok]
        absent = int(np.isnan(values).sum())
        missed[str(limit)] = {"over": int((~_meets(values, limit)).sum()) - absent, "absent": absent}
    return numbers, {
        "limits": [str(limit) for limit in limits],
        "good": int((good[rows] == 1).sum()),
        "of": int(rows.sum()),
        "failed": int((rows & figures.failed).sum()),
        "missed": missed,
    }


def _meets(values: Floats, limit: Limit) -> Bools:
    """Which values meet a limit; NaN does not."""
    scale = METRICS[limit.metric].scale if limit.metric in METRICS else OF_GAPS[limit.metric].scale
    meets: Bools = values * scale <= limit.limit if limit.sign == "<=" else values * scale >= limit.limit
    return meets


def _longest_itl(log: Log, figures: Figures) -> Floats:
    """Return the longest inter-token latency of each exchange that can give it, in seconds."""
    longest = np.full(len(log), np.nan)
    for events in walk(log, TOKEN_KINDS, figures.gives_itl):
        gaps = events.gaps_us() / 1e6
        tokens = events.tokens
        if tokens is not None:
            known = np.flatnonzero(events.each(figures.m_state[events.rows] == KNOWN))
            gaps[known] /= np.maximum(tokens[known], 1)
        gaps[events.starts] = 0.0
        longest[events.rows] = np.maximum.reduceat(gaps, events.starts)
    return longest
