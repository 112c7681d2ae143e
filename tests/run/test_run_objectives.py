"""Objectives at the end of real headless runs: the exit code, JUnit, the last line; and the same from the log later."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import orjson
import pytest
from run_processes import CHAT, Ended, Plan, Runs

LENIENT = "error_floor=60s, error_p99_floor=60s, lost_load=100%, stolen=100%"
"""A machine on which other tests run spoils no objective."""
HOLDS = "e2e:p50<=20s, stream_end:p50<=20s, error_rate<=20%"
MISSES = "stream_end:p50<=20s, e2e:p50<=1ms"
"""On figures that hold on a machine where other tests run, too: the stamps of single tokens may not."""
SPOILT = "error=0%, error_floor=0ms, error_p99=0%, error_p99_floor=0ms, lag_p99=0.001ms"
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("LOCUST_", "OPENAI_", "GITHUB_"))}

ONE_FAILS = """
from locust import task
from locust_llm import ChatUser

class Chat(ChatUser):
    seen = 0

    @task
    def ask(self):
        with self.chat(catch_response=True) as reply:
            Chat.seen += 1
            if Chat.seen == 5:
                reply.failure("not good enough")
"""


MANY, FEW = ["--llm-requests", "400"], ["--llm-requests", "12"]
TWO = ["--processes", "2"]
RUNS = {
    "holds": [*MANY, "--llm-slo", HOLDS, "--llm-goodput", "ttft:10000", "--llm-junit", "junit.xml"],
    "misses": [*MANY, "--llm-slo", MISSES, "--llm-junit", "junit.xml", "--llm-markdown", "result.md"],
    "few": [*FEW, "--llm-slo", HOLDS],
    "few but that is fine": [*FEW, "--llm-slo", HOLDS, "--llm-exit-undecided", "0"],
    "two processes, misses": [*MANY, *TWO, "--llm-slo", MISSES, "--llm-junit", "junit.xml"],
    "two processes, holds": [*MANY, *TWO, "--llm-slo", HOLDS],
    "two processes, few": [*FEW, *TWO, "--llm-slo", HOLDS],
    "two processes, spoilt": [*MANY, *TWO, "--llm-slo", MISSES, "--llm-limits", SPOILT],
    "misses, no place for its files": [*MANY, "--llm-slo", MISSES, "--llm-junit", "/dev/full"],
    "one failure": [*MANY, "--llm-slo", "error_rate<=20%"],
    "one failure, no objectives": [*FEW],
    "wrong": ["--llm-slo", "ttft:p95<=500"],
}


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    fast = ["-H", simulator(ttft=0.02, itl=0.002), "--llm-output-tokens", "5,0", "-u", "4", "--only-summary"]
    return {
        name: Plan(
            [*fast, "--llm-limits", LENIENT, *args], ONE_FAILS if name.startswith("one failure") else CHAT,
            program=["locust_llm.cli", "run"], headless=False,
        )
        for name, args in RUNS.items()
    }  # fmt: skip


def objectives(ended: Ended) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads((ended.run.path / "summary.json").read_bytes())["objectives"]
    return found


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("holds", 0), ("misses", 3), ("few", 4), ("few but that is fine", 0), ("two processes, misses", 3),
        ("two processes, holds", 0), ("two processes, few", 4), ("two processes, spoilt", 5),
        ("misses, no place for its files", 2), ("one failure", 0), ("one failure, no objectives", 1), ("wrong", 2),
    ],
)  # fmt: skip
def test_objectives_alone_decide_how_a_headless_run_ends(runs: Runs, name: str, code: int) -> None:
    ended = runs[name]
    assert ended.code == code, ended.text[-3000:]


def test_junit_and_the_last_line_name_what_was_missed(runs: Runs) -> None:
    for name in ("misses", "two processes, misses"):
        ended = runs[name]
        cases = ElementTree.parse(ended.folder / "junit.xml").getroot().iter("testcase")
        assert {c.get("name"): c.find("failure") is not None for c in cases} == {
            "stream_end:p50<=20s": False, "e2e_latency:p50<=1ms": True,
        }  # fmt: skip
        assert "locust-llm: FAIL 1 of 2 objectives held; missed e2e_latency:p50<=1ms; " in ended.text
    assert "❌ fail" in (runs["misses"].folder / "result.md").read_text()
    holds = runs["holds"].folder / "junit.xml"
    assert ElementTree.parse(holds).getroot().find("testsuite").get("failures") == "0"


def test_the_run_in_one_line_is_the_last_that_the_console_shows(runs: Runs) -> None:
    ended = runs["holds"]
    lines = [line for line in ended.text.splitlines() if line.strip()]
    last = next(i for i, line in enumerate(lines) if line.startswith("locust-llm: PASS 3 of 3 objectives held"))
    assert not any("run folder" in line for line in lines[last + 1 :])


def test_a_grammar_mistake_ends_before_any_load(runs: Runs) -> None:
    ended = runs["wrong"]
    assert "--llm-slo, column 14: 500 needs a unit; write 500ms or 8s" in ended.text
    assert not (ended.folder / "reports").exists()


@pytest.mark.parametrize("name", ["holds", "misses", "few", "two processes, misses", "two processes, few"])
def test_the_log_says_the_same_afterwards(runs: Runs, name: str) -> None:
    ended = runs[name]
    before = objectives(ended)
    argv = [sys.executable, "-m", "locust_llm.cli", "report", str(ended.run.path), "--no-html"]
    again = subprocess.run(argv, env=ENV, capture_output=True, text=True, timeout=60)
    assert again.returncode == ended.code, again.stderr
    assert objectives(ended) == before
    other = subprocess.run([*argv, "--no-write", "--slo", HOLDS], env=ENV, capture_output=True, text=True, timeout=60)
    assert other.returncode == (4 if name.endswith("few") else 0)


def test_what_an_overloaded_client_spoilt_is_so_from_the_log_too(runs: Runs) -> None:
    ended = runs["two processes, spoilt"]
    argv = [sys.executable, "-m", "locust_llm.cli", "report", str(ended.run.path), "--no-write"]
    again = subprocess.run(argv, env=ENV, capture_output=True, text=True, timeout=60)
    assert again.returncode == 5, again.stderr
    assert "missed e2e_latency:p50<=1ms; spoilt by an overloaded client; " in again.stdout


def test_the_run_card_keeps_the_objectives(runs: Runs) -> None:
    card = orjson.loads((runs["holds"].run.path / "run.json").read_bytes())
    assert card["options"]["--llm-slo"] == HOLDS
    assert card["options"]["--llm-goodput"] == "ttft:10000"
