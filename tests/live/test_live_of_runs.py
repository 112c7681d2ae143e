"""Real runs, of one process and of several: what the desk says at their end is what the report says of their logs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live_runs import assert_row_is
from run_processes import SHORT, SPAWNED, Live, Plan, Runs, free_port

from locust_llm.report.reading import read
from locust_llm.report.summary import analyse, load_card, summary_of

DESK = """
import gevent, json, locust, os, signal
from locust import events, task
from locust_llm import ChatUser
from locust_llm.plugin import node_of

class Chat(ChatUser):
    @task(3)
    def ask(self):
        self.chat()

    @task
    def other(self):
        self.chat(name="other")

def keep(desk, run):
    with open(f"live-{run.id}.json", "w") as file:
        json.dump(desk.snapshot(), file)

@events.init.add_listener
def look(environment, **_):
    desk = getattr(node_of(environment), "desk", None)
    if desk is not None:
        desk.on_run(lambda run: None, lambda run: keep(desk, run))
"""
RESET = (
    DESK
    + """
@events.spawning_complete.add_listener
def later(user_count, **_):
    if isinstance(ENVIRONMENT.runner, locust.runners.WorkerRunner):
        return
    def reset():
        while ENVIRONMENT.stats.total.num_requests < 4:
            gevent.sleep(0.05)
        gevent.sleep(0.5)
        ENVIRONMENT.events.reset_stats.fire()
        gevent.sleep(2.5)
        os.kill(os.getpid(), signal.SIGINT)
    gevent.spawn(reset)

@events.init.add_listener
def remember(environment, **_):
    global ENVIRONMENT
    ENVIRONMENT = environment
"""
)
RUBBISH = (
    DESK
    + """
@events.init.add_listener
def spoil(environment, runner, **_):
    reports = []
    def report(client_id, data, **_):
        reports.append(data.get("llm"))
        if len([one for one in reports if one]) == 2:
            data["llm"] = b"LLM\\x01rubbish"
    if isinstance(runner, locust.runners.WorkerRunner) and runner.worker_index in (0, -1):
        environment.events.report_to_master.add_listener(report)
"""
)
LIBRARY = (
    DESK
    + """
import sys
from locust.env import Environment
from locust_llm import setup

environment = Environment(user_classes=[Chat], host=sys.argv[1])
runner = environment.create_local_runner()
setup(environment)
desk = node_of(environment).desk
desk.on_run(lambda run: None, lambda run: keep(desk, run))
for _ in range(2):
    node = node_of(environment)
    last = node.run
    runner.start(2, spawn_rate=2)
    while node.run is last or node.run.measured < 5:
        gevent.sleep(0.1)
    runner.stop()
runner.quit()
"""
)
SINGLE = (
    DESK
    + """
from locust import run_single_user

class Two(ChatUser):
    @task
    def twice(self):
        desk = node_of(self.environment).desk
        desk.on_run(lambda run: None, lambda run: keep(desk, run))
        for _ in range(2):
            assert self.chat().ok
        raise SystemExit

if __name__ == "__main__":
    run_single_user(Two)
