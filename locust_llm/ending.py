"""The end of a run on the local node or the master: the report, made by a child process; and Ctrl-C on every node.

The report is never work inside the serving loop, and if it dies the log is intact: the command to repeat it is printed.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gevent

from .node import EXIT_USAGE
from .report.objectives import EXIT_FAIL, EXIT_SPOILT, Goal

logger = logging.getLogger(__name__)
# Locust prints its own tables through this logger: same place, same format, after them.
console = logging.getLogger("locust.stats_logger")

ONE_PRESS_S = 0.3


class Report:
    """``locust-llm report`` on a finished run, in the background.

    Args:
        folder: the run's folder.
        goal: what the run is held to; the report finds it in the run card.
        arguments: of ``locust-llm report``, beside the folder.
    """

    def __init__(self, folder: Path, goal: Goal | None = None, arguments: Sequence[str] = ()) -> None:
        self.folder = folder
        self._goal = goal or Goal()
        self._arguments = arguments
        self._judged: int | None = None
        self._text = ""
        self._process: subprocess.Popen[str] | None = None
        self._given_up = False
        self._printed = False
        self._done = gevent.spawn(self._make)

    def wait(self) -> None:
        self._done.join()

    @property
    def exit_code(self) -> int | None:
        """Exit code that the objectives ask for, None without objectives; without a report they are undecided.

        Where files were asked for, what could not be written is 2, with and without objectives.
        """
        if not self._goal.objectives:
            return EXIT_USAGE if self._judged == EXIT_USAGE and self._arguments else None
        return self._goal.exit_undecided if self._judged is None else self._judged

    def give_up(self) -> None:
        """Do without it."""
        self._given_up = True
        if self._process is not None:
            self._process.kill()

    def show(self) -> None:
        """Print the table and where everything is, once, when it is there."""
        self._done.join()
        if self._printed:
            return
        self._printed = True
        console.info("\nrun folder: %s (locust-llm report %s makes the tables again)", self.folder, self.folder)
        console.info("\n%s", self._text.rstrip("\n"))  # its last line is the run in one line, and ours on the console

    def _make(self) -> None:
        if self._given_up:
            return
        try:
            # In a session of its own: Ctrl-C of the terminal is for the load, not for the report of what it measured.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "locust_llm.cli", "report", str(self.folder), *self._arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                start_new_session=os.name != "nt",
            )  # fmt: skip
        except OSError as e:
            self._text = f"the report could not be started ({e.strerror})"
            return
        self._text, errors = self._process.communicate()
        if self._given_up:
            self._text = "no report: interrupted; the log is there"
            return
        code = self._process.returncode
        judged = code in (0, EXIT_FAIL, EXIT_SPOILT, self._goal.exit_undecided)
        if judged or (self._text and code == EXIT_USAGE):  # judged, but a file could not be written
            self._judged = code
        if not judged:
            reason = errors.strip().splitlines()[-1:] or [f"exit code {code}"]
            what = "not all was written" if self._judged else "no report"
            self._text += f"\n{what}: {reason[0].removeprefix('locust-llm: error: ')}; the log is there"


def interrupt_handler(on_signal: Callable[[], bool]) -> None:
    """Take SIGINT in the event loop, so that it never lands inside a stream's read.

    Python's own handler raises KeyboardInterrupt wherever the process happens to be, which is in the middle of some
    exchange; here it is thrown into the main greenlet, which waits, as Locust expects.

    Args:
        on_signal: called at each SIGINT; returns True if it has dealt with it.
    """
    if os.name == "nt":
        return
    main = gevent.getcurrent()
    last = 0.0

    def handle() -> None:
        nonlocal last
        before, last = last, time.monotonic()
        # A wrapper (a shell, ``uv run``) may pass on what the terminal has sent to us already.
        if last - before > ONE_PRESS_S and not on_signal():
            throw_into(main)

    gevent.signal_handler(signal.SIGINT, handle)


def throw_into(main: Any) -> None:
    """Raise KeyboardInterrupt in a greenlet that waits."""
    gevent.get_hub().loop.run_callback(main.throw, KeyboardInterrupt)
