"""The verdict at the end of real runs: a calm client is sound, one whose tasks block the process is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from run_processes import SHORT, Plan, RunFolder, Runs

BLOCKING = """
from gevent import monkey
from locust import User, constant, task
from locust_llm import ChatUser

block = monkey.get_original("time", "sleep")

class Chat(ChatUser):
    @task
    def ask(self):
        self.chat()

class Blocking(User):
    fixed_count = 1
    wait_time = constant(0.02)

    @task
    def work(self):
        block(0.6)
"""
LIMITS = "error_floor=150ms, error_p99_floor=250ms"
# Other tests share this machine: only what no scheduler does is to be doubted.
CALM = "error_floor=20s, error_p99_floor=30s, error=50%, error_p99=90%, lost_load=100%, stolen=100%"


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    host = simulator()
    common = ["-H", host, *SHORT, "-u", "4", "-r", "4", "--llm-limits"]
    return {
        "calm": Plan([*common, CALM, "--llm-requests", "32"], program=("locust_llm.cli", "run")),
        "blocked": Plan(
            [*common, f"{LIMITS}, loop_away_max=550ms", "-t", "6s"],
            program=("locust_llm.cli", "run"),
            locustfile=BLOCKING,
        ),
        "mistyped": Plan(["-H", host, "--llm-limits", "lag_p99=30ms, lateness=3ms"]),
    }


def summary(run: RunFolder) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((run.path / "summary.json").read_bytes())
    return found


def test_a_calm_run_is_sound_and_keeps_its_limits_and_its_health(runs: Runs) -> None:
    ended = runs["calm"]
    assert ended.code == 0, ended.text
    found = summary(ended.run)
    assert found["verdict"]["state"] == "sound", found["verdict"]
    assert found["verdict"]["limits"]["error_p99_floor"] == 30_000.0
    assert ended.run.card["options"]["--llm-limits"] == CALM
    assert {"late_joined_share", "lag_p99_ms", "send_lag_p99_ms", "lost_load", "processes"} <= set(found["client"])
    assert all("uncertain_reads" in record for record in ended.run.records())
    assert "verdict: sound" in ended.text


def test_a_task_that_blocks_the_process_is_found_and_named(runs: Runs) -> None:
    ended = runs["blocked"]
    found = summary(ended.run)["verdict"]
    reasons = {reason["code"]: reason for reason in found["reasons"]}
    assert found["state"] in ("doubtful", "overloaded"), found
    assert {"error", "error_median"} & set(reasons)
    assert reasons["standstill"]["level"] == "doubtful"  # a limit that was given judges
    assert "ms once" in reasons["standstill"]["effect"]
    assert f"verdict: {found['state']}" in ended.text


def test_a_limit_that_does_not_exist_ends_the_run_before_it_starts(runs: Runs) -> None:
    ended = runs["mistyped"]
    assert ended.code == 2
    assert '--llm-limits, column 15: unknown limit "lateness"' in ended.err
    assert not ended.runs
