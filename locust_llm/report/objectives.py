"""The grammar of objectives: what ``--llm-slo`` and ``--llm-goodput`` (``--slo``, ``--goodput`` of the report) mean.

The one thing to know: names are the keys of ``summary.json``. An objective is a limit on a figure of the window
(``ttft:p95<=500ms``, of one name: ``chat.ttft:p95<=500ms``); a limit is one that each request must meet
(``ttft<=500ms``, or as vLLM writes it, in ms: ``ttft:500``). Limits are kept in the unit in which the summary has the
figure: ms, tokens/s, shares of 1. Judging is ``judging.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..errors import UsageError
from .metrics import LESS, METRICS, MORE, PERCENTILES, POOLED, RATES, Metric

EXIT_MET, EXIT_FAIL, EXIT_UNDECIDED, EXIT_SPOILT = 0, 3, 4, 5

ALIASES = {
    "e2e": "e2e_latency", "e2el": "e2e_latency", "request_latency": "e2e_latency",
    "ttfo": "ttfvt", "ttfot": "ttfvt",
}  # fmt: skip
STATISTICS = ("mean", *PERCENTILES)
"""Statistics that have an interval; an objective is on one of these."""
WINDOW = (
    "error_rate", "goodput", "goodput_per_s", "system_output_tps", "system_total_tps",
    "requests_per_s", "requests_per_min",
)  # fmt: skip
"""Figures of the window as a whole: an objective on them has no statistic."""
OF_GAPS = {"itl_mean": Metric("mean ITL of a request", "ms", 1e3, LESS),
           "itl_max": Metric("longest ITL of a request", "ms", 1e3, LESS)}  # fmt: skip
PER_REQUEST: dict[str, Metric] = {k: m for k, m in METRICS.items() if k not in POOLED} | OF_GAPS
"""Figures of which a request has one."""

_UNITS = {
    "ms": {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "min": 6e4},
    "share": {"%": 0.01},
    "tokens/s": {"": 1.0, "tokens/s": 1.0, "tok/s": 1.0, "tps": 1.0, "/s": 1.0},
    "1/s": {"": 1.0, "/s": 1.0, "req/s": 1.0, "requests/s": 1.0},
    "1/min": {"": 1.0, "/min": 1.0, "req/min": 1.0, "requests/min": 1.0},
    "tokens": {"": 1.0, "tokens": 1.0},
}
_EXAMPLES = {"ms": "500ms or 8s", "share": "1%", "tokens/s": "2000", "1/s": "3.5", "1/min": "200", "tokens": "100"}
_SIGN = re.compile(r"<=|>=|≤|≥|<|>|=")
_LEFT = re.compile(r"(?:(\"[^\"]*\"|.+?)\.)?([A-Za-z_][A-Za-z_0-9]*)(?:\s*:\s*([A-Za-z0-9.]+))?")
_VALUE = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)\s*(.*)", re.DOTALL)
_REQUEST = re.compile(r"[^\s,<>=≤≥]+\s*(?:<=|>=|≤|≥|<|>|=)\s*[^\s,]*|[^\s,]+")
_VLLM = re.compile(r"([A-Za-z_][A-Za-z_0-9]*):(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Limit:
    """What each request must meet. ``limit`` is in the figure's unit; ``sign`` is ``<=`` or ``>=``."""

    metric: str
    sign: str
    limit: float

    @property
    def unit(self) -> str:
        return PER_REQUEST[self.metric].unit

    def __str__(self) -> str:
        return f"{self.metric}{self.sign}{_written(self.limit, self.unit)}"


@dataclass(frozen=True, slots=True)
class Objective:
    """A limit on a figure of the window. ``name`` is None for all exchanges, ``statistic`` for figures without one."""

    name: str | None
    metric: str
    statistic: str | None
    sign: str
    limit: float

    @property
    def unit(self) -> str:
        return figure(self.metric).unit

    def __str__(self) -> str:
        of = "" if self.name is None else f"{_quoted(self.name)}."
        stat = f":{self.statistic}" if self.statistic else ""
        return f"{of}{self.metric}{stat}{self.sign}{_written(self.limit, self.unit)}"

    def holds(self, value: float) -> bool:
        """Whether a value is within the limit."""
        return value <= self.limit if self.sign == "<=" else value >= self.limit


@dataclass(frozen=True, slots=True)
class Goal:
    """All that a run is held to. ``exit_undecided``: exit code of a run that met what could be decided."""

    objectives: tuple[Objective, ...] = ()
    goodput: tuple[Limit, ...] = ()
    exit_undecided: int = EXIT_UNDECIDED


