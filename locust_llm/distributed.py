"""What master and workers tell each other about a run, by Locust's custom messages.

``llm_preflight``: the master asks one worker to make first contact. ``llm_tickets``: a worker asks for permissions to start. ``llm_idle``: a
worker has used up its tickets and nothing is in flight. ``llm_drain``/``llm_drained``: let streams finish. ``llm_abort``: a worker cannot
go on. Data are plain JSON-like values.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gevent
from gevent.event import AsyncResult, Event
from locust.runners import STATE_MISSING, MasterRunner, WorkerRunner

from .errors import UsageError

logger = logging.getLogger(__name__)

RESEND_S = 0.5
# Beyond the drain itself, for workers that are slow to answer.
DRAIN_SLACK_S = 10.0
PREFLIGHT_SLACK_S = 120.0


@dataclass(slots=True)
class Quota:
    """Exchanges that may still be started by a run of exactly N, over all workers."""

    left: int

    def grant(self, wanted: int) -> tuple[int, bool]:
        """Return how many are granted and whether there will be more."""
        number = min(max(0, wanted), self.left)
        self.left -= number
        return number, self.left > 0


@dataclass(slots=True)
class Drained:
    """What a worker reports when it has drained."""

    worker: str
    cut: int = 0
    finished: dict[str, int] = field(default_factory=dict)
    written: int = 0
    lost: int = 0
    error: str | None = None
    steps: list[Any] = field(default_factory=list)


class MasterLink:
    """The master's side.

    Args:
        on_idle: called when all tickets are used and every worker is idle.
        on_abort: called with the reason when a worker cannot go on.
    """

    def __init__(self, runner: MasterRunner, on_idle: Callable[[], None], on_abort: Callable[[str], None]) -> None:
        self._runner = runner
        self._on_idle = on_idle
        self._on_abort = on_abort
        self._results: dict[str, AsyncResult[dict[str, Any]]] = {}
        self._drained: dict[str, Drained] = {}
        self._holders: set[str] = set()
        self._hurry = Event()
        self.quota: Quota | None = None
        runner.register_message("llm_preflight", self._preflight_done)
        runner.register_message("llm_tickets", self._tickets_wanted)
        runner.register_message("llm_idle", self._idle)
        runner.register_message("llm_drained", self._worker_drained)
        runner.register_message("llm_abort", self._aborted)

    def new_run(self, requests: int) -> None:
        """Forget the last run. ``requests``: exchanges to start in all, 0 without limit."""
        self._drained.clear()
        self._holders.clear()
        self._hurry.clear()
        self.quota = Quota(requests) if requests else None

    def preflight(self, job: dict[str, Any], wait_s: float) -> dict[str, Any]:
        """Let the first ready worker make first contact; returns its ``facts`` and ``records``.

        Raises:
            UsageError: what the worker found, or that none answered.
        """
        number = secrets.token_hex(8)
        result = self._results[number] = AsyncResult()
        deadline = time.monotonic() + wait_s + PREFLIGHT_SLACK_S
        try:
            while time.monotonic() < deadline:
                workers = self.alive()
                if workers:
                    # A worker that is still starting drops the message, so it is said again; it does the job once.
                    self._runner.send_message("llm_preflight", {"number": number, **job}, client_id=workers[0])
                try:
                    answer = result.get(timeout=RESEND_S)
                except gevent.Timeout:
                    continue
                if "error" in answer:
                    raise UsageError(answer["error"])
                return answer
        finally:
            del self._results[number]
        raise UsageError("no worker made first contact; do all nodes run the same version of locust-llm?")

    def drain(self, limit_s: float) -> list[Drained]:
        """Tell all workers to drain and wait for them; the dead are not waited for."""
        asked = set(self.alive())
        for worker in asked:
            self._runner.send_message("llm_drain", {"limit_s": limit_s}, client_id=worker)
        deadline = time.monotonic() + limit_s + DRAIN_SLACK_S
        while (
            time.monotonic() < deadline
            and not asked.isdisjoint(self.alive())
            and not asked & set(self.alive()) <= set(self._drained)
        ):
            if self._hurry.is_set():
                self._hurry.clear()
                for worker in asked - set(self._drained):
                    self._runner.send_message("llm_drain", {"limit_s": 0}, client_id=worker)
                deadline = time.monotonic() + DRAIN_SLACK_S
            self._hurry.wait(0.05)
        for worker in asked - set(self._drained):
            logger.warning("worker %s did not say that it has drained; its records may be incomplete", worker)
        return list(self._drained.values())

    def hurry(self) -> None:
        """End the drain: workers cut what is in flight."""
        self._hurry.set()

    @property
    def reports(self) -> list[Drained]:
        return list(self._drained.values())

    def missing(self) -> list[str]:
        """Return the workers that were lost."""
        return [client.id for client in self._runner.clients.values() if client.state == STATE_MISSING]

    # ---- messages

    def _preflight_done(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        result = self._results.get(msg.data["number"])
        if result is not None and not result.ready():
            result.set(msg.data)

    def _tickets_wanted(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        number, more = self.quota.grant(int(msg.data["wanted"])) if self.quota else (0, False)
        self._holders.add(msg.node_id)
        self._runner.send_message("llm_tickets", {"granted": number, "more": more}, client_id=msg.node_id)

    def _idle(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        self._holders.discard(msg.node_id)
        busy = self._holders & set(self.alive())
        if self.quota is not None and self.quota.left == 0 and not busy:
            self._on_idle()

    def _worker_drained(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        self._drained[msg.node_id] = Drained(**msg.data)

    def _aborted(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        self._on_abort(str(msg.data["reason"]))

    def alive(self) -> list[str]:
        return [client.id for client in self._runner.clients.values() if client.state != STATE_MISSING]


class WorkerLink:
    """A worker's side.

    Args:
        runner: gives the runner, None while it is still being made (a late worker's ``test_start`` can be that early).
        do_preflight: makes first contact and returns the answer's data.
        on_tickets: takes (granted, more).
        on_drain: takes the limit in seconds, blocks until drained, returns the report.
    """

    def __init__(
        self,
        runner: Callable[[], WorkerRunner | None],
        do_preflight: Callable[[dict[str, Any]], dict[str, Any]],
        on_tickets: Callable[[int, bool], None],
        on_drain: Callable[[float], Drained],
    ) -> None:
        self._runner = runner
        self._do_preflight = do_preflight
        self._on_tickets = on_tickets
        self._on_drain = on_drain
        self._answers: dict[str, dict[str, Any] | None] = {}
        self._registered = False

    def register(self) -> None:
        """Listen to the master, as soon as there is a runner."""
        runner = self._runner()
        if runner is not None and not self._registered:
            self._registered = True
            runner.register_message("llm_preflight", self._preflight, concurrent=True)
            runner.register_message("llm_tickets", self._tickets)
            runner.register_message("llm_drain", self._drain, concurrent=True)

    def ask_tickets(self, wanted: int) -> None:
        self._send("llm_tickets", {"wanted": wanted})

    def idle(self) -> None:
        self._send("llm_idle", {})

    def abort(self, reason: str) -> None:
        self._send("llm_abort", {"reason": reason})

    def drained(self, report: Drained) -> None:
        self._send("llm_drained", {name: getattr(report, name) for name in Drained.__slots__})

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        while (runner := self._runner()) is None:
            gevent.sleep(0.01)
        self.register()
        runner.send_message(kind, data)

    def _preflight(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        number = msg.data["number"]
        if number in self._answers:
            answer = self._answers[number]  # None: still at it
        else:
            self._answers[number] = None
            answer = self._answers[number] = {"number": number, **self._do_preflight(msg.data)}
        if answer is not None:
            self._send("llm_preflight", answer)

    def _tickets(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        self._on_tickets(int(msg.data["granted"]), bool(msg.data["more"]))

    def _drain(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        report = self._on_drain(float(msg.data["limit_s"]))
        self.drained(report)
