"""Three hosts: master and two workers, each in a network of its own (namespaces joined by veth pairs).

Where a machine does not let us make networks, three loopback addresses have to do; they cannot be cut off for a while.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from run_cluster import keys
from run_processes import CHAT, SHORT, SPAWNED, Ended, Live, RunFolder, Runs, free_port

from locust_llm.report.reading import read

MASTER, WORKERS = "10.213.0.1", {"a": "10.213.0.2", "b": "10.213.0.3"}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Networks:
    """A bridge in the master's namespace, to which each worker's namespace is joined."""

    def __init__(self) -> None:
        self.prefix = f"llm{os.getpid() % 100_000}"
        self.names = [f"{self.prefix}{which}" for which in ("m", *WORKERS)]

    def make(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        master = self.names[0]
        ip("-n", master, "link", "add", "name", "br0", "type", "bridge")
        ip("-n", master, "address", "add", f"{MASTER}/24", "dev", "br0")
        ip("-n", master, "link", "set", "br0", "up")
        for which, address in WORKERS.items():
            name = f"{self.prefix}{which}"
            ip("-n", master, "link", "add", "name", f"to-{which}", "type", "veth", "peer", "name", "up0", "netns", name)
            ip("-n", master, "link", "set", f"to-{which}", "master", "br0")
            ip("-n", master, "link", "set", f"to-{which}", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "up0")
            ip("-n", name, "link", "set", "up0", "up")

    def cut(self, which: str, cut: bool = True) -> None:
        ip("-n", self.names[0], "link", "set", f"to-{which}", "down" if cut else "up")

    def remove(self) -> None:
        for name in self.names:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "delete", name], capture_output=True)


class Hosts:
    """Where processes run: in networks of their own, or on three loopback addresses."""

    def __init__(self, networks: Networks | None) -> None:
        self.networks = networks
        self.address = MASTER if networks else "127.0.0.2"

    def start(self, which: str, folder: Path, argv: list[str], env: dict[str, str] | None = None) -> Live:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "locustfile.py").write_text(CHAT)
        inside = ["ip", "netns", "exec", f"{self.networks.prefix}{which}"] if self.networks else []
        return Live(folder, [*inside, sys.executable, "-m", *argv], env or {})


@contextlib.contextmanager
def three_hosts() -> Iterator[Hosts]:
    networks, made = Networks(), False
    try:
        if shutil.which("ip"):
            with contextlib.suppress(subprocess.CalledProcessError):
                networks.make()
                made = True
        yield Hosts(networks if made else None)
    finally:
        networks.remove()


def plans(simulator: Callable[..., str]) -> dict[str, Callable[[Path], Ended]]:
    return {"three hosts": run_on_three_hosts}


def run_on_three_hosts(folder: Path) -> Ended:
    """Run a test on three hosts, during which one worker is cut off for a while (where it can be)."""
    with three_hosts() as hosts:
        return run_on(hosts, folder)


def run_on(hosts: Hosts, folder: Path) -> Ended:
    port, model_port = str(free_port()), str(free_port())
    server = hosts.start("m", folder / "server", [
        "locust_llm.cli", "simulate", "--host", hosts.address, "--port", model_port
    ])  # fmt: skip
    live = hosts.start("m", folder / "master", [
        "locust", "-f", "locustfile.py", "--headless", "--only-summary", "--master",
        "--master-bind-host", hosts.address, "--master-bind-port", port, "--expect-workers", "2",
        "-H", f"http://{hosts.address}:{model_port}", "-u", "4", "-r", "4", *SHORT,
    ])  # fmt: skip
    workers = [
        hosts.start(which, folder / which, [
            "locust", "-f", "locustfile.py", "--worker", "--master-host", hosts.address, "--master-port", port
        ], {"LOCUST_LLM_WORKER_OUT": "own"})
        for which in WORKERS
    ]  # fmt: skip
    try:
        live.wait_for(SPAWNED)
        time.sleep(1)
        if hosts.networks is not None:
            hosts.networks.cut("b")
            live.wait_for("setting state to missing")
            time.sleep(1)
            hosts.networks.cut("b", False)
            live.wait_for("self-healed")
        time.sleep(2)
        live.signal(signal.SIGINT)
        ended = live.end()
        (ended.folder / "codes").write_text(json.dumps([one.end().code for one in workers]))
        (ended.folder / "cut").write_text(json.dumps(hosts.networks is not None))
        return ended
    finally:
        for one in (server, live, *workers):
            one.kill()


@pytest.fixture
def run(runs: Runs) -> Ended:
    return runs["three hosts"]


def of_workers(run: Ended) -> dict[str, RunFolder]:
    return {which: RunFolder(run.folder.parent / which / "own" / run.run.path.name) for which in WORKERS}


def test_the_masters_log_is_complete_though_nothing_is_shared(run: Ended) -> None:
    own = [record for folder in of_workers(run).values() for record in folder.records()]
    assert {len({r["worker"] for r in folder.records()}) for folder in of_workers(run).values()} == {1}
    assert keys(run.run.log()) == keys(own)
    assert int(read([run.run.path]).phase.isin("measure").sum()) == len(own) > 20


def test_both_workers_end_well_and_were_there_to_the_end(run: Ended) -> None:
    assert json.loads((run.folder / "codes").read_text()) == [0, 0]
    details = run.run.card["worker_details"].values()
    assert [one["state"] for one in details] == ["drained", "drained"]
    assert all(one["received"] == one["records"] for one in details)
    assert "Traceback" not in run.text


def test_a_worker_that_was_cut_off_is_named(run: Ended) -> None:
    if not json.loads((run.folder / "cut").read_text()):
        pytest.skip("network namespaces cannot be made here, so no worker was cut off")
    (lost,) = run.run.events("worker_lost")
    (back,) = run.run.events("worker_back")
    assert lost["worker"] == back["worker"]
    assert back["away_s"] < 30
    assert "worker_away" in run.text
