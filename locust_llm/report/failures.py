"""When exchanges failed, and what a few of them said: the failures of the whole run in time.

The one thing to know: times are seconds after the first start; a bin that had no failure is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .scope import Measured
from .timebins import Bins, bins_of

MOST_BINS = 120
SAMPLES = 12
_MESSAGE = 300


def failures(of: Measured) -> dict[str, Any]:
    """Return ``{"count", "first_s", "last_s", "bin_s", "bins": [{"t_s", outcome: count…}], "samples": […]}``.

    ``of`` is the whole run. Samples are spread over the kinds of failure: the first of each, then more in turn.
    """
    log = of.log
    rows = np.flatnonzero(of.figures.counted & of.figures.failed)
    if not len(rows):
        return {"count": 0}
    bins = bins_of(of.window, MOST_BINS)
    ended = (log.start_us + log.end_us)[rows]
    return {
        "count": len(rows),
        "first_s": (int(ended.min()) - bins.start_us) / 1e6,
        "last_s": (int(ended.max()) - bins.start_us) / 1e6,
        "bin_s": bins.width_us / 1e6,
        "bins": _bins(of, rows, bins),
        "samples": [_sample(of, row, bins) for row in _samples(of, rows)],
    }


def _bins(of: Measured, rows: Any, bins: Bins) -> list[dict[str, Any]]:
    log = of.log
    at = bins.index((log.start_us + log.end_us)[rows])
    counts: dict[int, dict[str, Any]] = {}
    pairs, numbers = np.unique(np.stack([at, log.outcome.codes[rows]]), axis=1, return_counts=True)
    for (which, outcome), number in zip(pairs.T.tolist(), numbers.tolist(), strict=True):
        into = counts.setdefault(which, {"t_s": which * bins.width_us / 1e6})
        into[log.outcome.names[outcome]] = number
    return [counts[which] for which in sorted(counts)]


def _samples(of: Measured, rows: Any) -> list[int]:
    """Return a few failures in time order, every kind before a second of the same."""
    log = of.log
    keys = np.stack([log.outcome.codes, log.error_kind.codes, np.nan_to_num(log.status, nan=-1).astype(np.int64)])[
        :, rows
    ]
    _, kind = np.unique(keys, axis=1, return_inverse=True)
    order = np.argsort(log.start_us[rows], kind="stable")
    seen: dict[int, int] = {}
    turns: list[tuple[int, int, int]] = []
    for i in order.tolist():
        turn = seen.get(int(kind[i]), 0)
        seen[int(kind[i])] = turn + 1
        if turn < SAMPLES:
            turns.append((turn, len(turns), int(rows[i])))
    return sorted((row for _, _, row in sorted(turns)[:SAMPLES]), key=lambda row: int(log.start_us[row]))


def _sample(of: Measured, row: int, bins: Bins) -> dict[str, Any]:
    log, k = of.log, int(of.figures.k[row])
    message = log.error_message.at(row)
    sample: dict[str, Any] = {
        "t_s": (int(log.start_us[row]) - bins.start_us) / 1e6,
        "after_s": int(log.end_us[row]) / 1e6,
        "name": log.name.at(row),
        "worker": log.worker.at(row),
        "outcome": log.outcome.at(row),
        "kind": log.error_kind.at(row),
        "message": message[:_MESSAGE] if message else None,
        "token_events": k,
    }
    if not np.isnan(log.status[row]):
        sample["status"] = int(log.status[row])
    return {key: value for key, value in sample.items() if value is not None}
