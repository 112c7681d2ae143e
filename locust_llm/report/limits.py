"""Every threshold of the verdict, once: name, default, what is beyond it, why it lies there (``--llm-limits``).

The one thing to know: a limit either *judges* (beyond it figures are off, the run is ``doubtful``) or is on a *cause*,
whose effect on the figures is judged by others: beyond it there is a note. A limit on a cause that the user sets
is meant, and judges, too. No numpy here: the live snapshot of a worker uses the same limits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ..errors import UsageError

NOTE, DOUBTFUL, OVERLOADED = "note", "doubtful", "overloaded"
SHARE, MS = "share", "ms"


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold: ``default`` in its unit (a share of 1, or ms), ``judges`` or a cause, and two texts for the docs."""

    default: float
    unit: str
    judges: bool
    what: str
    why: str


LIMITS: Mapping[str, Limit] = {
    "error": Limit(
        0.05, SHARE, True, "how far p50 or p95 of a latency may be from the truth, at worst",
        "what a reader takes for the same figure; the grid of benchmarks/verdict.py holds us to it",
    ),
    "error_floor": Limit(1.0, MS, True, "the same in ms: below it p50 and p95 are never doubted", "no user feels 1 ms"),
    "error_p99": Limit(0.10, SHARE, True, "how far p99 of a latency may be from the truth", "tails vary more"),
    "error_p99_floor": Limit(2.0, MS, True, "the same in ms: below it p99 is never doubted", "no user feels 2 ms"),
    "lost_load": Limit(
        0.05, SHARE, True, "share of the users' time (closed loop) in which an answer was over and the client had not "
        "seen it: the load was lower by as much", "rates are read to a few percent",
    ),
    "late_joined_share": Limit(
        0.01, SHARE, False, "token events whose time is uncertain by more than 1 ms", "a healthy client has none",
    ),
    "lag_p99": Limit(20.0, MS, False, "kernel stamp to read, the longest of each exchange, p99",
                     "a healthy client is below 5 ms"),
    "send_lag_p99": Limit(5.0, MS, False, "start to last byte sent, without DNS, TCP and TLS, p99",
                          "a healthy client is below 1 ms"),
    "loop_away_p99": Limit(20.0, MS, False, "time between two looks of the event loop at its sockets, p99 of its turns",
                           "arrivals and waiting users come late by as much"),
    "loop_away_max": Limit(250.0, MS, False, "the longest of these", "a standstill: something blocked the process"),
    "cpu": Limit(0.90, SHARE, False, "processor time of a process, share of one core, mean over the load",
                 "a Python process cannot take more than one core"),
    "gc_share": Limit(0.02, SHARE, False, "time spent in the garbage collector", "no stream is read then"),
    "gc_max": Limit(50.0, MS, False, "longest pause of the garbage collector", "every stream waits so long"),
    "stolen": Limit(0.02, SHARE, True, "processors of a virtual machine that its host gave to others",
                    "its clocks stand still meanwhile: no other figure here can see it"),
    "schedule_lag_p99": Limit(20.0, MS, True, "open loop: due time to start, p99", "latencies do not show this wait"),
    "rate_short": Limit(0.02, SHARE, True, "open loop: arrivals missing of those asked for, beyond what chance does",
                        "the load was another than asked for"),
    "clock_step": Limit(10.0, MS, True, "a step of the wall clock during the run", "places exchanges wrongly in it"),
    "clock_offset": Limit(10.0, MS, False, "clock of a worker against the master's",
                          "its exchanges are placed by the master's clock, so nothing is off but the placing"),
    "censored_share": Limit(0.01, SHARE, True, "exchanges of the window that the end of the run cut",
                            "the slow ones are the ones cut; p99 lacks them"),
    "cached_share": Limit(0.01, SHARE, True, "input tokens from the server's prefix cache, of prompts made to be new",
                          "TTFT is lower than without"),
    "estimated_share": Limit(0.05, SHARE, True, "output tokens whose number is the mean of other exchanges",
                             "a rate rests on them"),
    "short_share": Limit(0.01, SHARE, False, "answers more than 5 % shorter than asked", "another workload than asked"),
    "bad_line_share": Limit(0.0, SHARE, True, "lines of the log that are no records", "none is normal"),
}  # fmt: skip

