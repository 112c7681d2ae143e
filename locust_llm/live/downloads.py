"""What can be downloaded while a test runs: the log so far, and a report of it made by a child process.

The one thing to know: nothing here works inside the serving loop, which is also the load generator's: files are read
in the thread pool, and ``locust-llm report`` runs as a child of the lowest priority, one at a time, in a folder that is
gone when the next one is made. Files that a finished run already has are given as they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore

EVENTS = "events.jsonl"
TYPES = {
    "summary.json": "application/json", "summary.csv": "text/csv", "report.html": "text/html",
    EVENTS: "application/x-ndjson",
}  # fmt: skip
FRESH_S = 10.0
"""So long one report serves all downloads, if nothing else has happened: three clicks, one child."""
_BLOCK = 256 * 1024


class Nothing(Exception):
    """There is nothing to download; the text says what to do. ``status`` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Downloads:
    """Files of a run, as they are now."""

    def __init__(self) -> None:
        self._one_at_a_time = BoundedSemaphore(1)
        self._made: tuple[Path, float] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def get(self, name: str, desk: Any) -> tuple[bytes | Iterator[bytes], str]:
        """Return a file's content and its type.

        Raises:
            Nothing: no run, or no exchange has ended, or the report cannot be made.
        """
        folder: Path | None = desk.run_folder
        if folder is None or not folder.is_dir():
            raise Nothing(404, "there is no run yet: press Start, then download")
        logs = sorted(folder.glob("events*.jsonl"))
        if not any(path.stat().st_size for path in logs):
            raise Nothing(409, "no exchange has ended yet: wait for the first one, then download")
        if name == EVENTS:
            # Workers on this machine may have put their own logs beside the master's; only the master's has all.
            path = folder / EVENTS
            return whole_lines(path if path.exists() and path.stat().st_size else logs[0]), TYPES[name]
        running = desk.snapshot(_NEVER).get("state") in ("running", "stopping")
        path = folder / name
        if running or not path.exists():
            path = self._report(folder, logs) / name
        content: bytes = gevent.get_hub().threadpool.apply(path.read_bytes)
        return content, TYPES[name]

    def filename(self, name: str, desk: Any) -> str:
        """Return the name under which the browser keeps a file."""
        return f"{desk.run_folder.name}-{name}"

    def _report(self, folder: Path, logs: list[Path]) -> Path:
        with self._one_at_a_time:
            if self._made is not None and self._made[0] == folder and time.monotonic() - self._made[1] < FRESH_S:
                return Path(str(self._folder and self._folder.name))
            if self._folder is not None:
                self._folder.cleanup()
            self._made, self._folder = None, tempfile.TemporaryDirectory(prefix="locust-llm-")
            there = Path(self._folder.name)
            for path in (*logs, folder / "run.json"):
                if path.exists():
                    (there / path.name).symlink_to(path.resolve())
            _make(there)
            self._made = (folder, time.monotonic())
            return there


def whole_lines(path: Path) -> Iterator[bytes]:
    """Yield a growing file up to the last line that was complete when it was opened."""
    pool = gevent.get_hub().threadpool
    with path.open("rb") as file:
        left = pool.apply(_whole, (file,))
        while left > 0:
            block: bytes = pool.apply(file.read, (min(_BLOCK, left),))
            if not block:
                return
            left -= len(block)
            yield block


def _whole(file: Any) -> int:
    """Return the place after the last LF, and go to the start of the file."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        last = file.read(end - start).rfind(b"\n")
        if last >= 0:
            end = start + last + 1
            break
        end = start
    file.seek(0)
    return int(end)


def _make(folder: Path) -> None:
    """Run ``locust-llm report`` on a folder.

    Raises:
        Nothing: it failed; the text is its own last line.
    """
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "locust_llm.cli", "report", str(folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=os.name != "nt", env=os.environ | {"GITHUB_STEP_SUMMARY": ""},
        )  # fmt: skip
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, process.pid, 19)
    except OSError as e:
        raise Nothing(500, f"the report could not be started ({e.strerror})") from None
    _, errors = process.communicate()
    if not (folder / "report.html").exists():
        reason = errors.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise Nothing(409, f"no report: {reason[0].replace(str(folder), 'the log')}")


_NEVER = 2**62
"""As ``since``: a snapshot without points."""
