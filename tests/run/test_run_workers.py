"""Runs of several processes: nothing that a worker measured is lost, whoever is told to stop, and whoever dies."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from run_cluster import codes, keys, master, worker
from run_processes import CHAT, NOTED, SHORT, SPAWNED, Ended, Live, Plan, RunFolder, Runs

SLOW = ["--llm-input-tokens", "40,0", "--llm-output-tokens", "300,0"]
"""Exchanges of three seconds."""
ENDLESS = ["--llm-input-tokens", "40,0", "--llm-output-tokens", "3000,0"]
"""Exchanges of half a minute, to be cut."""
TWO = ["--processes", "2"]

DEAF_MASTER = (
    CHAT
    + """
import locust.runners
locust.runners.MASTER_HEARTBEAT_TIMEOUT = 4
"""
)
PLAIN = """
from locust import HttpUser, task

class Chat(HttpUser):
    @task
    def ask(self):
        self.client.get("/v1/models")
"""


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    host = ["-H", simulator()]
    four = [*host, "-u", "4", "-r", "4"]
    slow = [*four, *SLOW, *TWO]
    return {
        "a worker killed": Plan([*four, *SHORT, *TWO, "-t", "9s"], NOTED, act=kill_one),
        "plain worker": master([*host, "-u", "2", *SHORT], plain_worker),
        "late": master([*four, *SHORT, "--enable-rebalancing"], late),
        "time": Plan([*four, "--llm-output-tokens", "100,0", *TWO, "-t", "2s", "--llm-save-text"]),
        "SIGINT to all": Plan(slow, act=press(signal.SIGINT, all_of_it=True)),
        "SIGINT to the master": Plan(slow, act=press(signal.SIGINT, all_of_it=False)),
        "SIGTERM to all": Plan(slow, act=press(signal.SIGTERM, all_of_it=True)),
        "SIGINT twice": Plan([*four, *ENDLESS, *TWO], act=press(signal.SIGINT, all_of_it=True, times=2)),
        "SIGINT at once": Plan(
            ["-H", simulator(fail_first=600.0), "--llm-wait-ready", "5m", *TWO], act=press_while_waiting
        ),
        "a worker told to go": Plan([*four, *SHORT, *TWO], act=send_one_away),
        "a worker with tickets killed": Plan([*slow, "--llm-requests", "6"], act=kill_one_in_its_first_stream),
        "master killed": Plan(slow, act=kill_master),
        "failures": Plan(["-H", simulator(error_rate=1.0), *slow[2:], "--llm-requests", "8", *NO_PREFLIGHT]),
        "prompt file": Plan(
            [*four, *TWO, "--llm-prompts", "p.jsonl", "--llm-requests", "20", "--llm-save-text"],
            files={"p.jsonl": "".join(f'{{"prompt": "Question {i}", "max_tokens": 20}}\n' for i in range(40))},
        ),
        "apart": master([*four, *SHORT, "-t", "2s"], apart),
        "master killed, apart": master([*host, "-u", "2", *SLOW], kill_master_apart, locustfile=DEAF_MASTER),
        "plain master": master([*host, "-u", "2"], plain_master, locustfile=PLAIN),
        "simulating worker": master([*host, "-u", "2", *SHORT], simulating_worker),
    }  # fmt: skip


NO_PREFLIGHT = ["--llm-no-preflight", "--llm-model", "sim"]


# ---- what is done to them


def press(number: int, all_of_it: bool, times: int = 1) -> Callable[[Live], None]:
    def act(live: Live) -> None:
        live.wait_for(SPAWNED)
        time.sleep(0.7)
        for i in range(times):
            if i:
                live.wait_for("letting 2 streams", 2)
                time.sleep(0.5)
            (live.signal_all if all_of_it else live.signal)(number)

    return act


def press_while_waiting(live: Live) -> None:
    live.wait_for("waiting up to 300 s")
    live.signal_all(signal.SIGINT)


def send_one_away(live: Live) -> None:
    live.wait_for(SPAWNED)
    time.sleep(1)
    os.kill(live.children()[-1], signal.SIGTERM)
    live.wait_for(r"quit\. \d workers ready")
    time.sleep(1)
    live.signal(signal.SIGINT)


def kill_one(live: Live) -> None:
    live.wait_for(SPAWNED)
    victim = live.children()[-1]

    def over_s() -> float:
        ends_us = live.noted_us(victim) or [0]
        return (ends_us[-1] - ends_us[0]) / 1e6

    live.until(lambda: over_s() > 2.5, "exchanges that end over some seconds")
    os.kill(victim, signal.SIGKILL)
    (live.folder / "noted").write_text(json.dumps(live.noted_us(victim)))


def kill_one_in_its_first_stream(live: Live) -> None:
    live.wait_for(SPAWNED)
    time.sleep(1)
    os.kill(live.children()[-1], signal.SIGKILL)


def kill_master(live: Live) -> None:
    live.wait_for(SPAWNED)
    time.sleep(0.7)
    workers = live.children()
    assert len(workers) == 2
    live.signal(signal.SIGKILL)
    live.process.wait()
    wait_until_gone(workers)


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text() for pid in pids):
        assert time.monotonic() < deadline, "workers still there"
        time.sleep(0.1)


def apart(live: Live, port: str) -> None:
    workers = [
        worker(port, LOCUST_LLM_WORKER_OUT=f"{live.folder}/of-{name}").start(live.folder / name) for name in "ab"
    ]
    (live.folder / "codes").write_text(json.dumps([one.end().code for one in workers]))


def late(live: Live, port: str) -> None:
    first = worker(port).start(live.folder / "a")
    live.wait_for(SPAWNED)
    second = worker(port).start(live.folder / "b")
    logs = live.folder / "b" / "reports"
    live.until(
        lambda: any('"measure"' in path.read_text() for path in logs.glob("*/ev*.jsonl")), "the second's records"
    )
    live.signal(signal.SIGINT)
    (live.folder / "codes").write_text(json.dumps([first.end().code, second.end().code]))


def kill_master_apart(live: Live, port: str) -> None:
    one = worker(port, DEAF_MASTER).start(live.folder / "a")
    live.wait_for(SPAWNED)
    time.sleep(0.7)
    live.signal(signal.SIGKILL)
    (live.folder / "codes").write_text(json.dumps([one.end().code]))


def plain_master(live: Live, port: str) -> None:
    one = worker(port).start(live.folder / "a")
    (live.folder / "codes").write_text(json.dumps([one.end().code]))
    live.signal(signal.SIGINT)


def plain_worker(live: Live, port: str) -> None:
    one = worker(port, PLAIN).start(live.folder / "a")
    (live.folder / "codes").write_text(json.dumps([one.end().code]))


def simulating_worker(live: Live, port: str) -> None:
    plan = worker(port)
    plan.args = [*plan.args, "--llm-simulate"]
    (live.folder / "codes").write_text(json.dumps([plan.start(live.folder / "a").end().code]))
    live.signal(signal.SIGKILL)


# ---- what comes of it


def adds_up(ended: Ended) -> bool:
    """Whether records, Locust's requests and the card agree."""
    records, card = ended.run.records(), ended.run.card
    finished = [r for r in records if r["outcome"] != "unfinished"]
    return (
        ended.aggregated()[0] == len(finished)
        and sum(card["finished"].values()) == len(records)
        and card["records"] == len(records) + len(ended.run.records("preflight"))
        and "Traceback" not in ended.text
    )


