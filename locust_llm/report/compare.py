"""Base against new: each figure same, better, worse or undecided, with the change and its interval.

The one thing to know: one run a side is compared by time blocks, long enough that they hardly know each other (at least
``MIN_BLOCKS`` a side, else undecided); several runs a side are compared run by run. ``worse`` means that the chance of
such a difference between equal servers is below 5 %, corrected for all figures looked at together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .compare_figures import Figure, exchange_memory, units
from .intervals import MAX_BLOCKS, MIN_BLOCKS, Interval, Memory
from .limits import OVERLOADED
from .metrics import LESS
from .objectives import EXIT_FAIL, EXIT_MET, EXIT_SPOILT
from .objectives import figure as figure_of
from .permutation import ALPHA, Units, change_interval, holm, permutation_p, welch
from .runs import Run

SAME, BETTER, WORSE, UNDECIDED = "same", "better", "worse", "undecided"
SAME_WITHIN = 0.05
FIGURES = (
    Figure("ttft", "mean"), Figure("ttft", "p50"), Figure("ttft", "p95"), Figure("tpot", "p50"), Figure("itl", "p99"),
    Figure("e2e_latency", "p50"), Figure("e2e_latency", "p95"), Figure("system_output_tps"), Figure("error_rate"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gate:
    """Fail if a figure is worse by more than ``by`` (a share of the base; of a share: points)."""

    figure: Figure
    by: float


def compare(base: Sequence[Run], new: Sequence[Run], figures: Sequence[Figure] = FIGURES) -> list[dict[str, Any]]:
    """Return a row per figure: ``{"figure", "unit", "state", "base"?, "new"?, "change"?, "change_ci95"?, "p"?,
    "p_holm"?, "why"?}``.

    ``change`` is a share of the base (of a share: points). Sides have one run each, or at least two each.
    """
    one = len(base) == len(new) == 1
    rows = _by_blocks(base[0], new[0], figures) if one else _by_runs(base, new, figures)
    tested = [row for row in rows if "p" in row]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_holm"] = p
    for row, figure in zip(rows, figures, strict=True):
        if "p_holm" in row:
            row["state"] = _state(row, figure)
    return rows


def common_blocks(memories: Sequence[tuple[Memory, int]]) -> tuple[int, int] | None:
    """Return into how many blocks of one length two runs are cut, None if one of them is too short.

    Parameters:
        memories: the blocks that each needs, and how many exchanges it has.
    """
    if any(not cut.blocks for cut, _ in memories):
        return None
    smallest = min(size for _, size in memories)
    length = max(smallest // MAX_BLOCKS, *(cut.length for cut, _ in memories))
    a, b = (size // length for _, size in memories)
    return (a, b) if min(a, b) >= MIN_BLOCKS else None


def gate(
    rows: Sequence[dict[str, Any]], gates: Sequence[Gate], runs: Sequence[Run], undecided: int
) -> tuple[int, list[str]]:
    """Return the exit code of ``--fail-if-worse`` and what to say of each gate.

    3: surely worse, and by more than allowed. 0: the interval excludes that. Else undecided.
    """
    codes, lines = [], []
    for each in gates:
        row = next(row for row in rows if row["figure"] == str(each.figure))
        sign = 1 if each.figure.better == LESS else -1
        change = row.get("change")
        ends = [None if end is None else sign * end for end in row.get("change_ci95", (None, None))]
        worst = ends[1] if sign > 0 else ends[0]
        if row["state"] == WORSE and change is not None and sign * change > each.by:
            code, said = EXIT_FAIL, "fails"
        elif worst is not None and worst <= each.by:
            code, said = EXIT_MET, "holds"
        else:
            code, said = undecided, "undecided"
        if _spoilt(each.figure, runs):
            code, said = EXIT_SPOILT, "spoilt by an overloaded client"
        codes.append(code)
        lines.append(f"{each.figure} worse by at most {_percent(each.by)}: {said}")
    ranking = [EXIT_SPOILT, EXIT_FAIL, undecided, EXIT_MET]
    return (min(codes, key=ranking.index) if codes else EXIT_MET), lines


def differences(base: Run, new: Run) -> tuple[list[str], list[str]]:
    """Return in what two runs differ that makes a comparison void, and what is worth knowing."""
    void, known = [], []
    a, b = base.card, new.card
    if not a or not b:
        known.append("a run has no run card: what was asked of both cannot be compared")
    else:
        for what, key in (("lengths", "lengths"), ("load", "load")):
            void += _differing(what, _matters(a.get(key)), _matters(b.get(key)))
        void += _differing("options", _sampling(a), _sampling(b))
        if a.get("simulated") != b.get("simulated"):
            void.append("one of them ran against the simulated server")
    for what, key in (("model", "model"), ("API", "api")):
        one, other = ({name[key] for name in run.summary["names"]} for run in (base, new))
        if one != other:
            known.append(f"{what}: {', '.join(sorted(one))} against {', '.join(sorted(other))}")
    for which in ("input", "output"):
        means = [run.summary["total"]["lengths"].get(which, {}).get("got_mean") for run in (base, new)]
        if None not in means and abs(means[0] - means[1]) > SAME_WITHIN * max(means):
            known.append(f"{which} tokens got: {means[0]:.1f} against {means[1]:.1f} in the mean")
    for run in (base, new):
        if run.summary["verdict"]["state"] != "sound":
            known.append(f"{run.summary['run']}: measurement {run.summary['verdict']['state']}")
    return void, known


# ---- helpers


def _by_blocks(base: Run, new: Run, figures: Sequence[Figure]) -> list[dict[str, Any]]:
    memories = [exchange_memory(run) for run in (base, new)]
    blocks = common_blocks(memories)
    if blocks is None:
        needed = max(cut.needed for cut, _ in memories)
        shortest = min((base, new), key=lambda run: int(run.summary["window"]["started"]))
        window = shortest.summary["window"]
        seconds = window["duration_s"] * needed / max(window["started"], 1)
        why = f"too short: {window['started']} exchanges, about {needed} are needed a side ({seconds:.0f} s)"
        return [{**_values(figure, base, new), "state": UNDECIDED, "why": why} for figure in figures]
    rows = []
    for figure in figures:
        row = _values(figure, base, new)
        both = units(figure, base, new, blocks)
        if both is None or "change" not in row:
            row |= {"state": UNDECIDED, "why": row.get("why") or _absent(figure, base, new)}
        else:
            row["p"] = permutation_p(*both)
            row["change_ci95"] = list(_change_ci(figure, base, new, row))
        rows.append(row)
    return rows


def _by_runs(base: Sequence[Run], new: Sequence[Run], figures: Sequence[Figure]) -> list[dict[str, Any]]:
    rows = []
    for figure in figures:
        row: dict[str, Any] = {"figure": str(figure), "unit": _unit(figure)}
        sides = [[_value(figure, run) for run in side] for side in (base, new)]
        if any(value is None for side in sides for value in side):
            rows.append(row | {"state": UNDECIDED, "why": "not every run has it"})
            continue
        a, b = (np.asarray(side, dtype=np.float64) for side in sides)
        row |= {"base": float(a.mean()), "new": float(b.mean())}
        logs = not figure.is_share and (np.concatenate((a, b)) > 0).all()
        scale = (np.log(a), np.log(b)) if logs else (a, b)
        p, low, high = welch(scale[0].tolist(), scale[1].tolist())
        if min(len(a), len(b)) >= MIN_BLOCKS:
            one, other = (Units(side, np.ones(len(side))) for side in scale)
            p = permutation_p(one, other, adjacent=False)
        change = float(scale[1].mean() - scale[0].mean())
        row["change"] = math.expm1(change) if logs else change
        row["change_ci95"] = [math.expm1(low), math.expm1(high)] if logs else [low, high]
        row["p"] = p
        rows.append(row)
    return rows


def _values(figure: Figure, base: Run, new: Run) -> dict[str, Any]:
    row: dict[str, Any] = {"figure": str(figure), "unit": _unit(figure)}
    a, b = _value(figure, base), _value(figure, new)
    row |= {key: value for key, value in (("base", a), ("new", b)) if value is not None}
    if a is not None and b is not None:
        if figure.is_share:
            row["change"] = b - a
        elif a > 0:
            row["change"] = b / a - 1
    return row


def _value(figure: Figure, run: Run) -> float | None:
    total = run.summary["total"]
    if figure.statistic is None:
        value: float | None = total["rates"].get(figure.metric)
        return value
    return _of(figure, total).get(figure.statistic)


def _of(figure: Figure, total: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = total["metrics"].get(figure.metric, {})
    failed: dict[str, Any] | None = total.get("failures_at_worst", {}).get(figure.metric)
    return plain if failed is None or figure.statistic == "mean" else failed


def _change_ci(figure: Figure, base: Run, new: Run, row: dict[str, Any]) -> Interval:
    ends = [_ends(figure, run) for run in (base, new)]
    if figure.is_share:
        return change_interval(row["base"], ends[0], row["new"], ends[1])
    if row["base"] <= 0 or row["new"] <= 0:
        return None, None
    logs = [tuple(None if e is None or e <= 0 else math.log(e) for e in ci) for ci in ends]
    low, high = change_interval(
        math.log(row["base"]), (logs[0][0], logs[0][1]), math.log(row["new"]), (logs[1][0], logs[1][1])
    )
    return None if low is None else math.expm1(low), None if high is None else math.expm1(high)


def _ends(figure: Figure, run: Run) -> Interval:
    total = run.summary["total"]
    ci = total.get("rates_ci95", {}) if figure.statistic is None else _of(figure, total).get("ci95", {})
    low, high = ci.get(figure.statistic or figure.metric, (None, None))
    return low, high


def _state(row: dict[str, Any], figure: Figure) -> str:
    low, high = row["change_ci95"]
    if row["p_holm"] < ALPHA:
        if low is not None and high is not None and low <= 0 <= high:
            row["why"] = "the test finds a difference, but the interval of the change does not leave out 0"
            return UNDECIDED
        return WORSE if (row["change"] > 0) == (figure.better == LESS) else BETTER
    within = SAME_WITHIN if not figure.is_share else SAME_WITHIN / 5
    if low is not None and high is not None and -within <= low and high <= within:
        return SAME
    row["why"] = f"no difference shown, nor that it is within {_percent(within)}"
    return UNDECIDED


def _absent(figure: Figure, base: Run, new: Run) -> str:
    for run in (base, new):
        if _value(figure, run) is None:
            return str(run.summary["total"]["absent"].get(figure.metric, "not measured by both runs"))
    return "not measured by both runs"


def _unit(figure: Figure) -> str:
    return figure_of(figure.metric).unit


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _spoilt(figure: Figure, runs: Sequence[Run]) -> bool:
    reasons = [reason for run in runs for reason in run.summary["verdict"]["reasons"]]
    return any(r["level"] == OVERLOADED and figure.metric in r["figures"] for r in reasons)


def _matters(part: Any) -> dict[str, Any]:
    """Return what of a load decides how hard it is; how long it lasts does not."""
    members = part if isinstance(part, dict) else {}
    return {k: v for k, v in members.items() if k not in ("run_time_s", "requests", "spawn_rate")}


def _sampling(card: dict[str, Any]) -> dict[str, Any]:
    options = card.get("options")
    options = options if isinstance(options, dict) else {}
    wanted = ("--llm-extra", "--llm-no-stream", "--llm-stream", "--llm-usage", "--llm-max-tokens", "--llm-api")
    return {key: options.get(key) for key in wanted}


def _differing(what: str, a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    keys = [key for key in dict.fromkeys((*a, *b)) if a.get(key) != b.get(key)]
    return [f"{what}, {key}: {a.get(key)} against {b.get(key)}" for key in keys]
