"""Run the tool itself, as a user would, against a server on this machine, and look at it from outside.

The one thing to know: it is a real ``locust-llm run`` in a process of its own, free of this process's environment
(``LOCUST_*``, proxies, a ``locust.conf`` in the folder), and watched for what it costs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from ..errors import UsageError
from ..exchange import Exchange, decode
from .watch import Watch

PACKAGE_PARENT = Path(__file__).parents[2]
_PROXIES = {"http_proxy", "https_proxy", "all_proxy"}
_END_S = 15.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that is over.

    Attributes:
        code: its exit code.
        watch: CPU and memory of it and its children, while it ran.
        spawned, ended: wall clock s.
        cpu_s: CPU of the whole run with all children; None where the system cannot tell.
        said: file with what it printed.
    """

    code: int
    watch: Watch
    spawned: float
    ended: float
    cpu_s: float | None
    said: Path

    def last_line(self) -> str:
        """Return the last line it printed."""
        return _last_line(self.said)


@dataclass(frozen=True, slots=True)
class Trial:
    """A run of the tool that is over: its folder, ``run.json``, ``summary.json``."""

    folder: Path
    card: dict[str, Any]
    summary: dict[str, Any]
    process: Ended

    def records(self) -> list[Exchange]:
        """Return all records of the run, of all workers, each once: the master's log has those of the workers, too."""
        lines = (line for path in sorted(self.folder.glob("events*.jsonl")) for line in path.open("rb"))
        return list({(record.worker, record.seq): record for record in map(decode, lines)}.values())

    def mark(self, event: str) -> float | None:
        """Return when something first happened to the run, such as ``ramp_complete`` (wall clock s)."""
        return next((float(e["t"]) for e in self.card["events"] if e["event"] == event), None)


def run_tool(url: str, out: Path, arguments: Sequence[str], timeout_s: float) -> Trial:
    """Run ``locust-llm run -H url`` with more arguments and wait for its end.

    Args:
        out: empty folder for the run folder and what the run says.
        timeout_s: how long it may take before it is ended.

    Raises:
        UsageError: it failed or left no report, with its own last line, or took too long.
    """
    command = [sys.executable, "-m", "locust_llm.cli", "run", "-H", url, "--llm-out", str(out), *arguments]
    ended = run_watched(command, out, timeout_s, clean_environment())
    cards = list(out.glob("*/run.json"))
    if not cards or ended.code not in (0, 1):  # 1: some exchanges failed
        raise UsageError(f"the run failed with exit code {ended.code} ({ended.last_line()})")
    folder = cards[0].parent
    summary = folder / "summary.json"
    if not summary.exists():
        raise UsageError(f"the run ended without a report ({ended.last_line()})")
    return Trial(folder, orjson.loads(cards[0].read_bytes()), orjson.loads(summary.read_bytes()), ended)


def run_watched(command: Sequence[str], folder: Path, timeout_s: float, environment: dict[str, str]) -> Ended:
    """Run a command in a folder until it ends, watched; what it says goes into ``console.txt`` there.

    Raises:
        UsageError: it cannot be started, or took too long and was ended.
    """
    said = folder / "console.txt"
    before = _children_cpu_s()
    with said.open("wb") as console:
        spawned = time.time()
        try:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        except OSError as e:
            raise UsageError(f"{command[0]} cannot be started ({e.strerror})") from None
        try:
            with Watch(process.pid) as watch:
                process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise UsageError(f"the run was not over after {timeout_s:.0f} s ({_last_line(said)})") from None
        finally:
            end_tree(process)
    cpu_s = None if before is None else (_children_cpu_s() or 0.0) - before
    return Ended(process.returncode, watch, spawned, time.time(), cpu_s, said)


def clean_environment(package: bool = True) -> dict[str, str]:
    """Return this process's environment without what would bend a run.

    Args:
        package: our package is to be found from any folder.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LOCUST") and name.lower() not in _PROXIES
    }
    if not package:
        return kept
    paths = [str(PACKAGE_PARENT), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths)}


def end_tree(process: subprocess.Popen[Any]) -> None:
    """End a process that still runs, and all its children: asked first, then killed. Harmless if it has ended."""
    if process.poll() is not None:
        return
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        children = []
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        try:
            child.kill()
        except psutil.Error:
            continue


# ---- helpers


def _last_line(said: Path) -> str:
    lines = [line.strip() for line in said.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _children_cpu_s() -> float | None:
    """CPU seconds of all children that have ended and been waited for, and of theirs."""
    if sys.platform == "win32":
        return None
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
