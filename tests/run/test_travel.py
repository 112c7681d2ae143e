"""Records reach the master from workers that share nothing with it, whatever happens to workers, clocks and disks."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from run_cluster import codes, keys, master, note, noted, own_logs, start_worker
from run_processes import CHAT, SHORT, SPAWNED, Ended, Live, Plan, Runs

from locust_llm.report.reading import read

SLOW = ["--llm-input-tokens", "40,0", "--llm-output-tokens", "300,0"]
"""Exchanges of three seconds."""

HOUR_US = 3_600_000_000
HOUR_AHEAD = (
    """
import time
really, really_ns = time.time, time.time_ns
time.time = lambda: really() + 3600
time.time_ns = lambda: really_ns() + 3600 * 10**9
"""
    + CHAT
)
FULL_MASTER = (
    """
import resource, signal, sys
if "--master" in sys.argv:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))
"""
    + CHAT
)
OLD = "import locust_llm.worker\nlocust_llm.worker.__version__ = '0.0.1'\n" + CHAT
PLAIN = """
from locust import HttpUser, task

class Chat(HttpUser):
    @task
    def ask(self):
        self.client.get("/v1/models")
"""
GARBLED = (
    """
from locust_llm.live import post
really, times = post._pack, []

def pack(read):
    size, lines, body = really(read)
    times.append(size)
    return (size, lines, b"not packed") if len(times) == 1 else (size, lines, body)