def test_two_processes_report_every_exchange_of_a_run_that_is_over(runs: Runs) -> None:
    ended = runs["time"]
    assert set(ended.run.outcomes()) == {"ok"}
    assert len(ended.run.records()) >= 4
    assert adds_up(ended)
    assert ended.code == 0


def test_each_worker_has_its_log_in_the_run_folder(runs: Runs) -> None:
    run = runs["time"].run
    logs = sorted(path.name for path in run.path.glob("events-*.jsonl"))
    assert logs == sorted(f"events-{name}.jsonl" for name in run.card["workers"])
    assert len(logs) == 2
    assert run.card["workers_missing"] == []
    assert {record["worker"] for record in run.records()} == set(run.card["workers"])


def test_workers_never_send_the_same_prompt(runs: Runs) -> None:
    records = runs["time"].run.records()
    assert len({record["prompt"] for record in records}) == len(records) >= 4


def test_workers_share_a_prompt_file_without_repeats(runs: Runs) -> None:
    records = runs["prompt file"].run.records()
    assert len({record["prompt"] for record in records}) == len(records) == 20
    assert len({record["worker"] for record in records}) == 2


def test_ctrl_c_in_a_terminal_reaches_all_and_streams_finish(runs: Runs) -> None:
    ended = runs["SIGINT to all"]
    assert ended.run.outcomes() == {"ok": 4}
    assert adds_up(ended)
    assert ended.run.card["workers_missing"] == []
    assert ended.code == 0


def test_sigint_to_the_master_alone_lets_the_workers_streams_finish(runs: Runs) -> None:
    ended = runs["SIGINT to the master"]
    assert ended.run.outcomes() == {"ok": 4}
    assert adds_up(ended)
    assert ended.code == 0


def test_sigterm_to_all_lets_streams_finish(runs: Runs) -> None:
    ended = runs["SIGTERM to all"]
    assert ended.run.outcomes() == {"ok": 4}
    assert adds_up(ended)
    assert ended.run.card["workers_missing"] == []
    assert ended.code == 0


def test_a_second_ctrl_c_cuts_the_streams_of_all_workers(runs: Runs) -> None:
    ended = runs["SIGINT twice"]
    assert ended.run.outcomes() == {"unfinished": 4}
    assert sum(event["exchanges"] for event in ended.run.events("cut")) == 4
    assert adds_up(ended)
    assert ended.code == 1


