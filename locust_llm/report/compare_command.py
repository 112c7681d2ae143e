"""``locust-llm compare``: did it become slower? Two runs, or several a side.

The one thing to know: it is thin; ``compare.py`` compares, and docs/compare.md says how.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from ..errors import UsageError
from .compare import BETTER, FIGURES, UNDECIDED, WORSE, Gate, compare, differences, gate
from .compare_figures import Figure
from .cost import compared
from .curve_command import add_prices, given_prices
from .judging import written
from .objectives import EXIT_UNDECIDED, WINDOW, known_figure, known_statistic
from .runs import Run, load_run
from .summary import write_file
from .table import number, plain
from .window import ALL, STEADY

EPILOG = """examples:
  locust-llm compare reports/before reports/after
  locust-llm compare --base reports/a1 reports/a2 reports/a3 --new reports/b1 reports/b2 reports/b3
  locust-llm compare reports/before reports/after --fail-if-worse 'ttft:p95 5%%' --fail-if-worse 'system_output_tps 3%%'
"""
_GATE = re.compile(r"\s*([A-Za-z_]\w*)(?::([\w.]+))?\s+(\d+(?:\.\d+)?)\s*%\s*")
_FIGURE = re.compile(r"\s*([A-Za-z_]\w*)(?::([\w.]+))?\s*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``locust-llm compare`` to a parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("runs", nargs="*", metavar="RUN_DIR", help="the base, then one or more to compare with it")
    parser.add_argument("--base", nargs="+", default=[], metavar="RUN_DIR", help="several runs of the base")
    parser.add_argument("--new", nargs="+", default=[], metavar="RUN_DIR", help="several runs of what is new")
    parser.add_argument(
        "--figures", metavar="FIGURE,...", help=f"what to compare (default: {','.join(map(str, FIGURES))})"
    )
    parser.add_argument(
        "--fail-if-worse", action="append", default=[], metavar="'FIGURE N%'",
        help="exit 3 if it is surely worse and by more than N %% (of a share: points), 4 if undecided; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--exit-undecided", type=int, default=EXIT_UNDECIDED, metavar="CODE", help="instead of 4 (with --fail-if-worse)"
    )
    parser.add_argument("--window", default=STEADY, metavar=f"{STEADY}|{ALL}|A..B", help="as in locust-llm report")
    parser.add_argument("--anyway", action="store_true", help="compare though load, lengths or sampling differ")
    add_prices(parser)
    parser.add_argument("--json", default="", metavar="FILE", help="write the comparison as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command with parsed arguments; return its exit code.

    Raises:
        UsageError: what to mend.
    """
    gates = [_gate(text) for text in args.fail_if_worse]
    figures = list(dict.fromkeys([*_figures(args.figures), *(g.figure for g in gates)]))
    told: list[dict[str, Any]] = []
    codes: list[int] = []
    lines: list[str] = []
    for base, new in _sides(args):
        sides = [[load_run([path], args.window, priced=given_prices(args)) for path in side] for side in (base, new)]
        notes = _check(sides[0], sides[1], args.anyway)
        rows = compare(sides[0], sides[1], figures)
        code, said = gate(rows, gates, [*sides[0], *sides[1]], args.exit_undecided)
        codes.append(code)
        names = [[run.summary["run"] for run in side] for side in sides]
        costs = compared(*([run.summary["total"] for run in side] for side in sides))
        lines += _table(names[0], names[1], notes, rows, costs, said)
        told.append({
            "base": names[0], "new": names[1], "notes": notes, "figures": rows, "gates": said,
            **({"costs": costs} if costs else {}),
        })  # fmt: skip
    print("\n".join(map(plain, lines)), flush=True)
    if args.json:
        write_file(Path(args.json), orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    ranking = [5, 3, args.exit_undecided, 0]
    return min(codes, key=ranking.index)


def _sides(args: argparse.Namespace) -> list[tuple[list[str], list[str]]]:
    if args.base or args.new:
        if args.runs or len(args.base) < 2 or len(args.new) < 2:
            raise UsageError(
                "--base and --new take at least two runs each; for one a side: locust-llm compare BASE NEW"
            )
        return [(args.base, args.new)]
    if len(args.runs) < 2:
        raise UsageError("give two runs: locust-llm compare BASE NEW, or several with --base A1 A2 --new B1 B2")
    return [([args.runs[0]], [new]) for new in args.runs[1:]]


def _check(base: Sequence[Run], new: Sequence[Run], anyway: bool) -> list[str]:
    """Return what is worth knowing. Raises UsageError if the runs were not the same test."""
    seen = [run.summary["run"] for run in (*base, *new)]
    if len(set(seen)) < len(seen):
        raise UsageError("a run is given twice; compare a run with another one")
    void: dict[str, None] = {}
    known: dict[str, None] = {}
    for other in [*base[1:], *new]:
        void_here, known_here = differences(base[0], other)
        void |= dict.fromkeys(void_here)
        known |= dict.fromkeys(known_here)
    if void and not anyway:
        raise UsageError(f"the runs are not the same test ({'; '.join(void)}); --anyway compares them all the same")
    return [*(f"not the same test: {text}" for text in void), *known]


def _gate(text: str) -> Gate:
    match = _GATE.fullmatch(text)
    if not match:
        raise UsageError(f"--fail-if-worse is FIGURE N%, such as 'ttft:p95 5%' (got {text!r})")
    found = _figure(match[1], match[2], "--fail-if-worse")
    if not found.better:
        raise UsageError(f"--fail-if-worse: of {found} neither less nor more is worse")
    return Gate(found, float(match[3]) / 100)


def _figures(text: str | None) -> Sequence[Figure]:
    if not text:
        return FIGURES
    found = []
    for part in text.split(","):
        match = _FIGURE.fullmatch(part)
        if not match:
            raise UsageError(f"--figures takes FIGURE:STATISTIC,…, such as ttft:p95,system_output_tps (got {part!r})")
        found.append(_figure(match[1], match[2], "--figures"))
    return found


def _figure(name: str, statistic: str | None, flag: str) -> Figure:
    metric = known_figure(name)
    if not metric:
        raise UsageError(
            f'{flag}: unknown figure "{name}"; known are the keys of summary.json, such as ttft, tpot, itl'
        )
    if metric in WINDOW:
        if statistic:
            raise UsageError(f"{flag}: {metric} is one figure of the run; leave :{statistic} away")
        return Figure(metric)
    key = known_statistic(statistic or "")
    if not key:
        raise UsageError(f"{flag}: {metric} needs a statistic, such as {metric}:p95 or {metric}:mean")
    return Figure(metric, key)


def _table(
    base: list[str], new: list[str], notes: list[str], rows: list[dict[str, Any]], costs: list[dict[str, Any]],
    said: list[str],
) -> Iterator[str]:  # fmt: skip
    yield f"base {', '.join(base)}"
    yield f"new  {', '.join(new)}"
    yield from (f"note: {note}" for note in notes)
    yield ""
    yield f"{'':<22}{'base':>15}{'new':>15}{'change':>10}  {'95 % interval':<19}{'p':>6}  verdict"
    for row in rows:
        yield from _row(row)
    for cost in costs:
        base_new = "".join(f"{number(cost[side]):>15}" for side in ("base", "new"))
        yield f"{cost['figure']:<22}{base_new}{_signed(cost.get('change'), ''):>10}  {'':<19}{'':>6}  not tested"
    yield ""
    counts = {state: [r["figure"] for r in rows if r["state"] == state] for state in (WORSE, BETTER, UNDECIDED)}
    yield from (f"gate: {text}" for text in said)
    parts = [f"{state} {', '.join(names)}" for state, names in counts.items() if names]
    yield f"locust-llm compare: {'; '.join(parts) or 'all the same'}"
    yield ""


def _row(row: dict[str, Any]) -> Iterator[str]:
    values = [written(row[side], row["unit"]) if side in row else "-" for side in ("base", "new")]
    change = _signed(row.get("change"), row["unit"])
    low, high = row.get("change_ci95", (None, None))
    ends = f"{_signed(low, '')} to {_signed(high, '')}" if "change_ci95" in row else ""
    p = f"{row['p_holm']:.3f}" if "p_holm" in row else ""
    yield f"{row['figure']:<22}{values[0]:>15}{values[1]:>15}{change:>10}  {ends:<19}{p:>6}  {row['state']}"
    if "why" in row and "p_holm" not in row:
        yield f"    {row['why']}"


def _signed(change: float | None, unit: str) -> str:
    if change is None:
        return "…"
    return f"{change * 100:+.1f} {'pts' if unit == 'share' else '%'}"