def parse_goal(
    slo: str,
    goodput: str,
    exit_undecided: int = EXIT_UNDECIDED,
    flags: tuple[str, str] = ("--llm-slo", "--llm-goodput"),
) -> Goal:
    """Read objectives and limits; either may be empty.

    Raises:
        UsageError: what cannot be read, with its column; an objective on goodput without limits.
    """
    goal = Goal(parse_objectives(slo, flags[0]), parse_limits(goodput, flags[1]), exit_undecided)
    wants = [o for o in goal.objectives if o.metric.startswith("goodput")]
    if wants and not goal.goodput:
        raise UsageError(
            f'{flags[0]}: {wants[0]} needs the limits of a good request: {flags[1]} "ttft<=500ms tpot<=50ms"'
        )
    return goal


def goal_of_card(card: Mapping[str, Any], slo: str | None, goodput: str | None, exit_undecided: int | None) -> Goal:
    """Return what a report holds a run to: what is given, else what the run card keeps.

    Raises:
        UsageError: what cannot be read; options of the report are named as such.
    """
    kept = card.get("options")
    kept = kept if isinstance(kept, dict) else {}
    code = kept.get("--llm-exit-undecided", EXIT_UNDECIDED) if exit_undecided is None else exit_undecided
    flags = ("--slo" if slo is not None else "run.json, --llm-slo",
             "--goodput" if goodput is not None else "run.json, --llm-goodput")  # fmt: skip
    texts = (str(kept.get("--llm-slo", "")) if slo is None else slo,
             str(kept.get("--llm-goodput", "")) if goodput is None else goodput)  # fmt: skip
    return parse_goal(*texts, int(code) if isinstance(code, int | float) else EXIT_UNDECIDED, flags)


def parse_objectives(text: str, flag: str = "--llm-slo") -> tuple[Objective, ...]:
    """Read ``ttft:p95<=500ms, chat.e2e:p90<=8s, error_rate<=1%``. Raises UsageError, with the column."""
    found = tuple(_objective(part, at, flag) for part, at in _parts(text))
    if text.strip() and not found:
        raise _wrong(flag, 1, "no objective is in it; write ttft:p95<=500ms")
    return found


def parse_limits(text: str, flag: str = "--llm-goodput") -> tuple[Limit, ...]:
    """Read ``ttft<=500ms tpot<=50ms`` or vLLM's ``ttft:500 tpot:50 e2el:8000``. Raises UsageError, with the column."""
    limits = tuple(_limit(match[0], match.start() + 1, flag) for match in _REQUEST.finditer(text))
    seen: set[tuple[str, str]] = set()
    for limit in limits:
        if (limit.metric, limit.sign) in seen:
            raise UsageError(f"{flag}: {limit.metric} has two limits; give one")
        seen.add((limit.metric, limit.sign))
    return limits


def figure(name: str) -> Metric:
    """Return the label and unit of a figure that an objective can be on."""
    return METRICS.get(name) or RATES[name]


def known_figure(name: str) -> str:
    """Return the key of a figure that an objective can be on (an alias is one, too); "" if there is none."""
    name = ALIASES.get(name.lower(), name.lower())
    return name if name in METRICS or name in WINDOW else ""


def known_statistic(text: str) -> str:
    """Return the key of a statistic (``P99.9`` is ``p999``, ``median`` is ``p50``), "" if it is none of ours."""
    text = {"p99.9": "p999", "median": "p50", "avg": "mean"}.get(text.lower(), text.lower())
    return text if text in STATISTICS else ""


# ---- helpers


def _objective(part: str, at: int, flag: str) -> Objective:
    left, sign, right, right_at = _sides(part, at, flag, "ttft:p95<=500ms")
    match = _LEFT.fullmatch(left)
    if not match:
        raise _wrong(flag, at, f'"{left}" is not [NAME.]FIGURE[:STATISTIC], such as ttft:p95 or chat.ttft:p95')
    name = match[1].strip('"') if match[1] else None
    metric = known_figure(match[2])
    where = at + match.start(2)
    if not metric:
        known = (*METRICS, *WINDOW)
        raise _wrong(flag, where, f'unknown figure "{match[2]}"{_near(match[2], known)}; known: {", ".join(known)}')
    statistic = None
    if metric in WINDOW:
        if match[3]:
            raise _wrong(flag, at + match.start(3), f"{metric} is one figure of the run; leave :{match[3]} away")
    else:
        if not match[3]:
            raise _wrong(flag, where, f"{metric} needs a statistic, such as {metric}:p95; one of {_all(STATISTICS)}")
        statistic = known_statistic(match[3])
        if not statistic:
            why = " (the ends of a sample say little of the next run)" if match[3] in ("min", "max") else ""
            raise _wrong(
                flag, at + match.start(3), f'no statistic "{match[3]}" for objectives{why}; one of {_all(STATISTICS)}'
            )
    of = figure(metric)
    limit = _value(right, right_at, of, metric, flag)
    _check_direction(metric, of, sign, flag, at + len(left))
    if of.unit == "share":
        impossible = limit <= 0 if sign == "<=" else limit >= 1
        if impossible or limit > 1:
            raise _wrong(
                flag, right_at, f"no number of requests can show {metric}{sign}{right}; leave room, such as "
                f"{metric}{sign}{'0.1%' if sign == '<=' else '99.9%'}",
            )  # fmt: skip
    return Objective(name, metric, statistic, sign, limit)


