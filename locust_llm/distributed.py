"""What master and workers tell each other about a run, by Locust's custom messages; the master's side of it.

``llm_preflight``: a worker is to make first contact, or only to get ready. ``llm_joined``: it takes part in a run.
``llm_tickets``: a worker asks for permissions to start. ``llm_idle``: it has used up its tickets and nothing is in
flight. ``llm_pace``: a worker's share of the arrivals. ``llm_pulse``: it is there to send them. ``llm_clock``: what a
worker's clock says. ``llm_records``: a batch of records (``live.post``), or how much the master has of them.
``llm_drain``/``llm_drained``: let streams finish. ``llm_refused``: a worker could not join. ``llm_abort``: one cannot
go on. Data are plain JSON-like values, never a set or a tuple as a key: those end Locust's receiving loop. ``run``
tells this run from the last.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from locust.exception import RPCError, RPCSendError
from locust.runners import STATE_MISSING, MasterRunner, WorkerNode

from . import __version__
from .errors import UsageError
from .live.clocks import Clocks
from .live.mailbox import Mailbox
from .tickets import Quota

if TYPE_CHECKING:
    from .run import Run

logger = logging.getLogger(__name__)

RESEND_S = 0.5
# A worker that is at it says so each time it is asked; for so long it may be silent.
SILENT_S = 20.0
# Beyond the drain itself, for workers that are slow to answer.
DRAIN_SLACK_S = 20.0
# Workers that send arrivals say so this often; others take over from one that is silent for longer than the second.
PULSE_S = 0.4
PULSE_LOST_S = 2.5
LOST_GRACE_S = 12.0
"""A worker that is not heard from may come back: so long the end of a run of N waits for what it holds."""
FOREIGN_DRAIN_S = 3.0
FOREIGN_S = 10.0
"""A worker that does not join a run for so long does not run this extension."""


@dataclass(slots=True)
class Drained:
    """What a worker reports when it has drained and the master has its records."""

    run: str
    worker: str
    cut: int = 0
    finished: dict[str, int] = field(default_factory=dict)
    taken: int = 0
    """Records of this worker; ``written`` to its own file, ``lost`` neither there nor at the master."""
    written: int = 0
    lost: int = 0
    error: str | None = None
    steps: list[Any] = field(default_factory=list)
    client: dict[str, Any] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)


class MasterLink:
    """The master's side.

    Args:
        on_idle: called when all tickets are used and every worker is idle; perhaps more than once.
        on_abort: called with the reason when a worker cannot go on.

    Attributes:
        mailbox: the records that have come.
        clocks: how far the workers' clocks are off.
        members: names of the workers that have joined the current run, by node id.
        left: those that reported before the run ended.
        away: since when those that Locust misses are missed (monotonic seconds); they may come back.
        granted: tickets given out, by node id.
    """

    def __init__(self, runner: MasterRunner, on_idle: Callable[[], None], on_abort: Callable[[str], None]) -> None:
        self._runner = runner
        self._on_idle = on_idle
        self._on_abort = on_abort
        self._job = ""
        self._answers: dict[str, dict[str, Any]] = {}
        self._heard_at = 0.0
        self._run: Run | None = None
        self._able: set[str] = set()
        """Workers that have got ready for the run."""
        self.members: dict[str, str] = {}
        self.left: set[str] = set()
        self.away: dict[str, float] = {}
        self.granted: Counter[str] = Counter()
        self._pulses: dict[str, float] = {}
        """When each worker was heard last (monotonic seconds)."""
        self._drained: dict[str, Drained] = {}
        self._holders: set[str] = set()
        self._hurry = Event()
        self._ending = False
        self._over = True
        self._quota: Quota | None = None
        self.mailbox = Mailbox(lambda node, data: self._send(node, "llm_records", data))
        self.clocks = Clocks(
            lambda node, data: self._send(node, "llm_clock", data), lambda: set(self.members) & set(self.alive())
        )
        for kind, listener in {
            "llm_preflight": self._preflight_done,
            "llm_joined": self._worker_joined,
            "llm_refused": self._worker_refused,
            "llm_tickets": self._tickets_wanted,
            "llm_idle": self._idle,
            "llm_drained": self._worker_drained,
            "llm_abort": self._aborted,
            "llm_pulse": self._pulse,
            "llm_clock": lambda environment, msg, **_: self.clocks.answered(msg.node_id, msg.data),
            "llm_records": lambda environment, msg, **_: self.mailbox.take(msg.node_id, msg.data),
        }.items():
            runner.register_message(kind, listener)

    def new_run(self, run: Run) -> None:
        """Forget the last run. The log of this one is open."""
        self._run = run
        for kept in (self.members, self.left, self.away, self.granted, self._pulses, self._drained, self._holders):
            kept.clear()
        self._hurry.clear()
        self._ending = self._over = False
        self._quota = Quota(run.settings.requests) if run.settings.requests else None
        if run.event_log is not None:
            self.mailbox.open(run.id, run.event_log)
        self.clocks.begin(run.anchor.wall_us)
        gevent.spawn(self._watch, run)

    def prepare(self, job: dict[str, Any], users: int, say: Callable[[str], None]) -> dict[str, Any]:
        """Let one worker make first contact and then all get ready; returns the ``facts`` and ``records`` of the first.

        Args:
            job: what a run is made from; without ``facts``, which this finds.
            users: of all workers, for the warm-up; the mean of its latencies is ``warm_s`` of the answer, what all
                opened ``prewarmed``.
            say: takes lines for the console, as workers find them.

        Raises:
            UsageError: what a worker found, or that none answers.
        """
        found: dict[str, Any] = {}
        while not found:
            workers = self.alive()
            if not workers:
                raise UsageError("no worker is connected; start one with `locust --worker` and the same locustfile")
            found = self._give(job, workers[:1], say).get(workers[0], {})  # nothing if it has died meanwhile
        answers = self._give(job | {"facts": found["facts"], "warmup_users": users}, self.alive(), say)
        self._able = set(answers)
        warm = [answer["warm_s"] for answer in answers.values() if answer.get("warm_s")]
        opened = {k: v for answer in answers.values() for k, v in answer.get("prewarmed", {}).items()}
        return found | {"prewarmed": opened} | ({"warm_s": sum(warm) / len(warm)} if warm else {})

    def drain(self, limit_s: float) -> list[Drained]:
        """Let all workers drain and send what is unsent, not waiting for the dead. Returns all reports of the run."""
        self._ending = True
        asked: set[str] = set()
        deadline = time.monotonic() + limit_s + DRAIN_SLACK_S
        foreign_s = time.monotonic() + FOREIGN_DRAIN_S
        while waiting := self._undrained(with_others=time.monotonic() < foreign_s):
            for worker in waiting - asked:
                self._tell_to_drain(worker, limit_s)
            asked |= waiting
            if self._hurry.is_set():
                self._hurry.clear()
                limit_s = 0.0
                for worker in waiting:
                    self._tell_to_drain(worker, limit_s)
                deadline = time.monotonic() + DRAIN_SLACK_S
            if time.monotonic() > max(deadline, self.mailbox.heard_s + DRAIN_SLACK_S):
                for worker in waiting:
                    name = self.name_of(worker)
                    logger.warning("worker %s did not say that it has drained; its records may be incomplete", name)
                break
            self._hurry.wait(0.05)
        self.mailbox.close()
        self.clocks.end()
        self._over = True
        return self.reports

    def senders(self, user_classes: Collection[str]) -> tuple[str, ...]:
        """Return the workers that take part and have users of these classes, in an order that stays."""
        clients = self._runner.clients
        heard = time.monotonic() - PULSE_LOST_S
        have = [n for n in self.alive() if self._pulses.get(n, 0.0) > heard and n not in self._drained and n in clients]
        have = [n for n in have if self.clocks.knows(n)]
        counts = {node: clients[node].user_classes_count for node in have}
        return tuple(sorted(n for n, count in counts.items() if any(count.get(name) for name in user_classes)))

    def tell_pace(self, worker: str, segment: dict[str, Any]) -> None:
        """Tell a worker its share of the arrivals."""
        if worker in self.alive() and self._run is not None:
            by_its_clock = {"at_us": segment["at_us"] + self.clocks.offset_us(worker)}
            with suppress(OSError):
                self._send(worker, "llm_pace", {"run": self._run.id, **segment, **by_its_clock})

    def name_of(self, node: str) -> str:
        """Return the name of a worker in the records."""
        return self.members.get(node, node)

    def client_of(self, node: str) -> WorkerNode | None:
        """Return what Locust knows of a worker; None once it has gone."""
        return self._runner.clients.get(node)

    @property
    def is_open(self) -> bool:
        """Whether the run has not come to its end."""
        return not self._over

    def report_of(self, node: str) -> Drained | None:
        return self._drained.get(node)

    def hurry(self) -> None:
        """End the drain: workers cut what is in flight."""
        self._hurry.set()

    @property
    def reports(self) -> list[Drained]:
        """What workers that took part have reported."""
        return [report for node, report in self._drained.items() if node in self.members]

    def missing(self) -> list[str]:
        """Return the workers that took part in this run and never reported what they measured."""
        return [name for node, name in self.members.items() if node not in self._drained]

    def alive(self) -> list[str]:
        return [client.id for client in self._runner.clients.values() if client.state != STATE_MISSING]

    # ---- messages

    def _preflight_done(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if msg.data["number"] == self._job:
            self._answers[msg.node_id] = msg.data
            self._heard_at = time.monotonic()

    def _worker_joined(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if self._is_of_run(msg):
            self.members[msg.node_id] = msg.data["worker"]
            self._pulses[msg.node_id] = time.monotonic()
            self.clocks.look(msg.node_id)
            if self._ending:  # it was told so already, while it knew nothing of the run
                self._drained.pop(msg.node_id, None)
                self._tell_to_drain(msg.node_id, 0.0)

    def _worker_refused(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        """A worker cannot join: it leaves. Had it got ready, the run is not what was asked for, and ends."""
        if not self._is_of_run(msg):
            return
        if msg.node_id in self._able and not self._ending:
            self._on_abort(str(msg.data["reason"]))
        elif self._run is not None:
            logger.error("%s; the run goes on without it", msg.data["reason"])
            self._run.mark("worker_refused", reason=str(msg.data["reason"]))

    def _pulse(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if self._is_of_run(msg) and msg.node_id in self.members:
            self._pulses[msg.node_id] = time.monotonic()

    def _tickets_wanted(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if not self._is_of_run(msg) or self._quota is None:
            return
        number, more = self._quota.grant(int(msg.data["wanted"]))
        self._holders.add(msg.node_id)
        self.granted[msg.node_id] += number
        self._send(msg.node_id, "llm_tickets", {"run": msg.data["run"], "granted": number, "more": more})

    def _idle(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if self._is_of_run(msg):
            self._holders.discard(msg.node_id)
            self._look_idle()

    def _worker_drained(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if self._is_of_run(msg):
            self._drained[msg.node_id] = Drained(**msg.data)
            self._holders.discard(msg.node_id)
            if not self._ending:
                self.left.add(msg.node_id)

    def _aborted(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if self._is_of_run(msg):
            self._on_abort(str(msg.data["reason"]))

    # ---- helpers

    def _is_of_run(self, msg: Any) -> bool:
        return self._run is not None and msg.data["run"] == self._run.id

    def _send(self, node: str, kind: str, data: dict[str, Any]) -> None:
        """Send one worker a message. Raises ``OSError`` if the socket does not take it."""
        try:
            self._runner.send_message(kind, data, client_id=node)
        except (RPCError, RPCSendError) as e:
            raise ConnectionError(str(e)) from None

    def _give(self, job: dict[str, Any], workers: list[str], say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
        """Give workers a job; returns the answers of those that live to give one."""
        self._job, self._answers, self._heard_at = secrets.token_hex(8), {}, time.monotonic()
        said: Counter[str] = Counter()
        while waiting := self._working(workers):
            for worker in waiting:
                # One that is still starting drops the message, so it is said again; it does the job once.
                own = {"number": self._job, "index": workers.index(worker), "version": __version__}
                self._send(worker, "llm_preflight", job | own)
            resend_at = time.monotonic() + RESEND_S
            while time.monotonic() < resend_at and self._working(workers):
                gevent.sleep(0.02)
            for worker, answer in self._answers.items():
                for line in answer["said"][said[worker] :]:
                    say(line)
                said[worker] = len(answer["said"])
                if "error" in answer:
                    raise UsageError(answer["error"])
            if time.monotonic() - self._heard_at > SILENT_S:
                silent = ", ".join(self._working(workers)) or "workers"
                raise UsageError(f"{silent}: no answer to locust-llm; do they run the same locustfile and version?")
        return {worker: answer for worker, answer in self._answers.items() if "facts" in answer}

    def _working(self, workers: list[str]) -> list[str]:
        alive = self.alive()
        return [w for w in workers if w in alive and self._answers.get(w, {}).keys().isdisjoint({"facts", "error"})]

    def _undrained(self, with_others: bool) -> set[str]:
        """Return who is waited for at the end. ``with_others``: those too that have not joined; they answer at once."""
        waiting = set(self.alive()) - set(self._drained)
        return waiting if with_others else waiting & set(self.members)

    def _tell_to_drain(self, worker: str, limit_s: float) -> None:
        if self._run is not None:
            with suppress(OSError):  # then it is waited for in vain, but not for ever
                self._send(worker, "llm_drain", {"run": self._run.id, "limit_s": limit_s})

    def _look_idle(self) -> None:
        if self._quota is not None and self._quota.left == 0 and not any(map(self._may_work, self._holders)):
            self._on_idle()

    def _may_work(self, node: str) -> bool:
        """Whether a worker lives, or may come back soon."""
        if node in self.alive():
            return True
        return node in self._runner.clients and time.monotonic() - self.away.get(node, time.monotonic()) < LOST_GRACE_S

    def _watch(self, run: Run) -> None:
        """See who goes and comes back, who is no worker of ours, and that the tickets of the dead end nothing."""
        foreign: dict[str, float] = {}
        while run is self._run and not self._ending:
            gevent.sleep(0.5)
            alive, now_s = set(self.alive()), time.monotonic()
            for node, name in self.members.items():
                if node in self._drained:
                    continue
                if node not in alive and node not in self.away:
                    self.away[node] = now_s
                    run.mark("worker_lost", worker=name)
                elif node in alive and node in self.away:
                    run.mark("worker_back", worker=name, away_s=round(now_s - self.away.pop(node), 1))
            for client in self._runner.clients.running:
                if client.id not in self.members and now_s - foreign.setdefault(client.id, now_s) > FOREIGN_S:
                    foreign[client.id] = float("inf")
                    run.mark("worker_foreign", node=client.id)
                    logger.error(
                        "worker %s has users but does not take part: it does not run locust-llm, or another version",
                        client.id,
                    )
            self._look_idle()
