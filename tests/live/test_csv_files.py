"""The rows that a snapshot gives to the CSV files, and what becomes of them on a disk that does not want them."""

from __future__ import annotations

import csv
import logging
import re
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from locust import stats
from locust.env import Environment
from snapshots import snapshot

from locust_llm.live import csv_files
from locust_llm.live.csv_files import CsvFiles, history_columns, history_rows, stats_columns, stats_rows

DOCS = (Path(__file__).parents[2] / "docs" / "live.md").read_text()


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def files(folder: Path, per_name: bool = False, **more: Any) -> CsvFiles:
    desk: Any = SimpleNamespace(snapshot=lambda since: snapshot(("chat", 'a "b",\nc'), failed=3, **more))
    return CsvFiles(desk, str(folder / "p"), per_name)


def finish(one: CsvFiles) -> None:
    run: Any = None
    one.begin(run)
    one.end(run)


def test_rows_hold_nothing_that_has_no_column() -> None:
    of = snapshot(failed=3)
    assert set().union(*stats_rows(of)) <= set(stats_columns())
    assert set().union(*history_rows(of, per_name=True)) <= set(history_columns()) | {
        f"total_{name}" for name in stats_columns()
    }
    for columns in (stats_columns(), history_columns()):
        assert len(columns) == len(set(columns))


def test_stats_have_a_row_a_name_and_one_in_total_with_figures_where_there_are_any(tmp_path: Path) -> None:
    finish(files(tmp_path))
    rows = read(tmp_path / "p_llm_stats.csv")
    assert [(r["scope"], r["name"]) for r in rows] == [("name", "chat"), ("name", 'a "b",\nc'), ("total", "")]
    assert (rows[0]["exchanges"], rows[0]["ok"], rows[0]["timeout"], rows[0]["failed"]) == ("57", "54", "3", "3")
    assert (rows[0]["ttft_p95_ms"], rows[0]["ttft_count"]) == ("50.94", "57")
    assert (rows[0]["tpot_p95_ms"], rows[0]["reasoning_tokens"]) == ("", "")
    assert len(list(tmp_path.iterdir())) == 2


def test_the_history_is_in_total_unless_names_are_asked_for(tmp_path: Path) -> None:
    finish(files(tmp_path))
    assert {r["scope"] for r in read(tmp_path / "p_llm_stats_history.csv")} == {"total"}
    finish(files(tmp_path, per_name=True))
    rows = read(tmp_path / "p_llm_stats_history.csv")
    assert [r["scope"] for r in rows[:3]] == ["name", "name", "total"]
    assert (rows[0]["in_flight"], rows[0]["total_ok"], rows[2]["in_flight"]) == ("", "54", "8")


def test_a_second_run_of_the_process_is_appended_a_second_process_begins_anew(tmp_path: Path) -> None:
    one = files(tmp_path)
    finish(one)
    before = len(read(tmp_path / "p_llm_stats_history.csv"))
    finish(one)
    assert len(read(tmp_path / "p_llm_stats_history.csv")) > before
    finish(files(tmp_path))
    assert len(read(tmp_path / "p_llm_stats_history.csv")) == before


def test_a_file_that_cannot_be_written_is_named_once_and_the_other_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "p_llm_stats.csv").mkdir()
    one = files(tmp_path)
    with caplog.at_level(logging.ERROR):
        finish(one)
        finish(one)
    (message,) = [record.getMessage() for record in caplog.records]
    assert re.match(r"--csv: .*p_llm_stats.csv cannot be written \(Is a directory\)", message)
    assert len(read(tmp_path / "p_llm_stats_history.csv")) >= 2
    assert not list(tmp_path.glob(".*"))


def test_a_disk_that_fills_up_costs_rows_but_no_half_row_and_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    one = files(tmp_path)
    one._write(stats_too=True)
    history, whole = tmp_path / "p_llm_stats_history.csv", (tmp_path / "p_llm_stats.csv").read_text()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (history.stat().st_size + 40, before[1]))
        with caplog.at_level(logging.ERROR):
            one._write(stats_too=True)
            one._write(stats_too=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    one._write(stats_too=True)
    assert [None in row.values() or None in row for row in read(history)] == [False, False]
    assert (tmp_path / "p_llm_stats.csv").read_text() == whole
    assert len([r for r in caplog.records if "cannot be written" in r.getMessage()]) <= 2
    assert caplog.records
    assert "Traceback" not in "".join(capfd.readouterr())


def test_the_document_names_the_columns() -> None:
    named = set(re.findall(r"`([a-z0-9_]+)`", DOCS))
    plain = {c for c in (*stats_columns(), *history_columns()) if not re.search(r"_(count|mean|min|max|p\d+)", c)}
    spelled = {f"total_{kind}_tokens" for kind in csv_files.TOKENS} | set(csv_files.OUTCOMES)
    assert plain - spelled <= named


def test_locusts_writer_ends_quietly_when_locust_has_closed_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a good run of several processes ends with a traceback: they are waited for while that greenlet lives on."""
    monkeypatch.setattr(stats, "CSV_STATS_INTERVAL_SEC", 0.01)
    environment: Any = Environment()
    prefix = str(tmp_path / "p")
    environment.parsed_options = SimpleNamespace(csv_prefix=prefix, stats_history_enabled=False)
    desk: Any = SimpleNamespace(on_run=lambda begin, end: None)
    for _ in range(2):
        csv_files.attach(environment, desk)
    writer: Any = stats.StatsCSVFileWriter(environment, stats.PERCENTILES_TO_REPORT, prefix)
    writing = gevent.spawn(writer.stats_writer)
    gevent.sleep(0.03)
    writer.close_files()
    writing.join(10)
    assert writing.successful()
    assert "Aggregated" in Path(f"{prefix}_stats.csv").read_text()
