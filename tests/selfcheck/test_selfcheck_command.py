"""``locust-llm selfcheck`` as a user meets it: options, table, conclusion, exit code, JSON."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from locust_llm import cli
from locust_llm.commands import selfcheck, selfcheck_words
from locust_llm.commands.selfcheck import Plan
from locust_llm.telemetry.check import LoadCheck, Server
from locust_llm.telemetry.truth import Compared

ROOT = Path(__file__).parents[2]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("LOCUST")} | {"PYTHONPATH": str(ROOT)}
PLAN = Plan((10, 50, 100, 200, 400), 0.01, 100, 8, 1, None)
FIGURE = Compared(
    100, {"p50": 50.2, "p95": 51.0, "p99": 52.0}, {"p50": 50.1, "p95": 50.9, "p99": 51.5}, 0.1, 0.1, 0.6, ()
)
LOAD = LoadCheck(
    streams=10, processes=1, exchanges=70, failed=0, events_per_s=960.0, delivered=0.99, measured_tokens_per_s=961.0,
    ttft_ms=FIGURE, itl_ms=FIGURE, arrival_error_p50_ms=0.01, arrival_error_p99_ms=0.1, cpu_us_per_event=33.3,
    busiest_cores=0.03, other_cores=0.0, late_joined=0.0, server=Server(0.1, 0.3, 1.0, 0.5, 0.2, False),
    verdict="sound", reasons=(), off=(),
)  # fmt: skip
LATE = Server(80.0, 120.0, 150.0, 9.0, 1.0, True)


def load(streams: int, **changes: Any) -> LoadCheck:
    return replace(LOAD, streams=streams, events_per_s=96.0 * streams, **changes)


def test_a_real_check_prints_a_row_a_load_and_writes_all_of_it(tmp_path: Path) -> None:
    out = tmp_path / "check.json"
    command = [sys.executable, "-m", "locust_llm.cli", "selfcheck", "--streams", "2,4", "--seconds", "2"]
    done = subprocess.run(
        [*command, "--tokens", "20", "--json", str(out)],
        capture_output=True, text=True, env=ENV, cwd=tmp_path, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    assert "SELF-CHECK" in done.stdout
    data = json.loads(out.read_bytes())
    assert data["options"] == {
        "streams": [2, 4], "ttft_ms": 50.0, "itl_ms": 10.0, "tokens": 20, "seconds": 2, "processes": 1,
    }  # fmt: skip
    assert [load["streams"] for load in data["loads"]] == [2, 4]
    for found in data["loads"]:
        assert found["exchanges"] >= 5
        assert found["failed"] == 0
        assert found["ttft_ms"]["true"]["p50"] >= 50.0
        assert found["ttft_ms"]["error_p50"] < 20
        assert 9 < found["itl_ms"]["true"]["p50"] < 20
        assert found["cpu_us_per_event"] > 0
        assert found["verdict"] in ("sound", "doubtful", "overloaded")
        assert not [line for line in found["off"] if "log" in line]
        assert found["sound"] is (found["verdict"] == "sound" and not found["off"])
    assert done.returncode == (0 if any(found["sound"] for found in data["loads"]) else 1)
    assert (data["sound"] is None) is (done.returncode == 1)
    assert ("Sound up to" in done.stdout) is (done.returncode == 0)
    assert [path.name for path in tmp_path.iterdir()] == ["check.json"]


@pytest.mark.parametrize(
    "words",
    [
        ["--streams", "5,5"],
        ["--streams", "10,5"],
        ["--streams", "a"],
        ["--streams", ""],
        ["--streams", "0"],
        ["--itl", "10"],
        ["--itl", "0ms"],
        ["--itl", "fast"],
        ["--tokens", "1"],
        ["--seconds", "1"],
        ["--seconds", "8.5"],
        ["--processes", "0"],
        ["--processes", "20"],
        ["--json", "no/such/folder/x.json"],
    ],
)
def test_a_bad_option_is_one_line_that_names_it_before_anything_runs(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["selfcheck", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("locust-llm: error: ")
    assert captured.err.count("\n") == 1
    assert words[0] in captured.err


@pytest.mark.parametrize(
    ("loads", "tried"),
    [
        (["sound"] * 5, 5),
        (["sound", "off", "sound", "off", "sound"], 5),
        (["sound", "off", "off"], 3),
        (["off", "off"], 2),
        (["sound", "late", "late"], 3),
        (["sound", "sound", "late", "off"], 4),
    ],
)
def test_it_ends_after_two_loads_in_a_row_that_say_nothing_more(
    loads: list[str], tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"sound": LOAD, "off": replace(LOAD, off=("TTFT p50 is wrong",)), "late": replace(LOAD, server=LATE)}
    left = iter(loads)
    monkeypatch.setattr(selfcheck, "_measure_one", lambda plan, streams: kinds[next(left)])
    assert len(list(selfcheck.measure(PLAN))) == tried


@pytest.mark.parametrize(("off", "code"), [((), 0), (("TTFT p50 is wrong",), 1)])
def test_the_exit_code_says_whether_any_load_was_sound(
    off: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selfcheck, "_measure_one", lambda plan, streams: load(streams, off=off))
    parser = argparse.ArgumentParser()
    selfcheck.add_arguments(parser)
    assert selfcheck.run(parser.parse_args(["--streams", "10,20,30"])) == code
    assert ("Sound up to 2880 tokens/s with 30 streams" in capsys.readouterr().out) is (code == 0)


def test_the_conclusion_is_the_highest_sound_load() -> None:
    text = selfcheck_words.conclusion(PLAN, [load(10), load(50), load(100, off=("x",)), load(200, off=("x",))])
    assert "Sound up to 4800 tokens/s with 50 streams" in text
    assert "Larger loads were not tried" in text
    assert "simulator" not in text


def test_a_smaller_load_that_was_not_sound_is_not_passed_over() -> None:
    text = selfcheck_words.conclusion(PLAN, [load(10, verdict="doubtful"), load(50)])
    assert "Smaller loads were not: 10 streams." in text
    assert "quiet" not in text


def test_other_work_on_the_machine_is_blamed_where_it_may_be_the_reason() -> None:
    busy = [load(10, other_cores=1.2), load(50, verdict="doubtful", other_cores=0.1)]
    assert "up to 1.2 cores" in selfcheck_words.conclusion(PLAN, busy)
    assert "other work on this machine took 1.2 cores" in selfcheck_words.row(busy[0])


def test_it_says_when_the_simulator_not_the_client_was_the_limit() -> None:
    loads = [load(10), load(50), load(100, server=LATE), load(200, server=LATE)]
    assert "From 100 streams on the simulator, not the client, was the limit" in selfcheck_words.conclusion(PLAN, loads)
    assert "the simulator was the limit" in selfcheck_words.row(loads[2])
    both = [load(10), load(50, server=LATE, verdict="overloaded")]
    assert "From 50 streams on the simulator, too, was beyond its limit" in selfcheck_words.conclusion(PLAN, both)
    assert "the simulator was late, too" in selfcheck_words.row(both[1])


def test_a_check_without_a_limit_asks_for_more() -> None:
    plan = replace(PLAN, streams=(10, 50))
    assert "No limit was found" in selfcheck_words.conclusion(plan, [load(10), load(50)])


def test_a_verdict_that_the_truth_contradicts_is_loud() -> None:
    text = selfcheck_words.row(load(10, off=("TTFT p95 is 61.00 ms where 53.00 ms is true",)))
    assert "WRONG VERDICT" in text
    assert "by the truth log: TTFT p95 is 61.00 ms" in text
    assert "WRONG" not in selfcheck_words.row(load(10, verdict="doubtful", off=("x",), reasons=("lag: late",)))


def test_a_load_without_figures_has_a_row_all_the_same() -> None:
    text = selfcheck_words.row(load(10, ttft_ms=None, itl_ms=None, cpu_us_per_event=None, server=None, failed=3))
    assert "3 exchanges failed" in text
    assert "nan" not in text.lower()


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from locust_llm.cli import main; sys.exit(main(['selfcheck', '--streams', '2', '--seconds', '20']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=ENV | {"TMPDIR": str(tmp_path)}, start_new_session=True,
    )  # fmt: skip
    family: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(family) < 2:  # the simulator, the run
        time.sleep(0.2)
        family = psutil.Process(process.pid).children(recursive=True)
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "Traceback" not in out
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    assert not list(tmp_path.iterdir())
