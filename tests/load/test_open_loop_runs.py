"""Arrivals in real runs: nothing is dropped, workers that die are replaced, lateness shows where it belongs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from run_processes import CHAT, SHORT, SPAWNED, Ended, Live, Plan, Runs

FREEZE_S = 3.0
RATE = 20
FROZEN_USERS = 4

PACED = CHAT.replace("import ChatUser", "import ChatUser, arrivals").replace(
    "    @task", "    wait_time = arrivals.constant(20)\n    @task"
)
WAITING = CHAT.replace("import task", "import constant, task").replace(
    "    @task", "    wait_time = constant(1)\n    @task"
)
CHANGING = (
    CHAT
    + """
import gevent, locust
from locust_llm.plugin import node_of

@locust.events.init.add_listener
def change(environment, **_):
    if not getattr(environment.parsed_options, "worker", False) and hasattr(environment.runner, "clients"):
        gevent.spawn_later(4, lambda: node_of(environment).set_rate(40))
"""
)


class Freezing(BaseHTTPRequestHandler):
    """Answers at once, but for ``FREEZE_S`` from two seconds after its first request on."""

    protocol_version = "HTTP/1.1"
    first_s: float | None = None

    def do_POST(self) -> None:
        cls = type(self)
        self.rfile.read(int(self.headers["content-length"]))
        now = time.monotonic()
        cls.first_s = cls.first_s or now
        thaw = cls.first_s + 2 + FREEZE_S
        if now >= thaw - FREEZE_S:
            time.sleep(max(0.0, thaw - now))
        chunk = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}],
                 "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}  # fmt: skip
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def freezing_server() -> str:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Freezing)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def users(number: int) -> list[str]:
    return ["-u", str(number), "-r", str(number)]


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    host = ["-H", simulator(), *SHORT]
    long = [*host, "--llm-output-tokens", "1000,0", *users(2), "--llm-requests", "6"]
    two = ["--processes", "2"]
    even = ["--llm-rate", str(RATE), "--llm-arrivals", "constant"]
    frozen = ["-H", freezing_server(), "--llm-no-preflight", "--llm-model", "m", *even, *users(FROZEN_USERS)]
    return {
        "killed": Plan([*host, *even, *users(30), *two], act=kill_one),
        "frozen": Plan([*frozen, "-t", "9s"]),
        "two": Plan([*host, *even, *users(20), *two, "-t", "5s"]),
        "of n": Plan([*host, *even, *users(20), *two, "--llm-requests", "30"]),
        "changed": Plan([*host, *even, *users(40), *two, "-t", "7s"], CHANGING),
        "paced class": Plan([*host, *users(20), "-t", "3s"], PACED),
        "too few users": Plan([*host, "--llm-rate", "20", *users(1), "-t", "6s"]),
        "wait_time": Plan([*host, "--llm-rate", "20", *users(1)], WAITING),
        "warm-up": Plan([*host, *users(3), *two, "--llm-warmup", "7", "--llm-requests", "5", "--llm-save-text"]),
        "timed warm-up": Plan([*host, *even, *users(20), "--llm-warmup", "2s", "-t", "2s"]),
        "failed warm-up": Plan(
            ["-H", simulator(error_rate=1.0), *SHORT, "--llm-no-preflight", "--llm-model", "sim", "--llm-warmup", "3"]
        ),
        "cancelled in time": Plan([*long, "--llm-cancel", "100%@120ms"]),
        "cancelled by tokens": Plan([*long, "--llm-cancel", "100%@5tokens"]),
        "failing": Plan(
            ["-H", simulator(error_rate=1.0), *SHORT, *users(2), "--llm-no-preflight", "--llm-model", "sim",
             "--llm-stop-after-failures", "3"]
        ),
    }  # fmt: skip


def kill_one(live: Live) -> None:
    live.wait_for(SPAWNED)
    time.sleep(2)
    (live.folder / "killed_s").write_text(str(time.time()))
    os.kill(live.children()[-1], signal.SIGKILL)
    live.wait_for("setting state to missing")
    time.sleep(3)
    live.signal(signal.SIGINT)


def scheduled_s(ended: Ended) -> np.ndarray:
    return np.sort([record["scheduled_us"] / 1e6 for record in ended.run.records()])


def killed_s(ended: Ended) -> float:
    return float((ended.folder / "killed_s").read_text())


def the_change(ended: Ended) -> dict[str, Any]:
    """Return the one change of shares that there was."""
    changes = ended.run.events("shares_changed")
    assert len(changes) == 1, ended.run.card["events"]
    return changes[0]


def has_rate_from(ended: Ended, rate: float, from_us: int) -> bool:
    """Whether arrivals have this rate from a moment to the stop; some due before it may have found no user by then."""
    stop_s = ended.run.events("stop")[0]["t"]
    due = scheduled_s(ended)
    number = int(((due > from_us / 1e6) & (due < stop_s)).sum())
    expected = rate * (stop_s - from_us / 1e6)
    assert expected > 2 * rate, "there were two seconds to look at"
    return expected - 5 - ended.run.card["arrivals"]["waiting"] <= number <= expected + 5


def verdict(ended: Ended) -> dict[str, str]:
    """Return the effects of the verdict's reasons, by code."""
    summary = json.loads((ended.run.path / "summary.json").read_text())
    return {reason["code"]: reason["effect"] for reason in summary["verdict"]["reasons"]}