post._pack = pack
"""
    + CHAT
)


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    host = ["-H", simulator()]
    eight = [*host, "-u", "8", "-r", "8", *SHORT]
    return {
        "chaos": master([*eight, "--enable-rebalancing"], chaos, workers=4),
        "requests": master([*host, "-u", "4", "-r", "4", *SHORT, "--llm-requests", "80"], stand_still, workers=2),
        "clock": master(
            [*host, "-u", "8", "-r", "8", *SHORT, "--llm-rate", "12", "--llm-arrivals", "constant", "-t", "5s"],
            an_hour_ahead, workers=2,
        ),
        "full": master([*eight, "--llm-requests", "140"], two_workers, FULL_MASTER, workers=2),
        "streams open": master([*host, "-u", "6", "-r", "6", *SLOW], stop_while_open, workers=2),
        "other version": master([*eight, "-t", "3s"], old_worker),
        "late other version": master(eight, late_old_worker),
        "late plain worker": master([*eight, "--enable-rebalancing"], late_plain_worker),
        "garbled": master([*eight, "-t", "3s"], garbled),
    }  # fmt: skip


# ---- what is done to them


def chaos(live: Live, port: str) -> None:
    workers = {name: start_worker(live, port, name) for name in ("dead", "still", "a", "b")}
    live.wait_for(SPAWNED)
    time.sleep(2)
    workers["dead"].signal(signal.SIGKILL)
    workers["still"].signal(signal.SIGSTOP)
    stopped_s = time.monotonic()
    workers["added"] = start_worker(live, port, "added")
    live.wait_for("setting state to missing", 2)
    time.sleep(1)
    note(live, "away_s", time.monotonic() - stopped_s)
    workers["still"].signal(signal.SIGCONT)
    live.wait_for("self-healed")
    logs = live.folder / "of-added"
    live.until(lambda: any('"measure"' in log.read_text() for log in logs.glob("*/ev*.jsonl")), "records of the added")
    time.sleep(1)
    live.signal(signal.SIGINT)
    end(live, [one for name, one in workers.items() if name != "dead"])


def stand_still(live: Live, port: str) -> None:
    workers = [start_worker(live, port, name) for name in ("still", "a")]
    live.wait_for(SPAWNED)
    workers[0].signal(signal.SIGSTOP)
    live.wait_for("setting state to missing")
    time.sleep(1)
    workers[0].signal(signal.SIGCONT)
    end(live, workers)


def an_hour_ahead(live: Live, port: str) -> None:
    workers = [start_worker(live, port, "ahead", HOUR_AHEAD), start_worker(live, port, "right")]
    end(live, workers)


def two_workers(live: Live, port: str) -> None:
    end(live, [start_worker(live, port, name) for name in "ab"])


def stop_while_open(live: Live, port: str) -> None:
    workers = [start_worker(live, port, name) for name in "ab"]
    live.wait_for(SPAWNED)
    live.until(lambda: len(list(live.folder.glob("of-*/*/events-*.jsonl"))) == 2, "the logs of both workers")
    time.sleep(1)
    live.signal(signal.SIGINT)
    end(live, workers)


def old_worker(live: Live, port: str) -> None:
    one = start_worker(live, port, "old", OLD)
    live.process.wait(60)
    one.kill()
    (live.folder / "codes").write_text("[]")


def late_old_worker(live: Live, port: str) -> None:
    good = start_worker(live, port, "a")
    live.wait_for(SPAWNED)
    old = start_worker(live, port, "old", OLD)
    live.wait_for("goes on without it")
    time.sleep(1)
    live.signal(signal.SIGINT)
    end(live, [old, good])


def late_plain_worker(live: Live, port: str) -> None:
    good = start_worker(live, port, "a")
    live.wait_for(SPAWNED)
    plain = start_worker(live, port, "plain", PLAIN)
    live.wait_for("does not take part")
    live.signal(signal.SIGINT)
    end(live, [good, plain])


def garbled(live: Live, port: str) -> None:
    end(live, [start_worker(live, port, "a", GARBLED)])


def end(live: Live, workers: list[Live]) -> None:
    note(live, "codes", [one.end().code for one in workers])


# ---- what comes of it


def report(ended: Ended) -> dict[str, Any]:
    """Make the report again and return its summary."""
    command = [sys.executable, "-m", "locust_llm.cli", "report", str(ended.run.path), "--no-html"]
    subprocess.run(command, check=True, capture_output=True)
    summary: dict[str, Any] = json.loads((ended.run.path / "summary.json").read_text())
    return summary


def reasons(summary: dict[str, Any]) -> dict[str, str]:
    return {reason["code"]: reason["effect"] for reason in summary["verdict"]["reasons"]}


def test_after_chaos_the_masters_log_holds_what_ended_on_living_workers_exactly_once(runs: Runs) -> None:
    ended = runs["chaos"]
    own = own_logs(ended)
    assert set(own) == {"a", "b", "added", "dead", "still"}
    living = [record for name in ("a", "b", "added", "still") for record in own[name].records()]
    dead = own["dead"].records()
    assert all(own[name].records() for name in own), "each worker had its share"
    log = keys(ended.run.log())
    assert len(log) == len(set(log))
    names = {record["worker"] for record in dead}
    assert [key for key in log if key[0] not in names] == keys(living)
    came = [key for key in log if key[0] in names]
    assert came == keys(dead)[: len(came)]


def test_after_chaos_card_and_verdict_say_what_happened(runs: Runs) -> None:
    ended = runs["chaos"]
    card, own = ended.run.card, own_logs(ended)
    (dead,) = {record["worker"] for record in own["dead"].records()}
    (still,) = {record["worker"] for record in own["still"].records()}
    assert card["workers_missing"] == [dead]
    states = {name: one["state"] for name, one in card["worker_details"].items()}
    assert states.pop(dead) == "lost"
    assert set(states.values()) == {"drained"}
    assert len(states) == 4
    assert {event["worker"] for event in ended.run.events("worker_lost")} == {dead, still}
    (back,) = ended.run.events("worker_back")
    assert back["worker"] == still
    assert 0 < back["away_s"] < noted(ended, "away_s") + 20
    said = reasons(report(ended))
    assert dead in said["workers_missing"]
    assert still in said["worker_away"]
    assert dead not in said["worker_away"]


def test_the_file_of_a_dead_worker_completes_the_report(runs: Runs) -> None:
    ended = runs["chaos"]
    own = own_logs(ended)
    (dead,) = {record["worker"] for record in own["dead"].records()}
    copy = Ended(0, ended.folder / "copy")
    folder = copy.folder / "reports" / ended.run.path.name
    shutil.copytree(ended.run.path, folder)
    file = own["dead"].path / f"events-{dead}.jsonl"
    shutil.copy(file, folder)
    log = read([folder])
    everything = [record for one in own.values() for record in one.records()]
    assert int(log.phase.isin("measure").sum()) == len(everything)
    assert log.damage.doubles == 0, "what the master has is not read again"
    details = ended.run.card["worker_details"][dead]
    assert details["received_bytes"] <= file.stat().st_size


def test_exactly_n_requests_though_a_worker_stood_still(runs: Runs) -> None:
    ended = runs["requests"]
    log = keys(ended.run.log())
    assert len(log) == len(set(log)) == 80
    assert sum(one["tickets"] for one in ended.run.card["worker_details"].values()) == 80
    assert ended.run.card["workers_missing"] == []
    assert ended.aggregated()[0] == 80
    assert codes(ended) == [0, 0]


def test_a_clock_that_is_an_hour_ahead_is_measured_and_the_report_allows_for_it(runs: Runs) -> None:
    ended = runs["clock"]
    by_worker = {name: one["clock"] for name, one in ended.run.card["worker_details"].items()}
    (ahead,) = [name for name, points in by_worker.items() if abs(points[0][1] - HOUR_US) < 1_000_000]
    (right,) = set(by_worker) - {ahead}
    assert abs(by_worker[right][0][1]) < 1_000_000
    raw = [r["start_us"] for r in ended.run.log()]
    assert max(raw) - min(raw) > HOUR_US - 60_000_000, "the log stays as it was written"
    placed = read([ended.run.path]).start_us
    assert placed.max() - placed.min() < 60_000_000
    summary = report(ended)
    assert len(raw) // 2 < summary["total"]["outcomes"]["ok"] <= len(raw)
    assert summary["total_all"]["outcomes"]["ok"] == len(raw)
    assert summary["total_all"]["window"]["duration_s"] < 60
    assert ahead in reasons(summary)["clock_offset"]
    assert "clock of worker" in ended.err


def test_arrivals_are_shared_rightly_by_workers_whose_clocks_differ(runs: Runs) -> None:
    ended = runs["clock"]
    counts = Counter(record["worker"] for record in ended.run.log())
    assert len(counts) == 2
    lags = [record["start_us"] - record["scheduled_us"] for record in ended.run.log()]
    assert min(lags) >= 0
    assert max(lags) < 60_000_000
    assert 30 <= sum(counts.values()) <= 90, "12 a second for 5 s"
    assert max(counts.values()) <= 2 * min(counts.values())


def test_a_full_disk_of_the_master_is_said_and_the_workers_files_have_the_rest(runs: Runs) -> None:
    ended = runs["full"]
    card, own = ended.run.card, own_logs(ended)
    assert ended.code == 0
    measured = [record for one in own.values() for record in one.records()]
    log = keys(ended.run.log())
    assert 0 < len(log) == len(set(log)) < len(measured)
    assert card["mailbox_error"] == "File too large"
    assert card["records_lost"] == 0
    assert len([line for line in ended.err.splitlines() if "keep their records in their own files" in line]) == 1
    files = [path for one in own.values() for path in one.path.glob("events-*.jsonl")]
    assert "in the run folders of the workers (File too large)" in ended.err
    assert any(path.name in reasons(report(ended))["records_elsewhere"] for path in files)
    for path in files:
        shutil.copy(path, ended.run.path)
    assert "records_elsewhere" not in reasons(report(ended))
    assert int(read([ended.run.path]).phase.isin("measure").sum()) == len(measured)
    assert "Traceback" not in ended.text


def test_streams_that_are_open_at_the_stop_are_all_in_the_masters_log(runs: Runs) -> None:
    ended = runs["streams open"]
    records = ended.run.log()
    (stop,) = ended.run.events("stop")
    assert {record["outcome"] for record in records} == {"ok"}
    assert sum((record["start_us"] + record["end_us"]) / 1e6 > stop["t"] for record in records) >= 4
    assert ended.aggregated() == (len(records), 0)
    assert {one["state"] for one in ended.run.card["worker_details"].values()} == {"drained"}


def test_a_worker_of_another_version_is_refused_on_both_sides(runs: Runs) -> None:
    ended = runs["other version"]
    assert ended.code == 2
    said = "this worker 0.0.1: install the same"
    assert said in ended.err
    assert said in (ended.folder / "old" / "stderr").read_text()
    assert "Traceback" not in ended.err


def test_a_late_worker_of_another_version_is_refused_and_the_run_goes_on(runs: Runs) -> None:
    ended = runs["late other version"]
    said = "this worker 0.0.1: install the same"
    assert ended.code == 0
    assert f"{said}; the run goes on without it" in ended.err
    assert said in (ended.folder / "old" / "stderr").read_text()
    assert codes(ended) == [2, 0]
    assert keys(ended.run.log()) == keys(own_logs(ended)["a"].records())


def test_a_late_worker_without_the_extension_is_named_and_the_verdict_knows(runs: Runs) -> None:
    ended = runs["late plain worker"]
    (foreign,) = ended.run.events("worker_foreign")
    assert foreign["node"] in ended.err
    assert keys(ended.run.log()) == keys(own_logs(ended)["a"].records())
    assert foreign["node"] in reasons(report(ended))["worker_foreign"]


def test_a_batch_that_cannot_be_decoded_is_counted_said_and_sent_again(runs: Runs) -> None:
    ended = runs["garbled"]
    (details,) = ended.run.card["worker_details"].values()
    assert details["undecodable"] == 1
    assert "cannot be decoded" in ended.err
    assert keys(ended.run.log()) == keys(own_logs(ended)["a"].records())
    assert details["received"] == details["records"]
