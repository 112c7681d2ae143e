"""Blocks of log lines to columns with pyarrow's JSON reader, several at once in threads: the fast way to read a log.

The one thing to know: it takes only blocks that are in perfect order (members and types of our schema, tag keys that
were seen before) and refuses all others whole; ``reading.py`` then takes these line by line and says what is wrong.
Its columns equal those of the slow way, but labels come as ``Coded``, a dictionary of each block. The gaps, most of a
record, are cut out before and read as one long text: that halves the time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from .columns import Bools, Ints
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
from .uncertain import fit

MOST_THREADS = 8

_STRINGS = ("exchange", "response_id", "prompt", "text")
_GAPS = b'"event_gaps_us":['
_NO_GAPS = b'"event_gaps_us":[]'
_ERROR = ("kind", "message", "code")


@dataclass(frozen=True, slots=True)
class Coded:
    """Labels of a block: codes (-1: null) into its own names."""

    codes: npt.NDArray[np.int32]
    names: list[str]


class Refused(Exception):
    """The block is not in perfect order."""


class ArrowBlocks:
    """Reads blocks ahead of who takes them; a class because what is read ahead depends on the tag keys seen so far."""

    def __init__(self) -> None:
        self.tag_keys: set[str] = set()

    def read(self, blocks: Iterable[bytes]) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
        """Yield each block with its columns, None if it was refused, in order.

        Parameters:
            blocks: whole lines, each with its LF.
        """
        threads = min(os.cpu_count() or 1, MOST_THREADS)
        ahead: deque[tuple[bytes, Future[dict[str, Any]]]] = deque()
        pool = ThreadPoolExecutor(threads, thread_name_prefix="read")
        try:
            for block in blocks:
                ahead.append((block, pool.submit(self.columns, block, frozenset(self.tag_keys))))
                if len(ahead) > threads:
                    yield self._next(ahead)
            while ahead:
                yield self._next(ahead)
        finally:
            pool.shutdown(cancel_futures=True)

    @staticmethod
    def _next(ahead: deque[tuple[bytes, Future[dict[str, Any]]]]) -> tuple[bytes, dict[str, Any] | None]:
        block, future = ahead.popleft()
        try:
            return block, future.result()
        except (Refused, pa.ArrowException, UnicodeDecodeError):
            return block, None

    def columns(self, block: bytes, tag_keys: frozenset[str]) -> dict[str, Any]:
        """Return the columns of a block. Raises Refused or an error of pyarrow if it is not in perfect order."""
        head, *pieces = block.split(_GAPS)
        parts = [piece.partition(b"]") for piece in pieces]
        texts = [text for text, _, _ in parts]
        rest = _NO_GAPS.join([head, *(after for _, _, after in parts)])
        table = pyarrow.json.read_json(
            pa.BufferReader(rest),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(rest) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=self._schema(tag_keys), unexpected_field_behavior="error"
            ),
        )
        if not table.num_rows == len(texts) == block.count(b"\n") or table.column("event_gaps_us").null_count:
            raise Refused
        of = {name: _whole(table.column(name)) for name in table.column_names}
        columns = self._plain(of) | self._labels(of) | _events(of, texts)
        return columns | _unsure(of["uncertain_reads"], columns)

    def _schema(self, tag_keys: frozenset[str]) -> pa.Schema:
        text, whole = pa.string(), pa.int64()
        error = pa.struct([*((name, text) for name in _ERROR), ("retry_after_s", pa.float64())])
        ints, texts = pa.list_(pa.int32()), pa.list_(text)
        return pa.schema([
            *((name, text) for name in (*LABELS, *_STRINGS)),
            *((name, whole) for name in ("schema", *INTS, *INT_DEFAULTS, *FLOATS)),
            *((name, pa.bool_()) for name in BOOL_DEFAULTS),
            ("error", error), ("tags", pa.struct([(key, text) for key in sorted(tag_keys)])),
            ("event_gaps_us", ints), ("kind_names", texts), ("kind_runs", ints), ("event_tokens", ints),
            ("uncertain_reads", ints),
        ])  # fmt: skip

    def _plain(self, of: dict[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {"newest": pc.max(of["schema"]).as_py() or 0}
        out["exchange"] = np.array([exchange or "" for exchange in of["exchange"].to_pylist()], dtype=object)
        for name in INTS:
            if of[name].null_count:
                raise Refused
            out[name] = _numbers(of[name])
        for name, default in (INT_DEFAULTS | BOOL_DEFAULTS).items():
            out[name] = _numbers(of[name], default)
        for name in FLOATS:
            out[name] = _numbers(of[name], np.nan)
        if (out["end_us"] < 0).any():
            raise Refused
        return out

    def _labels(self, of: dict[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name in LABELS:
            if of[name].null_count and name in REQUIRED_LABELS:
                raise Refused
            out[name] = _coded(of[name], LABEL_DEFAULTS.get(name))
        for name in ("kind", "message"):
            out[f"error_{name}"] = _coded(pc.struct_field(of["error"], name))
        keys = [field.name for field in of["tags"].type]
        tags = {key: _coded(pc.struct_field(of["tags"], key)) for key in keys}
        out["tags"] = {key: tag for key, tag in tags.items() if tag.names}
        return out


def _gaps(texts: list[bytes]) -> tuple[npt.NDArray[np.int32], Ints]:
    """Return the numbers of all lists and how many each has."""
    counts = np.array([text.count(b",") + 1 if text else 0 for text in texts], dtype=np.int64)
    joined = b",".join(filter(None, texts))
    try:
        gaps = np.fromstring(joined, dtype=np.int64, sep=",") if joined else np.zeros(0, dtype=np.int64)
    except (ValueError, DeprecationWarning):
        raise Refused from None
    if len(gaps) != counts.sum() or gaps.min(initial=0) < 0 or gaps.max(initial=0) > np.iinfo(np.int32).max:
        raise Refused
    return gaps.astype(np.int32), counts


def _events(of: dict[str, Any], texts: list[bytes]) -> dict[str, Any]:
    gaps, counts = _gaps(texts)
    runs, run_counts = _list(of["kind_runs"])
    names, name_counts = _list_of(of["kind_names"])
    kinds = _coded(names)
    ends = np.concatenate(([0], np.cumsum(runs)))[np.concatenate(([0], np.cumsum(run_counts)))]
    if (np.diff(ends) != counts).any() or (run_counts != name_counts).any():
        raise Refused
    if runs.min(initial=0) < 0 or (kinds.codes < 0).any():
        raise Refused
    codes = np.array([KIND_CODES.get(name, OTHER) for name in kinds.names], dtype=np.uint8)
    return {
        "event_counts": counts,
        "gaps_us": gaps,
        "kinds": np.repeat(codes[kinds.codes], runs),
        "tokens": _tokens(of["event_tokens"], counts),
    }


def _tokens(column: Any, counts: Ints) -> npt.NDArray[np.int32] | None:
    if column.null_count == len(column):
        return None
    values, lengths = _list(column)
    known = _there(column)
    if (lengths[known] != counts[known]).any():
        raise Refused
    out = np.full(int(counts.sum()), -1, dtype=np.int32)
    out[np.repeat(known, counts)] = values
    return out


def _unsure(column: Any, of: dict[str, Any]) -> dict[str, Any]:
    if (of["late_joined"][~_there(column)] > 0).any():
        raise Refused  # records of before that member
    flat, numbers = _list(column)
    flat = flat.astype(np.int64)
    if not fit(flat, numbers, of["event_counts"]):
        raise Refused
    return {"unsure": flat, "unsure_counts": numbers // 3}


def _whole(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _coded(column: Any, default: str | None = None) -> Coded:
    """Return labels, null being ``default``."""
    coded = column.dictionary_encode()
    codes, names = _numbers(coded.indices, -1), coded.dictionary.to_pylist()
    if default is not None and column.null_count:
        codes[codes < 0] = len(names)
        names.append(default)
    return Coded(codes, names)


def _numbers(column: Any, null: float | None = None) -> Any:
    """Return the values of a column of numbers or booleans, as float64 if ``null`` is one.

    Made from arrow's buffers: its own ``to_numpy`` and ``fill_null`` import pandas, which takes 0.2 s.
    """
    valid, data = column.buffers()
    if column.type == pa.bool_():
        out = _bits(data, column)
    else:
        kind = np.dtype(str(column.type))
        values: Any = np.frombuffer(data, kind, len(column), column.offset * kind.itemsize) if len(column) else []
        out = np.array(values, dtype=np.float64 if isinstance(null, float) else kind)
    if column.null_count:
        out[~_bits(valid, column)] = null
    return out


def _there(column: Any) -> Bools:
    """Which rows are not null."""
    return _bits(column.buffers()[0], column) if column.null_count else np.ones(len(column), dtype=bool)


def _bits(buffer: Any, column: Any) -> Bools:
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), count=column.offset + len(column), bitorder="little")
    return bits[column.offset :].astype(bool)


def _list(column: Any) -> tuple[Any, Ints]:
    """Return the numbers of all lists and how many each has; null is an empty list."""
    values, counts = _list_of(column)
    return _numbers(values), counts


def _list_of(column: Any) -> tuple[Any, Ints]:
    values = column.flatten()
    if values.null_count:
        raise Refused
    return values, _numbers(pc.list_value_length(column), 0).astype(np.int64)