def test_two_workers_send_every_due_arrival_once_and_evenly(runs: Runs) -> None:
    ended = runs["two"]
    arrivals, due = ended.run.card["arrivals"], scheduled_s(ended)
    assert arrivals["due"] == len(due) + arrivals["waiting"]
    assert 40 <= len(due) <= 101  # fewer where the workers are slow to start
    assert np.abs(np.diff(due) - 1 / RATE).max() < 0.02  # wall clocks of two processes
    assert len({record["worker"] for record in ended.run.records()}) == 2
    assert ended.code == 0
    assert "open loop: constant 20/s" in ended.text


def test_with_a_number_of_exchanges_exactly_so_many_are_sent(runs: Runs) -> None:
    assert runs["of n"].run.outcomes() == {"ok": 30}
    assert runs["of n"].code == 0


def test_when_a_worker_is_killed_the_rate_is_soon_back(runs: Runs) -> None:
    ended = runs["killed"]
    change = the_change(ended)
    assert change["workers"] == 1
    assert change["from_us"] / 1e6 < killed_s(ended) + 15  # five seconds, on a machine with nothing else to do
    assert has_rate_from(ended, RATE, change["from_us"])


def test_arrivals_that_died_with_a_worker_are_named(runs: Runs) -> None:
    ended = runs["killed"]
    arrivals = ended.run.card["arrivals"]
    lost = arrivals["due"] - arrivals["waiting"] - len(ended.run.records())
    change = the_change(ended)
    assert 0 < lost < RATE / 2 * (change["from_us"] / 1e6 - killed_s(ended) + 5)
    assert arrivals["taken_over_from"]
    assert f"{lost} of {arrivals['due']} arrivals are lost" in verdict(ended)["arrivals_lost"]


def test_latency_from_the_schedule_shows_a_freeze_that_service_latency_hides(runs: Runs) -> None:
    records = [r for r in runs["frozen"].run.records() if r["outcome"] == "ok"]
    service = np.array([r["end_us"] / 1e6 for r in records])
    scheduled = np.array([(r["start_us"] - r["scheduled_us"] + r["end_us"]) / 1e6 for r in records])
    # Arrival k of the freeze waits for the rest of it: FREEZE_S - k / RATE. Serving the queue comes on top.
    waited = np.sort(scheduled[scheduled > 0.5])[::-1]
    expected = np.arange(FREEZE_S, 0.5, -1 / RATE)
    assert len(waited) >= len(expected) - 3
    late = waited[: len(expected) - 3] - expected[: len(expected) - 3]
    assert late.min() > -0.2
    assert (late < 3 + 0.1 * np.arange(len(late))).all()
    assert (service > 0.5).sum() <= 2 * FROZEN_USERS  # twice if the machine stands still for a moment, too
    assert np.percentile(service, 95) < 0.5 < np.percentile(scheduled, 95)


def test_the_report_explains_the_two_latencies(runs: Runs) -> None:
    effect = verdict(runs["frozen"])["schedule_lag"]
    assert "scheduled_latency" in effect
    assert "do not show that wait" in effect


