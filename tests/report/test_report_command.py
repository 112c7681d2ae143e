"""``locust-llm report`` as a user meets it: what it prints, writes, and how it refuses."""

from __future__ import annotations

import subprocess
import sys

import orjson
import pytest
from report_logs import T0_S, stream, write_log

from locust_llm.cli import EXIT_BROKEN_PIPE, main


def report(*argv):
    return main(["report", *(str(a) for a in argv)])


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "20270115T080000Z-chat"
    folder.mkdir()
    write_log(folder / "events.jsonl", [stream(i, i * 0.1) for i in range(50)])
    events = [
        {"t": T0_S, "event": "test_start"},
        {"t": T0_S + 1.0, "event": "ramp_complete"},
        {"t": T0_S + 4.0, "event": "stop"},
    ]
    (folder / "run.json").write_bytes(orjson.dumps({"run": "r1", "events": events}))
    return folder


def test_a_run_folder_gives_a_table_and_two_files(run_folder, capsys):
    assert report(run_folder) == 0
    out = capsys.readouterr().out
    assert "steady window of 3.0 s" in out
    assert "verdict: sound" in out
    summary = orjson.loads((run_folder / "summary.json").read_bytes())
    assert summary["window"]["kind"] == "steady"
    assert (run_folder / "summary.csv").read_text().startswith("name,api,model,window,metric,unit,count,mean")


def test_log_files_are_merged(run_folder, capsys):
    extra = write_log(run_folder / "events-w2.jsonl", [stream(i, i * 0.1, worker="w2") for i in range(10)])
    assert report(run_folder / "events.jsonl", extra, "--window", "all") == 0
    assert "60 exchanges started" in capsys.readouterr().out


def test_no_write_writes_nothing(run_folder, capsys):
    assert report(run_folder, "--no-write") == 0
    assert not list(run_folder.glob("summary*"))
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("window", "said"), [("all", "whole run of 5.0 s"), ("1..3", "window of 2.0 s"), ("steady", "steady")]
)
def test_the_window_can_be_chosen(run_folder, capsys, window, said):
    assert report(run_folder, "--window", window) == 0
    assert said in capsys.readouterr().out


def test_definitions_follow_the_table(run_folder, capsys):
    assert report(run_folder, "--no-write", "--definitions", "vllm, aiperf,vllm") == 0
    out = capsys.readouterr().out
    assert "locust-llm       vllm     aiperf" in out
    assert report(run_folder, "--no-write", "--definitions", "all") == 0
    assert "sglang: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{tmp}/nowhere"], "no such file or folder"),
        (["{tmp}"], "no events*.jsonl in this folder"),
        (["{tmp}/empty/events.jsonl"], "empty log"),
        (["{tmp}/foreign/events.jsonl"], "not an event log"),
        (["{tmp}/preflight"], "zero exchanges were measured (the log has 1 preflight)"),
        (["{run}", "--window", "soon"], "--window must be steady, all or A..B"),
        (
            ["{run}", "--definitions", "vllm,best"],
            '--definitions knows aiperf, genai-perf, guidellm, vllm, sglang, llmperf and all (got "best")',
        ),
        (["{run}", "{tmp}/preflight"], "several folders"),
        (["{run}", "--limit", "ttft:p95<=1s"], "--limit is for the curve of several runs; this is one, which --slo"),
        (["{run}", "--out", "{tmp}"], "--out is for the curve of several runs; this is one, which --slo judges"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_exit_code_2(run_folder, tmp_path, capsys, arguments, said):
    for name, content in (
        ("empty", b""),
        ("foreign", b"2027-01-15 INFO started\n"),
        ("preflight", stream(phase="preflight").encode()),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.jsonl").write_bytes(content)
    assert report(*(a.format(tmp=tmp_path, run=run_folder) for a in arguments)) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert err.startswith("locust-llm: error: ")
    assert err.count("\n") == 1
    assert not out


def test_a_folder_that_cannot_be_written_to_still_shows_the_table(run_folder, capsys):
    (run_folder / "summary.json").mkdir()  # works for root too
    assert report(run_folder) == 2
    out, err = capsys.readouterr()
    assert "verdict: sound" in out
    assert "summary.json: cannot be written" in err
    assert "--no-write" in err
    assert not list(run_folder.glob(".*"))


def test_the_report_needs_neither_gevent_nor_locust_nor_pandas():
    code = (
        "import sys, locust_llm.report.command, locust_llm.report.definitions\n"
        "print(sorted({'gevent', 'locust', 'pandas', 'pyarrow', 'plotly', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_reader_that_closes_early_is_no_traceback(run_folder):
    argv = [sys.executable, "-m", "locust_llm.cli", "report", str(run_folder), "--no-write"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), error) == (EXIT_BROKEN_PIPE, b"")


def test_limits_of_the_report_take_the_place_of_the_runs(run_folder, capsys):
    write_log(run_folder / "events.jsonl", [stream(i, i * 0.1, lag_us_max=15_000) for i in range(50)])
    assert report(run_folder, "--limits", "lag_p99=10ms") == 0
    out = capsys.readouterr().out
    assert "verdict: doubtful" in out
    assert "lag (doubtful): the client read late" in out
    assert orjson.loads((run_folder / "summary.json").read_bytes())["verdict"]["limits"] == {"lag_p99": 10.0}
    assert "client: no error of its own known; read lag p50 15.0, p99 15.0 ms" in out
    assert report(run_folder, "--limits", "lag=10ms") == 2
    assert 'error: --limits, column 1: unknown limit "lag"' in capsys.readouterr().err
