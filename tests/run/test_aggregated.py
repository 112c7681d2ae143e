"""Locust's own Aggregated row stays true: its requests, failures and rate are those that the server saw."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from run_processes import SHORT, Ended, Plan

from locust_llm.sim.options import SimOptions
from locust_llm.sim.process import start
from locust_llm.sim.truth import read_truth

N = 150


@dataclass
class Truth:
    """What the server saw: requests, how many of them it did not answer with tokens, and over how long."""

    requests: int
    failures: int
    seconds: float


@pytest.fixture(scope="module", params=[[], ["--processes", "2"]], ids=["local", "two workers"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Truth]:
    """A run of N requests, a fifth of which fail, against a server that serves nothing else."""
    folder: Path = tmp_path_factory.mktemp("aggregated")
    with start(SimOptions(error_rate=0.2, seed=3, truth_log=str(folder / "truth"))) as server:
        args = ["-H", server.url, *SHORT, "-u", "6", "-r", "6", "--llm-requests", str(N)]
        ended = Plan([*args, "--llm-no-preflight", "--llm-model", "sim", *request.param]).start(folder / "run").end()
    log = read_truth(folder / "truth")
    seen, answered = np.unique(log["request"]), np.unique(log["request"][log["index"] > 0])
    seconds = float(log["time_ns"].max() - log["time_ns"].min()) / 1e9
    return ended, Truth(len(seen), len(seen) - len(answered), seconds)


def test_count_and_failures_are_the_true_ones(run: tuple[Ended, Truth]) -> None:
    ended, truth = run
    assert truth.requests == N
    assert 0 < truth.failures < N
    assert ended.aggregated() == (truth.requests, truth.failures)


def test_the_rate_is_the_true_one(run: tuple[Ended, Truth]) -> None:
    ended, truth = run
    (rate,) = re.findall(r"Aggregated .*\|\s+([\d.]+)\s+[\d.]+\n", ended.text)
    assert float(rate) == pytest.approx(truth.requests / truth.seconds, rel=0.25)


def test_the_masters_log_has_every_request_once(run: tuple[Ended, Truth]) -> None:
    ended, truth = run
    records = ended.run.log()
    assert len(records) == truth.requests == len({(record["worker"], record["seq"]) for record in records})
    assert sum(record["outcome"] != "ok" for record in records) == truth.failures
