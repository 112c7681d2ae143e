"""Several runs at once, for the curve, the leaderboard and the exports: each read, judged and summed up on its own.

The one thing to know: a folder is a run; two folders with the same run id are parts of one run (workers' logs), and
those are merged by ``reading``, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ..errors import UsageError
from ..exchange import MEASURE
from .columns import Log
from .cost import prices
from .limits import limits_of_card
from .objectives import goal_of_card
from .page.card import meta_of
from .progress import bar
from .reading import find_logs, read, trim
from .summary import Analysis, analyse, load_card, summary_of
from .window import STEADY

Prices = tuple[float | None, float | None, float | None]
HeldTo = tuple[str | None, str | None, int | None]


@dataclass(frozen=True, slots=True)
class Run:
    """One run, analysed."""

    source: Path
    analysis: Analysis
    summary: dict[str, Any]

    @property
    def card(self) -> dict[str, Any]:
        return self.analysis.card


def load_run(
    sources: Sequence[str | Path],
    window: str = STEADY,
    where: Sequence[str] = (),
    priced: Prices = (None, None, None),
    held_to: HeldTo = (None, None, None),
    limits: str | None = None,
) -> Run:
    """Read one run, from its folder or its log files.

    Parameters:
        priced: prices (input, output, hour); None where the run card's meta may say it.
        held_to: objectives, limits of goodput, exit code for undecided; None where the run card says it.
        limits: those of the verdict (``limits.read_limits``); None: what the run card says.

    Raises:
        UsageError: nothing to read, nothing measured, or no such window.
    """
    with bar() as told:
        log = read(sources, told)
    must_have_exchanges(log, sources)
    card = load_card(sources)
    analysis = analyse(log, card, window, where, goal_of_card(card, *held_to), limits_of_card(card, limits))
    trim()
    return Run(Path(sources[0]), analysis, summary_of(analysis, prices(*priced, meta_of(card))))


def given(sources: Sequence[str | Path]) -> list[Path]:
    """Return the sources; beside folders, files that are no logs are left out: ``reports/*`` is all the runs in it."""
    paths = [Path(s) for s in sources]
    folders = any(path.is_dir() for path in paths)
    return [path for path in paths if not folders or path.suffix == ".jsonl" or not path.is_file()]


def are_several(sources: Sequence[str | Path]) -> bool:
    """Whether the sources are folders of more than one run."""
    if len(sources) < 2 or not all(Path(s).is_dir() for s in sources):
        return False
    return len({_first_run(s) for s in sources}) > 1


def must_have_exchanges(log: Log, sources: Sequence[str | Path]) -> None:
    """Raise UsageError if a log has nothing that was measured."""
    if not log.phase.isin(MEASURE).any():
        others = ", ".join(f"{n} {phase}" for phase, n in log.phase.counts(log.seq >= 0).items())
        raise UsageError(f"{sources[0]}: zero exchanges were measured (the log has {others}); nothing to report")


def _first_run(folder: str | Path) -> str:
    """Return the run id of a folder's first record; the folder itself where that cannot be read."""
    try:
        with open(find_logs([folder])[0], "rb") as f:
            record = orjson.loads(f.readline())
        return str(record["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(Path(folder).resolve())