_ITEM = re.compile(r"([A-Za-z_0-9]+)(\s*=\s*)(.*)", re.DOTALL)
_VALUE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(.*)", re.DOTALL)
_UNITS = {SHARE: {"%": 0.01, "": 1.0}, MS: {"us": 1e-3, "ms": 1.0, "s": 1e3}}
_EXAMPLES = {SHARE: "2%", MS: "30ms"}


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits: those that were ``given``, and the defaults of the others."""

    given: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """Return a limit, in its unit."""
        return self.given.get(name, LIMITS[name].default)

    def level(self, name: str) -> str:
        """Return how grave it is to be beyond a limit: ``doubtful``, or ``note`` for a cause."""
        return DOUBTFUL if LIMITS[name].judges or name in self.given else NOTE


DEFAULTS = Limits()


def read_limits(text: str, flag: str = "--llm-limits") -> Limits:
    """Read ``late_joined_share=2%, lag_p99=30ms``; what is not named keeps its default.

    Raises:
        UsageError: what cannot be read, with its column.
    """
    given: dict[str, float] = {}
    for part, at in _parts(text):
        match = _ITEM.fullmatch(part)
        if not match:
            raise _wrong(flag, at, f'"{part}" is no limit; write NAME=VALUE, such as lag_p99=30ms')
        name = match[1].lower()
        if name not in LIMITS:
            near = get_close_matches(name, LIMITS, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise _wrong(flag, at, f'unknown limit "{match[1]}"{hint}; known: {", ".join(LIMITS)}')
        if name in given:
            raise _wrong(flag, at, f"{name} is given twice; give it once")
        given[name] = _value(match[3], at + match.start(3), name, flag)
    if text.strip() and not given:
        raise _wrong(flag, 1, "no limit is in it; write NAME=VALUE, such as lag_p99=30ms")
    return Limits(given)


def limits_of_card(card: Mapping[str, Any], text: str | None = None) -> Limits:
    """Return the limits of a report: what is given (``--limits``), else what the run card keeps.

    Raises:
        UsageError: what cannot be read.
    """
    if text is not None:
        return read_limits(text, "--limits")
    kept = card.get("options")
    kept = kept.get("--llm-limits", "") if isinstance(kept, dict) else ""
    return read_limits(str(kept), "run.json, --llm-limits")


def markdown_table() -> str:
    """Return the table of docs/metrics.md."""
    rows = ["| limit | default | beyond it | what is compared | why there |", "| --- | --- | --- | --- | --- |"]
    for name, limit in LIMITS.items():
        level = "doubtful" if limit.judges else "note"
        rows.append(f"| `{name}` | {written(limit.default, limit.unit)} | {level} | {limit.what} | {limit.why} |")
    return "\n".join(rows) + "\n"


def written(value: float, unit: str) -> str:
    """Return a limit as people write it: ``5%``, ``20ms``."""
    return f"{value * 100:.10g}%" if unit == SHARE else f"{value:.10g}ms"


# ---- helpers


def _parts(text: str) -> Iterator[tuple[str, int]]:
    at = 1
    for part in text.split(","):
        if part.strip():
            yield part.strip(), at + len(part) - len(part.lstrip())
        at += len(part) + 1


def _value(text: str, at: int, name: str, flag: str) -> float:
    unit = LIMITS[name].unit
    match = _VALUE.fullmatch(text)
    if not match:
        raise _wrong(flag, at, f'"{text}" is no value for {name}; such as {_EXAMPLES[unit]}')
    factor = _UNITS[unit].get(match[2].strip())
    if factor is None:
        problem = f'"{match[2].strip()}" is no unit of {name}' if match[2].strip() else f"{text} needs a unit"
        raise _wrong(flag, at + match.end(1), f"{problem}; write {_EXAMPLES[unit]}")
    value = float(match[1]) * factor
    if not math.isfinite(value) or (unit == SHARE and value > 1):
        raise _wrong(flag, at, f"{name} is a share, at most 100% (got {text})")
    return value


def _wrong(flag: str, column: int, why: str) -> UsageError:
    return UsageError(f"{flag}, column {column}: {why}")
