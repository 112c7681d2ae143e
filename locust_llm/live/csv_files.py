"""``--csv PREFIX``: the live figures as two CSV files beside Locust's.

``PREFIX_llm_stats.csv`` has a row for each name and one in total, and is replaced as a whole; ``…_history.csv`` gets a
row in total each second, with ``--csv-full-history`` one for each name too. The one thing to know: rows are made in the
event loop, files are written in the hub's thread pool.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from locust import stats
from locust.env import Environment

from ..exchange import OUTCOMES
from ..report.metrics import METRICS

if TYPE_CHECKING:
    from ..run import Run
    from .desk import Desk

logger = logging.getLogger(__name__)

FIGURES = {name: "_ms" if metric.unit == "ms" else "" for name, metric in METRICS.items()} | {"client_lag": "_ms"}
"""Figures that have a distribution, and what the names of their columns end in."""
STATISTICS = ("count", "mean", "min", "p50", "p90", "p95", "p99", "max")
HISTORY_STATISTICS = ("p50", "p95", "p99")
HISTORY_FIGURES = ("ttft", "tpot", "itl", "icl", "e2e_latency")
TOKENS = ("input", "output", "reasoning", "cached")
HEAD = (
    "users", "in_flight", "decoding", "output_tps", "output_chunks_per_s", "input_tps", "requests_per_s",
    "ttft_p50_ms", "ttft_p95_ms", "itl_p50_ms", "itl_p95_ms", "icl_p50_ms", "icl_p95_ms",
)  # fmt: skip
"""Of the moment and of the last ten seconds; of all names together, so only in the rows in total."""

Row = dict[str, Any]

_DIGITS = 6
_A_WRITE_S = 0.1
_RATES = ("failed", "error_rate", "requests_per_s", "system_output_tps", "output_chunks_per_s")


def attach(environment: Environment, desk: Desk) -> None:
    """Write the files of each run of ``desk`` if Locust writes CSV files."""
    options = environment.parsed_options
    prefix = getattr(options, "csv_prefix", None)
    if prefix:
        _let_locusts_writer_end_quietly()
        files = CsvFiles(desk, prefix, bool(getattr(options, "stats_history_enabled", False)))
        desk.on_run(files.begin, files.end)


def let_locust_write(environment: Environment, since_s: float) -> None:
    """Wait until Locust's own files have what was known at ``since_s`` (monotonic).

    It writes them each second and not once more at the end, so a test's last second would be missing.
    """
    if getattr(environment.parsed_options, "csv_prefix", None):
        gevent.sleep(max(0.0, since_s + stats.CSV_STATS_INTERVAL_SEC + _A_WRITE_S - time.monotonic()))


def stats_columns() -> list[str]:
    """Return the header of ``PREFIX_llm_stats.csv``."""
    figures = [_column(figure, statistic) for figure in FIGURES for statistic in STATISTICS]
    return [
        "run", "scope", "name", "api", "model", "exchanges", *OUTCOMES, "failed", "error_rate",
        *(f"{kind}_tokens" for kind in TOKENS), "bytes_in", "bytes_out", "requests_per_s", "system_output_tps",
        "output_chunks_per_s", *figures,
    ]  # fmt: skip


def history_columns() -> list[str]:
    """Return the header of ``PREFIX_llm_stats_history.csv``."""
    totals = ["exchanges", "ok", "failed", *(f"{kind}_tokens" for kind in TOKENS)]
    totals += [_column(figure, statistic) for figure in HISTORY_FIGURES for statistic in HISTORY_STATISTICS]
    return ["timestamp", "run", "elapsed_s", "scope", "name", "api", "model", *HEAD, *(f"total_{t}" for t in totals)]


def stats_rows(snapshot: dict[str, Any]) -> list[Row]:
    """Return the rows of ``PREFIX_llm_stats.csv``; a figure that is not there has no member."""
    return [{"run": snapshot.get("run", ""), **_place(scope, of), **_figures(of)} for scope, of in _scopes(snapshot)]


def history_rows(snapshot: dict[str, Any], per_name: bool) -> list[Row]:
    """Return the rows that a snapshot adds to ``PREFIX_llm_stats_history.csv``."""
    when = {"timestamp": snapshot["now"], "run": snapshot.get("run", ""), "elapsed_s": snapshot.get("elapsed_s", "")}
    head = snapshot.get("head", {})
    rows = []
    for scope, of in _scopes(snapshot):
        if scope == "total" or per_name:
            now = {key: head[key] for key in HEAD if key in head} if scope == "total" else {}
            rows.append(when | _place(scope, of) | now | {f"total_{k}": v for k, v in _figures(of).items()})
    return rows


class CsvFiles:
    """The two files of a prefix, over all runs of a process.

    Args:
        prefix: what Locust's ``--csv`` says.
        per_name: rows of the history for each name too.
    """

    def __init__(self, desk: Desk, prefix: str, per_name: bool) -> None:
        self._desk = desk
        self._stats = Path(f"{prefix}_llm_stats.csv")
        self._history = Path(f"{prefix}_llm_stats_history.csv")
        self._per_name = per_name
        self._over = Event()
        self._writing: gevent.Greenlet[..., None] | None = None
        self._version = 0
        self._begun = False
        self._said: set[Path] = set()

    def begin(self, run: Run) -> None:
        self._stop()
        self._over.clear()
        self._writing = gevent.spawn(self._write_until_over)

    def end(self, run: Run) -> None:
        """Write the last rows, of all that came in."""
        self._stop()
        self._write(stats_too=True)

    def _stop(self) -> None:
        self._over.set()
        if self._writing is not None:
            self._writing.join()
            self._writing = None

    def _write_until_over(self) -> None:
        since_stats_s = stats.CSV_STATS_FLUSH_INTERVAL_SEC  # the header at once
        while not self._over.is_set():
            due = since_stats_s >= stats.CSV_STATS_FLUSH_INTERVAL_SEC
            self._write(stats_too=due)
            since_stats_s = stats.CSV_STATS_INTERVAL_SEC + (0 if due else since_stats_s)
            self._over.wait(stats.CSV_STATS_INTERVAL_SEC)

    def _write(self, stats_too: bool) -> None:
        snapshot = self._desk.snapshot(self._version)
        self._version = snapshot.get("version", 0)  # of no use but to be spared the series
        history = history_rows(snapshot, self._per_name)
        self._in_thread(self._history, lambda: self._append(history))
        if stats_too:
            rows = stats_rows(snapshot)
            self._in_thread(self._stats, lambda: _replace(self._stats, _text(stats_columns(), rows)))

    def _append(self, rows: list[Row]) -> None:
        """Append to the history; the first time in this process it begins anew, as Locust's does."""
        data = _text(history_columns(), rows, header=not self._begun).encode()
        with open(self._history, "ab" if self._begun else "wb", buffering=0) as file:
            begin = file.tell()
            try:
                while data:
                    data = data[file.write(data) :]
            except OSError:  # no half of a row, to which the next one would be joined
                file.truncate(begin)
                raise
        self._begun = True

    def _in_thread(self, path: Path, write: Callable[[], None]) -> None:
        error = gevent.get_hub().threadpool.apply(_tried, (write,))
        if error is not None and path not in self._said:
            self._said.add(path)
            logger.error(
                "--csv: %s cannot be written (%s): rows are missing from it; the run's own log is not touched",
                path, error.strerror,
            )  # fmt: skip


