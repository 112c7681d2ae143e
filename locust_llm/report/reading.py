"""Read event logs into columns: whole folders or single files, cut, damaged, doubled, from another version.

The one thing to know: a few megabytes of lines at a time are turned into columns, so the memory is that of the columns.
Blocks in perfect order are read by threads (``arrow_blocks.py``); short logs and all other blocks here, with orjson. A
block that does not fit the schema is taken line by line, and the lines at fault are named.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from ..errors import UsageError
from ..exchange import SCHEMA
from .columns import Damage, Ints, Labels, Log, once
from .growing import Growing
from .labels import Interner
from .members import (
    BOOL_DEFAULTS,
    FLOATS,
    INT_DEFAULTS,
    INTS,
    KIND_CODES,
    LABEL_DEFAULTS,
    LABELS,
    OTHER,
    REQUIRED_LABELS,
)
from .uncertain import of_records
from .workers import cards_beside, master_has, on_masters_clock

if TYPE_CHECKING:
    from .arrow_blocks import ArrowBlocks

_BLOCK_BYTES = 1 << 20
_THREADED_BLOCK_BYTES = 4 << 20
_LEAST_THREADED = 8 << 20  # shorter logs are read before pyarrow is imported
_EXAMPLES = 5
_BLOCKS_A_TRIM = 16

_Record = dict[str, Any]
_Block = dict[str, Any]


Told = Callable[[int, int], None]
"""Called now and then while reading: bytes read, bytes in all."""


def read(sources: Sequence[str | Path], told: Told | None = None) -> Log:
    """Read run folders (their ``events*.jsonl``) or log files into one ``Log``.

    What follows the last LF of a file is cut; lines that are no records are skipped and counted; records that came
    twice (master's and worker's file) are taken once, by (run, worker, seq). All of it is told in ``Log.damage``.
    What a run card says of its workers' files and clocks is applied (``workers``).

    Raises:
        UsageError: a source is missing or cannot be read, or there is not one record in all of them.
    """
    files = find_logs(sources)
    cards = cards_beside(files)
    builder = _Builder(told, {path: master_has(path, cards.get(path.parent)) for path in files})
    for path in files:
        builder.read(path)
    return on_masters_clock(builder.finish(files), cards.values())


def find_logs(sources: Sequence[str | Path]) -> list[Path]:
    """Return the log files of the sources, each once. Raises UsageError if a source gives none."""
    found: dict[Path, Path] = {}
    for source in map(Path, sources):
        if source.is_dir():
            inside = sorted(source.glob("events*.jsonl"))
            if not inside:
                raise UsageError(f"{source}: no events*.jsonl in this folder; give a run folder or log files")
            found.update((path.resolve(), path) for path in inside)
        elif source.exists():
            found[source.resolve()] = source
        else:
            raise UsageError(f"{source}: no such file or folder; give a run folder or its events*.jsonl")
    if not found:
        raise UsageError("nothing to report: give a run folder or its events*.jsonl")
    return list(found.values())


class _Builder:
    """Collects blocks of columns over files; a class because label codes must be shared by all of them."""

    def __init__(self, told: Told | None, known: Mapping[Path, tuple[int, int]]) -> None:
        self.told, self.known, self.bytes = told, known, 0  # known: bytes and lines in front that are not to be read
        self.total = sum(path.stat().st_size - skip for path, (skip, _) in known.items()) if told else 0
        self.blocks: list[_Block] = []
        self.interners = {name: Interner() for name in (*LABELS, "error_kind", "error_message")}
        self.tag_interners: dict[str, Interner] = {}
        self.cut: dict[str, int] = {}
        self.bad = 0
        self.bad_examples: list[str] = []
        self.newest = SCHEMA
        self.threaded: ArrowBlocks | None = None
        self.gaps_us, self.kinds = Growing(np.int32), Growing(np.uint8)

    def read(self, path: Path) -> None:
        number = self.known[path][1] + 1
        try:
            for block, columns in self.read_ahead(path):
                if columns is None:
                    lines = block[:-1].split(b"\n")
                    self.add(path, number, lines)
                    number += len(lines)
                else:
                    self.newest = max(self.newest, columns.pop("newest"))
                    self.keep(self.interned(columns))
                    number += len(columns["seq"])
                if self.told is not None:
                    self.bytes += len(block)
                    self.told(self.bytes, self.total)
        except OSError as e:
            raise UsageError(f"{path}: cannot be read ({e.strerror})") from None

    def read_ahead(self, path: Path) -> Iterator[tuple[bytes, _Block | None]]:
        """Yield the blocks of a file, those of a long one with their columns where they are in perfect order."""
        short = path.stat().st_size - self.known[path][0] < _LEAST_THREADED
        if short or find_spec("pyarrow") is None:
            yield from ((block, None) for block in self.blocks_of(path, _BLOCK_BYTES))
            return
        if self.threaded is None:
            from .arrow_blocks import ArrowBlocks

            self.threaded = ArrowBlocks()
            self.threaded.tag_keys |= _tag_keys(path)
        yield from self.threaded.read(self.blocks_of(path, _THREADED_BLOCK_BYTES))

    def blocks_of(self, path: Path, size: int) -> Iterator[bytes]:
        """Yield whole lines, some at a time; what follows the last LF is noted as cut."""
        with open(path, "rb") as f:
            f.seek(self.known[path][0])
            while block := f.read(size):
                block += f.readline()
                if not block.endswith(b"\n"):
                    block, lf, rest = block.rpartition(b"\n")
                    self.cut[str(path)] = len(rest)
                    block += lf
                if block:
                    yield block

    def interned(self, block: _Block) -> _Block:
        """Return a block of ``arrow_blocks`` with the codes of all blocks."""
        for name, interner in self.interners.items():
            block[name] = interner.recoded(block[name])
        block["tags"] = {
            key: self.tag_interners.setdefault(key, Interner()).recoded(tag) for key, tag in block["tags"].items()
        }
        return block

    def add(self, path: Path, first: int, lines: list[bytes]) -> None:
        records: list[_Record] = []
        numbers: list[int] = []
        for number, line in enumerate(lines, first):
            if not line or line.isspace():
                continue
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError as e:
                self.blame(path, number, f"not JSON ({str(e).split(':')[0]})")
                continue
            if isinstance(record, dict):
                records.append(record)
                numbers.append(number)
            else:
                self.blame(path, number, "not a JSON object")
        schemas = [s for r in records if isinstance(s := r.get("schema"), int)]
        self.newest = max(self.newest, *schemas, SCHEMA)
        try:
            block = self.columns(records)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            block = self.columns([r for r, n in zip(records, numbers, strict=True) if self.fits(path, n, r)])
        self.keep(block)
        if self.threaded is not None:
            self.threaded.tag_keys |= block["tags"].keys()

    def keep(self, block: _Block) -> None:
        self.gaps_us.append(block.pop("gaps_us"))
        self.kinds.append(block.pop("kinds"))
        self.blocks.append(block)
        if len(self.blocks) % _BLOCKS_A_TRIM == 0:
            trim()

    def fits(self, path: Path, number: int, record: _Record) -> bool:
        try:
            self.columns([record])
        except KeyError as e:
            self.blame(path, number, f"no member {e}")
        except (TypeError, ValueError, OverflowError, AttributeError) as e:
            self.blame(path, number, f"not an exchange record ({e})")
        else:
            return True
        return False

    def blame(self, path: Path, number: int, why: str) -> None:
        self.bad += 1
        if len(self.bad_examples) < _EXAMPLES:
            self.bad_examples.append(f"{path}:{number}: {why}")

    def columns(self, records: list[_Record]) -> _Block:
        """Turn records into arrays, or raise if one of them is no record of this schema."""
        block: _Block = {"exchange": np.array([r.get("exchange") or "" for r in records], dtype=object)}
        for name in LABELS:
            block[name] = _codes(self.interners[name], _members(records, name, LABEL_DEFAULTS.get(name)))
        errors = [r.get("error") or {} for r in records]
        for member in ("kind", "message"):
            block[f"error_{member}"] = _codes(self.interners[f"error_{member}"], [e.get(member) for e in errors])
        block["tags"] = self.tags([r.get("tags") or {} for r in records])
        for name in INTS:
            block[name] = _ints([r[name] for r in records])
        for name, default_int in INT_DEFAULTS.items():
            block[name] = _ints(_members(records, name, default_int))
        for name, default_bool in BOOL_DEFAULTS.items():
            block[name] = np.array(_members(records, name, default_bool), dtype=bool)
        for name in FLOATS:
            block[name] = np.array([r.get(name) for r in records], dtype=np.float64)
        if (block["end_us"] < 0).any():
            raise ValueError("end_us is negative")
        block |= _events(records)
        return block | of_records(records, block)

    def tags(self, tags: list[dict[str, str]]) -> dict[str, Any]:
        keys: set[str] = set().union(*tags)
        return {
            key: _codes(self.tag_interners.setdefault(key, Interner()), [t.get(key) for t in tags])
            for key in sorted(keys)
        }

    def finish(self, files: list[Path]) -> Log:
        lengths = [len(b["seq"]) for b in self.blocks]
        if not sum(lengths):
            raise UsageError(self.nothing(files))
        columns: dict[str, Any] = {}
        for name, interner in self.interners.items():
            labels = interner.labels(np.concatenate([b.pop(name) for b in self.blocks]))
            columns[name] = Labels(once(labels.codes), labels.names)
        tags = [b.pop("tags") for b in self.blocks]
        columns["tags"] = {
            key: interner.labels(
                np.concatenate([_or_nulls(t.get(key), n) for t, n in zip(tags, lengths, strict=True)])
            )
            for key, interner in self.tag_interners.items()
        }  # fmt: skip
        trim()
        tokens = [b.pop("tokens") for b in self.blocks]
        columns["tokens"] = None
        if any(t is not None for t in tokens):
            counts = [int(b["event_counts"].sum()) for b in self.blocks]
            columns["tokens"] = np.concatenate([_or_nulls(t, n) for t, n in zip(tokens, counts, strict=True)])
        event_counts = np.concatenate([b.pop("event_counts") for b in self.blocks])
        columns["offsets"] = np.concatenate(([0], np.cumsum(event_counts)))
        columns["unsure_offsets"] = np.concatenate(
            ([0], np.cumsum(np.concatenate([b.pop("unsure_counts") for b in self.blocks])))
        )
        columns["unsure"] = np.concatenate([b.pop("unsure") for b in self.blocks]).reshape(-1, 3)
        for name in list(self.blocks[0]):
            columns[name] = once(np.concatenate([b.pop(name) for b in self.blocks]))
        columns |= {"gaps_us": self.gaps_us.column(), "kinds": self.kinds.column()}
        trim()
        return _without_doubles(Log(**columns, damage=self.damage(files)))

    def damage(self, files: list[Path]) -> Damage:
        return Damage(
            files=tuple(map(str, files)),
            cut_bytes=sum(self.cut.values()),
            cut_files=tuple(self.cut),
            bad_lines=self.bad,
            bad_examples=tuple(self.bad_examples),
            newer_schema=self.newest if self.newest > SCHEMA else None,
        )

    def nothing(self, files: list[Path]) -> str:
        where = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
        if self.newest > SCHEMA:
            return f"{where}: written by a newer locust-llm (schema {self.newest}, this one reads {SCHEMA}); upgrade it"
        if self.bad:
            return f"{where}: not an event log of locust-llm ({self.bad} lines, none readable; {self.bad_examples[0]})"
        cut = f", only {sum(self.cut.values())} bytes of an unfinished line" if self.cut else ""
        return f"{where}: empty log{cut}; no exchange ended while it was written"


def _tag_keys(path: Path) -> set[str]:
    """Return the keys of the first record's tags; others are learnt when a block has them."""
    with open(path, "rb") as f, suppress(orjson.JSONDecodeError, AttributeError):
        return set(orjson.loads(f.readline()).get("tags") or ())
    return set()


