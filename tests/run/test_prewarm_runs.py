"""``--llm-prewarm`` of whole runs: no measured exchange connects, the card says what was opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from run_processes import CHAT, SHORT, Ended, Plan, Runs

SHAPE = (
    CHAT
    + """
from locust import LoadTestShape

class Steps(LoadTestShape):
    def tick(self):
        return (3, 3) if self.runner.stats.total.num_requests < 6 else None
"""
)


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    load = ["-H", simulator(), *SHORT, "-u", "12", "-r", "12", "--llm-requests", "40"]
    return {
        "local": Plan([*load, "--llm-prewarm"]),
        "two processes": Plan([*load, "--llm-prewarm", "--processes", "2"]),
        "without": Plan(load),
        "shape": Plan(["-H", simulator(), *SHORT, "--llm-prewarm"], SHAPE),
    }


def opened(ended: Ended) -> list[tuple[int, int]]:
    told: dict[str, dict[str, Any]] = ended.run.card["prewarmed"]
    return [(of["asked"], of["opened"]) for targets in told.values() for of in targets.values()]


@pytest.mark.parametrize(("name", "each"), [("local", [(12, 12)]), ("two processes", [(6, 6), (6, 6)])])
def test_each_process_opens_one_for_each_user_and_no_measured_exchange_connects(
    runs: Runs, name: str, each: list[tuple[int, int]]
) -> None:
    ended = runs[name]
    assert ended.code == 0, ended.text
    assert opened(ended) == each
    assert all(record["reused"] and record["tcp_us"] is None for record in ended.run.records())
    assert ended.text.count("prewarm: 12 of 12 connections opened") == 1


def test_the_report_says_that_connecting_is_in_no_ttft(runs: Runs) -> None:
    summary = orjson.loads((runs["local"].run.path / "summary.json").read_bytes())
    (reason,) = [r for r in summary["verdict"]["reasons"] if r["code"] == "prewarmed"]
    assert reason["level"] == "note"
    assert reason["effect"].startswith("12 of 12 connections were opened before the load")


def test_without_it_first_exchanges_connect(runs: Runs) -> None:
    ended = runs["without"]
    assert ended.run.card["prewarmed"] == {}
    assert any(not record["reused"] for record in ended.run.records())


def test_a_load_shape_is_told_that_nothing_is_opened_for_it(runs: Runs) -> None:
    ended = runs["shape"]
    assert "a load shape says only as it goes how many users there are" in ended.text
    assert opened(ended) == []