def _scopes(snapshot: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    yield from (("name", row) for row in snapshot.get("names", []))
    yield "total", snapshot.get("total", {})


def _place(scope: str, of: dict[str, Any]) -> Row:
    return {"scope": scope, **{key: of.get(key, "") for key in ("name", "api", "model")}}


def _figures(of: dict[str, Any]) -> Row:
    counts = of.get("counts", {})
    row: Row = {"exchanges": counts.get("exchanges", 0)}
    row |= {outcome: counts.get(outcome, 0) for outcome in OUTCOMES}
    row |= {f"{kind}_tokens": of["tokens"][kind] for kind in TOKENS if kind in of.get("tokens", {})}
    row |= {f"bytes_{way}": of["bytes"][way] for way in ("in", "out") if way in of.get("bytes", {})}
    row |= {k: of[k] for k in _RATES if k in of}
    for figure in FIGURES:
        values = of.get(figure, {})
        row |= {_column(figure, s): values[s] for s in STATISTICS if s in values}
    return row


def _let_locusts_writer_end_quietly() -> None:
    """Locust closes its files and leaves the greenlet that writes them alive.

    If that wakes before the process has ended (with ``--processes``, which waits for the workers), a traceback is the
    last that a good run shows.
    """
    writer: Any = stats.StatsCSVFileWriter
    write = writer.stats_writer
    if hasattr(write, "__wrapped__"):
        return

    @wraps(write)
    def until_closed(self: Any) -> None:
        try:
            write(self)
        except ValueError:
            if not self.requests_csv_filehandle.closed:
                raise

    writer.stats_writer = until_closed


def _column(figure: str, statistic: str) -> str:
    return f"{figure}_{statistic}{'' if statistic == 'count' else FIGURES[figure]}"


def _text(columns: list[str], rows: list[Row], header: bool = True) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    for row in rows:
        writer.writerow({k: round(v, _DIGITS) if isinstance(v, float) else v for k, v in row.items()})
    return out.getvalue()


def _tried(write: Callable[[], None]) -> OSError | None:
    """Return what went wrong; what a thread of the pool raises would be printed with its traceback."""
    try:
        write()
    except OSError as e:
        return e
    return None


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole: a reader never sees half of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
