"""What every export needs: the records a tool would have seen, what was asked for, statistics as the tools take them.

The one thing to know: a key whose figure nobody measured is left out of a file; where a layout demands a value the
format's module says which it writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..columns import Bools, Floats, Ints, Log
from ..definitions import Found, found_by
from ..events import walk
from ..figures import Figures
from ..open_loop import asked_rates
from ..page.card import meta_of, of_dict
from ..runs import Run
from ..window import whole

Content = bytes | Callable[[Path], None]
Files = Iterable[tuple[str, Content]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of a run, as far as its card or its records say: users, lengths (mean, std) in tokens.

    Attributes:
        users: None where unknown, and in an open loop: there they carry the arrivals and bound nothing.
        rate: arrivals a second of an open loop, None in a closed one.
        burstiness: of the arrivals, 1 for Poisson; None where there is no such number (constant, several streams).
    """

    users: int | None
    n_in: int
    std_in: int
    n_out: int
    std_out: int
    rate: float | None = None
    burstiness: float | None = 1.0


@dataclass(frozen=True, slots=True)
class Source:
    """One run as an exporter sees it.

    Attributes:
        rows: exchanges that finished (ok or failed), in order of their start.
        found: what the tool's rules make of each record.
        start_us, seconds: the window: first start to last end of these.
    """

    run: Run
    log: Log
    figures: Figures
    found: Found
    rows: Ints
    start_us: int
    seconds: float
    model: str
    asked: Asked

    @property
    def ok(self) -> Bools:
        """Which of ``rows`` the tool counts as valid."""
        valid: Bools = self.found.valid[self.rows]
        return valid

    def per_request(self, name: str) -> Floats:
        """Return a figure of the valid rows."""
        return self.found.per_request[name][self.rows[self.ok]]

    def column(self, values: Any) -> Any:
        """Return some column of the valid rows."""
        return values[self.rows[self.ok]]

    @property
    def kind(self) -> str:
        """``chat`` or ``completions``."""
        return "completions" if "completion" in self.api else "chat"

    @property
    def api(self) -> str:
        return next(iter(self.log.api.counts(self.figures.counted)), "openai-chat")

    @property
    def streamed(self) -> bool:
        """Whether any valid exchange was streamed."""
        return bool(self.log.streamed[self.rows[self.ok]].any())

    @property
    def meta(self) -> dict[str, str]:
        return meta_of(self.run.card)

    @property
    def address(self) -> str:
        host = self.run.card.get("host")
        return host if isinstance(host, str) else ""


def source(run: Run, tool: str) -> Source:
    """Return a run under a tool's rules."""
    overall = run.analysis.overall
    log, figures = overall.log, overall.figures
    rows = np.flatnonzero(figures.counted & (figures.ok | figures.failed))
    rows = rows[np.argsort(log.start_us[rows], kind="stable")]
    window = whole(log, figures)
    models = log.model.counts(figures.counted)
    return Source(
        run=run, log=log, figures=figures, found=found_by(tool, log, figures), rows=rows, start_us=window.start_us,
        seconds=window.duration_s, model=next(iter(models), "model"), asked=_asked(run, log, figures),
    )  # fmt: skip


def event_gaps(log: Log, kinds: frozenset[str], rows: Bools) -> dict[int, Floats]:
    """Return, for each of the rows, the seconds between its events of ``kinds``."""
    gaps: dict[int, Floats] = {}
    for events in walk(log, kinds, rows):
        for row, of_row in zip(events.rows.tolist(), np.split(events.gaps_us(), events.starts[1:]), strict=True):
            gaps[row] = of_row[1:] / 1e6
    return gaps


def statistics(values: Floats, percentiles: Sequence[int], scale: float = 1.0, ddof: int = 0) -> dict[str, float]:
    """Return ``avg min max std pN``, linear percentiles, without NaN; {} of nothing."""
    known = values[~np.isnan(values)] * scale
    if not len(known):
        return {}
    out = {"avg": float(known.mean()), "min": float(known.min()), "max": float(known.max())}
    if len(known) > ddof:
        out["std"] = float(known.std(ddof=ddof))
    taken = np.percentile(known, list(percentiles))
    return out | {f"p{p}": float(v) for p, v in zip(percentiles, taken, strict=True)}


def whole_or_none(value: float) -> int | None:
    """Return a count as an integer, None where it is NaN."""
    return None if np.isnan(value) else int(value)


def slug(text: str, pattern: str = r"[^\w.-]+", by: str = "_") -> str:
    """Return text that can be part of a file's name."""
    return re.sub(pattern, by, text) or by


def _asked(run: Run, log: Log, figures: Figures) -> Asked:
    load, lengths = of_dict(run.card, "load"), of_dict(run.card, "lengths")
    users = load.get("users")
    n_in = _length(lengths, "input_tokens", log.asked_in, log.n_in, figures.counted)
    n_out = _length(lengths, "output_tokens", log.asked_out, figures.n, figures.counted)
    known = int(users) if isinstance(users, int | float) and users > 0 else None
    rates = asked_rates(run.card)
    if not rates:
        return Asked(known, *n_in, *n_out)
    return Asked(None, *n_in, *n_out, sum(rates.values()), _burstiness(run.card))


def _burstiness(card: dict[str, Any]) -> float | None:
    streams = of_dict(of_dict(card, "arrivals"), "asked").values()
    processes = [str(one.get("process")) for one in streams if isinstance(one, dict)]
    if all(process.startswith("poisson") for process in processes):
        return 1.0  # Poisson streams together are one
    given = re.search(r"burstiness (\d+(?:\.\d+)?)$", processes[0]) if len(processes) == 1 else None
    return float(given[1]) if given else None


def _length(lengths: dict[str, Any], key: str, asked: Floats, got: Floats, rows: Bools) -> tuple[int, int]:
    """Return mean and deviation: as given in the card, else of the records' asked lengths, else of what came."""
    given = re.fullmatch(r"(\d+)(?:,(\d+))?", str(lengths.get(key) or ""))
    if given and not lengths.get("prompts"):
        return int(given[1]), int(given[2] or 0)
    for column in (asked, got):
        known = column[rows & ~np.isnan(column)]
        if len(known):
            return round(float(known.mean())), round(float(known.std()))
    return 0, 0
