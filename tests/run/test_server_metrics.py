"""The server's counters around a run: exactly what the log has, locally, with workers, and for each server its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from run_processes import CHAT, SHORT, Ended, Plan, Runs

TWO_SERVERS = (
    CHAT
    + """
class Other(ChatUser):
    @task
    def ask(self):
        self.chat()
"""
)


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    """Runs whose counters are compared have a server of their own (by its seed), for counters hold everything."""
    load = [*SHORT, "-u", "4", "-r", "4", "--llm-requests", "20"]
    two = TWO_SERVERS.replace("class Other(ChatUser):", f"class Other(ChatUser):\n    host = {simulator(seed=301)!r}")
    two = two.replace("class Chat(ChatUser):", f"class Chat(ChatUser):\n    host = {simulator(seed=302)!r}")
    locked = ["-H", simulator(api_key="sk-right", seed=303)]
    plans = {
        "local": Plan(["-H", simulator(prefix_cache=True, seed=304), *load, "--llm-warmup", "5"]),
        "two processes": Plan(["-H", simulator(seed=305), *load, "--processes", "2"]),
        "two servers": Plan(load, two),
        "cut": Plan(["-H", simulator(seed=306), "-u", "3", "-r", "3", "--llm-output-tokens", "400,0", "-t", "2s",
                     "--llm-drain", "0"]),
        "locked": Plan([*locked, *load], env={"LOCUST_LLM_API_KEY": "sk-right"}),
        "off": Plan(["-H", simulator(), *load, "--llm-no-server-metrics"]),
        "elsewhere": Plan(["-H", simulator(), *load, "--llm-server-metrics", simulator(seed=309)]),
        "nowhere": Plan(["-H", simulator(), *load, "--llm-server-metrics", "http://127.0.0.1:9"]),
        "not an address": Plan(["-H", simulator(), *load, "--llm-server-metrics", "metrics"]),
        "on and off": Plan(
            ["-H", simulator(), *load, "--llm-server-metrics", "http://127.0.0.1:9", "--llm-no-server-metrics"]
        ),
    }  # fmt: skip
    return {name: replace(plan, counters=True) for name, plan in plans.items()}


def servers(ended: Ended) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads((ended.run.path / "summary.json").read_bytes())["server"]
    return found


def difference(server: dict[str, Any]) -> dict[str, float]:
    names = ("prompt_tokens", "generation_tokens", "requests")
    return {name: server["figures"][name]["difference"] for name in names}


NONE = {"prompt_tokens": 0, "generation_tokens": 0, "requests": 0}


@pytest.mark.parametrize("name", ["local", "two processes", "locked"])
def test_token_counters_equal_the_log(runs: Runs, name: str) -> None:
    ended = runs[name]
    assert ended.code == 0, ended.text
    (server,) = servers(ended)
    records = ended.run.records()
    assert difference(server) == NONE
    assert server["figures"]["prompt_tokens"]["server"] == sum(r["n_in"] for r in records)
    assert server["figures"]["generation_tokens"]["server"] == sum(r["n_out"] for r in records)
    assert server["figures"]["requests"]["server"] == 20
    assert abs(server["figures"]["itl"]["difference"]) < 5  # ms; of 10
    assert "counted by the server (vLLM)" in ended.out + ended.err


def test_readings_lie_outside_warm_up_and_load(runs: Runs) -> None:
    run = runs["local"].run
    (told,) = run.card["server_metrics"]
    warm = max(r["start_us"] + r["end_us"] for r in run.records("warmup")) / 1e6
    starts = [r["start_us"] / 1e6 for r in run.records()]
    ends = [(r["start_us"] + r["end_us"]) / 1e6 for r in run.records()]
    assert warm <= told["before"]["t"] <= min(starts)
    assert max(ends) <= told["after"]["t"]
    assert told["settled"]


def test_cached_tokens_are_those_that_the_answers_report(runs: Runs) -> None:
    (server,) = servers(runs["local"])
    assert server["figures"]["cache_hits"]["difference"] == 0


def test_each_of_two_servers_is_compared_with_its_own_users(runs: Runs) -> None:
    ended = runs["two servers"]
    assert ended.code == 0, ended.text
    one, two = servers(ended)
    assert one["url"] != two["url"]
    assert difference(one) == difference(two) == NONE
    assert one["figures"]["requests"]["ours"] + two["figures"]["requests"]["ours"] == 20


def test_streams_that_were_cut_are_told_as_such(runs: Runs) -> None:
    ended = runs["cut"]
    (server,) = servers(ended)
    cut = sum(r["outcome"] == "unfinished" for r in ended.run.records())
    assert cut
    assert f"{cut} exchanges of ours ended without its count" in server["notes"][0]


def test_it_can_be_switched_off(runs: Runs) -> None:
    ended = runs["off"]
    assert ended.code == 0
    assert ended.run.card["server_metrics"] == []
    assert "counted by the server" not in ended.text


def test_an_address_of_ones_own_is_read_and_what_differs_is_shown(runs: Runs) -> None:
    ended = runs["elsewhere"]
    assert ended.code == 0, ended.text
    (server,) = servers(ended)
    assert server["url"].endswith("/metrics")
    assert server["figures"]["requests"] == {"server": 0, "ours": 20, "difference": -20, "difference_share": -1}
    assert "fewer" in server["notes"][0]


def test_an_address_of_ones_own_that_does_not_answer_is_one_warning_and_no_error(runs: Runs) -> None:
    ended = runs["nowhere"]
    assert ended.code == 0, ended.text
    assert ended.text.count("--llm-server-metrics: http://127.0.0.1:9/metrics: cannot connect") == 1


@pytest.mark.parametrize(
    ("name", "says"), [("not an address", "--llm-server-metrics must be an address"), ("on and off", "not both")]
)
def test_what_cannot_be_meant_is_one_line(runs: Runs, name: str, says: str) -> None:
    ended = runs[name]
    assert ended.code == 2
    assert says in ended.err
    assert "Traceback" not in ended.text
