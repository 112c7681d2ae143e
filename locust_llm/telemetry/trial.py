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
class Trial:
    """A run that is over.

    Attributes:
        folder: its run folder.
        card, summary: ``run.json`` and ``summary.json``; the latter is {} where nothing was measured.
        watch: CPU and memory of all its processes.
        spawned: when it was started, wall clock s.
        cpu_s: CPU of the whole run, all processes, start and report included; None where the system cannot tell.
    """

    folder: Path
    card: dict[str, Any]
    summary: dict[str, Any]
    watch: Watch
    spawned: float
    cpu_s: float | None

    def records(self) -> list[Exchange]:
        """Return all records of the run, of all workers."""
        return [decode(line) for path in sorted(self.folder.glob("events*.jsonl")) for line in path.open("rb")]

    def mark(self, event: str) -> float | None:
        """Return when something first happened to the run, such as ``ramp_complete`` (wall clock s)."""
        return next((float(e["t"]) for e in self.card["events"] if e["event"] == event), None)


def run_tool(url: str, out: Path, arguments: Sequence[str], timeout_s: float) -> Trial:
    """Run ``locust-llm run -H url`` with more arguments and wait for its end.

    Args:
        out: empty folder for the run folder and what the run says.
        timeout_s: how long it may take before it is ended.

    Raises:
        UsageError: it failed, with its own last line, or took too long.
    """
    command = [sys.executable, "-m", "locust_llm.cli", "run", "-H", url, "--llm-out", str(out), *arguments]
    said = out / "console.txt"
    before = _children_cpu_s()
    with said.open("wb") as console:
        spawned = time.time()
        process = subprocess.Popen(
            command, cwd=out, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=console, stderr=console
        )
        try:
            with Watch(process.pid) as watch:
                process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise UsageError(f"the run was not over after {timeout_s:.0f} s ({_last_line(said)})") from None
        finally:
            end_tree(process)
    cpu_s = None if before is None else (_children_cpu_s() or 0.0) - before
    cards = list(out.glob("*/run.json"))
    if not cards or process.returncode not in (0, 1):  # 1: some exchanges failed
        raise UsageError(f"the run failed with exit code {process.returncode} ({_last_line(said)})")
    folder = cards[0].parent
    summary = folder / "summary.json"
    return Trial(
        folder,
        orjson.loads(cards[0].read_bytes()),
        orjson.loads(summary.read_bytes()) if summary.exists() else {},
        watch,
        spawned,
        cpu_s,
    )


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would bend a run; the package is found from any folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LOCUST") and name.lower() not in _PROXIES
    }
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
