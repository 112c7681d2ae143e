"""Long logs are read by threads with another reader: it must see what the plain one sees, and blame the same."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from report_logs import record, stream

from locust_llm.exchange import ExchangeError
from locust_llm.report import reading
from locust_llm.report.arrow_blocks import ArrowBlocks
from locust_llm.report.columns import Labels, Log, numbered
from locust_llm.report.growing import Growing


def lines(n: int = 60) -> list[bytes]:
    """Records of all kinds."""
    out = []
    for i in range(n):
        more: dict[str, Any] = {"tags": {"user": f"u{i % 3}", **({"turn": str(i)} if i % 10 == 9 else {})}}
        if i % 4 == 1:
            more |= {"outcome": "timeout", "error": ExchangeError("idle", 'said "no"\n é', "c", 1.5), "n_out": None}
        if i % 4 == 2:
            more |= {
                "streamed": False,
                "stage": i,
                "scheduled_us": 5,
                "name": "ünïcode",
                "text": '"event_gaps_us":[1]',
            }
        if i % 4 == 3:
            more |= {"event_tokens": [0, *[2] * (i % 5), 0, 0, 0]}
        out.append(stream(i, i * 0.1, tokens=i % 5, **more).encode())
    return [*out, record(n).encode()]


def both(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Log, Log]:
    plain = reading.read([path])
    monkeypatch.setattr(reading, "_LEAST_THREADED", 0)
    monkeypatch.setattr(reading, "_THREADED_BLOCK_BYTES", 3000)
    return plain, reading.read([path])


def must_be_equal(one: Log, other: Log) -> None:
    for f in fields(Log):
        a, b = getattr(one, f.name), getattr(other, f.name)
        if isinstance(a, Labels):
            assert [a.at(i) for i in range(len(one))] == [b.at(i) for i in range(len(other))], f.name
        elif f.name == "tags":
            assert a.keys() == b.keys()
            assert all(a[k].at(i) == b[k].at(i) for i in range(len(one)) for k in a), f.name
        elif isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, f.name
            np.testing.assert_array_equal(a, b, f.name)
        else:
            assert a == b, f.name


def test_threads_read_the_same_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(lines()))
    plain, threaded = both(path, monkeypatch)
    assert len(plain) == 61
    must_be_equal(plain, threaded)


def test_a_long_log_is_read_without_pyarrow_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(lines()))
    monkeypatch.setattr(reading, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "locust_llm.report.arrow_blocks", None)  # importing it is an error
    must_be_equal(*both(path, monkeypatch))


def test_the_fast_reader_takes_what_the_client_writes(tmp_path: Path) -> None:
    found = [columns for _, columns in ArrowBlocks().read([stream(i, tags={}).encode() for i in range(9)])]
    assert [len(columns["seq"]) for columns in found if columns] == [1] * 9


def changed(line: bytes, **members: Any) -> bytes:
    record = orjson.loads(line) | members
    return orjson.dumps({k: v for k, v in record.items() if v != "drop"}) + b"\n"


WRONG = [
    b"not json\n", b"\n", b"[]\n", b"5\n", b"{}\n", b'{"a":1}{"b":2}\n',
    changed(lines()[4], seq="drop"), changed(lines()[4], seq=1.5), changed(lines()[4], end_us=-1),
    changed(lines()[4], model=7), changed(lines()[4], model=None), changed(lines()[4], name="drop"),
    changed(lines()[4], event_gaps_us=[1, None]), changed(lines()[4], event_gaps_us=[-1, 2, 3, 4, 5, 6, 7, 8]),
    changed(lines()[4], event_gaps_us=None), changed(lines()[4], event_gaps_us="drop", kind_runs=[], kind_names=[]),
    changed(lines()[4], event_gaps_us=[1, 2]), changed(lines()[4], kind_names=[None, "content"], kind_runs=[1, 7]),
    changed(lines()[4], event_gaps_us=[1, 2, 3, 4, 5, 6, 7, 2**31]), changed(lines()[4], kind_runs=[-1, 9]),
    changed(lines()[4], event_tokens=[1]), changed(lines()[4], event_tokens=[None] * 8),
    changed(lines()[4], tags={"new": "key"}), changed(lines()[4], tags=None), changed(lines()[4], tags={"user": 5}),
    changed(lines()[4], schema=9, later="member"), changed(lines()[4], error={"kind": "x", "message": "y", "z": 1}),
    changed(lines()[4], streamed=None, phase=None, attempt=None, stamp=None, lag_us_max=None),
    changed(lines()[4], streamed=1, status=200.5), changed(lines()[4], kind_names=["new kind"], kind_runs=[8]),
    lines()[4].replace(b'"event_gaps_us":[', b'"event_gaps_us": [ '),
    lines()[4].replace(b'"seq":4', b'"seq":4,"seq":5'),
    lines()[4].replace(b'"chat"', b'"ch\xffat"'), lines()[4].replace(b'"event_gaps_us":[', b'"event_gaps_us":[,'),
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_lines_at_fault_are_blamed_alike(wrong: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    good = lines()
    path.write_bytes(b"".join([*good[:30], wrong, *good[30:]]) + b'{"cut')
    plain, threaded = both(path, monkeypatch)
    assert plain.damage.cut_bytes == 5
    must_be_equal(plain, threaded)


def test_gaps_longer_than_half_an_hour_widen_the_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(
        b"".join([*lines(), changed(lines()[4], seq=99, event_gaps_us=[1, 2, 3, 4, 5, 6, 7, 2**31]), *lines(9)])
    )
    plain, threaded = both(path, monkeypatch)
    must_be_equal(plain, threaded)
    assert plain.gaps_us.dtype == np.int64
    assert plain.gaps_us.max() == 2**31


def test_a_growing_column_is_what_was_appended_whatever_the_lengths() -> None:
    parts = [np.arange(n, dtype=np.int32) for n in (0, 3, 700_000, 1, 600_000, 900_000)]
    column = Growing(np.int32)
    for part in parts:
        column.append(part)
    np.testing.assert_array_equal(column.column(), np.concatenate(parts))


def test_reading_does_not_wait_for_pandas(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(lines()))
    code = (
        "import sys; from pathlib import Path; from locust_llm.report.arrow_blocks import ArrowBlocks\n"
        f"blocks = ArrowBlocks(); blocks.tag_keys |= {{'user', 'turn'}}; text = Path({str(path)!r}).read_bytes()\n"
        "assert all(columns for _, columns in blocks.read([text])) and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numbered_is_numpys_unique_for_small_numbers() -> None:
    codes = np.random.default_rng(3).choice([0, 2, 5, 40], 500).astype(np.int32)
    for ours, numpys in zip(numbered(codes), np.unique(codes, return_inverse=True), strict=True):
        np.testing.assert_array_equal(ours, numpys)
