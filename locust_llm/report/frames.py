"""Runs as pandas frames, for notebooks: ``load(run)`` and ``metrics(…)``; pandas is loaded only when they are called.

The one thing to know: ``exchanges`` has a row for each record, all members of the log and all figures (seconds); what
is absent is NaN or None there, as pandas has it. ``docs/notebook.md`` shows what to do with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .columns import KINDS, OF_EVENTS, Labels, Log
from .events import walk
from .figures import Figures, figures
from .metrics import METRICS, PERCENTILES, RATES
from .reading import read
from .runs import load_run
from .summary import load_card
from .window import ALL, STEADY, choose

if TYPE_CHECKING:
    import pandas as pd

Source = str | Path | Sequence[str | Path]


@dataclass(frozen=True, slots=True)
class Frames:
    """A run as frames.

    Attributes:
        exchanges: a row per record; ``record`` is its number, ``steady`` whether it started in the steady window.
        events: a row per decoded event: ``record``, ``kind``, ``time_s`` after the exchange's start, ``tokens`` (known
            ones); joined to ``exchanges`` by ``record``.
        card: the run card, {} without one.
    """

    exchanges: pd.DataFrame
    events: pd.DataFrame
    card: dict[str, Any]


def load(run: Source, events: bool = True) -> Frames:
    """Read a run folder or log files into frames.

    Parameters:
        events: whether to make the frame of events (it is the large one).

    Raises:
        UsageError: nothing to read.
    """
    import pandas as pd

    sources = _sources(run)
    log, card = read(sources), load_card(sources)
    of_each = figures(log)
    table = exchanges(log, of_each)
    window = choose(log, of_each, card, STEADY)
    table["steady"] = of_each.counted & window.inside(log.start_us) & (window.kind == STEADY)
    blocks = list(event_blocks(log)) if events else []
    return Frames(table, pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(), card)


def metrics(*runs: Source, window: str = STEADY) -> pd.DataFrame:
    """Return the figures of one or several runs as a tidy frame: a row per (run, scope, figure, statistic).

    Columns: ``run``, ``name`` (request name, or ``total``), ``model``, ``window``, ``metric``, ``statistic``,
    ``value``, ``unit``, ``count``, ``thin`` (too few values for this percentile).

    Parameters:
        window: ``steady``, ``all`` or ``A..B``.

    Raises:
        UsageError: nothing to read, nothing measured, or no such window.
    """
    import pandas as pd

    rows = [row for run in runs for row in _rows(load_run(_sources(run), window).summary)]
    return pd.DataFrame(
        rows, columns=["run", "name", "model", "window", "metric", "statistic", "value", "unit", "count", "thin"]
    )


def exchanges(log: Log, of_each: Figures) -> pd.DataFrame:
    """Return a row per record: the log's members, then its figures."""
    import pandas as pd

    columns: dict[str, Any] = {"record": np.arange(len(log))}
    for f in fields(log):
        value = getattr(log, f.name)
        if isinstance(value, Labels):
            columns[f.name] = _categories(value)
        elif isinstance(value, dict):
            columns |= {f"tag_{key}": _categories(labels) for key, labels in value.items()}
        elif f.name != "damage" and f.name not in OF_EVENTS:
            columns[f.name] = value
    columns |= {"counted": of_each.counted, "token_events": of_each.k}
    columns |= {(f"{name}_s" if METRICS[name].unit == "ms" else name): v for name, v in of_each.values.items()}
    return pd.DataFrame(columns)


def event_blocks(log: Log) -> Iterator[pd.DataFrame]:
    """Yield the events of a log, a quarter of a million rows at a time; at least one frame."""
    import pandas as pd

    blocks = (
        (events.owner, events.kinds, events.time_us, events.tokens)
        for events in walk(log)
    )  # fmt: skip
    none = np.zeros(0, dtype=np.int64)
    for owner, kinds, time_us, said in blocks if len(log.kinds) else [(none, log.kinds, none, log.tokens)]:
        tokens = np.full(len(owner), -1, dtype=np.int32) if said is None else said
        yield pd.DataFrame({
            "record": owner, "time_s": time_us / 1e6,
            "kind": pd.Categorical.from_codes(kinds.astype(np.int8), categories=list(KINDS)),
            "tokens": pd.array(np.where(tokens < 0, np.nan, tokens), dtype="Int32"),
        })[["record", "kind", "time_s", "tokens"]]  # fmt: skip


def _categories(labels: Labels) -> Any:
    import pandas as pd

    return pd.Categorical.from_codes(labels.codes, categories=list(labels.names))


def _rows(summary: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind, everything = summary["window"]["kind"], summary["total_all"]["window"]["kind"]
    scopes = [(n["name"], n["model"], kind, n) for n in summary["names"]]
    scopes.append(("total", None, kind, summary["total"]))
    if kind != everything:
        scopes.append(("total", None, ALL, summary["total_all"]))
    for name, model, window, of in scopes:
        head = {"run": summary["run"], "name": name, "model": model, "window": window}
        for metric, found in of["metrics"].items():
            for statistic in ("mean", "std", "min", *PERCENTILES, "max"):
                if statistic in found:
                    thin = statistic in found["thin"]
                    yield {**head, "metric": metric, "statistic": statistic, "value": found[statistic],
                           "unit": found["unit"], "count": found["count"], "thin": thin}  # fmt: skip
        for metric, value in of["rates"].items():
            yield {**head, "metric": metric, "statistic": "mean", "value": value, "unit": RATES[metric].unit,
                   "count": None, "thin": False}  # fmt: skip


def _sources(run: Source) -> list[str | Path]:
    return [run] if isinstance(run, str | Path) else list(run)