def test_ctrl_c_ends_the_wait_of_all_for_a_server(runs: Runs) -> None:
    ended = runs["SIGINT at once"]
    assert ended.code == 1
    assert "Traceback" not in ended.text
    assert "locust-llm: error" not in ended.text
    assert ended.runs == []


def test_a_worker_that_is_told_to_go_reports_and_the_run_goes_on(runs: Runs) -> None:
    ended = runs["a worker told to go"]
    assert set(ended.run.outcomes()) == {"ok"}
    assert adds_up(ended)
    assert sorted(one["state"] for one in ended.run.card["worker_details"].values()) == ["drained", "left"]
    assert keys(ended.run.log()) == keys(ended.run.records())
    assert ended.run.card["workers_missing"] == []
    assert len(ended.run.card["workers"]) == 2


def test_a_killed_worker_is_said_to_be_missing_and_the_run_ends(runs: Runs) -> None:
    ended = runs["a worker killed"]
    (missing,) = ended.run.card["workers_missing"]
    (other,) = ended.run.card["workers"]
    assert missing != other
    log = ended.run.path / f"events-{missing}.jsonl"
    noted_us = json.loads((ended.folder / "noted").read_text())
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(records) >= sum(at < noted_us[-1] - 2_000_000 for at in noted_us) > 0
    assert "workers_missing" in ended.out + ended.err


def test_tickets_of_a_killed_worker_do_not_keep_a_run_of_n_alive(runs: Runs) -> None:
    ended = runs["a worker with tickets killed"]
    assert len(ended.run.card["workers_missing"]) == 1
    assert 0 < len(ended.run.records()) <= 6


def test_workers_whose_master_was_killed_drain_and_end(runs: Runs) -> None:
    run = runs["master killed"].run
    assert run.outcomes() == {"ok": 4}
    assert len(list(run.path.glob("events-*.jsonl"))) == 2


def test_failures_on_workers_are_exit_code_1(runs: Runs) -> None:
    ended = runs["failures"]
    assert set(ended.run.outcomes()) == {"http_status"}
    assert ended.aggregated()[0] == ended.aggregated()[1] == len(ended.run.records())
    assert ended.code == 1


def test_workers_started_apart_keep_their_logs_where_their_own_variable_says(runs: Runs) -> None:
    ended = runs["apart"]
    name = ended.run.path.name
    own = [RunFolder(ended.folder / f"of-{which}" / name) for which in "ab"]
    assert all(folder.records() for folder in own)
    assert ended.aggregated()[0] == sum(len(folder.records()) for folder in own)
    assert list(ended.run.path.glob("events-*.jsonl")) == []
    assert codes(ended) == [0, 0]
    assert ended.code == 0


def test_the_masters_log_is_complete_though_no_worker_shares_its_folder(runs: Runs) -> None:
    ended = runs["apart"]
    name = ended.run.path.name
    own = [record for which in "ab" for record in RunFolder(ended.folder / f"of-{which}" / name).records()]
    assert keys(ended.run.log()) == keys(own)
    assert "in the run folders of the workers" not in ended.text
    assert "records_elsewhere" not in ended.text


def test_a_worker_that_joins_late_takes_part(runs: Runs) -> None:
    ended = runs["late"]
    assert codes(ended) == [0, 0]
    assert len(ended.run.card["workers"]) == 2
    assert ended.run.card["workers_missing"] == []
    folders = [RunFolder(ended.folder / which / "reports" / ended.run.path.name) for which in "ab"]
    assert all(folder.records() for folder in folders)
    outcomes = folders[0].outcomes() + folders[1].outcomes()
    assert set(outcomes) <= {"ok", "cancelled"}, "users that moved to the other worker were stopped on the first"
    assert ended.aggregated() == (outcomes["ok"], 0)
    assert all(change["moved"] for change in ended.run.events("load_changed")), "there were four users all the time"
    assert "Traceback" not in ended.text


def test_a_worker_started_apart_notices_that_its_master_was_killed(runs: Runs) -> None:
    ended = runs["master killed, apart"]
    folder = RunFolder(next((ended.folder / "a" / "reports").iterdir()))
    assert set(folder.outcomes()) == {"ok"}


def test_a_master_that_does_not_run_the_extension_is_named(runs: Runs) -> None:
    ended = runs["plain master"]
    assert (ended.folder / "a" / "stderr").read_text().count("locust-llm: error:") == 1
    assert "the master does not run locust-llm" in (ended.folder / "a" / "stderr").read_text()
    assert codes(ended) == [2]


def test_a_worker_that_does_not_run_the_extension_is_named(runs: Runs) -> None:
    ended = runs["plain worker"]
    assert ended.code == 2
    assert "do they run the same locustfile and version?" in ended.err
    assert "Traceback" not in ended.err


def test_a_worker_of_its_own_cannot_simulate(runs: Runs) -> None:
    ended = runs["simulating worker"]
    assert codes(ended) == [2]
    assert "locust-llm: error: --llm-simulate belongs to the master" in (ended.folder / "a" / "stderr").read_text()
