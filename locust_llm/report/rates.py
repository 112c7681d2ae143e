"""What the system as a whole did in a window: tokens and exchanges per second, how many were in flight (metrics.md 4).

The one thing to know: numerator and denominator use the same window, and tokens count where they *arrived*, so
exchanges that started before the window or ended after it bring exactly their share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrivals import Arrivals
from .columns import Bools, Ints, Log
from .figures import KNOWN, Figures
from .window import Window

KNOWN_SHARE = 0.95
"""A rate of tokens is given if at least this share of the exchanges knows its tokens."""

ALWAYS = (
    "system_output_tps",
    "system_total_tps",
    "peak_output_tps",
    "requests_per_s",
    "requests_per_min",
    "error_rate",
)
"""Rates that are always there, or absent with a reason; the others only where there is something to tell."""


def rates(
    log: Log, figures: Figures, window: Window, arrived: Arrivals, groups: Ints
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the rates of a scope's records and, for those that are absent, why.

    Parameters:
        arrived: what arrived in ``window``.
        groups: the scope's groups in ``arrived.per_second``.
    """
    seconds = window.duration_s
    if seconds <= 0:
        return {}, dict.fromkeys(ALWAYS, "the window has no length")
    out: dict[str, float] = {}
    absent: dict[str, str] = {}
    good = figures.measured & ~figures.failed
    _token_rates(log, figures, window, arrived, good, groups, out, absent)
    ended = figures.counted & figures.ok & window.inside(log.start_us + log.end_us)
    out["requests_per_s"] = float(ended.sum()) / seconds
    out["requests_per_min"] = out["requests_per_s"] * 60
    out["output_chunks_per_s"] = float(arrived.chunks[good].sum()) / seconds
    finished = figures.counted & (figures.ok | figures.failed) & window.inside(log.start_us)
    if finished.any():
        out["error_rate"] = float((finished & figures.failed).sum()) / int(finished.sum())
    else:
        absent["error_rate"] = "no exchange that started in the window finished"
    failed = float(arrived.tokens[figures.measured & figures.failed].sum())
    if failed:
        out["failed_output_tps"] = failed / seconds
    return out, absent


def _token_rates(
    log: Log, figures: Figures, window: Window, arrived: Arrivals, good: Bools, groups: Ints,
    out: dict[str, float], absent: dict[str, str],
) -> None:  # fmt: skip
    seconds = window.duration_s
    some = good & (arrived.chunks > 0)
    asked = some & figures.ok if (some & figures.ok).any() else some
    unknown = int((asked & np.isnan(figures.n_stream) & (figures.m_state != KNOWN)).sum())
    if unknown > (1 - KNOWN_SHARE) * asked.sum():
        why = f"token counts are unknown for {unknown} of {int(asked.sum())} exchanges; see output_chunks_per_s"
        absent |= dict.fromkeys(("system_output_tps", "system_total_tps", "peak_output_tps"), why)
        return
    out["system_output_tps"] = float(arrived.tokens[good].sum()) / seconds
    for name, part in (("hidden_reasoning_tps", arrived.hidden), ("estimated_output_tps", arrived.estimated)):
        if tokens := float(part[good].sum()):
            out[name] = tokens / seconds
    started = good & figures.counted & window.inside(log.start_us)
    unknown = int(np.isnan(log.n_in[started]).sum())
    if unknown > (1 - KNOWN_SHARE) * started.sum():
        absent["system_total_tps"] = f"input tokens are unknown for {unknown} of {int(started.sum())} exchanges"
    else:
        out["system_total_tps"] = out["system_output_tps"] + float(np.nansum(log.n_in[started])) / seconds
    if seconds < 1:
        absent["peak_output_tps"] = "the window is shorter than a second"
    else:
        out["peak_output_tps"] = arrived.per_second.busiest(groups, int(seconds))


def concurrency(log: Log, figures: Figures, window: Window) -> dict[str, Any]:
    """Return exchanges in flight (start to end) and decoding (first to last token event): time-weighted mean, peak."""
    rows = figures.measured
    start, end = log.start_us[rows], (log.start_us + log.end_us)[rows]
    streams = rows & log.streamed & (figures.k > 0)
    e1, ek = (log.start_us[streams] + t[streams].astype(np.int64) for t in (figures.e1_us, figures.ek_us))
    return {"in_flight": _overlap(start, end, window), "decoding": _overlap(e1, ek, window)}


def _overlap(start: Ints, end: Ints, window: Window) -> dict[str, float]:
    touches = (start <= window.end_us) & (end >= window.start_us)
    start = np.maximum(start[touches], window.start_us)
    end = np.minimum(end[touches], window.end_us)
    length = window.end_us - window.start_us
    if not len(start) or length <= 0:
        return {"mean": 0.0, "peak": 0}
    mean = float((end - start).sum()) / length
    start, end = np.sort(start), np.sort(end)
    begun = np.arange(1, len(start) + 1)  # after each start
    peak = int((begun - np.searchsorted(end, start, side="right")).max())  # at one instant, ends come before starts
    return {"mean": mean, "peak": max(peak, 0)}