def trim() -> None:
    """Give freed memory back to the system: glibc keeps what lies between the arrays, two fifths of the peak."""
    with suppress(OSError, AttributeError, TypeError):  # no glibc here
        ctypes.CDLL(None).malloc_trim(0)


def _events(records: list[_Record]) -> _Block:
    gaps = [r.get("event_gaps_us") or [] for r in records]
    runs = [r.get("kind_runs") or [] for r in records]
    names = [r.get("kind_names") or [] for r in records]
    counts = [len(g) for g in gaps]
    if [sum(r) for r in runs] != counts or [len(r) for r in runs] != [len(n) for n in names]:
        raise ValueError("kind_names, kind_runs and event_gaps_us do not fit each other")
    total = sum(counts)
    flat = np.fromiter(chain.from_iterable(gaps), dtype=np.int64, count=total)
    if total and int(flat.min()) < 0:
        raise ValueError("event_gaps_us has a negative gap")
    codes = np.array([KIND_CODES.get(k, OTHER) for k in chain.from_iterable(names)], dtype=np.uint8)
    repeats = _ints(list(chain.from_iterable(runs)))
    small = not total or int(flat.max()) <= np.iinfo(np.int32).max
    return {
        "event_counts": _ints(counts),
        "gaps_us": flat.astype(np.int32) if small else flat,
        "kinds": np.repeat(codes, repeats),
        "tokens": _event_tokens(records, counts),
    }


