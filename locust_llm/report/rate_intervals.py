"""Intervals of rates: tokens and requests per second, exchanges in flight (metrics.md 4).

The one thing to know: a window is cut into ``arrivals.BINS`` equal parts; these are a series with memory like any
other, and are put together into blocks that are at least twice as long as an exchange lasts (which is twice the
concurrency, counted in exchanges).
"""

from __future__ import annotations

import numpy as np

from .arrivals import BINS, bin_of
from .columns import Floats, Ints
from .goodput import GOOD
from .intervals import MIN_BLOCKS, Interval, mean_interval, memory
from .scope import Measured
from .timebins import Bins, mean_level


def rate_intervals(
    of: Measured, groups: Ints, rates: dict[str, float], least_s: float
) -> tuple[dict[str, Interval], str]:
    """Return the intervals of the rates that are there and of ``in_flight``, and why there are none ("" otherwise).

    Parameters:
        groups: the scope's groups in ``of.arrived.bins``. least_s: the shortest block.
    """
    seconds = of.window.duration_s
    if seconds <= 0 or of.arrived.bins is None or not len(of.log):
        return {}, ""
    found: dict[str, Interval] = {}
    width_s = seconds / BINS
    needed = 0.0
    for name, series in window_series(of, groups, rates).items():
        cut = memory([series], max(1.0, least_s / width_s))
        if not cut.blocks:
            needed = max(needed, cut.needed * width_s)
            continue
        labels = cut.labels(BINS)
        came, parts = (np.bincount(labels, w).astype(np.float64) for w in (series, np.ones(BINS)))
        found[name] = mean_interval(came, parts * width_s)
    if "requests_per_s" in found:
        low, high = found["requests_per_s"]
        found["requests_per_min"] = None if low is None else low * 60, None if high is None else high * 60
    why = f"the window is too short: {seconds:.0f} s, at least about {needed:.0f} s are needed ({MIN_BLOCKS} blocks)"
    return found, why if needed else ""


def window_series(of: Measured, groups: Ints, rates: dict[str, float]) -> dict[str, Floats]:
    """Return what came in each part of the window: tokens, requests, and exchange-seconds in flight."""
    log, figures, window = of.log, of.figures, of.window
    start, end = log.start_us, log.start_us + log.end_us
    assert of.arrived.bins is not None
    out: dict[str, Floats] = {}
    tokens = of.arrived.bins[groups].sum(axis=0)
    if "system_output_tps" in rates:
        out["system_output_tps"] = tokens
    if "system_total_tps" in rates:
        rows = figures.counted & ~figures.failed & window.inside(start) & ~np.isnan(log.n_in)
        out["system_total_tps"] = tokens + _per_bin(of, start[rows], log.n_in[rows])
    done = figures.counted & figures.ok & window.inside(end)
    if "requests_per_s" in rates:
        out["requests_per_s"] = _per_bin(of, end[done])
    if "goodput_per_s" in rates:
        out["goodput_per_s"] = _per_bin(of, end[done & (figures.values[GOOD] == 1)])
    length = window.end_us - window.start_us
    rows = figures.measured & (start <= window.end_us) & (end >= window.start_us)
    bins = Bins(window.start_us, window.end_us, -(-length // BINS), BINS)
    out["in_flight"] = mean_level(start[rows], end[rows], bins) * (length / 1e6 / BINS)
    return out


def _per_bin(of: Measured, at_us: Ints, weights: Floats | None = None) -> Floats:
    at = bin_of(at_us, of.window.start_us, of.window.end_us)
    return np.bincount(at, weights, minlength=BINS).astype(np.float64)