def test_a_rate_changed_in_flight_reaches_all_workers_and_is_marked(runs: Runs) -> None:
    ended = runs["changed"]
    (change,) = ended.run.events("load_changed")
    assert (change["rate_before"], change["rate"]) == (20, 40)
    assert "once while it ran, last to 40 arrivals per second" in verdict(ended)["load_changed"]
    assert has_rate_from(ended, 40, change["from_us"])


def test_a_user_class_can_have_arrivals_of_its_own(runs: Runs) -> None:
    due = scheduled_s(runs["paced class"])
    assert 20 <= len(due) <= 61
    assert np.abs(np.diff(due) - 0.05).max() < 0.001
    assert runs["paced class"].run.card["arrivals"]["asked"]["Chat"]["process"] == "constant 20/s"


def test_users_that_are_too_few_are_told_while_it_runs_and_in_the_verdict(runs: Runs) -> None:
    ended = runs["too few users"]
    assert "raise -u" in ended.err
    assert "rate_not_delivered" in verdict(ended)
    arrivals = ended.run.card["arrivals"]
    assert arrivals["due"] == len(ended.run.records()) + arrivals["waiting"]
    assert arrivals["waiting"] > 10


def test_a_rate_beside_a_wait_time_is_one_line_and_exit_code_2(runs: Runs) -> None:
    ended = runs["wait_time"]
    assert ended.code == 2
    assert "locust-llm: error: --llm-rate: Chat has a wait_time" in ended.text
    assert "Traceback" not in ended.text


def test_the_warm_up_is_outside_the_figures_and_sends_other_prompts(runs: Runs) -> None:
    run = runs["warm-up"].run
    warm, measured = run.records("warmup"), run.records()
    assert (len(warm), len(measured)) == (7, 5)
    assert max(r["start_us"] + r["end_us"] for r in warm) < min(r["start_us"] for r in measured)
    assert {r["worker"] for r in warm} == set(run.card["workers"])
    assert len({r["seq"] for r in warm if r["worker"] == warm[0]["worker"]}) in (3, 4)
    assert run.card["records"] == len(warm) + len(measured) + len(run.records("preflight"))
    assert runs["warm-up"].aggregated() == (5, 0)
    summary = json.loads((run.path / "summary.json").read_text())
    assert summary["log"]["warmup"] == 7


def test_the_clock_of_the_run_time_starts_after_the_warm_up(runs: Runs) -> None:
    run = runs["timed warm-up"].run
    (start,), (stop,) = run.events("test_start"), run.events("stop")
    assert stop["t"] - start["t"] > 1.9
    warm = run.records("warmup")
    assert 10 <= len(warm) <= 41
    assert max(r["start_us"] for r in warm) / 1e6 < start["t"]


def test_a_warm_up_that_fails_altogether_stops_the_run_before_it_starts(runs: Runs) -> None:
    assert runs["failed warm-up"].code == 2
    assert "locust-llm: error: --llm-warmup: none of 3 exchanges ended well" in runs["failed warm-up"].text


def test_exchanges_that_are_hung_up_after_a_time_are_cancelled_and_keep_what_came(runs: Runs) -> None:
    ended = runs["cancelled in time"]
    assert ended.run.outcomes() == {"cancelled": 6}
    for record in ended.run.records():
        assert 0.1e6 < record["end_us"] < 8e6
        assert 0 < sum(record["kind_runs"]) < 1000
    assert "Traceback" not in ended.text


def test_exchanges_that_are_hung_up_after_tokens_are_cancelled(runs: Runs) -> None:
    ended = runs["cancelled by tokens"]
    assert ended.run.outcomes() == {"cancelled": 6}
    for record in ended.run.records():
        tokens = sum(n for kind, n in zip(record["kind_names"], record["kind_runs"], strict=True) if kind == "content")
        assert 5 <= tokens < 1000


def test_failures_in_a_row_stop_the_run(runs: Runs) -> None:
    ended = runs["failing"]
    assert ended.code == 2
    assert "failures in a row (--llm-stop-after-failures)" in ended.text
    assert 3 <= sum(ended.run.outcomes().values()) <= 8


def test_the_report_of_a_run_can_be_made_again(runs: Runs) -> None:
    path = runs["two"].run.path
    made = subprocess.run(
        [sys.executable, "-m", "locust_llm.cli", "report", str(path)], capture_output=True, text=True, timeout=60
    )
    assert made.returncode == 0
    assert "schedule lag ms" in made.stdout
