"""Logs of several workers: what the master has is not read again, and clocks that were off are allowed for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from report_logs import T0_S, stream, write_log

from locust_llm.report.reading import read
from locust_llm.report.workers import ahead_us, offsets_ms

T0_US = T0_S * 1_000_000
HOUR_US = 3_600_000_000


def folder_of(path: Path, records: list[Any], came: int, **details: Any) -> Path:
    """Make a run folder: the master's log has the first ``came`` records of worker ``w1``, its own file all."""
    own = write_log(path / "events-w1.jsonl", records)
    log = write_log(path / "events.jsonl", records[:came])
    lines = own.read_bytes().splitlines(keepends=True)
    one = {"file": "events-w1.jsonl", "received": came, "received_bytes": sum(map(len, lines[:came]))} | details
    card = {"run": "r1", "log_bytes": log.stat().st_size, "worker_details": {"w1": one}}
    (path / "run.json").write_text(json.dumps(card))
    return path


def test_only_the_rest_of_a_workers_file_is_read(tmp_path: Path) -> None:
    records = [stream(i, i) for i in range(10)]
    read_bytes: list[tuple[int, int]] = []
    log = read([folder_of(tmp_path, records, came=7)], lambda done, of: read_bytes.append((done, of)))
    assert sorted(log.seq.tolist()) == list(range(10))
    assert log.damage.doubles == 0
    size = sum(len(record.encode()) for record in records)
    assert read_bytes[-1] == (size, size)


def test_lines_at_fault_in_the_rest_are_named_by_their_place_in_the_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [stream(i, i) for i in range(10)], came=7)
    with open(folder / "events-w1.jsonl", "ab") as file:
        file.write(b"no record\n")
    (example,) = read([folder]).damage.bad_examples
    assert "events-w1.jsonl:11:" in example


def test_a_masters_log_that_has_been_cut_is_not_relied_upon(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [stream(i, i) for i in range(10)], came=7)
    log = folder / "events.jsonl"
    log.write_bytes(log.read_bytes()[:100])
    assert sorted(read([folder]).seq.tolist()) == list(range(10))


def test_without_the_masters_log_the_workers_file_is_read_whole(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [stream(i, i) for i in range(10)], came=7)
    (folder / "events.jsonl").unlink()
    assert len(read([folder])) == 10


def test_a_card_that_says_nonsense_is_ignored(tmp_path: Path) -> None:
    for nonsense in ("x", -5, None, 10**9, 17):
        folder = tmp_path / repr(nonsense)
        folder.mkdir()
        folder_of(folder, [stream(i, i) for i in range(10)], came=7, received_bytes=nonsense, clock=nonsense)
        assert len(read([folder])) == 10


def test_times_of_a_worker_an_hour_ahead_are_moved(tmp_path: Path) -> None:
    records = [stream(i, i + 3600.0, scheduled_us=T0_US + HOUR_US) for i in range(3)]
    clock = [[T0_US + HOUR_US, HOUR_US + 40, 150]]
    log = read([folder_of(tmp_path, records, came=3, clock=clock)])
    assert (log.start_us - T0_US).tolist() == [-40, 999_960, 1_999_960]
    assert log.scheduled_us[0] == T0_US - 40
    assert log.gaps_us[0] == records[0].event_gaps_us[0], "durations are not touched"


def test_other_workers_and_other_runs_stay_where_they_are(tmp_path: Path) -> None:
    records = [stream(0, 1), stream(1, 2, worker="w2"), stream(2, 3, run="r2"), stream(3, 4, worker="w1-preflight")]
    log = read([folder_of(tmp_path, records, came=4, clock=[[T0_US, HOUR_US, 1]])])
    moved = {(log.run.at(i), log.worker.at(i)): int(log.start_us[i] - T0_US) for i in range(4)}
    assert moved[("r1", "w2")] == 2_000_000
    assert moved[("r2", "w1")] == 3_000_000
    assert moved[("r1", "w1")] == 1_000_000 - HOUR_US
    assert moved[("r1", "w1-preflight")] == 4_000_000 - HOUR_US


def at(*seconds: float) -> Any:
    return np.array([T0_US + round(s * 1e6) for s in seconds])


def points(*of: tuple[float, int, int]) -> list[list[int]]:
    return [[T0_US + round(s * 1e6), ahead, uncertain] for s, ahead, uncertain in of]


def test_an_offset_within_its_uncertainty_is_none() -> None:
    assert ahead_us(at(0, 5), points((0, 90, 100), (15, -150, 200))).tolist() == [0, 0]


def test_the_best_point_counts_where_the_others_agree_with_it() -> None:
    found = ahead_us(at(0, 5, 60), points((0, 5_300, 400), (15, 5_010, 50), (30, 4_800, 300)))
    assert found.tolist() == [5_010] * 3


def test_a_clock_that_runs_fast_is_followed() -> None:
    drifting = points(*((s, 1_000 + 50 * s, 20) for s in range(0, 3_600, 15)))
    assert ahead_us(at(-5, 0, 7.5, 1_800), drifting).tolist() == [1_000, 1_000, 1_375, 91_000]


def test_a_point_taken_while_the_worker_stood_still_does_not_count() -> None:
    assert ahead_us(at(20), points((0, 5_000, 100), (15, 204_000, 200_000), (30, 5_050, 100))).tolist() == [5_000]


def test_the_card_says_whose_clock_was_off_and_by_how_much() -> None:
    card = {"worker_details": {"w1": {"clock": points((0, -HOUR_US, 200))}, "w2": {"clock": points((0, 10, 200))}}}
    assert offsets_ms(card) == {"w1": (-3_600_000.0, 0.2)}
