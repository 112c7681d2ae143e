"""The log as plain tables: exchanges (a row each, every member and figure) and token events, as Parquet or CSV.

The one thing to know: times of the record keep their names and units (µs), figures are seconds; an empty cell is a
figure that is absent. Events are written in blocks, so memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..frames import event_blocks, exchanges
from ..runs import Run
from .common import Files, slug


def parquet(runs: Sequence[Run]) -> Files:
    """Return ``exchanges.parquet`` and ``events.parquet`` of each run."""
    return _tables(runs, "parquet", _parquet)


def csv(runs: Sequence[Run]) -> Files:
    """Return ``exchanges.csv`` and ``events.csv`` of each run."""
    return _tables(runs, "csv", _csv)


_Write = Callable[[Path, Any], None]


def _tables(runs: Sequence[Run], suffix: str, write: _Write) -> Files:
    for run in runs:
        below = "" if len(runs) == 1 else slug(run.summary["run"]) + "/"
        yield f"{below}exchanges.{suffix}", partial(_exchanges, run, write)
        yield f"{below}events.{suffix}", partial(_events, run, write)


def _exchanges(run: Run, write: _Write, path: Path) -> None:
    overall = run.analysis.overall
    write(path, [exchanges(overall.log, overall.figures)])


def _events(run: Run, write: _Write, path: Path) -> None:
    write(path, event_blocks(run.analysis.overall.log))


def _csv(path: Path, frames: Any) -> None:
    with open(path, "w", encoding="utf-8", newline="") as f:
        for i, frame in enumerate(frames):
            frame.to_csv(f, index=False, header=i == 0)


def _parquet(path: Path, frames: Any) -> None:
    try:
        import pyarrow
        from pyarrow import parquet as pq
    except ImportError:
        raise UsageError("--to parquet needs the package pyarrow (pip install pyarrow)") from None
    writer = None
    try:
        for frame in frames:
            table = pyarrow.Table.from_pandas(frame, preserve_index=False)
            writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
    finally:
        if writer:
            writer.close()
