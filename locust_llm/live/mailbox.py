"""The master's side of the records' travel: what workers send is appended to its ``events.jsonl``, each line once.

The one thing to know: of each worker's log the master has a beginning, and knows its length. A batch that continues
it is unpacked and written in a thread, unparsed; one that begins earlier has come twice, one that begins later follows
one that was lost. Each answer says how long the beginning is now, so the worker knows what to send. A batch is
acknowledged when it is in the file, never before; a disk that is full is said once, and the run goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.event import Event

from ..eventlog import EventLog

logger = logging.getLogger(__name__)

_MOST_BYTES = 1 << 30
"""No batch is larger when unpacked; a single record with its texts can be long."""


@dataclass(slots=True)
class Received:
    """The beginning of one worker's log that the master has.

    Attributes:
        at: its length, in bytes of the log's stream.
        records: lines in it.
        skipped: bytes of it that are not in the worker's file (its disk was full).
        undecodable: batches that were no batches.
        refused: why the file did not take what follows; "" if it did.
    """

    worker: str
    at: int = 0
    records: int = 0
    skipped: int = 0
    undecodable: int = 0
    refused: str = ""

    @property
    def file_bytes(self) -> int:
        """How much of the worker's own file this is."""
        return self.at - self.skipped


@dataclass(frozen=True, slots=True)
class _Batch:
    node: str
    at: int
    size: int
    lines: int
    skipped: int
    body: bytes


class Mailbox:
    """Writes what workers send.

    Args:
        answer: sends a worker (its node id) an answer.

    Attributes:
        received: what has come of the current run, by node id.
        heard_s: when something was last written (monotonic seconds).
        error: why the file did not take a batch, the last time.
    """

    def __init__(self, answer: Callable[[str, dict[str, Any]], None]) -> None:
        self._answer = answer
        self._run = ""
        self._log: EventLog | None = None
        self.received: dict[str, Received] = {}
        self.heard_s = 0.0
        self.error: str | None = None
        self._queue: list[_Batch] = []
        self._wake = Event()
        self._idle = Event()
        self._idle.set()
        gevent.spawn(self._work)

    def open(self, run: str, log: EventLog) -> None:
        """Take records of this run from now on, into this log."""
        self.close()
        self._run, self._log = run, log
        self.received = {}
        self.error = None

    def close(self) -> None:
        """Write what is here, and take no more of this run."""
        while self._queue or not self._idle.is_set():
            self._wake.set()
            gevent.sleep(0.01)
        self._run, self._log = "", None

    def take(self, node: str, data: Any) -> None:
        """Take a batch; called where messages are received, so it is only put aside. Never raises."""
        try:
            if data["run"] != self._run:
                return  # of a run that is over: it stays in its worker's own file
            worker, at, size, lines = str(data["worker"]), int(data["at"]), int(data["size"]), int(data["lines"])
            batch = _Batch(node, at, size, lines, int(data["skipped"]), data["body"])
            if not isinstance(batch.body, bytes) or not 0 < lines <= size <= _MOST_BYTES or at < 0:
                raise ValueError("no batch of records")
        except (KeyError, TypeError, ValueError) as e:
            self._blame(node, f"{type(e).__name__}: {e}")
            return
        self.received.setdefault(node, Received(worker)).worker = worker
        self._queue.append(batch)
        self._wake.set()

    # ---- helpers

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._queue and self._log is not None:
                self._idle.clear()
                batches, self._queue = self._queue, []
                try:
                    self._write(self._log, batches)
                except Exception:  # whatever it is, what is not acknowledged comes again
                    logger.exception("records of workers could not be taken")
                finally:
                    self._idle.set()

    def _write(self, log: EventLog, batches: list[_Batch]) -> None:
        ends = {batch.node: self.received[batch.node].at for batch in batches}
        following = []
        for batch in batches:
            if batch.at == ends[batch.node]:
                following.append(batch)
                ends[batch.node] += batch.size
        # Nothing may raise in there: what a batch does wrong is its result.
        results = log.exclusively(lambda file: _append_all(file, following)) if following else []
        for batch, wrong in zip(following, results, strict=True):
            received = self.received[batch.node]
            if wrong is None:
                received.at += batch.size
                received.records += batch.lines
                received.skipped = batch.skipped
                received.refused = ""
                self.heard_s = time.monotonic()
            elif wrong.disk:
                received.refused = wrong.why
                if self.error != wrong.why:
                    self.error = wrong.why
                    logger.error(
                        "%s: %s; the run goes on, workers keep their records in their own files", log.path, wrong.why
                    )
            elif wrong.why:
                self._blame(batch.node, wrong.why)
        for node in ends:
            self._say(node)

    def _say(self, node: str) -> None:
        received = self.received[node]
        answer = {"run": self._run, "at": received.at, "refused": received.refused}
        try:
            self._answer(node, answer)
        except OSError as e:  # it has gone; if it comes back it sends again what is not acknowledged
            logger.debug("worker %s cannot be answered: %s", node, e)

    def _blame(self, node: str, why: str) -> None:
        received = self.received.setdefault(node, Received(node))
        received.undecodable += 1
        if received.undecodable == 1:
            logger.error(
                "worker %s sent records that cannot be decoded (%s): not taken; it sends them again, and its own file "
                "has them", received.worker, why,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Wrong:
    why: str
    disk: bool = False


def _append_all(file: int, batches: list[_Batch]) -> list[_Wrong | None]:
    """Append batches, each whole or not at all, and none after one of the same worker that failed."""
    failed: set[str] = set()
    results: list[_Wrong | None] = []
    for batch in batches:
        wrong = _Wrong("") if batch.node in failed else _append_one(file, batch)
        if wrong is not None:
            failed.add(batch.node)
        results.append(wrong)
    return results


def _append_one(file: int, batch: _Batch) -> _Wrong | None:
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(batch.body, batch.size + 1)
    except (zlib.error, MemoryError) as e:
        return _Wrong(str(e))
    if len(data) != batch.size or data.count(b"\n") != batch.lines or not data.endswith(b"\n"):
        return _Wrong(f"{len(data)} bytes and {data.count(10)} lines, {batch.size} and {batch.lines} announced")
    written = 0
    try:
        while written < len(data):
            written += os.write(file, data[written:])
    except OSError as e:
        with contextlib.suppress(OSError):
            os.ftruncate(file, os.fstat(file).st_size - written)
        return _Wrong(e.strerror or str(e), disk=True)
    return None
