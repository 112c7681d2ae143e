"""What master and workers tell each other about a run, by Locust's custom messages.

``llm_preflight``: a worker is to make first contact, or only to get ready. ``llm_joined``: it takes part in a run.
``llm_tickets``: a worker asks for permissions to start. ``llm_idle``: it has used up its tickets and nothing is in
flight. ``llm_pace``: a worker's share of the arrivals. ``llm_pulse``: it is there to send them.
``llm_drain``/``llm_drained``: let streams finish. ``llm_abort``: a worker cannot go on. Data are plain JSON-like
values; ``run`` tells this run from the last.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any

import gevent
from gevent.event import Event
from locust.runners import STATE_MISSING, MasterRunner, WorkerRunner

from .errors import UsageError
from .tickets import Quota

logger = logging.getLogger(__name__)

RESEND_S = 0.5
# A worker that is at it says so each time it is asked; for so long it may be silent.
SILENT_S = 20.0
# Beyond the drain itself, for workers that are slow to answer.
DRAIN_SLACK_S = 10.0
# Workers that send arrivals say so this often; others take over from one that is silent for longer than the second.
PULSE_S = 0.4
PULSE_LOST_S = 2.5


@dataclass(slots=True)
class Drained:
    """What a worker reports when it has drained, and once more when its log is closed."""

    run: str
    worker: str
    cut: int = 0
    finished: dict[str, int] = field(default_factory=dict)
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
    """

    def __init__(self, runner: MasterRunner, on_idle: Callable[[], None], on_abort: Callable[[str], None]) -> None:
        self._runner = runner
        self._on_idle = on_idle
        self._on_abort = on_abort
        self._job = ""
        self._answers: dict[str, dict[str, Any]] = {}
        self._heard_at = 0.0
        self._run = ""
        self._joined: dict[str, str] = {}
        self._pulses: dict[str, float] = {}
        """When each worker was heard last (monotonic seconds)."""
        self._drained: dict[str, Drained] = {}
        self._holders: set[str] = set()
        self._hurry = Event()
        self._ending = False
        self._quota: Quota | None = None
        for kind, listener in {
            "llm_preflight": self._preflight_done,
            "llm_joined": self._worker_joined,
            "llm_tickets": self._tickets_wanted,
            "llm_idle": self._idle,
            "llm_drained": self._worker_drained,
            "llm_abort": self._aborted,
            "llm_pulse": self._pulse,
        }.items():
            runner.register_message(kind, listener)

    def new_run(self, run: str, requests: int) -> None:
        """Forget the last run. ``requests``: exchanges to start in all, 0 without limit."""
        self._run = run
        self._joined.clear()
        self._pulses.clear()
        self._drained.clear()
        self._holders.clear()
        self._hurry.clear()
        self._ending = False
        self._quota = Quota(requests) if requests else None
        if requests:
            gevent.spawn(self._watch_holders, run)

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
        warm = [answer["warm_s"] for answer in answers.values() if answer.get("warm_s")]
        opened = {k: v for answer in answers.values() for k, v in answer.get("prewarmed", {}).items()}
        return found | {"prewarmed": opened} | ({"warm_s": sum(warm) / len(warm)} if warm else {})

    def drain(self, limit_s: float) -> list[Drained]:
        """Tell all workers to drain and wait for them; the dead are not waited for. Returns all reports of this run."""
        self._ending = True
        asked: set[str] = set()
        deadline = time.monotonic() + limit_s + DRAIN_SLACK_S
        while waiting := set(self.alive()) - set(self._drained):
            for worker in waiting - asked:
                self._tell_to_drain(worker, limit_s)
            asked |= waiting
            if self._hurry.is_set():
                self._hurry.clear()
                limit_s = 0.0
                for worker in waiting:
                    self._tell_to_drain(worker, limit_s)
                deadline = time.monotonic() + DRAIN_SLACK_S
            if time.monotonic() > deadline:
                for worker in waiting:
                    logger.warning("worker %s did not say that it has drained; its records may be incomplete", worker)
                break
            self._hurry.wait(0.05)
        return self.reports

    def senders(self, user_classes: Collection[str]) -> tuple[str, ...]:
        """Return the workers that take part and have users of these classes, in an order that stays."""
        clients = self._runner.clients
        heard = time.monotonic() - PULSE_LOST_S
        have = [n for n in self.alive() if self._pulses.get(n, 0.0) > heard and n not in self._drained and n in clients]
        counts = {node: clients[node].user_classes_count for node in have}
        return tuple(sorted(n for n, count in counts.items() if any(count.get(name) for name in user_classes)))

    def tell_pace(self, worker: str, segment: dict[str, Any]) -> None:
        """Tell a worker its share of the arrivals."""
        if worker in self.alive():
            self._runner.send_message("llm_pace", {"run": self._run, **segment}, client_id=worker)

    def name_of(self, node: str) -> str:
        """Return the name of a worker in the records."""
        return self._joined.get(node, node)

    def report_of(self, node: str) -> Drained | None:
        return self._drained.get(node)

    def hurry(self) -> None:
        """End the drain: workers cut what is in flight."""
        self._hurry.set()

    @property
    def reports(self) -> list[Drained]:
        """What workers that took part have reported."""
        return [report for node, report in self._drained.items() if node in self._joined]

    def missing(self) -> list[str]:
        """Return the workers that took part in this run and never reported what they measured."""
        return [name for node, name in self._joined.items() if node not in self._drained]

    def alive(self) -> list[str]:
        return [client.id for client in self._runner.clients.values() if client.state != STATE_MISSING]

    # ---- messages

    def _preflight_done(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if msg.data["number"] == self._job:
            self._answers[msg.node_id] = msg.data
            self._heard_at = time.monotonic()

    def _worker_joined(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if msg.data["run"] == self._run:
            self._joined[msg.node_id] = msg.data["worker"]
            self._pulses[msg.node_id] = time.monotonic()

    def _pulse(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if msg.data["run"] == self._run and msg.node_id in self._joined:
            self._pulses[msg.node_id] = time.monotonic()

    def _tickets_wanted(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if msg.data["run"] != self._run or self._quota is None:
            return
        number, more = self._quota.grant(int(msg.data["wanted"]))
        self._holders.add(msg.node_id)
        self._runner.send_message(
            "llm_tickets", {"run": self._run, "granted": number, "more": more}, client_id=msg.node_id
        )

    def _idle(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if msg.data["run"] == self._run:
            self._holders.discard(msg.node_id)
            self._look_idle()

    def _worker_drained(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if msg.data["run"] == self._run:
            self._drained[msg.node_id] = Drained(**msg.data)
            self._holders.discard(msg.node_id)

    def _aborted(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        if msg.data["run"] == self._run:
            self._on_abort(str(msg.data["reason"]))

    # ---- helpers

    def _give(self, job: dict[str, Any], workers: list[str], say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
        """Give workers a job; returns the answers of those that live to give one."""
        self._job, self._answers, self._heard_at = secrets.token_hex(8), {}, time.monotonic()
        said: Counter[str] = Counter()
        while waiting := self._working(workers):
            for worker in waiting:
                # One that is still starting drops the message, so it is said again; it does the job once.
                own = {"number": self._job, "index": workers.index(worker)}
                self._runner.send_message("llm_preflight", job | own, client_id=worker)
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
                raise UsageError("workers do not answer locust-llm; do they run the same locustfile and version?")
        return {worker: answer for worker, answer in self._answers.items() if "facts" in answer}

    def _working(self, workers: list[str]) -> list[str]:
        alive = self.alive()
        return [w for w in workers if w in alive and self._answers.get(w, {}).keys().isdisjoint({"facts", "error"})]

    def _tell_to_drain(self, worker: str, limit_s: float) -> None:
        self._runner.send_message("llm_drain", {"run": self._run, "limit_s": limit_s}, client_id=worker)

    def _look_idle(self) -> None:
        if self._quota is not None and self._quota.left == 0 and self._holders.isdisjoint(self.alive()):
            self._on_idle()

    def _watch_holders(self, run: str) -> None:
        """The tickets of a worker that died are never used up, so look now and then."""
        while run == self._run and not self._ending:
            gevent.sleep(1)
            self._look_idle()


class WorkerLink:
    """A worker's side.

    Args:
        runner: gives the runner, None while it is still being made (a late worker's ``test_start`` can be that early).
        do_preflight: makes first contact, with a function that takes lines for the console; returns the answer's data.
        on_tickets: takes the run, how many are granted, and whether there will be more.
        on_drain: takes the run and the limit in seconds, blocks until drained, returns the report.
        on_pace: takes the run and a segment of the arrivals (``load.open_loop.from_message``).
    """

    def __init__(
        self,
        runner: Callable[[], WorkerRunner | None],
        do_preflight: Callable[[dict[str, Any], Callable[[str], None]], dict[str, Any]],
        on_tickets: Callable[[str, int, bool], None],
        on_drain: Callable[[str, float], Drained],
        on_pace: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._runner = runner
        self._do_preflight = do_preflight
        self._on_tickets = on_tickets
        self._on_drain = on_drain
        self._on_pace = on_pace
        self._answers: dict[str, dict[str, Any]] = {}
        self._registered = False

    def register(self) -> None:
        """Listen to the master, as soon as there is a runner."""
        runner = self._runner()
        if runner is not None and not self._registered:
            self._registered = True
            runner.register_message("llm_preflight", self._preflight, concurrent=True)
            runner.register_message("llm_tickets", self._tickets)
            runner.register_message("llm_drain", self._drain, concurrent=True)
            runner.register_message("llm_pace", self._pace)

    def joined(self, run: str, worker: str) -> None:
        self._send("llm_joined", {"run": run, "worker": worker})

    def pulse(self, run: str) -> None:
        """Say that this worker is there to send its share of the arrivals."""
        self._send("llm_pulse", {"run": run})

    def ask_tickets(self, run: str, wanted: int) -> None:
        self._send("llm_tickets", {"run": run, "wanted": wanted})

    def idle(self, run: str) -> None:
        self._send("llm_idle", {"run": run})

    def abort(self, run: str, reason: str) -> None:
        self._send("llm_abort", {"run": run, "reason": reason})

    def drained(self, report: Drained) -> None:
        self._send("llm_drained", asdict(report))

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        while (runner := self._runner()) is None:
            gevent.sleep(0.01)
        self.register()
        runner.send_message(kind, data)

    def _preflight(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        number = msg.data["number"]
        if number not in self._answers:
            said: list[str] = []
            answer = self._answers[number] = {"number": number, "said": said}
            answer |= self._do_preflight(msg.data, said.append)
        self._send("llm_preflight", self._answers[number])

    def _tickets(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        self._on_tickets(msg.data["run"], int(msg.data["granted"]), bool(msg.data["more"]))

    def _pace(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        self._on_pace(msg.data["run"], msg.data)

    def _drain(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        self.drained(self._on_drain(msg.data["run"], float(msg.data["limit_s"])))
