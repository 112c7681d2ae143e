"""After the run: from the event log to figures, a verdict, a table and ``summary.json``.

Needs nothing of a running test: neither gevent nor Locust is imported here, and a single worker's file is enough. The
order of the story is ``reading`` → ``figures`` → ``window`` → ``summary`` (with ``stats``, ``rates``, ``verdict``) →
``table`` and ``html``; ``command`` puts it behind ``locust-llm report``. What each number means is docs/metrics.md.

For notebooks: ``locust_llm.report.load(run)`` and ``locust_llm.report.metrics(run, …)`` give pandas frames
(docs/notebook.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import metrics as _names  # noqa: F401  bound before the function of the same name, so that this one stays

if TYPE_CHECKING:
    import pandas as pd

    from .frames import Frames

__all__ = ["load", "metrics"]

Source = str | Path | Sequence[str | Path]


def load(run: Source, events: bool = True) -> Frames:
    """Read a run folder or log files into pandas frames; see ``frames.load``."""
    from .frames import load as read

    return read(run, events)


def metrics(*runs: Source, window: str = "steady") -> pd.DataFrame:
    """Return the figures of runs as a tidy frame; see ``frames.metrics``."""
    from .frames import metrics as tidy

    return tidy(*runs, window=window)
