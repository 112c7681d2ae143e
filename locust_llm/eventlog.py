"""The append-only event log: one JSON line per exchange, at most a second behind, never blocking the event loop.

Records are encoded by the greenlet that measured them and put on a list; one writer greenlet hands the list to a thread.
A disk that is full or slow costs records, not the run: what could not be written is counted and said.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import gevent
from gevent.event import Event

from .errors import UsageError
from .exchange import Exchange

logger = logging.getLogger(__name__)

FLUSH_S = 0.5


class EventLog:
    """Writer of one process's records.

    Attributes:
        written: records given to the file system.
        lost: records that could not be written; ``error`` says why.
    """

    def __init__(self, path: Path) -> None:
        """Create the file.

        Raises:
            UsageError: the folder cannot be made or written to.
        """
        self.path = path
        self.written = 0
        self.lost = 0
        self.error: str | None = None
        self._waiting: list[bytes] = []
        self._busy = Event()
        self._busy.set()
        self._closed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as e:
            raise UsageError(
                f"--llm-out {path.parent}: cannot write there ({e.strerror}); choose another folder"
            ) from None
        self._writer = gevent.spawn(self._run)

    def write(self, record: Exchange) -> None:
        """Take one record; it reaches the file within a second. After ``close`` it is written at once."""
        self._waiting.append(record.encode())
        if self._closed:
            self.flush()

    def flush(self) -> None:
        """Return when everything taken so far is in the file (or counted as lost)."""
        while self._waiting or not self._busy.is_set():
            self._busy.wait()
            self._flush_once()

    def close(self) -> None:
        """Write what waits and close the file. May be called twice."""
        if not self._closed:
            self._closed = True
            self._busy.wait()  # a writer killed while its thread works could not count the outcome
            self._writer.kill()
            self.flush()

    def __del__(self) -> None:
        os.close(self._file)

    def _run(self) -> None:
        while True:
            gevent.sleep(FLUSH_S)
            if self._busy.is_set():
                self._flush_once()

    def _flush_once(self) -> None:
        lines, self._waiting = self._waiting, []
        if not lines:
            return
        self._busy.clear()
        try:
            # The thread finishes even if this greenlet is killed meanwhile, so wait for its word in any case.
            error = gevent.get_hub().threadpool.spawn(_append, self._file, b"".join(lines)).get()
        finally:
            self._busy.set()
        if error is None:
            self.written += len(lines)
            return
        self.lost += len(lines)
        if self.error is None:
            logger.error("event log %s: %s; the run goes on, its records from here on may be missing", self.path, error)
        self.error = error


def _append(file: int, data: bytes) -> str | None:
    """Append all bytes or, if that fails, none: a cut line would spoil the next one. Returns the error."""
    try:
        start = os.lseek(file, 0, os.SEEK_END)
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    except OSError as e:
        try:
            os.ftruncate(file, start)
        except (OSError, UnboundLocalError):
            pass
        return e.strerror or str(e)
    return None


def run_stamp(now: float | None = None) -> str:
    """Return the UTC time that starts a run folder's name, such as ``20261129T201500Z``."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
