"""The event log keeps what it is given, in whole lines; a disk that takes nothing more costs records, not the run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from run_processes import CHAT, SHORT, Plan, Runs

# Files of this process may not grow beyond some size, as on a full disk; room again after a while if asked for.
FULL = (
    """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))
"""
    + CHAT
)
ROOM_AGAIN = (
    FULL
    + """
import gevent
from locust import events
from locust_llm.plugin import node_of

@events.test_start.add_listener
def make_room(environment, **_):
    gevent.spawn(watch, environment)

def watch(environment):
    log = node_of(environment).run.event_log
    while not log.error:
        gevent.sleep(0.05)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    gevent.sleep(1)
    environment.runner.quit()
"""
)


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    load = ["-H", simulator(), *SHORT, "-u", "10", "-r", "10"]
    many = [*load, "--llm-requests", "140"]
    return {
        "full": Plan(many, FULL.format(size=40_000)),
        "full, two processes": Plan([*many, "--processes", "2"], FULL.format(size=40_000)),
        "room again": Plan(load, ROOM_AGAIN.format(size=40_000)),
    }


def test_a_full_disk_costs_records_not_the_run_and_the_card_says_how_many(runs: Runs) -> None:
    ended = runs["full"]
    card, records = ended.run.card, ended.run.records()
    assert 0 < len(records) < ended.aggregated()[0]
    assert card["records_lost"] == ended.aggregated()[0] - len(records)
    assert card["records"] == len(records) + len(ended.run.records("preflight"))
    assert card["log_errors"] == ["File too large"]
    assert ended.code == 0


def test_a_full_disk_is_said_once_and_the_verdict_knows(runs: Runs) -> None:
    ended = runs["full"]
    assert len([line for line in ended.err.splitlines() if "File too large" in line and "ERROR" in line]) == 1
    assert "log_write_failed" in ended.text
    assert "Traceback" not in ended.text


def test_a_full_disk_of_workers_is_in_the_card_of_the_master(runs: Runs) -> None:
    ended = runs["full, two processes"]
    assert ended.run.card["records_lost"] == ended.aggregated()[0] - len(ended.run.records()) > 0
    assert ended.run.card["log_errors"] == ["File too large"] * 2
    assert ended.code == 0


def test_records_that_found_no_room_are_written_when_there_is_some_again(runs: Runs) -> None:
    ended = runs["room again"]
    assert ended.run.card["records_lost"] == 0
    assert len(ended.run.records()) == ended.aggregated()[0]
    assert ended.run.card["log_errors"] == ["File too large"]


def test_a_disk_filled_by_the_log_still_takes_the_card(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        plan = Plan(["--llm-simulate", *SHORT, "-u", "40", "-r", "40", "--llm-requests", "400", "--llm-out", str(disk)])
        ended = plan.start(tmp_path / "run").end()
        (folder,) = disk.iterdir()
        card = json.loads((folder / "run.json").read_text())
        records = (folder / "events.jsonl").read_text().splitlines()
        assert card["records_lost"] > 0
        assert card["log_errors"] == ["No space left on device"]
        assert card["records"] == len(records) == len([json.loads(line) for line in records])
        assert ended.code == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_folder_that_cannot_be_made_is_a_usage_error_and_nothing_else(tmp_path: Path) -> None:
    script = """
import locust, sys
from pathlib import Path
from locust_llm.errors import UsageError
from locust_llm.eventlog import EventLog
try:
    EventLog(Path(sys.argv[1]) / "file" / "events.jsonl")
except UsageError as e:
    print(e)
"""
    (tmp_path / "file").write_text("")
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(f"--llm-out {tmp_path}/file: cannot write there")
    assert done.stderr == ""
