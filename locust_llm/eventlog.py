"""The append-only event log: one JSON line per exchange, at most a second behind, never blocking the event loop.

Records are encoded by the greenlet that measured them and put on a list; one writer greenlet hands the list to a
thread. A disk that is full costs records, not the run: they are kept for a while and tried again; what could not be
written is counted and said.

To whoever passes records on (``live.post``) the log is one stream of bytes, whole lines in the order in which they
were taken: ``end`` is how far it goes, ``chunk`` reads it back from the file, or from memory where the file refuses.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import gevent
from gevent.event import Event

from .errors import UsageError
from .exchange import Exchange

logger = logging.getLogger(__name__)
T = TypeVar("T")

FLUSH_S = 0.1
KEPT_BYTES = 32 * 1024 * 1024
"""Records that a full disk did not take are kept up to this size."""


class EventLog:
    """Writer of one process's records.

    Attributes:
        taken: records given to this log.
        written: records given to the file system.
        skipped: bytes of the stream that are not in the file, for a full disk refused them until others had them.
        error: why writing failed, the last time it did.
    """

    def __init__(self, path: Path, option: str = "--llm-out") -> None:
        """Create the file. ``option``: where the folder comes from.

        Raises:
            UsageError: the folder cannot be made or written to.
        """
        self.path = path
        self.taken = 0
        self.written = 0
        self.skipped = 0
        self._size = 0
        self._released = 0
        self._dropped = 0
        self._stuck = False
        self.error: str | None = None
        self._waiting: list[bytes] = []
        self._any = Event()
        self._busy = Event()
        self._busy.set()
        self._closed = False
        self._file = -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as e:
            raise UsageError(unwritable(path.parent, e, option)) from None
        self._writer = gevent.spawn(self._run)

    def write(self, record: Exchange) -> None:
        """Take one record; it reaches the file within a second. After ``close`` it is written at once."""
        self.taken += 1
        self._waiting.append(record.encode())
        self._any.set()
        if self._closed:
            self.flush()

    @property
    def lost(self) -> int:
        """Records that are nowhere. While the file takes what it gets, what waits for its turn is not lost."""
        if self.error is None and not self._closed:
            return self._dropped
        at, waiting = self._size + self.skipped, len(self._waiting)
        for line in self._waiting:
            at += len(line)
            if at > self._released:
                break
            waiting -= 1
        return self._dropped + waiting

    @property
    def end(self) -> int:
        """How far the stream goes that ``chunk`` can read, in bytes."""
        return self._size + self.skipped + (sum(map(len, self._waiting)) if self._stuck else 0)

    def chunk(self, at: int, most: int) -> Callable[[], bytes]:
        """Return what reads whole lines of the stream from ``at`` on, for a thread: about ``most`` bytes, at least one.

        Args:
            at: where a line begins, not before what was released last, and before ``end``.
        """
        in_file = self._size + self.skipped - at
        if in_file > 0:
            file, offset = self._file, at - self.skipped
            return lambda: _read_lines(file, offset, min(most, in_file), in_file)
        lines: list[bytes] = []
        skip, size = -in_file, 0
        for line in self._waiting:
            if skip > 0:
                skip -= len(line)
            elif size < most:
                lines.append(line)
                size += len(line)
        return lambda: b"".join(lines)

    def release(self, at: int) -> None:
        """Somebody else has the stream up to ``at``: a full disk need not get it any more."""
        self._released = max(self._released, at)

    def exclusively(self, job: Callable[[int], T]) -> T:
        """Run a job in a thread that appends whole lines to the file; nothing else is written meanwhile.

        Args:
            job: gets the file descriptor; must not raise.
        """
        while not self._busy.is_set():
            self._busy.wait()
        self._busy.clear()
        try:
            # The thread finishes even if this greenlet is killed meanwhile, so wait for its word in any case.
            outcome: Any = gevent.get_hub().threadpool.spawn(job, self._file).get()
        finally:
            self._busy.set()
        result: T = outcome
        return result

    def flush(self) -> None:
        """Return when everything taken so far is in the file, or could not be written."""
        while self._waiting or not self._busy.is_set():
            self._busy.wait()
            if not self._flush_once():
                return

    def close(self) -> None:
        """Write what waits and take leave of the file. May be called twice. What it refused can still be read."""
        if not self._closed:
            self._closed = True
            self._busy.wait()  # a writer killed while its thread works could not count the outcome
            self._writer.kill()
            self.flush()

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def _run(self) -> None:
        while True:
            self._any.wait()
            gevent.sleep(FLUSH_S)
            self._any.clear()
            self._flush_once()
            if self._waiting:
                self._any.set()

    def _flush_once(self) -> bool:
        """Write what waits, unless that is being done already; returns False if the file did not take it all."""
        if not self._waiting or not self._busy.is_set():
            return True
        lines, self._waiting = self._waiting, []
        self._stuck = False  # what waits now comes after lines that are under way: not to be read yet
        taken, error = self.exclusively(lambda file: _append(file, lines))
        self.written += taken
        self._size += sum(map(len, lines[:taken]))
        self._stuck = error is not None
        if error is None:
            return True
        if self.error is None:
            logger.error("event log %s: %s; the run goes on, records may be missing from the log", self.path, error)
        self.error = error
        self._waiting = lines[taken:] + self._waiting
        self._make_room()
        return False

    def _make_room(self) -> None:
        """Let go of what others have already, and where that is not enough of the newest records."""
        size, gone = sum(map(len, self._waiting)), 0
        while size > KEPT_BYTES:
            first = len(self._waiting[gone])
            if self._size + self.skipped + first <= self._released:
                gone += 1
                self.skipped += first
                size -= first
            else:
                size -= len(self._waiting.pop())
                self._dropped += 1
        del self._waiting[:gone]


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


def _read_lines(file: int, offset: int, most: int, limit: int) -> bytes:
    """Read whole lines: about ``most`` bytes, more if the first line is longer, at most ``limit``."""
    while True:
        data = os.pread(file, most, offset)
        end = data.rfind(b"\n") + 1
        if end or most >= limit:
            return data[:end]
        most = min(2 * most, limit)


def run_stamp(now: float | None = None) -> str:
    """Return the UTC time that starts a run folder's name, such as ``20261129T201500Z``."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