def _limit(part: str, at: int, flag: str) -> Limit:
    vllm = _VLLM.fullmatch(part)
    if vllm:
        metric = _request_figure(vllm[1], at, flag)
        if PER_REQUEST[metric].unit != "ms":
            raise _wrong(flag, at, f"{metric} is no time; write {metric}>=20, not {part}")
        return Limit(metric, "<=", float(vllm[2]))
    left, sign, right, right_at = _sides(part, at, flag, "ttft<=500ms")
    metric = _request_figure(left, at, flag)
    _check_direction(metric, PER_REQUEST[metric], sign, flag, at + len(left))
    return Limit(metric, sign, _value(right, right_at, PER_REQUEST[metric], metric, flag))


def _request_figure(name: str, at: int, flag: str) -> str:
    metric = ALIASES.get(name.lower(), name.lower())
    if metric in POOLED:
        raise _wrong(
            flag, at, f"a request has no single {metric}, but many; take tpot (its mean time per output token), "
            "itl_mean or itl_max",
        )  # fmt: skip
    if ":" in name and name.partition(":")[0] in PER_REQUEST:
        raise _wrong(flag, at, f"a limit is for each request, without a statistic: {name.partition(':')[0]}<=…")
    if metric not in PER_REQUEST:
        known = ", ".join(PER_REQUEST)
        raise _wrong(flag, at, f'unknown figure "{name}"{_near(name, tuple(PER_REQUEST))}; known: {known}')
    return metric


def _sides(part: str, at: int, flag: str, example: str) -> tuple[str, str, str, int]:
    """Return left side, sign (``<=`` or ``>=``), right side and its column."""
    sign = _SIGN.search(part, max(0, part.rfind('"')))
    if not sign:
        raise _wrong(flag, at, f'"{part}" has no limit; write it as {example}')
    if sign[0] == "=":
        raise _wrong(flag, at + sign.start(), f"a limit is <= or >=, such as {example}")
    right = part[sign.end() :]
    left, limit = part[: sign.start()].strip(), right.strip()
    if not left:
        raise _wrong(flag, at, f"a figure is missing before {sign[0]}; write it as {example}")
    return left, "<=" if sign[0] in "<=≤" else ">=", limit, at + sign.end() + len(right) - len(right.lstrip())


def _value(text: str, at: int, of: Metric, metric: str, flag: str) -> float:
    match = _VALUE.fullmatch(text)
    if not match:
        raise _wrong(flag, at, f'"{text}" is no limit for {metric}; such as {_EXAMPLES[of.unit]}')
    unit = match[2].strip()
    factors = _UNITS[of.unit]
    if unit not in factors:
        problem = f'"{unit}" is no unit of {metric}' if unit else f"{text} needs a unit"
        raise _wrong(flag, at + match.end(1), f"{problem}; write {_EXAMPLES[of.unit]}")
    return float(match[1]) * factors[unit]


def _check_direction(metric: str, of: Metric, sign: str, flag: str, at: int) -> None:
    if (of.better, sign) in ((LESS, ">="), (MORE, "<=")):
        good = "<=" if of.better == LESS else ">="
        raise _wrong(flag, at, f"of {metric} {of.better} is better, so its limit is {good}")


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """Yield what stands between commas outside of quotes, with the column (from 1) where each begins."""
    start, quoted = 0, False
    for i, c in enumerate(text + ","):
        quoted ^= c == '"'
        if c == "," and (not quoted or i == len(text)):
            part = text[start:i]
            if part.strip():
                yield part.strip(), start + len(part) - len(part.lstrip()) + 1
            start = i + 1


def _wrong(flag: str, column: int, why: str) -> UsageError:
    return UsageError(f"{flag}, column {column}: {why}")


def _near(name: str, known: tuple[str, ...]) -> str:
    found = get_close_matches(name.lower(), known, n=1)
    return f" (did you mean {found[0]}?)" if found else ""


def _all(names: tuple[str, ...]) -> str:
    return " ".join(names)


def _quoted(name: str) -> str:
    return f'"{name}"' if re.search(r"[\s,<>=]", name) else name


def _written(limit: float, unit: str) -> str:
    if unit == "share":
        return f"{limit * 100:.10g}%"
    if unit == "ms":
        return f"{limit / 1e3:g}s" if limit >= 1e3 and limit % 100 == 0 else f"{limit:.10g}ms"
    return f"{limit:.10g}"
