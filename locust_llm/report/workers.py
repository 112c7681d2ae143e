"""Logs of several workers: which part of a worker's own file the master's log has already, and whose clock was off.

The one thing to know: logs stay as they were written. What the run card says of each worker (``worker_details``,
written by ``live.roll``) is applied while reading: what the master has is not read a second time, and the times of a
worker whose clock was off are moved to the master's, by more than the measurement's uncertainty or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from .columns import Ints, Log

MASTERS_LOG = "events.jsonl"
_TRUSTED = 4
"""Points of a clock that are uncertain by more than so many times the best are left out …"""
_SLACK_US = 500
"""… if by more than this."""
_SUFFIXES = ("-preflight", "-warmup")

Card = Mapping[str, Any]


def cards_beside(files: Iterable[Path]) -> dict[Path, dict[str, Any]]:
    """Return the run cards in the folders of these files, by folder."""
    cards: dict[Path, dict[str, Any]] = {}
    for folder in {path.parent for path in files}:
        with suppress(OSError, orjson.JSONDecodeError):
            card = orjson.loads((folder / "run.json").read_bytes())
            if isinstance(card, dict):
                cards[folder] = card
    return cards


def master_has(path: Path, card: Card | None) -> tuple[int, int]:
    """Return how much of a worker's own file the master's log beside it has: bytes and records from the start.

    (0, 0) where that is not sure: another file, no card, a log of the master that is shorter than it was.
    """
    details = _details(card).get(path.name.removeprefix("events-").removesuffix(".jsonl")) if card else None
    if not details or path.name == MASTERS_LOG:
        return 0, 0
    size, records = details.get("received_bytes"), details.get("received")
    logged = card.get("log_bytes") if card else None
    if not isinstance(size, int) or not isinstance(records, int) or not isinstance(logged, int) or size <= 0:
        return 0, 0
    with suppress(OSError), open(path, "rb") as file:
        file.seek(size - 1)
        if (path.parent / MASTERS_LOG).stat().st_size >= logged and file.read(1) == b"\n":
            return size, records
    return 0, 0


def on_masters_clock(log: Log, cards: Iterable[Card]) -> Log:
    """Return the log with the start times of workers whose clocks were off moved to the master's clock."""
    shift = np.zeros(len(log), dtype=np.int64)
    for card in cards:
        for worker, details in _details(card).items():
            points = details.get("clock")
            names = [worker, *(worker + suffix for suffix in _SUFFIXES)]
            rows = log.run.isin(str(card.get("run"))) & log.worker.isin(*names)
            if points and rows.any():
                shift[rows] = ahead_us(log.start_us[rows], points)
    if not shift.any():
        return log
    return replace(log, start_us=log.start_us - shift, scheduled_us=log.scheduled_us - shift)


def ahead_us(at_us: Ints, points: Any) -> Ints:
    """Return how much a clock was ahead of the master's at these times of its own, 0 if that may be nothing.

    Parameters:
        points: shape (n, 3): when by its own clock, ahead by, uncertain by; all µs. What the best point says holds
            for all times if the others agree with it; else the clock ran at another speed or was set, and the times
            between two points are interpolated.
    """
    try:
        table: npt.NDArray[np.float64] = np.array(points, dtype=np.float64).reshape(-1, 3)
    except (TypeError, ValueError):
        return np.zeros(len(at_us), dtype=np.int64)
    best = table[table[:, 2].argmin()]
    table = table[table[:, 2] <= _TRUSTED * best[2] + _SLACK_US]
    agree = (np.abs(table[:, 1] - best[1]) <= table[:, 2] + best[2]).all()
    ahead = np.full(len(at_us), best[1]) if agree else np.interp(at_us, table[:, 0], table[:, 1])
    if len(ahead) and np.abs(ahead).max() <= (best[2] if agree else table[:, 2].max()):
        ahead[:] = 0
    return np.rint(ahead).astype(np.int64)


def offsets_ms(card: Card) -> dict[str, tuple[float, float]]:
    """Return the workers whose clocks were off: by how much at most, and how far that is uncertain (ms)."""
    found = {}
    for worker, details in _details(card).items():
        points = details.get("clock")
        if isinstance(points, list) and points:
            with suppress(TypeError, ValueError, IndexError):
                table = np.array(points, dtype=np.int64).reshape(-1, 3)
                ahead = ahead_us(table[:, 0], points)
                if ahead.any():
                    found[worker] = float(ahead[np.abs(ahead).argmax()]) / 1e3, float(table[:, 2].min()) / 1e3
    return found


def _details(card: Card | None) -> dict[str, dict[str, Any]]:
    details = card.get("worker_details") if card else None
    if not isinstance(details, dict):
        return {}
    return {str(name): one for name, one in details.items() if isinstance(one, dict)}