"""
)

GOALS = ["--llm-slo", "ttft:p50<=30s, error_rate<=90%, ask.ttft:p50<=1ms", "--llm-goodput", "ttft<=60ms tpot<=9ms"]


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    faults = simulator(jitter=0.2, error_rate=0.15, cut_rate=0.15, seed=1)
    users = ["-u", "6", "-r", "6"]
    faulty = ["-H", faults, *users, *SHORT, *GOALS, "-t", "4s", "--llm-no-preflight", "--llm-model", "sim"]
    chunks = ["--llm-output-tokens", "40,9"]
    return {
        "rubbish, 2": Plan(["-H", simulator(), *users, *SHORT, "-t", "8s", "--processes", "2"], RUBBISH),
        "faults, 1": Plan(faulty, DESK),
        "faults, 2": Plan([*faulty, "--processes", "2"], DESK),
        "faults, 4": Plan([*faulty, "--processes", "4"], DESK),
        "cut, 2": Plan(
            ["-H", simulator(reasoning=10), *users, *LONG, "-t", "4s", "--llm-drain", "0", "--processes", "2"], DESK
        ),
        "chunks, 2": Plan(
            ["-H", simulator(tokens_per_event=3), *users, *chunks, "-t", "4s", "--processes", "2"], DESK
        ),
        "running usage, 1": Plan(
            ["-H", simulator(tokens_per_event=3), *users, *LONG, "--llm-usage", "continuous", "-t", "4s"], DESK
        ),
        "no usage, 1": Plan(["-H", simulator(usage="off"), *users, *SHORT, "-t", "3s"], DESK),
        "not streamed, 2": Plan(
            ["-H", simulator(), *users, *SHORT, "--llm-no-stream", "-t", "4s", "--processes", "2"], DESK
        ),
        "reset, 1": Plan(["-H", simulator(), *users, *LONG], RESET),
        "reset, 2": Plan(["-H", simulator(), *users, *SHORT, "--processes", "2"], RESET),
        "reset when spawned, 2": Plan(
            ["-H", simulator(), "-u", "6", "-r", "3", *SHORT, "-t", "6s", "--reset-stats", "--processes", "2"], DESK
        ),
        "late": _master(["-H", simulator(), *users, *SHORT, "--enable-rebalancing"]),
    }  # fmt: skip


LONG = ["--llm-input-tokens", "40,0", "--llm-output-tokens", "250,80"]


def _master(args: list[str]) -> Plan:
    port = str(free_port())
    bind = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", "1"]

    def act(live: Live) -> None:
        worker = Plan(["--worker", "--master-port", port], DESK, headless=False)
        first = worker.start(live.folder / "a")
        live.wait_for(SPAWNED)
        time.sleep(1)
        second = worker.start(live.folder / "b")
        logs = live.folder / "b" / "reports"
        live.until(lambda: any('"measure"' in log.read_text() for log in logs.glob("*/ev*.jsonl")), "its records")
        time.sleep(1)
        live.signal(signal.SIGINT)
        first.end()
        second.end()

    return Plan([*bind, *args], DESK, act)


def live_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("live-*.json"))]


def summary_of_run(run: Path) -> dict[str, Any]:
    logs = [
        path for folder in (run, *run.parent.parent.glob(f"*/reports/{run.name}")) for path in folder.glob("ev*.jsonl")
    ]
    return summary_of(analyse(read(sorted(set(logs))), load_card([run]), "all"))


ALL = [
    "faults, 1",
    "faults, 2",
    "faults, 4",
    "cut, 2",
    "chunks, 2",
    "running usage, 1",
    "no usage, 1",
    "not streamed, 2",
]


@pytest.mark.parametrize("name", [*ALL, "late"])
def test_the_end_of_a_run_is_what_the_report_says(runs: Runs, name: str) -> None:
    ended = runs[name]
    assert "Traceback" not in ended.text
    (live,), summary = live_of(ended.folder), summary_of_run(ended.run.path)
    assert live["state"] == "stopped"
    assert live["incomplete"] == []
    assert_row_is(live["total"], summary["total_all"])
    assert [row["name"] for row in live["names"]] == [scope["name"] for scope in summary["names"]]
    for row, scope in zip(live["names"], summary["names"], strict=True):
        assert_row_is(row, scope)
    assert live["head"]["in_flight"] == live["head"]["users"] == 0
    assert sum(error["count"] for error in live["errors"]) == live["total"]["failed"]
    if "workers" in live:
        assert sum(worker["records"] for worker in live["workers"]) == live["total"]["counts"]["exchanges"]


@pytest.mark.parametrize("name", ALL)
def test_locusts_own_count_is_not_touched(runs: Runs, name: str) -> None:
    counts = live_of(runs[name].folder)[0]["total"]["counts"]
    fired = counts["exchanges"] - counts.get("unfinished", 0) - counts.get("cancelled", 0)
    failed = live_of(runs[name].folder)[0]["total"]["failed"]
    assert runs[name].aggregated() == (fired, failed)


def test_objectives_and_goodput_stand_beside_the_figures(runs: Runs) -> None:
    live = live_of(runs["faults, 2"].folder)[0]
    told = {objective["text"]: objective for objective in live["objectives"]}
    assert told["error_rate<=90%"]["state"] == "pass"
    assert told["ask.ttft:p50<=1ms"]["state"] == "fail"
    assert told["ask.ttft:p50<=1ms"]["margin"].startswith("−")
    assert live["goodput"]["of"] == live["total"]["counts"]["ok"] + live["total"]["failed"]
    assert 0 <= live["goodput"]["goodput"] < 1


def test_every_point_adds_up_to_the_whole(runs: Runs) -> None:
    for name in ALL:
        live = live_of(runs[name].folder)[0]
        points, total = live["series"]["points"], live["total"]
        assert sum(point["requests_per_s"] for point in points) == total["counts"].get("ok", 0), name
        failed = sum(sum(point.get("errors", {}).values()) for point in points)
        assert failed == total["failed"], name
        chunks = sum(point["output_chunks_per_s"] for point in points)
        assert chunks == pytest.approx(total["output_chunks_per_s"] * live["elapsed_s"]), name
        assert max(point.get("in_flight", 0) for point in points) in range(1, 7), name


@pytest.mark.parametrize("name", ["reset, 1", "reset, 2", "reset when spawned, 2"])
def test_a_reset_forgets_what_had_ended_before(runs: Runs, name: str) -> None:
    ended = runs[name]
    (live,) = live_of(ended.folder)
    assert live["epoch"] == 1
    assert live["incomplete"] == []
    cut_us = live["started"] * 1e6
    after = [r for r in ended.run.records() if r["start_us"] + r["end_us"] > cut_us]
    before = [r for r in ended.run.records() if r["start_us"] + r["end_us"] < cut_us]
    assert before
    # Workers learn of it some milliseconds later, on a busy machine more; what ended meanwhile is in neither epoch.
    late = [r for r in after if name == "reset, 1" or r["start_us"] + r["end_us"] > cut_us + 2e6]
    assert len(late) <= live["total"]["counts"]["exchanges"] <= len(after)
    assert late
    assert live["total"]["ttft"]["count"] == live["total"]["counts"]["ok"]
    assert all(point["i"] >= 0 for point in live["series"]["points"])
    if name == "reset, 1":
        tokens = sum(point["output_tps"] for point in live["series"]["points"])
        assert tokens < sum(record["n_out"] for record in after), "tokens that came before the reset are not counted"
        assert tokens > 100


def test_rubbish_in_a_report_is_named_and_harms_nothing_else(runs: Runs) -> None:
    ended = runs["rubbish, 2"]
    (live,) = live_of(ended.folder)
    assert ended.code == 0
    said = " ".join(live["incomplete"])
    assert re.search(r"a report of worker \S+ could not be used", said)
    assert re.search(r"1 reports of worker w0-\w+ never came", said)
    assert live["verdict"]["state"] != "sound"
    assert "incomplete" in {reason["code"] for reason in live["verdict"]["reasons"]}
    assert 0 < live["total"]["counts"]["ok"] < len(ended.run.records())
    assert ended.aggregated()[0] == len(ended.run.records())


def python(folder: Path, script: str, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    argv, env = [sys.executable, "script.py", *args], os.environ | {"LOCUST_LLM_OUTPUT_TOKENS": "20,0"}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=110)


def test_two_runs_in_a_process_do_not_mix(tmp_path: Path, simulator: Callable[..., str]) -> None:
    done = python(tmp_path, LIBRARY, simulator())
    assert "Traceback" not in done.stderr
    first, second = live_of(tmp_path)
    assert (first["epoch"], second["epoch"]) == (0, 1)
    for live, folder in zip((first, second), sorted((tmp_path / "reports").iterdir()), strict=True):
        assert live["run"] == folder.name
        assert_row_is(live["total"], summary_of_run(folder)["total_all"])


def test_a_single_user_in_a_debugger_has_figures_too(tmp_path: Path, simulator: Callable[..., str]) -> None:
    done = python(tmp_path, SINGLE, "-H", simulator(), *SHORT)
    assert "Traceback" not in done.stderr
    (live,) = live_of(tmp_path)
    assert live["total"]["counts"] == {"exchanges": 2, "ok": 2}
