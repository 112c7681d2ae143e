"""``summary.json`` and ``summary.csv``: every figure of a run, per name and in total (the stable interface of a
report).

The one thing to know: ``total`` and ``names`` are of the headline window, ``total_all`` of the whole run. Times are
milliseconds. A figure that is not there is named in ``absent`` with the reason; there is no null, no NaN, no 0 instead.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ..errors import UsageError
from ..exchange import PREFLIGHT, WARMUP
from .arrivals import arrivals
from .columns import Bools, Ints, Log, numbered
from .confidence import Part, add_confidence
from .cost import Prices, cost
from .failures import failures
from .figures import Figures, figures
from .gaps import count_gaps
from .goodput import goodput, with_goodput
from .judging import judge
from .limits import DEFAULTS, Limits, limits_of_card
from .metrics import METRICS, PERCENTILES, RATES
from .objectives import Goal
from .reading import read
from .scope import Measured, scope
from .select import matching
from .server import server
from .verdict import client_figures, verdict
from .window import STEADY, Window, choose, count, whole

SCHEMA = 1
FILES = ("summary.json", "summary.csv")

_STATISTICS = ("mean", "std", "min", *PERCENTILES, "max")


@dataclass(frozen=True, slots=True)
class Analysis:
    """A log with everything that is computed once and from which every table, page and export is made.

    Attributes:
        here, overall: the headline window and the whole run; ``figures`` there are of the filtered records.
        names, name_ids: (name, api, model), sorted, and which of them each measured record has (-1: not measured).
        where: the filters, as given.
        goal: what the run is held to; its limits are in the figures (``goodput``).
        limits: beyond what the verdict doubts the measurement.
    """

    card: dict[str, Any]
    here: Measured
    overall: Measured
    names: list[tuple[str, str, str]]
    name_ids: Ints
    where: tuple[str, ...] = ()
    goal: Goal = field(default_factory=Goal)
    limits: Limits = DEFAULTS


def analyse(
    log: Log,
    card: dict[str, Any],
    wanted: str = STEADY,
    where: Sequence[str] = (),
    goal: Goal | None = None,
    limits: Limits | None = None,
) -> Analysis:
    """Compute the figures of a log and of its windows.

    Parameters:
        card: the run card (``load_card``), {} where there is none.
        wanted: the headline window, ``steady``, ``all`` or ``A..B`` (``window.choose``).
        where: filters ``KEY=VALUE`` (``select.matching``); the windows stay those of the whole log.
        goal: objectives and limits (``objectives.parse_goal``).
        limits: those of the verdict (default: what the card keeps).

    Raises:
        UsageError: no such window, or a filter that no record meets.
    """
    of_each = figures(log)
    window, everything = choose(log, of_each, card, wanted), whole(log, of_each)
    if where:
        rows = matching(log, where, of_each.measured)
        of_each = replace(of_each, measured=of_each.measured & rows, counted=of_each.counted & rows)
        window, everything = count(window, log, of_each), count(everything, log, of_each)
    goal = goal or Goal()
    of_each = with_goodput(log, of_each, goal.goodput)
    name_ids, names = _names(log, of_each.measured)
    group = gap_group(of_each, window.inside(log.start_us), name_ids)
    gaps = count_gaps(log, of_each, group)
    here, overall = arrivals(log, of_each, [window, everything], name_ids)
    return Analysis(
        card=card,
        here=Measured(log, of_each, window, here, gaps, np.where(window.inside(log.start_us), group, -1)),
        overall=Measured(log, of_each, everything, overall, gaps, group),
        names=names, name_ids=name_ids, where=tuple(where), goal=goal, limits=limits or limits_of_card(card),
    )  # fmt: skip


def summarise(log: Log, card: dict[str, Any], wanted: str = STEADY) -> dict[str, Any]:
    """Return the summary of a log: ``summary_of(analyse(…))``."""
    return summary_of(analyse(log, card, wanted))


def summary_of(analysis: Analysis, prices: Prices | None = None) -> dict[str, Any]:
    """Return what ``summary.json`` holds; with ``prices``, the costs of each scope too."""
    here, overall, log = analysis.here, analysis.overall, analysis.here.log
    names = analysis.names
    all_names = np.arange(len(names))
    total = _scope(analysis, here, all_names)
    # One name is all there is: its scope is the total's.
    rows_of = _rows_by(analysis.name_ids, len(names)) if len(names) > 1 else []
    parts = [Part({}, here.of(rows), rows, np.array([i])) for i, rows in enumerate(rows_of)]
    for part, (name, api, model) in zip(parts, names if parts else [], strict=True):
        part.into.update({"name": name, "api": api, "model": model, **_scope(analysis, part.of, part.groups)})
    add_confidence(here, [Part(total, here, np.arange(len(log)), all_names), *parts])
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "run": "+".join(log.run.names),
        "window": window_json(here.window),
        **({"where": list(analysis.where)} if analysis.where else {}),
        "verdict": verdict(here, total, analysis.card, analysis.limits),
        "client": client_figures(here, analysis.card),
        "total": total,
        "total_all": {"window": window_json(overall.window), **_scope(analysis, overall, all_names)},
        "names": [part.into for part in parts] or [_only_name(name, total) for name in names],
        "failures": failures(overall),
        "log": _log_json(log),
    }
    if counted := server(overall, analysis.card):
        summary["server"] = counted
    if judged := judge(summary, analysis.goal):
        summary["objectives"] = judged
    if prices:
        for each in (total, summary["total_all"], *summary["names"]):
            each["cost"] = cost(each, prices)
    return summary


def _only_name(name: tuple[str, str, str], total: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(("name", "api", "model"), name, strict=True)), **deepcopy(total)}


def _scope(analysis: Analysis, of: Measured, groups: Ints) -> dict[str, Any]:
    """Return a scope, with its goodput where there are limits."""
    members = scope(of, groups)
    if analysis.goal.goodput:
        numbers, told = goodput(of.log, of.figures, of.window, analysis.goal.goodput)
        members["rates"] |= numbers
        members["goodput"] = told
        if "goodput" not in numbers:
            members["absent"]["goodput"] = "no exchange that started in the window finished"
    return members


def report(sources: Sequence[str | Path], wanted: str = STEADY) -> dict[str, Any]:
    """Read run folders or log files and return their summary; the run card is the one beside the first log.

    Raises:
        UsageError: nothing to read, or no such window.
    """
    return summarise(read(sources), load_card(sources), wanted)


def load_card(sources: Sequence[str | Path]) -> dict[str, Any]:
    """Return the first run card (``run.json``) in the sources' folders, {} if there is none that can be read."""
    for source in map(Path, sources):
        path = (source if source.is_dir() else source.parent) / "run.json"
        with suppress(OSError, orjson.JSONDecodeError):
            card = orjson.loads(path.read_bytes())
            if isinstance(card, dict):
                return card
    return {}


