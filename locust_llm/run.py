"""One run in one process: who may start an exchange, what is in flight, and where records go.

The life of a run: ``begin`` for each exchange while it is open; ``drain`` when it is told to stop (nobody starts any
more, what is in flight gets its time, the rest is cut); ``close`` when nothing can come any more. Locust's events
drive it (``plugin``).
"""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import gevent
from gevent.event import Event

from .clock import WallAnchor
from .eventlog import EventLog
from .exchange import CANCELLED, MEASURE, UNFINISHED, Exchange
from .hopeless import Hopeless
from .load.arrivals import stream_of
from .load.open_loop import OpenLoop
from .load.stopping import Failures
from .settings import Settings
from .target import Attempt, Target
from .telemetry.health import Health
from .tickets import Tickets
from .tokens import Tokenizer
from .wire.api import Call

if TYPE_CHECKING:
    from .recording import Draft

logger = logging.getLogger(__name__)

CUT_S = 5.0
"""How long the greenlets of exchanges that were cut may take to write their records."""


class Run:
    """State of a run in this process.

    Attributes:
        id: name of the run, the same on all its nodes.
        worker: name of this process in the records.
        ending: the run has been told to stop.
        cut: exchanges that were cut at the end.
        finished: records by outcome, of phase ``measure``.
        client: how this process fared under the load (``telemetry.health``), once it has been told to stop.
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
        self.warmup_sources: list[tuple[Target, Callable[[], Call]]] = []
        self.facts: dict[str, Any] = {}
        """What first contact found, by target."""
        self.host: str | None = None
        """Locust's host for this run; a User class without one of its own talks to it."""
        self.index, self.workers = 0, 1
        """Which part of the prompts is this process's."""
        self.tokenizer: Tokenizer | None = None
        self.tickets: Tickets | None = None
        self.open_loop: OpenLoop | None = None
        """Arrivals; None in closed loop."""
        self.warm_s: float | None = None
        """How long an exchange of the warm-up took, on average."""
        self.prewarmed: dict[str, dict[str, Any]] = {}
        """Connections opened before the load, by process and target (``load.prewarm``)."""
        self.ending = False
        self.closed = False
        self.cut = 0
        self.finished: Counter[str] = Counter()
        self.client: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.subscribers: list[Callable[[Exchange], None]] = []
        self.on_idle: Callable[[], None] = lambda: None
        """Called when all tickets have been used and nothing is in flight any more; perhaps more than once."""
        self.on_hopeless: Callable[[str], None] = lambda reason: None
        self.count_users: Callable[[], int] = lambda: 1
        self._users = 0
        self._seq = itertools.count()
        self._exchange_ids = itertools.count()
        self._flying: dict[str, Any] = {}
        """Greenlets of the exchanges in flight, by exchange."""
        self.attempts: dict[str, tuple[Draft, Attempt]] = {}
        """What is being sent and received, by exchange, for those who count it while it comes (``live``)."""
        self._open: dict[str, Exchange] = {}
        """Complete answers at which their users still look (``catch_response``), by exchange."""
        self._quiet = Event()
        self._quiet.set()
        self._hurry = Event()
        self._over = Event()
        self._health: Health | None = None
        self._hopeless = Hopeless()
        self._failures = Failures(settings.stop_after_failures)
        self._pending = 0
        """Users that have a permission of the quota and wait until an exchange is due."""
        self._cancelling = random.Random(f"{seed}/{worker}/cancel")

    # ---- for the client

    def begin(self, exchange: str, user_class: str = "") -> int | None:
        """Wait for permission to start an exchange, or for the end of the run if there is none to come.

        Returns:
            When it was due (monotonic ns); None in closed loop.
        """
        if self.ending or (self.tickets is not None and not self.tickets.take(max(1, self.count_users()))):
            self.wait_for_end()
        due_ns = None if self.ending or self.open_loop is None else self._wait_until_due(self.open_loop, user_class)
        if self.ending:  # told to stop while waiting for a ticket
            if self.open_loop is not None and due_ns is not None:
                self.open_loop.unsent += 1
            self.wait_for_end()
        self._flying[exchange] = gevent.getcurrent()
        self._quiet.clear()
        return due_ns

    def paced(self, user_class: str) -> bool:
        """Whether arrivals say when a user of this class starts."""
        return self.open_loop is not None and stream_of(self.open_loop.pacers, user_class) is not None

    def cancels(self) -> bool:
        """Whether the exchange that starts now is one to hang up."""
        return self.settings.cancel.draws(self._cancelling)

    def wait_for_end(self) -> NoReturn:
        """Park a user: the run takes no more exchanges.

        Raises:
            GreenletExit: the run is over; it ends a Locust user as if it had been killed.
        """
        self._release()
        self.look_idle()
        self._over.wait()
        raise gevent.GreenletExit

    def log(self, record: Exchange) -> None:
        """Write a record of an attempt that is being repeated, or from before the run."""
        if self.event_log is None:
            self.held.append(record)
        else:
            self.event_log.write(record)

    def opened(self, record: Exchange) -> None:
        """An answer is complete, its user still looks at it."""
        self._open[record.exchange] = record

    def ended(self, record: Exchange) -> bool:
        """An exchange is over and its record final; returns False if ``close`` has written it already."""
        was_open = self._open.pop(record.exchange, None) is not None
        if self.closed and not was_open and record.exchange not in self._flying:
            return False
        self.attempts.pop(record.exchange, None)
        self.log(record)
        if record.phase == MEASURE:
            self.finished[record.outcome] += 1
            if self.open_loop is not None:
                self.open_loop.ended(record.end_us / 1e6)
            reason = self._hopeless.look(record, self._users) or self._failures.look(record)
            if reason:
                self.on_hopeless(reason)
        for subscriber in self.subscribers:
            subscriber(record)
        return True

    def landed(self, record: Exchange) -> None:
        """Everybody has been told of an exchange that is over."""
        self._land([record.exchange])

    def next_seq(self) -> int:
        return next(self._seq)

    def new_exchange_id(self) -> str:
        return f"{self.worker}-{next(self._exchange_ids)}"

    def new_user_id(self) -> str:
        self._users += 1
        return f"{self.worker}-{self._users - 1}"

    # ---- for the nodes

    @property
    def in_flight(self) -> int:
        """Exchanges sent and not yet over."""
        return len(self._flying)

    @property
    def hurried(self) -> bool:
        """Whether its drain is to end now."""
        return self._hurry.is_set()

    @property
    def measured(self) -> int:
        """Exchanges that came to an end of their own."""
        return self.finished.total() - self.finished[UNFINISHED] - self.finished[CANCELLED]

    def open_log(self, path: Path, option: str = "--llm-out") -> None:
        """Start the event log, with what was held so far. ``option``: where its folder comes from.

        Raises:
            UsageError: the folder cannot be written to.
        """
        self.event_log = EventLog(path, option)
        self._health = Health()
        while self.held:
            self.event_log.write(self.held.pop(0))

    def health(self) -> dict[str, Any]:
        """Return how this process has fared under the load so far (``telemetry.health``)."""
        return self.client or (self._health.report().to_json() if self._health is not None else {})

    def mark(self, event: str, **details: Any) -> None:
        """Note something that happened to the run, with its time, for the run card."""
        self.events.append({"t": round(time.time(), 6), "event": event, **details})

    def stop_starting(self) -> None:
        """From now on nobody starts an exchange."""
        if not self.ending:
            self.ending = True
            self.mark("stop", in_flight=self.in_flight)
            if self.open_loop is not None:
                self.open_loop.stop()
            if self._health is not None:
                self.client = self._health.report().to_json()
                self._health.stop()

    def hurry(self) -> None:
        """End a drain that is under way or to come: cut what is in flight."""
        self._hurry.set()

    def drain(self, limit_s: float) -> None:
        """Let what is in flight finish, at most ``limit_s`` seconds, then cut the rest (counted in ``cut``)."""
        self.stop_starting()
        self._release()  # who stops the run from inside a with block is not waited for
        if self.in_flight and limit_s > 0 and not self._hurry.is_set():
            logger.info(
                "letting %d streams in flight finish (at most %g s; stop again to cut them)", self.in_flight, limit_s
            )
            gevent.wait([self._quiet, self._hurry], timeout=limit_s, count=1)
        if self.in_flight:
            self._cut()
        self.flush()
        self._over.set()

    def look_idle(self) -> None:
        """Say so if there is nothing to do any more."""
        if self.tickets is not None and self.tickets.used_up and not self._flying and not self._pending:
            self.on_idle()

    def flush(self) -> None:
        if self.event_log is not None:
            self.event_log.flush()

    def close(self) -> None:
        """Write what is left, close the log and the connections. May be called twice."""
        if self.closed:
            return
        for record in list(self._open.values()):
            self.ended(record)  # nobody has looked at it to the end; what was measured is kept all the same
            self.landed(record)
        self.closed = True
        if self.event_log is not None:
            self.event_log.close()
        self.disconnect()

    def disconnect(self) -> None:
        """Close the idle connections."""
        for target in self.targets.values():
            target.close()

    # ---- helpers

    def _wait_until_due(self, open_loop: OpenLoop, user_class: str) -> int | None:
        self._pending += 1
        try:
            return open_loop.take(user_class)
        finally:
            self._pending -= 1

    def _release(self) -> None:
        """What the current greenlet still looks at will not end before the run does, so do not wait for it."""
        me = gevent.getcurrent()
        self._land([exchange for exchange, greenlet in self._flying.items() if greenlet is me])

    def _land(self, exchanges: list[str]) -> None:
        for exchange in exchanges:
            self._flying.pop(exchange, None)
        if not self._flying:
            self._quiet.set()
            if exchanges:
                self.look_idle()

    def _cut(self) -> None:
        """Kill the greenlets of what is in flight; each writes its record as it dies."""
        if not self.cut:
            self.cut = len(self._flying.keys() - self._open.keys())
            if self.cut:
                logger.warning("cutting %d streams that were still in flight", self.cut)
                self.mark("cut", exchanges=self.cut)
            killable = [greenlet for greenlet in self._flying.values() if isinstance(greenlet, gevent.Greenlet)]
            gevent.killall(list(dict.fromkeys(killable)), block=False)
        self._quiet.wait(CUT_S)
