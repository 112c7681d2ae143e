"""``locust-llm export``: where files go, what they hold of any log, and what is said of what has no place in them."""

from __future__ import annotations

import json

import orjson
import pandas as pd
import pytest
from export_runs import COUNT, make_run
from report_logs import record, stream, write_log

from locust_llm.cli import main
from locust_llm.errors import UsageError
from locust_llm.report.export.command import FORMATS, export


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run")


@pytest.mark.parametrize("to", ["parquet", "csv"])
def test_tables_hold_every_record_and_every_event(folder, tmp_path, to):
    export([str(folder)], to, str(tmp_path / to))
    read = getattr(pd, f"read_{to}")
    exchanges, events = (read(tmp_path / to / f"{name}.{to}") for name in ("exchanges", "events"))
    assert len(exchanges) == COUNT + 5
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    assert len(events) == sum(len(orjson.loads(line)["event_gaps_us"]) for line in lines)
    first = events[events["record"] == 0]
    assert first["kind"].iloc[1] == "content"
    assert first["time_s"].iloc[1] == pytest.approx(0.050)
    assert exchanges["ttft_s"].iloc[0] == pytest.approx(0.050)
    assert exchanges["tag_user"].iloc[0] == "w1-0"
    assert exchanges["ttft_s"].isna().sum() == 3


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("which", ["all failed", "not streamed", "no tokens known", "no card"])
def test_every_format_takes_every_log_and_writes_no_nan(tmp_path, to, which):
    logs = {
        "all failed": [record(i, i, end_ms=5, outcome="empty") for i in range(3)],
        "not streamed": [record(i, i, end_ms=50, streamed=False, n_out=4, out_source="usage") for i in range(3)],
        "no tokens known": [stream(i, i, n_out=None, out_source=None, n_in=None, in_source=None) for i in range(3)],
        "no card": [stream(0)],
    }
    write_log(tmp_path / "events.jsonl", logs[which])
    if which != "no card":
        (tmp_path / "run.json").write_bytes(orjson.dumps({"load": {"users": 2}, "meta": {}}))
    for path in export([str(tmp_path)], to, str(tmp_path / "out"))[0]:
        if path.suffix in (".json", ".jsonl", ".csv") and to != "csv":
            text = path.read_text()
            assert "NaN" not in text
            assert "nan" not in text
            for line in text.splitlines() if path.suffix == ".jsonl" else [text] if path.suffix == ".json" else []:
                orjson.loads(line)


def run_command(*argv):
    return main(["export", *(str(a) for a in argv)])


def test_without_out_the_files_go_into_the_run(folder, capsys):
    assert run_command(folder, "--to", "llmperf") == 0
    paths = capsys.readouterr().out.split()
    assert len(paths) == 2
    assert all(p.startswith(str(folder / "export")) for p in paths)


def test_what_has_no_place_in_a_layout_is_said(folder, tmp_path, capsys):
    assert run_command(folder, "--to", "llmperf", "--out", tmp_path / "a") == 0
    err = capsys.readouterr().err
    assert "no place for 1 successes that it does not count" in err
    assert "1 exchanges that were cut" in err
    assert run_command(folder, "--to", "csv", "--out", tmp_path / "b") == 0
    assert capsys.readouterr().err == ""


def test_filters_apply(folder, tmp_path):
    export([str(folder)], "csv", str(tmp_path / "a"), ["outcome=ok"])
    frame = pd.read_csv(tmp_path / "a" / "exchanges.csv")
    assert frame["counted"].sum() == COUNT + 2


def test_several_runs_need_a_place_and_must_not_overwrite_each_other(folder, tmp_path, capsys):
    other = tmp_path / "r2"
    other.mkdir()
    write_log(other / "events.jsonl", [stream(i, i, model="meta/llama3-8b", run="r2") for i in range(3)])
    (other / "run.json").write_bytes((folder / "run.json").read_bytes())
    assert run_command(folder, other, "--to", "vllm") == 2
    assert "--out" in capsys.readouterr().err
    with pytest.raises(UsageError, match="two of the runs would write"):
        export([str(folder), str(other)], "genai-perf", str(tmp_path / "x"))
    files, _ = export([str(folder), str(other)], "guidellm", str(tmp_path / "x"))
    assert len(json.loads(files[0].read_bytes())["benchmarks"]) == 2
    assert len(export([str(folder), str(other)], "parquet", str(tmp_path / "x"))[0]) == 4


def test_a_place_that_cannot_be_is_one_line(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert run_command(folder, "--to", "vllm", "--out", tmp_path / "file") == 2
    err = capsys.readouterr().err
    assert err.startswith("locust-llm: error: --out")
    assert err.count("\n") == 1


@pytest.mark.parametrize("model", ["../../etc/passwd", "/abs", "a\\b", "..", "x" * 50 + "/é b"])
def test_a_models_name_stays_inside_the_output_folder(tmp_path, model):
    write_log(tmp_path / "events.jsonl", [stream(i, i, model=model) for i in range(3)])
    for to in FORMATS:
        for path in export([str(tmp_path)], to, str(tmp_path / "out"))[0]:
            assert path.resolve().is_relative_to((tmp_path / "out").resolve())