def write(summary: dict[str, Any], folder: Path) -> list[Path]:
    """Write ``summary.json`` and ``summary.csv`` into a folder, each whole or not at all; return their paths.

    Raises:
        UsageError: the folder cannot be written to.
    """
    contents = (to_json(summary), to_csv(summary).encode())
    paths = [folder / name for name in FILES]
    for path, content in zip(paths, contents, strict=True):
        write_file(path, content)
    return paths


def write_file(path: Path, content: bytes) -> None:
    """Write a file of a report whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as e:
        with suppress(OSError):
            part.unlink()
        raise UsageError(f"{path}: cannot be written ({e.strerror}); --no-write only prints the report") from None


def to_json(summary: dict[str, Any]) -> bytes:
    """Return the text of ``summary.json``."""
    return orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def to_csv(summary: dict[str, Any]) -> str:
    """Return the text of ``summary.csv``: a row per (scope, metric); rates have only a ``mean``."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["name", "api", "model", "window", "metric", "unit", "count", *_STATISTICS, "thin"])
    kind, everything = summary["window"]["kind"], summary["total_all"]["window"]["kind"]
    scopes = [((n["name"], n["api"], n["model"], kind), n) for n in summary["names"]]
    scopes += [(("total", "", "", kind), summary["total"]), (("total", "", "", everything), summary["total_all"])]
    for head, of in scopes[:-1] if kind == everything else scopes:
        for name in METRICS:
            if name in of["metrics"]:
                m = of["metrics"][name]
                values = [m.get(s, "") for s in _STATISTICS]
                rows.writerow([*head, name, m["unit"], m["count"], *values, " ".join(m["thin"])])
        for name, rate in RATES.items():
            if name in of["rates"]:
                rows.writerow([*head, name, rate.unit, "", of["rates"][name], *([""] * len(_STATISTICS))])
    return out.getvalue()


def _names(log: Log, measured: Bools) -> tuple[Ints, list[tuple[str, str, str]]]:
    """Return a number for each measured record's (name, api, model), -1 for the others, and these triples, sorted."""
    columns = (log.name, log.api, log.model)
    ids = np.full(len(log), -1, dtype=np.int64)
    sizes = tuple(max(len(c.names), 1) for c in columns)
    keys, at = numbered(np.ravel_multi_index([c.codes[measured] for c in columns], sizes))
    codes = np.stack(np.unravel_index(keys, sizes), axis=1)
    triples = [tuple(c.names[code] for c, code in zip(columns, key, strict=True)) for key in codes.tolist()]
    order = sorted(range(len(triples)), key=lambda i: triples[i])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    ids[measured] = place[at]
    return ids, [(triples[i][0], triples[i][1], triples[i][2]) for i in order]


def _rows_by(ids: Ints, count: int) -> list[Ints]:
    """Return the row numbers of each id, in order."""
    order = np.argsort(ids, kind="stable")
    ends = np.searchsorted(ids[order], np.arange(count + 1))
    return [order[a:b] for a, b in pairwise(ends.tolist())]


def gap_group(of_each: Figures, inside: Bools, ids: Ints) -> Ints:
    """Return groups fine enough for every scope: by id, by window, by whether the gaps can be split on tokens."""
    fine = ids * 4 + 2 * inside + of_each.gives_itl
    return np.where(of_each.counted, fine, -1).astype(np.int64)


def window_json(window: Window) -> dict[str, Any]:
    out: dict[str, Any] = {
        "kind": window.kind,
        "start": window.start_us / 1e6,
        "end": window.end_us / 1e6,
        "duration_s": window.duration_s,
        "started": window.started,
        "censored": window.censored,
    }
    return out if window.why is None else {**out, "why": window.why}


def _log_json(log: Log) -> dict[str, Any]:
    damage = log.damage
    return {
        "files": list(damage.files),
        "records": len(log),
        "preflight": int(log.phase.isin(PREFLIGHT).sum()),
        "warmup": int(log.phase.isin(WARMUP).sum()),
        "doubles": damage.doubles,
        "missing": damage.missing,
        "bad_lines": damage.bad_lines,
        "bad_examples": list(damage.bad_examples),
        "cut_bytes": damage.cut_bytes,
    }
