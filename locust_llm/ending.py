"""The end of a run on the local node or the master: the report, made by a child process, and Ctrl-C.

The report is never work inside the serving loop, and if it dies the log is intact: the command to repeat it is printed.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent

logger = logging.getLogger(__name__)
# Locust prints its own tables through this logger: same place, same format, after them.
console = logging.getLogger("locust.stats_logger")


class Report:
    """``locust-llm report`` on a finished run, in the background.

    Attributes:
        folder: the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._text = ""
        self._done = gevent.spawn(self._make)
        self._printed = False

    def wait(self) -> None:
        self._done.join()

    def show(self) -> None:
        """Print the table and where everything is, once, when it is there."""
        self._done.join()
        if self._printed:
            return
        self._printed = True
        console.info("\n%s", self._text.rstrip("\n"))
        console.info("\nrun folder: %s (locust-llm report %s makes the tables again)", self.folder, self.folder)

    def _make(self) -> None:
        command = [sys.executable, "-m", "locust_llm.cli", "report", str(self.folder)]
        try:
            # In a session of its own: Ctrl-C of the terminal is for the load, not for the report of what it measured.
            done = subprocess.run(
                command, capture_output=True, text=True, start_new_session=os.name != "nt", check=False
            )
        except OSError as e:
            self._text = f"the report could not be started ({e.strerror})"
            return
        self._text = done.stdout
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            self._text += f"\nno report: {reason[0]}\nthe log is complete; try: locust-llm report {self.folder}"


def interrupt_handler(on_first: Callable[[], bool]) -> None:
    """Take SIGINT in the event loop, so that it never lands inside a stream's read.

    Python's own handler raises KeyboardInterrupt wherever the process happens to be, which is in the middle of some
    exchange; here it is thrown into the main greenlet, which waits, as Locust expects.

    Args:
        on_first: called at each SIGINT; returns True if it has dealt with it.
    """
    if os.name == "nt":
        return
    main = gevent.getcurrent()

    def handle() -> None:
        if not on_first():
            throw_into(main)

    gevent.signal_handler(signal.SIGINT, handle)


def throw_into(main: Any) -> None:
    """Raise KeyboardInterrupt in a greenlet that waits."""
    gevent.get_hub().loop.run_callback(main.throw, KeyboardInterrupt)
