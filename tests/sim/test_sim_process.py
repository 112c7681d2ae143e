"""The simulator as a process: quick to start, owned by its parent, gone with it; and as a command in the foreground."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sim_client import Client, chat_body, request

from locust_llm.errors import UsageError
from locust_llm.sim.options import SimOptions
from locust_llm.sim.process import Simulator, start
from locust_llm.sim.truth import read_truth

PARENT = """
import os, sys, time
from locust_llm.sim.options import SimOptions
from locust_llm.sim.process import start
simulator = start(SimOptions())
fork = os.fork() if "fork" in sys.argv else -1
if fork == 0:
    os.close(1)
    time.sleep(60)
    os._exit(0)
print(simulator.pid, simulator.port, fork, flush=True)
if "leave" in sys.argv:
    sys.stdin.readline()
else:
    time.sleep(60)
"""


def test_start_gives_a_server_that_answers_and_stop_ends_it() -> None:
    simulator = start(SimOptions(ttft=0, itl=0))
    assert simulator.url == f"http://127.0.0.1:{simulator.port}"
    assert simulator.running()
    with Client(simulator.port) as client:
        assert client.chat(max_tokens=1).status == 200
    simulator.stop()
    simulator.stop()
    assert not simulator.running()
    with pytest.raises(ConnectionRefusedError):
        Client(simulator.port)


def test_options_reach_the_child_whole() -> None:
    options = SimOptions(model="a,b=c ü", reject=("x", "y"), ttft=0, itl=0)
    with start(options) as simulator, Client(simulator.port) as client:
        assert client.chat(max_tokens=1).json()["model"] == "a,b=c ü"
        assert client.chat(y=1).status == 400


def test_stop_cuts_what_is_in_flight_and_keeps_the_log(tmp_path: Path) -> None:
    simulator = start(SimOptions(itl=0.01, ttft=0, truth_log=str(tmp_path / "truth")))
    with Client(simulator.port) as client:
        client.send(request("POST", "/v1/chat/completions", chat_body(stream=True, max_tokens=5000)))
        client.read_head()
        client.more()
        simulator.stop()
        assert not client.read_chunks()[1]
    assert len(read_truth(tmp_path / "truth")) >= 2


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} .*--port"):
            start(SimOptions(), port)


@pytest.mark.parametrize("how", ["kill", "kill fork", "leave"])
def test_the_simulator_ends_with_its_parent(how: str) -> None:
    """However the parent ends, and though a fork of it still holds the pipe."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *how.split()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    fork = -1
    try:
        assert parent.stdout is not None
        pid, port, fork = map(int, parent.stdout.readline().split())
        with Client(port) as client:
            assert client.get("/health").status == 200
            if "kill" in how:
                parent.send_signal(signal.SIGKILL)
            else:
                parent.stdin.close()  # type: ignore[union-attr]
            parent.wait(10)
            assert client.closed()
        assert _gone(pid)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()  # type: ignore[union-attr]
        if fork > 0:
            os.kill(fork, signal.SIGKILL)


def test_signals_for_the_parents_group_do_not_reach_it() -> None:
    with start(SimOptions()) as simulator:
        assert os.getpgid(simulator.pid) != os.getpgid(0)


def test_it_starts_under_gevents_monkey_patching() -> None:
    script = """
from gevent import monkey; monkey.patch_all()
import gevent, time
from locust_llm.sim.process import start
turns = 0
def spin():
    global turns
    while True:
        turns += 1
        time.sleep(0.005)
gevent.spawn(spin)
simulator = start()
assert turns > 2, "start blocks the other greenlets"
import urllib.request
assert urllib.request.urlopen(simulator.url + "/health").status == 200
simulator.stop()
assert not simulator.running()
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "fine\n", done.stderr


def test_the_serving_process_loads_neither_gevent_nor_locust_nor_numpy() -> None:
    script = (
        "import sys, locust_llm.sim.__main__, locust_llm.sim.owned, locust_llm.sim.command, locust_llm.sim.process\n"
        "print([m for m in ('gevent', 'locust', 'numpy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def _command(*flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "locust_llm.sim", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_what_it_is_and_ends_cleanly(ending: signal.Signals) -> None:
    command = _command("--port", "0", "--ttft", "0", "--itl", "0", "--model", "mine", "--prefix-cache")
    assert command.stdout is not None
    greeting = command.stdout.readline()
    assert "SIMULATED" in greeting
    port = re.search(r"http://127\.0\.0\.1:(\d+)", greeting)
    assert port is not None
    with Client(int(port[1])) as client:
        answer = client.chat(max_tokens=1).json()
        assert answer["model"] == "mine"
        assert "cached_tokens" in answer["usage"]["prompt_tokens_details"]
    command.send_signal(ending)
    assert "locust-llm run --host" in command.stdout.read()
    assert (command.wait(10), command.communicate()[1]) == (0, "")


@pytest.mark.parametrize(
    "flags", [["--ttft", "soon"], ["--error-rate", "7"], ["--port", "70000"], ["--host", "no.such.invalid"]]
)
def test_bad_flags_are_one_line_and_exit_2(flags: list[str]) -> None:
    command = _command(*flags)
    out, err = command.communicate(timeout=20)
    assert (command.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert flags[0].strip("-").replace("-", "_") in err or flags[1] in err


def test_a_taken_port_ends_the_command_with_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = _command("--port", str(taken.getsockname()[1]))
        _, err = command.communicate(timeout=20)
    assert command.returncode == 2
    assert err.count("\n") == 1
    assert "--port" in err


def test_a_fork_of_the_owner_cannot_end_it() -> None:
    with start(SimOptions()) as simulator:
        child = os.fork()
        if child == 0:
            _stop_and_leave(simulator)
        os.waitpid(child, 0)
        assert simulator.running()


def _stop_and_leave(simulator: Simulator) -> None:
    try:
        simulator.stop()
    finally:
        os._exit(0)


def _gone(pid: int, within_s: float = 8.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True  # ended; whoever adopted it has not looked yet
        time.sleep(0.05)
    return False
