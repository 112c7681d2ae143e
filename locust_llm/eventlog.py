"""The append-only event log: one JSON line per exchange, at most a second behind, never blocking the event loop.

Records are encoded by the greenlet that measured them and put on a list; one writer greenlet hands the list to a
thread. A disk that is full costs records, not the run: they are kept for a while and tried again; what could not be
written is counted and said.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from .errors import UsageError
from .exchange import Exchange

logger = logging.getLogger(__name__)

FLUSH_S = 0.5
KEPT_BYTES = 32 * 1024 * 1024
"""Records that a full disk did not take are kept up to this size."""


class EventLog:
    """Writer of one process's records.

    Attributes:
        written: records given to the file system.
        error: why writing failed, the last time it did.
    """

    def __init__(self, path: Path, option: str = "--llm-out") -> None:
        """Create the file. ``option``: where the folder comes from.

        Raises:
            UsageError: the folder cannot be made or written to.
        """
        self.path = path
        self.written = 0
        self._dropped = 0
        self.error: str | None = None
        self._waiting: list[bytes] = []
        self._busy = Event()
        self._busy.set()
        self._closed = False
        self._file = -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as e:
            raise UsageError(unwritable(path.parent, e, option)) from None
        self._writer = gevent.spawn(self._run)

    def write(self, record: Exchange) -> None:
        """Take one record; it reaches the file within a second. After ``close`` it is written at once."""
        self._waiting.append(record.encode())
        if self._closed:
            self._flush_at_last()

    @property
    def lost(self) -> int:
        """Records that have found no room; before ``flush`` or ``close`` some of them only wait their turn."""
        return self._dropped + len(self._waiting)

    def flush(self) -> None:
        """Return when everything taken so far is in the file, or could not be written."""
        while self._waiting or not self._busy.is_set():
            self._busy.wait()
            if not self._flush_once():
                return

    def close(self) -> None:
        """Write what waits and close the file. May be called twice."""
        if not self._closed:
            self._closed = True
            self._busy.wait()  # a writer killed while its thread works could not count the outcome
            self._writer.kill()
            self._flush_at_last()

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def _run(self) -> None:
        while True:
            gevent.sleep(FLUSH_S)
            self._flush_once()

    def _flush_once(self) -> bool:
        """Write what waits, unless that is being done already; returns False if the file did not take it all."""
        if not self._waiting or not self._busy.is_set():
            return True
        lines, self._waiting = self._waiting, []
        self._busy.clear()
        try:
            # The thread finishes even if this greenlet is killed meanwhile, so wait for its word in any case.
            outcome: Any = gevent.get_hub().threadpool.spawn(_append, self._file, lines).get()
        finally:
            self._busy.set()
        taken, error = outcome
        self.written += taken
        if error is None:
            return True
        if self.error is None:
            logger.error("event log %s: %s; the run goes on, records may be missing from the log", self.path, error)
        self.error = error
        self._waiting = lines[taken:] + self._waiting
        size = sum(map(len, self._waiting))
        while size > KEPT_BYTES:
            size -= len(self._waiting.pop())
            self._dropped += 1
        return False

    def _flush_at_last(self) -> None:
        self.flush()
        self._dropped += len(self._waiting)
        self._waiting = []


def unwritable(folder: Path, error: OSError, option: str = "--llm-out") -> str:
    """Return the line that says that there can be no run folder."""
    return f"{option} {folder}: cannot write there ({error.strerror}); choose another folder"


def _append(file: int, lines: list[bytes]) -> tuple[int, str | None]:
    """Append lines, whole ones only: a cut line would spoil the next. Returns how many, and the error if not all."""
    data = b"".join(lines)
    written = 0
    try:
        while written < len(data):
            written += os.write(file, data[written:])
    except OSError as e:
        whole = data.rfind(b"\n", 0, written) + 1
        with contextlib.suppress(OSError):
            if whole < written:
                os.ftruncate(file, os.fstat(file).st_size - (written - whole))
        return data.count(b"\n", 0, whole), e.strerror or str(e)
    return len(lines), None


def run_stamp(now: float | None = None) -> str:
    """Return the UTC time that starts a run folder's name, such as ``20261129T201500Z``."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
