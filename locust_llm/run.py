"""One run in one process: who may start an exchange, what is in flight, and where records go.

The life of a run: ``begin`` for each exchange while it is open; ``drain`` when it is told to stop (nobody starts any more,
what is in flight gets its time, the rest is cut); ``close`` when nothing can come any more. Locust's events drive it (``plugin``).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from .clock import WallAnchor
from .eventlog import EventLog
from .exchange import CONNECTION, FAILURES, HTTP_STATUS, MEASURE, OK, Exchange
from .options import Settings
from .target import Target
from .tokens import Tokenizer

logger = logging.getLogger(__name__)

# Statuses and connection errors that no waiting mends: a run whose first exchanges all end so is stopped.
HOPELESS_STATUS = frozenset({401, 403, 404})
HOPELESS_AFTER = 10


@dataclass(slots=True)
class Tickets:
    """Permissions to start an exchange, for runs of exactly N.

    ``ask`` is called with a number when more are wanted; ``grant`` is the answer. Alone or on the master's only process the
    answer comes at once; a worker's comes from the master.
    """

    ask: Callable[[int], None]
    left: int = 0
    more: bool = True
    """False once the last have been granted."""
    _asked: bool = False
    _granted: Event = field(default_factory=Event)

    def take(self, lot: int) -> bool:
        """Take one, waiting for a grant if need be; False when there are no more. ``lot``: how many to ask for at once."""
        while self.left == 0:
            if not self.more:
                return False
            self._request(lot)
            if self.left == 0 and self.more:
                self._granted.wait()
        self.left -= 1
        if self.left <= lot // 2:
            self._request(lot)
        return True

    def grant(self, number: int, more: bool) -> None:
        self.left += number
        self.more = more
        self._asked = False
        self._granted.set()
        self._granted.clear()

    def _request(self, lot: int) -> None:
        if self.more and not self._asked:
            self._asked = True
            self.ask(lot)


class Run:
    """State of a run in this process.

    Attributes:
        id: name of the run, the same on all its nodes.
        worker: name of this process in the records.
        ending: the run has been told to stop.
        in_flight: exchanges sent and not yet over.
        cut: exchanges that were cut at the end.
        finished: records by outcome, of phase ``measure``.
        subscribers: called with each finished record, after the log.
    """

    def __init__(self, run_id: str, worker: str, settings: Settings, seed: int) -> None:
        self.id = run_id
        self.worker = worker
        self.settings = settings
        self.seed = seed
        self.anchor = WallAnchor()
        self.event_log: EventLog | None = None
        self.held: list[Exchange] = []
        """Records from before the log was opened."""
        self.targets: dict[Any, Target] = {}
        self.sources: dict[type, Any] = {}
        """Prompts by User class (``assembly.Source``)."""
        self.facts: dict[str, Any] = {}
        """What first contact found, by target."""
        self.workers = 1
        self.tokenizer: Tokenizer | None = None
        self.tickets: Tickets | None = None
        self.ending = False
        self.closed = False
        self.in_flight = 0
        self.cut = 0
        self.finished: Counter[str] = Counter()
        self.events: list[dict[str, Any]] = []
        self.subscribers: list[Callable[[Exchange], None]] = []
        self.on_idle: Callable[[], None] = lambda: None
        """Called when all tickets have been used and nothing is in flight any more."""
        self.on_hopeless: Callable[[str], None] = lambda reason: None
        self.count_users: Callable[[], int] = lambda: 1
        self._user_ids = itertools.count()
        self._seq = itertools.count()
        self._exchange_ids = itertools.count()
        self._open: dict[int, Exchange] = {}
        self._quiet = Event()
        self._quiet.set()
        self._hurry = Event()
        self._hopeless: Counter[str] = Counter()

    # ---- for the client

    def begin(self) -> None:
        """Wait for permission to start an exchange; parks for ever (until killed) when there is none to come."""
        if self.ending:
            _park()
        if self.tickets is not None and not self.tickets.take(max(1, self.count_users())):
            self.look_idle()
            _park()
        if self.ending:  # told to stop while waiting for a ticket
            _park()
        self.in_flight += 1
        self._quiet.clear()

    def log(self, record: Exchange) -> None:
        """Write a record; of an exchange or of an attempt that is being repeated."""
        if self.event_log is None:
            self.held.append(record)
        else:
            self.event_log.write(record)

    def opened(self, record: Exchange) -> None:
        """An answer is complete, its user still looks at it (``catch_response``)."""
        self._open[record.seq] = record
        self._landed()

    def ended(self, record: Exchange) -> None:
        """An exchange is over and its record final."""
        if self._open.pop(record.seq, None) is None:
            self._landed()
        if record.phase == MEASURE:
            self.finished[record.outcome] += 1
            self._watch_hopeless(record)
        for subscriber in self.subscribers:
            subscriber(record)

    def next_seq(self) -> int:
        return next(self._seq)

    def new_exchange_id(self) -> str:
        return f"{self.worker}-{next(self._exchange_ids)}"

    def new_user_id(self) -> str:
        return f"{self.worker}-{next(self._user_ids)}"

    # ---- for the plugin

    def open_log(self, path: Path) -> None:
        """Start the event log, with what was held so far.

        Raises:
            UsageError: the folder cannot be written to.
        """
        self.event_log = EventLog(path)
        while self.held:
            self.event_log.write(self.held.pop(0))

    def mark(self, event: str, **details: Any) -> None:
        """Note something that happened to the run, with its time, for the run card."""
        self.events.append({"t": round(time.time(), 6), "event": event, **details})

    def stop_starting(self) -> None:
        """From now on nobody starts an exchange."""
        if not self.ending:
            self.ending = True
            self.mark("stop", in_flight=self.in_flight)

    def hurry(self) -> None:
        """End a drain that is under way: cut what is in flight."""
        self._hurry.set()

    def drain(self, limit_s: float) -> None:
        """Let what is in flight finish, at most ``limit_s`` seconds, then cut the rest (counted in ``cut``)."""
        self.stop_starting()
        if self.in_flight and limit_s > 0 and not self._hurry.is_set():
            logger.info(
                "letting %d streams in flight finish (at most %g s; stop again to cut them)", self.in_flight, limit_s
            )
            gevent.wait([self._quiet, self._hurry], timeout=limit_s, count=1)
        if self.in_flight and not self.cut:
            self.cut = self.in_flight
            logger.warning("cutting %d streams that were still in flight", self.cut)
            self.mark("cut", exchanges=self.cut)
            for target in self.targets.values():
                target.transport.cut()
            self._quiet.wait(5)
        self.flush()

    def flush(self) -> None:
        if self.event_log is not None:
            self.event_log.flush()

    def close(self) -> None:
        """Write what is left, close the log and the connections. May be called twice."""
        if self.closed:
            return
        for record in list(self._open.values()):
            # Its user never left the with block; what was measured is kept all the same.
            self.log(record)
            self.ended(record)
        self.closed = True
        if self.event_log is not None:
            self.event_log.close()
        for target in self.targets.values():
            target.transport.close()

    # ---- helpers

    def _landed(self) -> None:
        self.in_flight -= 1
        if self.in_flight == 0:
            self._quiet.set()
            self.look_idle()

    def look_idle(self) -> None:
        if self.tickets is not None and not self.tickets.more and self.tickets.left == 0 and self.in_flight == 0:
            self.on_idle()

    def _watch_hopeless(self, record: Exchange) -> None:
        if self.finished[OK] or self._hopeless["off"]:
            return
        reason = _hopeless(record)
        if reason is None:
            if record.outcome in FAILURES:
                self._hopeless["off"] = 1
            return
        self._hopeless[reason] += 1
        if len(self._hopeless) > 1:
            self._hopeless["off"] = 1
        elif self._hopeless[reason] >= max(HOPELESS_AFTER, self.count_users()):
            self._hopeless["off"] = 1
            self.on_hopeless(f"the first {self._hopeless[reason]} exchanges all ended in {reason}")


def _hopeless(record: Exchange) -> str | None:
    message = record.error.message[:200] if record.error else ""
    if record.outcome == HTTP_STATUS and record.status in HOPELESS_STATUS:
        return f"status {record.status}: {message}"
    if record.outcome == CONNECTION and record.error is not None and record.error.kind in ("refused", "dns"):
        return message
    return None


def _park() -> None:
    """Wait until killed: the run takes no more exchanges, and Locust will stop this user."""
    Event().wait()
