"""Locust's own Aggregated row stays true: its requests, failures and rate are those that the server saw."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from run_processes import SHORT, Ended, Plan, Runs

from locust_llm.sim.options import SimOptions
from locust_llm.sim.process import start
from locust_llm.sim.truth import read_truth

N = 100
CASES = {"local": [], "two workers": ["--processes", "2"]}


@dataclass
class Truth:
    """What the server saw: requests, how many of them it did not answer with tokens, and from when to when."""

    requests: int
    failures: int
    first_s: float
    last_s: float


def plans(simulator: Callable[..., str]) -> dict[str, Callable[[Path], Ended]]:
    return {name: partial(measure, args) for name, args in CASES.items()}


def measure(args: list[str], folder: Path) -> Ended:
    """Run N requests, a fifth of which fail, against a server that serves nothing else."""
    folder.mkdir()
    with start(SimOptions(error_rate=0.2, seed=3, truth_log=str(folder / "truth"))) as server:
        args = ["-H", server.url, *SHORT, "-u", "6", "-r", "6", "--llm-requests", str(N), *args]
        return Plan([*args, "--llm-no-preflight", "--llm-model", "sim"]).start(folder / "run").end()


@pytest.fixture(params=CASES)
def run(request: pytest.FixtureRequest, runs: Runs) -> tuple[Ended, Truth]:
    ended = runs[request.param]
    log = read_truth(ended.folder.parent / "truth")
    seen, answered = np.unique(log["request"]), np.unique(log["request"][log["index"] > 0])
    times_s = log["time_ns"] / 1e9
    return ended, Truth(len(seen), len(seen) - len(answered), float(times_s.min()), float(times_s.max()))


def test_count_and_failures_are_the_true_ones(run: tuple[Ended, Truth]) -> None:
    ended, truth = run
    assert truth.requests == N
    assert 0 < truth.failures < N
    assert ended.aggregated() == (truth.requests, truth.failures)


def test_the_rate_is_the_true_one(run: tuple[Ended, Truth]) -> None:
    ended, truth = run
    (rate,) = re.findall(r"Aggregated .*\|\s+([\d.]+)\s+[\d.]+\n", ended.text)
    # Locust counts from where the test starts, which on a busy machine can be well before the first request.
    (begun,) = ended.run.events("test_start")
    most_s = truth.last_s - min(begun["t"] - 1, truth.first_s)
    assert 0.95 * truth.requests / most_s < float(rate) < 1.05 * truth.requests / (truth.last_s - truth.first_s)


def test_the_masters_log_has_every_request_once(run: tuple[Ended, Truth]) -> None:
    ended, truth = run
    records = ended.run.log()
    assert len(records) == truth.requests == len({(record["worker"], record["seq"]) for record in records})
    assert sum(record["outcome"] != "ok" for record in records) == truth.failures
