"""The same figures per worker, stage, turn, tag, model …: ``--by KEY``.

The one thing to know: groups share the run's headline window, except stages: each stage has a window of its own, found
by the rule of the steady one: from the moment every user has completed an exchange in it to its last start.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .arrivals import arrivals
from .columns import Bools, Ints, Labels, Log
from .figures import Figures
from .gaps import count_gaps
from .scope import Measured, scope
from .select import STAGE, column, keys
from .summary import Analysis, gap_group, window_json
from .window import RANGE, Window, count

MOST_GROUPS = 100


def breakdown(analysis: Analysis, key: str) -> dict[str, Any]:
    """Return ``{"key", "groups": [{"value", "window"?, **scope}], "left_out"?, "absent"?}``, groups in natural order.

    A group whose records have no such key has no ``value``.
    """
    here = analysis.here
    log, of_each = here.log, here.figures
    labels = column(log, key)
    out: dict[str, Any] = {"key": key, "groups": []}
    if (labels.codes[of_each.measured] < 0).all():
        return {**out, "absent": f"no record has {key}; there are {', '.join(keys(log))}"}
    ids, values, left_out = _ids(labels, of_each.measured)
    windows = [_stage(log, of_each, here.window, ids == i) if key == STAGE else here.window for i in range(len(values))]
    inside = np.zeros(len(log), dtype=bool)
    for i, window in enumerate(windows):
        inside |= (ids == i) & window.inside(log.start_us)
    group = gap_group(of_each, inside, ids)
    gaps = count_gaps(log, of_each, np.where(ids < 0, -1, group))
    arrived = arrivals(log, of_each, windows, np.maximum(ids, 0))
    for i, (value, window) in enumerate(zip(values, windows, strict=True)):
        rows = np.flatnonzero((ids == i) & of_each.measured)
        gap_groups = np.where(window.inside(log.start_us) & (ids >= 0), group, -1)
        measured = Measured(log, of_each, window, arrived[i], gaps, gap_groups).of(rows)
        members: dict[str, Any] = {} if value is None else {"value": value}
        if key == STAGE:
            members["window"] = window_json(count(window, measured.log, measured.figures))
        out["groups"].append({**members, **scope(measured, np.array([i]))})
    if left_out:
        out["left_out"] = left_out
    return out


def _ids(labels: Labels, measured: Bools) -> tuple[Ints, list[str | None], int]:
    """Return a group for each record (-1: none), the groups' values, and how many groups are too many to show."""
    found = labels.counts(measured)
    kept = sorted(list(found)[:MOST_GROUPS], key=_natural)
    values: list[str | None] = list(kept)
    place = {name: i for i, name in enumerate(kept)}
    table = np.array([place.get(name, -1) for name in labels.names] + [-1], dtype=np.int64)
    if (labels.codes[measured] < 0).any():
        table[-1] = len(values)  # code -1: the record has null
        values.append(None)
    ids = np.where(measured, table[labels.codes], -1)
    return ids, values, len(found) - len(kept)


def _natural(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text


def _stage(log: Log, of_each: Figures, window: Window, rows: Bools) -> Window:
    """Return the window of one stage; all of it where not every user completed an exchange before its last start."""
    rows = rows & of_each.counted
    if not rows.any():
        return replace(window, kind=RANGE)
    start, end = int(log.start_us[rows].min()), int(log.start_us[rows].max())
    users = log.tags.get("user")
    if users is not None and (users.codes[rows] >= 0).all():
        first = np.full(len(users.names), np.iinfo(np.int64).max)
        np.minimum.at(first, users.codes[rows], (log.start_us + log.end_us)[rows])
        ready = int(first[first < np.iinfo(np.int64).max].max())
        if ready < end:
            start = ready
    if end <= start:
        end = int((log.start_us + log.end_us)[rows].max())
    return Window(RANGE, start, max(end, start + 1))
