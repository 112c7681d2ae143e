"""``--llm-requests N`` starts exactly N exchanges, lets them finish and ends; ``run`` counts time after the ramp."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from run_processes import CHAT, SHORT, Plan, Runs

# exchanges, users, further arguments
CASES = {
    "many": (17, 3, []),
    "fewer than users": (2, 5, []),
    "one": (1, 1, []),
    "two processes": (25, 6, ["--processes", "2"]),
    "two processes, fewer than users": (3, 8, ["--processes", "2"]),
    "two processes, one": (1, 4, ["--processes", "2"]),
    "slow ramp": (12, 4, ["-r", "1"]),
}
CHECKED = (
    CHAT.replace("self.chat()", "self.check()")
    + """
    def check(self):
        import time
        with self.chat(name="ask", catch_response=True) as reply:
            time.sleep(0.5)
            reply.failure("looked at")
"""
)


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    host = ["-H", simulator(), *SHORT]
    cases = {
        name: Plan([*host, "-u", str(users), "-r", str(users), "--llm-requests", str(n), *more])
        for name, (n, users, more) in CASES.items()
    }
    return cases | {
        "checked": Plan([*host, "-u", "2", "-r", "2", "--llm-requests", "3"], CHECKED),
        "failing": Plan(
            ["-H", simulator(error_rate=1.0), *SHORT, "-u", "2", "-r", "2", "--llm-requests", "5",
             "--llm-no-preflight", "--llm-model", "sim"]
        ),
        "time after the ramp": Plan(
            [*host, "-u", "3", "-r", "1", "-t", "2s"],
            program=["locust_llm.cli", "run"], headless=False,
        ),
        "time from the first user": Plan([*host, "-u", "3", "-r", "1", "-t", "4s"]),
    }  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_exactly_n_are_started_and_recorded_and_the_run_ends(runs: Runs, name: str) -> None:
    n, _, _ = CASES[name]
    ended = runs[name]
    assert ended.run.outcomes() == {"ok": n}
    assert ended.aggregated() == (n, 0)
    assert ended.code == 0
    assert "all exchanges asked for have ended" in ended.text
    assert "Traceback" not in ended.text
    assert ended.run.card["finished"] == {"ok": n}


def test_answers_are_looked_at_to_the_end(runs: Runs) -> None:
    ended = runs["checked"]
    assert ended.run.outcomes() == {"rejected": 3}
    assert ended.aggregated() == (3, 3)


def test_n_failures_are_n_exchanges(runs: Runs) -> None:
    assert runs["failing"].run.outcomes() == {"http_status": 5}
    assert runs["failing"].code == 1


def test_the_run_command_counts_time_from_the_end_of_the_ramp(runs: Runs) -> None:
    ended = runs["time after the ramp"]
    (start,), (ramp,), (stop,) = (ended.run.events(name) for name in ("test_start", "ramp_complete", "stop"))
    assert ramp["t"] - start["t"] > 1.9
    assert 1.9 < stop["t"] - ramp["t"] < 10
    assert ramp["users"] == 3
    assert ended.code == 0


def test_plain_locust_counts_it_from_the_first_user(runs: Runs) -> None:
    ended = runs["time from the first user"]
    (start,), (ramp,), (stop,) = (ended.run.events(name) for name in ("test_start", "ramp_complete", "stop"))
    assert ramp["t"] - start["t"] > 1.9
    assert stop["t"] - start["t"] < 12
