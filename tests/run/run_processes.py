"""Real Locust processes for the tests of a run's life: start them, watch and signal them, read what they leave behind.

A test file says all it wants to run as ``Plan``s; ``Runs`` starts them side by side, for most of their time they only
wait, and each test looks at the one it is about. Long ones come first, so that nothing waits for a last one alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHAT = """
from locust import task
from locust_llm import ChatUser

class Chat(ChatUser):
    @task
    def ask(self):
        self.chat()
"""
SHORT = ["--llm-input-tokens", "40,0", "--llm-output-tokens", "20,0"]
"""With the simulator's 50 ms to the first token and 10 ms a token: exchanges of a quarter of a second."""
NOTED = (
    CHAT
    + """
import os, time
from locust import events

@events.request.add_listener
def note(**_):
    with open(f"ended-{os.getpid()}", "a") as file:
        file.write(f"{time.time_ns() // 1000}\\n")
"""
)
"""Each process notes when its exchanges end, at once: what its log has to have, but for the last second."""
SPAWNED = r"All users spawned|Spawning is complete"
"""What Locust says when the load is there; it says the second where a worker answers late."""
AT_ONCE = 6
"""On two cores: a run uses a fifth of one, and waits for the rest of its time."""
PATIENCE_S = 60.0


@dataclass
class Plan:
    """A Locust process to be.

    Attributes:
        args: command line after ``-f locustfile.py``.
        act: called with the running process; what it does not end ends by itself.
        program: words after ``python -m``.
        files: further files of its working directory, by name.
        counters: whether to read the server's counters around the load; those of a simulator that serves several runs
            at once never come to rest, and each run would wait for that.
    """

    args: Sequence[str]
    locustfile: str = CHAT
    act: Callable[[Live], None] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    program: Sequence[str] = ("locust",)
    files: Mapping[str, str] = field(default_factory=dict)
    headless: bool = True
    counters: bool = False

    def start(self, folder: Path) -> Live:
        """Start it with ``folder`` as its working directory; masters of ``--processes`` get a port of their own."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "locustfile.py").write_text(self.locustfile)
        for name, text in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        argv = [sys.executable, "-m", *self.program, "-f", "locustfile.py"]
        argv += ["--headless", "--only-summary"] if self.headless else []
        if "--processes" in self.args:
            port = str(free_port())
            argv += ["--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--master-port", port]
        own = {} if self.counters else {"LOCUST_LLM_NO_SERVER_METRICS": "true"}
        return Live(folder, [*argv, *self.args], own | dict(self.env))


class Live:
    """A running process, leader of its own process group; its output goes to files in its folder."""

    def __init__(self, folder: Path, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.folder = folder
        self.argv = argv
        foreign = ("LOCUST_", "OPENAI_", "GITHUB_")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(foreign) and "proxy" not in k}
        with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            self.process = subprocess.Popen(
                argv, cwd=folder, env=clean | dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return (self.folder / "stdout").read_text() + (self.folder / "stderr").read_text()

    def wait_for(self, pattern: str, times: int = 1) -> None:
        """Wait until its output matches a pattern (so many times)."""
        self.until(lambda: len(re.findall(pattern, self.text)) >= times, f"output {pattern!r}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"waited in vain for {what}; exit code {self.process.poll()}\n{self.text}")
            time.sleep(0.05)

    def run_folders(self) -> list[Path]:
        return sorted((self.folder / "reports").glob("*Z-*"))

    def noted_us(self, pid: int) -> list[int]:
        """Return when the exchanges of a process ended, where the locustfile is ``NOTED``."""
        path = self.folder / f"ended-{pid}"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        os.kill(self.process.pid, number)

    def signal_all(self, number: int) -> None:
        """Send a signal to its process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def children(self) -> list[int]:
        """Return the process ids of its workers, oldest first."""
        listed = subprocess.run(["pgrep", "-P", str(self.process.pid), "-f", "locust"], capture_output=True, text=True)
        mine = os.getpgid(self.process.pid)
        return [pid for pid in map(int, listed.stdout.split()) if os.getpgid(pid) == mine]

    def kill(self) -> None:
        """Leave nothing of it."""
        with contextlib.suppress(ProcessLookupError):
            self.signal_all(signal.SIGKILL)
        self.process.wait()

    def end(self, timeout_s: float = PATIENCE_S) -> Ended:
        """Wait for its end; kill all of it if that does not come."""
        late = False
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            late = True
        self.kill()
        code = self.process.wait()
        if late:
            raise AssertionError(f"still there after {timeout_s} s\n{self.text}")
        return Ended(code, self.folder)


@dataclass
class Ended:
    """What a process left behind."""

    code: int
    folder: Path

    @property
    def out(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "stderr").read_text()

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def runs(self) -> list[RunFolder]:
        return [RunFolder(path) for path in sorted((self.folder / "reports").glob("*Z-*"))]

    @property
    def run(self) -> RunFolder:
        (run,) = self.runs
        return run

    def aggregated(self, which: int = 0) -> tuple[int, int]:
        """Return requests and failures of Locust's Aggregated row (of its table number ``which``)."""
        found = re.findall(r"Aggregated +(\d+) +(\d+)\(", self.text)
        return int(found[which][0]), int(found[which][1])


@dataclass
class RunFolder:
    """One run's folder."""

    path: Path

    @property
    def card(self) -> dict[str, Any]:
        card: dict[str, Any] = json.loads((self.path / "run.json").read_text())
        return card

    def records(self, phase: str = "measure") -> list[dict[str, Any]]:
        """Return the records of all its logs, each once; each line must be whole."""
        lines = [line for path in sorted(self.path.glob("events*.jsonl")) for line in path.read_text().splitlines()]
        once = {(record["run"], record["worker"], record["seq"]): record for record in map(json.loads, lines)}
        return [record for record in once.values() if record["phase"] == phase]

    def log(self, worker: str = "", phase: str = "measure") -> list[dict[str, Any]]:
        """Return the records of one log as they stand there, of a worker or (without one) of the master."""
        name = f"events-{worker}.jsonl" if worker else "events.jsonl"
        records = map(json.loads, (self.path / name).read_text().splitlines())
        return [record for record in records if record["phase"] == phase]

    def outcomes(self) -> Counter[str]:
        return Counter(record["outcome"] for record in self.records())

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.card["events"] if event["event"] == name]


class Runs:
    """Plans under way; ``runs["name"]`` waits for one.

    Args:
        plans: by name; a function that gets a folder and leaves a run there is a plan, too.
        pool: of as many threads as there are runs at a time.
    """

    def __init__(
        self, plans: Mapping[str, Plan | Callable[[Path], Ended]], folder: Path, pool: ThreadPoolExecutor
    ) -> None:
        self._ended: dict[str, Future[Ended]] = {
            name: pool.submit(_live if isinstance(plan, Plan) else _called, plan, folder / name.replace(" ", "-"))
            for name, plan in plans.items()
        }

    def __getitem__(self, name: str) -> Ended:
        return self._ended[name].result()

    def close(self) -> None:
        """Start no more of them, and wait for those that run."""
        for future in self._ended.values():
            future.cancel()
        wait(self._ended.values())


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _called(run: Callable[[Path], Ended], folder: Path) -> Ended:
    return run(folder)


def _live(plan: Plan, folder: Path) -> Ended:
    live = plan.start(folder)
    try:
        if plan.act is not None:
            plan.act(live)
    except BaseException:
        live.kill()
        raise
    return live.end()
