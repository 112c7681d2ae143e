"""A load is checked against the truth log: a real run, and the same run with its log or its truth bent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from locust_llm.errors import UsageError
from locust_llm.sim.options import SimOptions
from locust_llm.sim.process import start
from locust_llm.sim.truth import read_truth
from locust_llm.telemetry.check import LoadCheck, Schedule, check
from locust_llm.telemetry.trial import Trial, run_tool
from locust_llm.telemetry.truth import Compared
from locust_llm.telemetry.watch import Watch

SCHEDULE = Schedule(0.05, 0.01, 20)
STREAMS = 4


@dataclass(frozen=True)
class Measured:
    trial: Trial
    truth: npt.NDArray[np.void]
    server: Watch

    def check(self, truth: npt.NDArray[np.void] | None = None, trial: Trial | None = None) -> LoadCheck:
        log = self.truth if truth is None else truth
        return check(trial or self.trial, log, SCHEDULE, self.server, STREAMS)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    work = tmp_path_factory.mktemp("check")
    out = work / "out"
    out.mkdir()
    options = SimOptions(ttft=SCHEDULE.ttft_s, itl=SCHEDULE.itl_s, truth_log=str(work / "truth"))
    with start(options) as simulator, Watch(simulator.pid) as server:
        arguments = ["-u", str(STREAMS), "-t", "2s", "--llm-output-tokens", str(SCHEDULE.tokens), "--only-summary"]
        trial = run_tool(simulator.url, out, arguments, 60)
    return Measured(trial, read_truth(work / "truth"), server)


def test_a_run_is_joined_whole_and_near_the_truth(measured: Measured) -> None:
    load = measured.check()
    assert load.exchanges >= 10
    assert load.failed == 0
    assert not [line for line in load.off if "truth log" in line or "missing" in line]
    assert load.ttft_ms is not None
    assert load.itl_ms is not None
    assert load.ttft_ms.error_p50 < 20
    assert load.itl_ms.error_p50 < 5
    assert load.verdict == measured.trial.summary["verdict"]["state"]


def test_rates_and_cost_are_those_of_the_window(measured: Measured) -> None:
    load = measured.check()
    assert load.measured_tokens_per_s is not None
    assert load.events_per_s == pytest.approx(load.measured_tokens_per_s, rel=0.15)
    assert 0.3 < load.delivered < 1.05
    assert load.cpu_us_per_event is not None
    assert 5 < load.cpu_us_per_event < 5_000
    assert load.server is not None
    assert load.server.late_p50_ms < 10
    assert measured.trial.process.cpu_s is not None
    assert measured.trial.process.cpu_s > load.cpu_us_per_event * load.events_per_s / 1e6


def test_first_tokens_that_left_earlier_than_was_measured_are_an_error_of_ttft(measured: Measured) -> None:
    bent = measured.truth.copy()
    bent["time_ns"][bent["index"] == 1] -= 20_000_000
    load = measured.check(bent)
    assert any(line.startswith("TTFT p50") for line in load.off)
    assert not load.sound
    unbent = replace(load, verdict="sound")
    assert unbent.wrong_verdict
    assert not unbent.sound


def test_a_server_that_reads_late_is_not_an_error_of_the_client(measured: Measured) -> None:
    late = measured.truth.copy()
    late["time_ns"][late["index"] == 0] += 30_000_000
    load, before = measured.check(late), measured.check()
    assert load.ttft_ms is not None
    assert before.ttft_ms is not None
    assert load.server is not None
    assert load.server.read_lag_p99_ms > 29
    assert load.ttft_ms.error_p50 == pytest.approx(before.ttft_ms.error_p50, abs=0.5)


def test_a_server_that_sends_late_was_the_limit(measured: Measured) -> None:
    late = measured.truth.copy()
    late["time_ns"][late["index"] > 0] += 40_000_000
    server = measured.check(late).server
    assert server is not None
    assert server.was_the_limit
    assert server.late_p50_ms > 30


def test_a_record_that_is_missing_from_the_log_is_missed(measured: Measured, tmp_path: Path) -> None:
    lines = (measured.trial.folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines[:-1]))
    load = measured.check(trial=replace(measured.trial, folder=tmp_path))
    assert "1 requests that the server read are missing from the event log" in load.off
    assert not load.sound


def test_a_run_that_fails_is_one_line_with_its_own_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"exit code 2 \(.*--llm-output-tokens") as caught:
        run_tool("http://127.0.0.1:9", tmp_path, ["--llm-output-tokens", "none"], 60)
    assert "\n" not in str(caught.value)


def test_a_true_percentile_outside_of_the_clients_bounds_is_named(measured: Measured) -> None:
    true = {"p50": 50.0, "p95": 60.0, "p99": 90.0}
    seen = {"p50": 50.1, "p95": 80.0, "p99": 120.0}
    figure = Compared(100, seen, true, 0.1, 0.1, 0.6, ())
    of = replace(measured.check(), ttft_ms=figure, itl_ms=None, bounds={})
    assert [line[:8] for line in of.outside()] == ["ttft p95", "ttft p99"]
    bounded = replace(of, bounds={"ttft": {"p95": [61.0, 80.0], "p99": [100.5, 120.0]}})
    assert bounded.outside() == ["ttft p99 is 90.00 ms, not 100.50 to 120.00"]  # beyond 10 %; p95 is within 5 %
