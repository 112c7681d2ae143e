"""Runs in a notebook: frames that join, figures that are those of the summary, and pandas only when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import orjson
import pandas as pd
import pytest
from report_logs import T0_S, record, stream, write_log

import locust_llm.report
from locust_llm.errors import UsageError
from locust_llm.report.summary import report


@pytest.fixture
def run(tmp_path):
    records = [
        stream(i, i * 0.1, 50 + i, tokens=5, name="ab"[i % 2], tags={"user": "u", "turn": str(i % 3)})
        for i in range(50)
    ]
    records.append(record(60, 2.0, end_ms=9, outcome="empty"))
    write_log(tmp_path / "events.jsonl", records)
    events = [
        {"t": T0_S, "event": "test_start"},
        {"t": T0_S + 1.0, "event": "ramp_complete"},
        {"t": T0_S + 4, "event": "stop"},
    ]
    (tmp_path / "run.json").write_bytes(orjson.dumps({"run": "r1", "events": events}))
    return tmp_path


def test_exchanges_and_events_join_by_record(run):
    frames = locust_llm.report.load(run)
    tokens = frames.events[frames.events["kind"] == "content"]
    first = tokens.groupby("record")["time_s"].min()
    ttft = frames.exchanges.set_index("record")["ttft_s"].dropna()
    pd.testing.assert_series_equal(first, ttft, check_names=False)
    assert len(frames.events) == 50 * 9
    assert frames.card["run"] == "r1"


def test_tags_are_columns_and_absent_figures_are_nan(run):
    table = locust_llm.report.load(run, events=False).exchanges
    assert table["tag_turn"].value_counts().to_dict() == {"0": 17, "1": 17, "2": 16}
    assert np.isnan(table["ttft_s"].iloc[-1])
    assert table["outcome"].iloc[-1] == "empty"


def test_the_steady_window_is_a_column(run):
    table = locust_llm.report.load(run, events=False).exchanges
    start = (table["start_us"] / 1e6 - T0_S).round(3)
    assert start[table["steady"]].min() >= 1.0
    assert start[table["steady"]].max() <= 4.0


def test_metrics_are_those_of_the_summary_in_tidy_rows(run):
    table = locust_llm.report.metrics(run)
    summary = report([run])
    rows = table[(table["name"] == "total") & (table["window"] == "steady")].set_index(["metric", "statistic"])
    assert rows.loc[("ttft", "p95"), "value"] == summary["total"]["metrics"]["ttft"]["p95"]
    assert rows.loc[("ttft", "p95"), "unit"] == "ms"
    assert rows.loc[("system_output_tps", "mean"), "value"] == summary["total"]["rates"]["system_output_tps"]
    assert set(table["name"]) == {"a", "b", "total", "chat"}
    assert not table["value"].isna().any()
    assert rows.loc[("ttft", "p99"), "thin"]


def test_several_runs_stand_below_each_other(run, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write_log(other / "events.jsonl", [stream(i, i, run="r2") for i in range(5)])
    table = locust_llm.report.metrics(run, other, window="all")
    wide = table[table["name"] == "total"].pivot_table(index="run", columns=["metric", "statistic"], values="value")
    assert wide.loc["r2", ("ttft", "p50")] == pytest.approx(50)
    assert list(wide.index) == ["r1", "r2"]


def test_log_files_are_taken_too(run):
    files = [run / "events.jsonl"]
    assert len(locust_llm.report.load(files).exchanges) == 51
    assert len(locust_llm.report.load(str(files[0])).exchanges) == 51


def test_nothing_to_read_is_the_usual_line(tmp_path):
    with pytest.raises(UsageError, match="no events"):
        locust_llm.report.load(tmp_path)


def test_pandas_is_loaded_only_when_frames_are_made():
    code = "import sys, locust_llm.report; print('pandas' in sys.modules, 'plotly' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False"]
