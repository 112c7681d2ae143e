"""The event log as columns: one ``Log`` holds numpy arrays, a row per record.

The one thing to know: NaN (floats) and -1 (label codes, tokens of an event) mean *null in the record*; they never leave
this package as numbers. Events are ragged: those of record ``i`` are ``gaps_us[offsets[i]:offsets[i + 1]]``, and the
same for ``kinds`` and ``tokens``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..wire import answer

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

KINDS = (
    answer.ROLE, answer.EMPTY, answer.CONTENT, answer.REASONING, answer.REFUSAL,
    answer.TOOL, answer.FINISH, answer.USAGE, answer.DONE, answer.OTHER,
)  # fmt: skip
"""Event kinds; the position is the code in ``Log.kinds``. A kind of a later version is read as ``other``."""


OF_EVENTS = ("offsets", "gaps_us", "kinds", "tokens", "unsure", "unsure_offsets")


def kind_table(kinds: frozenset[str]) -> Bools:
    """Return an array that maps a kind code to whether it is one of ``kinds``."""
    return np.array([kind in kinds for kind in KINDS])


@dataclass(frozen=True, slots=True)
class Labels:
    """A column of strings: ``codes`` into ``names``, -1 where the record has null."""

    codes: npt.NDArray[np.int32]
    names: tuple[str, ...]

    def isin(self, *names: str) -> Bools:
        """Rows whose label is one of ``names``."""
        wanted = [i for i, name in enumerate(self.names) if name in names]
        return np.isin(self.codes, wanted)

    def counts(self, rows: Bools) -> dict[str, int]:
        """How often each label stands in ``rows`` (a mask); null is left out. Most frequent first."""
        codes = self.codes[rows]
        numbers = np.bincount(codes[codes >= 0], minlength=len(self.names)).tolist()
        found = [(name, n) for name, n in zip(self.names, numbers, strict=True) if n]
        return dict(sorted(found, key=lambda item: (-item[1], item[0])))

    def at(self, row: int) -> str | None:
        """The label of one row."""
        code = int(self.codes[row])
        return None if code < 0 else self.names[code]


@dataclass(frozen=True, slots=True)
class Damage:
    """What was wrong with the files; nothing is dropped without standing here."""

    files: tuple[str, ...] = ()
    cut_bytes: int = 0
    """Bytes after the last LF of a file: a record that was being written when its process ended."""
    cut_files: tuple[str, ...] = ()
    bad_lines: int = 0
    bad_examples: tuple[str, ...] = ()
    """``FILE:LINE: why`` of the first few lines that are no records."""
    doubles: int = 0
    missing: int = 0
    """Records whose sequence number is skipped between a worker's first and last."""
    newer_schema: int | None = None
    """The highest schema found, if above ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Records as columns. Times are µs: ``start_us`` and ``scheduled_us`` epoch, the rest offsets from the start."""

    run: Labels
    worker: Labels
    name: Labels
    user_class: Labels
    api: Labels
    model: Labels
    phase: Labels
    outcome: Labels
    finish_reason: Labels
    out_source: Labels
    in_source: Labels
    stamp: Labels
    error_kind: Labels
    error_message: Labels
    tags: dict[str, Labels]

    exchange: npt.NDArray[np.object_]
    seq: Ints
    attempt: Ints
    start_us: Ints
    end_us: Ints
    pings: Ints
    bytes_in: Ints
    bytes_out: Ints
    lag_us_max: Ints
    uncertain_us_max: Ints
    late_joined: Ints
    resent: Ints
    streamed: Bools
    reused: Bools

    stage: Floats
    status: Floats
    scheduled_us: Floats
    dns_us: Floats
    tcp_us: Floats
    tls_us: Floats
    connected_us: Floats
    sent_us: Floats
    headers_us: Floats
    n_out: Floats
    n_reasoning: Floats
    n_in: Floats
    n_cached: Floats
    asked_in: Floats
    asked_out: Floats

    offsets: Ints
    """Shape (records + 1,)."""
    gaps_us: npt.NDArray[np.int32] | Ints
    """First entry of a record: its first event's offset from the start; then gaps. int32 where all of them fit."""
    kinds: npt.NDArray[np.uint8]
    tokens: npt.NDArray[np.int32] | None
    """Tokens of each event, -1 where unknown; None if no record of the log knows them."""
    unsure: Ints
    """Shape (n, 3): first event, number of events, by how many us their stamps may be too late."""
    unsure_offsets: Ints
    """Shape (records + 1,): those of record ``i`` are ``unsure[unsure_offsets[i]:unsure_offsets[i + 1]]``."""

    damage: Damage = field(default_factory=Damage)

    def __len__(self) -> int:
        return len(self.seq)

    def select(self, rows: Bools) -> Log:
        """Return the log of the records in ``rows`` (a mask), in the same order."""
        if rows.all():
            return self
        lengths = np.diff(self.offsets)
        events = np.repeat(rows, lengths)
        return replace(
            self.without_events(rows),
            offsets=np.concatenate(([0], np.cumsum(lengths[rows]))),
            gaps_us=self.gaps_us[events],
            kinds=self.kinds[events],
            tokens=None if self.tokens is None else self.tokens[events],
            unsure=self.unsure[np.repeat(rows, np.diff(self.unsure_offsets))],
            unsure_offsets=np.concatenate(([0], np.cumsum(np.diff(self.unsure_offsets)[rows]))),
        )

    def without_events(self, rows: Bools | Ints) -> Log:
        """Return some records (a mask or row numbers) without their events: cheap, however long the log is."""
        new: dict[str, Any] = {}
        for f in fields(self):
            old = getattr(self, f.name)
            if isinstance(old, Labels):
                new[f.name] = Labels(_taken(old.codes, rows), old.names)
            elif f.name == "tags":
                new[f.name] = {key: Labels(_taken(tag.codes, rows), tag.names) for key, tag in old.items()}
            elif f.name not in OF_EVENTS and f.name != "damage":
                new[f.name] = _taken(old, rows)
        none = np.zeros(len(new["seq"]) + 1, dtype=np.int64)
        return Log(
            **new, offsets=none, gaps_us=self.gaps_us[:0], kinds=self.kinds[:0], tokens=None,
            unsure=self.unsure[:0], unsure_offsets=none, damage=self.damage,
        )  # fmt: skip


def once(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column that holds its value once if all rows have the same; half of the columns of a log do."""
    first = column[:1]
    if len(column) < 2 or column.dtype == object:
        return column
    alike = (column == first).all() or (column.dtype.kind == "f" and np.isnan(column).all())
    return np.broadcast_to(first.copy(), column.shape) if alike else column


def numbered(codes: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the distinct codes, rising, and which of them each is: ``np.unique`` for small numbers, without a sort."""
    there = np.bincount(codes) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[codes]


def _taken(column: npt.NDArray[Any], rows: Bools | Ints) -> npt.NDArray[Any]:
    if column.strides == (0,):
        size = int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)
        return np.broadcast_to(column[:1], size)
    return column[rows]