def _event_tokens(records: list[_Record], counts: list[int]) -> Any:
    known = [r.get("event_tokens") for r in records]
    if all(k is None for k in known):
        return None
    if any(k is not None and len(k) != n for k, n in zip(known, counts, strict=True)):
        raise ValueError("event_tokens and event_gaps_us have different lengths")
    flat: Iterable[int] = chain.from_iterable(
        [-1] * n if k is None else k for k, n in zip(known, counts, strict=True)
    )  # fmt: skip
    return np.fromiter(flat, dtype=np.int32, count=sum(counts))


def _without_doubles(log: Log) -> Log:
    """Take each (run, worker, seq) once, the first that was read, and count the numbers that are skipped."""
    order = np.lexsort((log.seq, log.worker.codes, log.run.codes))
    run, worker, seq = log.run.codes[order], log.worker.codes[order], log.seq[order]
    same_writer = (np.diff(run) == 0) & (np.diff(worker) == 0)
    steps = np.diff(seq)
    first = np.concatenate(([True], ~(same_writer & (steps == 0))))
    rows = np.zeros(len(log), dtype=bool)
    rows[order[first]] = True  # lexsort is stable: the first of equal keys is the first read
    missing = int((steps[same_writer & (steps > 1)] - 1).sum())
    damage = replace(log.damage, doubles=int((~first).sum()), missing=missing)
    return replace(log.select(rows), damage=damage)


def _members(records: list[_Record], name: str, default: Any) -> list[Any]:
    if name in REQUIRED_LABELS:
        return [r[name] for r in records]
    return [default if (value := r.get(name)) is None else value for r in records]


def _codes(interner: Interner, labels: list[Any]) -> Any:
    return np.fromiter(map(interner.__getitem__, labels), dtype=np.int32, count=len(labels))


def _ints(values: list[Any]) -> Ints:
    return np.fromiter(values, dtype=np.int64, count=len(values))


def _or_nulls(column: Any, length: int) -> Any:
    return np.full(length, -1, dtype=np.int32) if column is None else column
