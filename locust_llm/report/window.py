"""Which part of a run the figures are of: ``steady``, ``all``, or seconds ``A..B`` (metrics.md 4).

The one thing to know: the steady window needs the run card, which says when the target load was reached and when the
load was told to stop, and the tag ``user`` of the records, from which "every user has completed its first exchange"
is computed. Where there is none, the window is ``all`` and ``why`` says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import UsageError
from ..exchange import PREFLIGHT, UNFINISHED
from .columns import Bools, Floats, Ints, Log
from .figures import Figures, last_attempts

STEADY, ALL, RANGE = "steady", "all", "range"

REACHED = ("ramp_complete", "load_changed")
"""Events of the run card that say: now all users of the (first, new) target load are there. The last one counts."""
STOPS = ("stop", "last_started")
"""Events of the run card after which no exchange starts: told to stop, or the last of N has been started."""

_SHORT_US = 1e6
"""A steady part that is shorter than this, and than the median exchange, is too short to have a rate."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of the run, epoch µs, both ends inside.

    Attributes:
        kind: ``steady``, ``all`` or ``range``.
        why: why it is ``all`` though ``steady`` was wanted; None if it is what was wanted.
        started, censored: counted exchanges that started inside, and those of them that the end of the run cut.
    """

    kind: str
    start_us: int
    end_us: int
    why: str | None = None
    started: int = 0
    censored: int = 0

    @property
    def duration_s(self) -> float:
        return (self.end_us - self.start_us) / 1e6

    def inside(self, times_us: Ints | Floats) -> Bools:
        """Which epoch times (µs) are inside."""
        inside: Bools = (times_us >= self.start_us) & (times_us <= self.end_us)
        return inside


def whole(log: Log, figures: Figures) -> Window:
    """Return the window ``all``: first start to last end of what was measured; empty at 0 if nothing was."""
    rows = figures.measured
    if not rows.any():
        return Window(ALL, 0, 0)
    start = int(log.start_us[rows].min())
    end = int((log.start_us + log.end_us)[rows].max())
    return count(Window(ALL, start, end), log, figures)


def choose(log: Log, figures: Figures, card: dict[str, Any], wanted: str = STEADY) -> Window:
    """Return the window that is wanted: ``steady``, ``all`` or ``A..B``.

    Parameters:
        card: the run card (``run.json``), {} where there is none. wanted: A and B are seconds after the start of the
        test (the card's ``test_start``, else the first start), with an
            optional unit ``ms s m h``; an end left out is open.

    Raises:
        UsageError: ``wanted`` is none of these, B is not after A, or no exchange was under way between them.
    """
    everything = whole(log, figures)
    if wanted == ALL:
        return everything
    if wanted == STEADY:
        bounds = _steady(log, figures, card)
        if isinstance(bounds, str):
            return replace(everything, why=bounds)
        window = count(Window(STEADY, *bounds), log, figures)
        return (
            window if window.started else replace(everything, why="no exchange started in the steady part of the run")
        )
    start, end = _range(wanted)
    zero = _times_us(card, "test_start")[:1] or [everything.start_us]
    start_us = zero[0] + round(start * 1e6)
    end_us = everything.end_us if end is None else zero[0] + round(end * 1e6)
    if end_us <= start_us or start_us > everything.end_us or end_us < everything.start_us:
        first, last = ((us - zero[0]) / 1e6 for us in (everything.start_us, everything.end_us))
        raise UsageError(f"--window {wanted}: nothing lies between; the exchanges are from {first:.1f} to {last:.1f} s")
    return count(Window(RANGE, start_us, end_us), log, figures)


def count(window: Window, log: Log, figures: Figures) -> Window:
    """Return the window with its exchanges counted anew."""
    rows = figures.counted & window.inside(log.start_us)
    return replace(window, started=int(rows.sum()), censored=int((rows & log.outcome.isin(UNFINISHED)).sum()))


def _steady(log: Log, figures: Figures, card: dict[str, Any]) -> tuple[int, int] | str:
    """Return start and end of the steady window in epoch µs, or why there is none."""
    if not figures.counted.any():
        return "no exchange was measured"
    if not card:
        return "there is no run card (run.json) beside the log"
    ramps = _times_us(card, *REACHED)
    if not ramps:
        return "the target load was never reached"
    stops = _times_us(card, *STOPS)
    last_start = int(log.start_us[figures.counted].max())
    if _asked_for_n(card, int(figures.counted.sum())) or not stops:
        stops.append(last_start)  # the last of N; or the run was killed, and this is the last that is known of its load
    stop = min(stops)
    reached = [t for t in ramps if t < stop]
    if not reached:
        return "the load was told to stop before its target was reached"
    # In open loop the load is the rate and users are only a cap, of which some may start very late.
    open_loop = not np.isnan(log.scheduled_us[figures.counted]).all()
    first_ends = _first_answer(log, figures) if open_loop else _first_ends(log, figures, stop)
    if isinstance(first_ends, str):
        return first_ends
    start = max(reached[-1], first_ends, int(log.start_us[figures.counted].min()))
    if start >= stop:
        return "the load was told to stop before every user had completed its first exchange"
    exchange_us = float(np.median(log.end_us[figures.counted]))
    if stop - start < min(_SHORT_US, exchange_us):
        return f"the steady part of the run, {_ms(stop - start)}, is shorter than an exchange, {_ms(exchange_us)}"
    return start, stop


def _first_answer(log: Log, figures: Figures) -> int:
    """Return when the exchange that started first was over."""
    rows = np.flatnonzero(figures.counted)
    first = rows[np.argmin(log.start_us[rows])]
    return int(log.start_us[first] + log.end_us[first])


def _first_ends(log: Log, figures: Figures, stop_us: int) -> int | str:
    """Return when the last of the users completed its first exchange, over the users that started before the stop."""
    users = log.tags.get("user")
    rows = ~log.phase.isin(PREFLIGHT) & (log.start_us < stop_us) & last_attempts(log)
    if users is None or (users.codes[rows & figures.counted] < 0).all():
        return "the records have no tag 'user', so nobody can say when each user had completed its first exchange"
    rows &= users.codes >= 0
    key = (log.run.codes[rows].astype(np.int64) << 32) | users.codes[rows]
    order = np.argsort(log.start_us[rows], kind="stable")
    _, first = np.unique(key[order], return_index=True)
    of_users = np.flatnonzero(rows)[order][first]
    if log.outcome.isin(UNFINISHED)[of_users].any():
        return "not every user completed an exchange before the run ended"
    return int((log.start_us + log.end_us)[of_users].max())


def _times_us(card: dict[str, Any], *names: str) -> list[int]:
    """Return when the run card's events of these names happened, epoch µs, in order."""
    events = card.get("events")
    found = [e for e in events if isinstance(e, dict) and e.get("event") in names] if isinstance(events, list) else []
    return sorted(round(e["t"] * 1e6) for e in found if isinstance(e.get("t"), int | float))


def _asked_for_n(card: dict[str, Any], measured: int) -> bool:
    """Whether the run was one of exactly N exchanges (``--llm-requests``), and all N are there."""
    load = card.get("load")
    number = load.get("requests") if isinstance(load, dict) else None
    return isinstance(number, int) and 0 < number <= measured


def _ms(us: float) -> str:
    return f"{us / 1000:.3g} ms"


def _range(text: str) -> tuple[float, float | None]:
    a, dots, b = text.partition("..")
    try:
        if not dots:
            raise ValueError
        return _seconds(a) if a.strip() else 0.0, _seconds(b) if b.strip() else None
    except ValueError:
        need = "must be steady, all or A..B in seconds, such as 30..90 or 1m..5m"
        raise UsageError(f'--window {need} (got "{text}")') from None


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise ValueError(text)
    return float(match[1]) * _UNITS[match[2] or "s"]
