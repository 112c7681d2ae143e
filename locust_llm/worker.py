"""A worker: it gets the run from the master, keeps its own log, and drains when told to or when it must end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import gevent
import orjson
from gevent.event import Event
from locust.env import Environment
from locust.runners import WorkerRunner

from . import assembly
from .distributed import Drained, WorkerLink
from .ending import interrupt_handler, throw_into
from .errors import UsageError
from .node import EXIT_USAGE, Node
from .options import settings_from
from .run import Run, Tickets

WORKER_OUT = "LOCUST_LLM_WORKER_OUT"


class WorkerNode(Node):
    """The extension in a worker process."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._master = WorkerLink(self._runner, self._preflight, self._take_tickets, self._drained)

    def on_init(self, runner: Any, web_ui: Any) -> None:
        super().on_init(runner, web_ui)
        self._master.register()
        values = self._values()
        if values.get("llm_simulate") and not values.get("processes"):
            print(
                "locust-llm: error: --llm-simulate belongs to the master, not to a worker of its own", file=sys.stderr
            )
            sys.exit(EXIT_USAGE)
        interrupt_handler(self._interrupted)

    def on_test_start(self) -> None:
        super().on_test_start()
        self._master.register()
        self.run = None
        try:
            self.run = self._join()
        except UsageError as e:
            self._master.abort(f"worker {self._name()}: {e}")

    def _join(self) -> Run:
        """Take part in the master's run."""
        settings = settings_from(self._values())
        state = orjson.loads(settings.run_state or "{}")
        if not state:
            raise UsageError("the master does not run locust-llm: start it with the same locustfile and version")
        run = Run(state["run"], self._name(), settings, state["seed"])
        run.facts, run.workers = state["facts"], state["workers"]
        self._count_users(run)
        self._prepare_prompts(run, self.environment.host)
        out = Path(os.environ.get(WORKER_OUT) or settings.out)
        run.open_log(out / run.id / f"events-{run.worker}.jsonl")
        run.on_hopeless = self._master.abort
        if settings.requests:
            run.tickets = Tickets(ask=self._master.ask_tickets)
            run.on_idle = self._master.idle
        return run

    # ---- what the master asks

    def _preflight(self, job: dict[str, Any]) -> dict[str, Any]:
        said: list[str] = []
        try:
            run = Run(job["run"], f"{self._name()}-preflight", settings_from(job["values"]), job["seed"])
            run.facts = assembly.contact_all(run, self._classes(), job["host"], said.append)
            self._prepare_prompts(run, job["host"])
        except UsageError as e:
            return {"error": str(e)}
        return {"facts": run.facts, "records": [record.encode().decode() for record in run.held], "said": said}

    def _take_tickets(self, granted: int, more: bool) -> None:
        if self.run is not None and self.run.tickets is not None:
            self.run.tickets.grant(granted, more)
            self.run.look_idle()

    def _drained(self, limit_s: float) -> Drained:
        run = self.run
        if run is None or run.event_log is None:
            return Drained(self._name())
        if limit_s <= 0:
            run.hurry()
        run.drain(limit_s)
        log = run.event_log
        steps = [[step.at_us, step.by_us] for step in run.anchor.steps]
        return Drained(run.worker, run.cut, dict(run.finished), log.written, log.lost, log.error, steps)

    # ---- Ctrl-C

    def _interrupted(self) -> bool:
        """Drain before the process ends; the master may be telling us the same at this moment."""
        run, runner = self.run, self._runner()
        if self._draining:
            self._hurry()
            return True
        if run is None or run.closed or runner is None:
            return False
        self._draining = True
        gevent.spawn(self._drain_and_leave, run, runner)
        return True

    def _drain_and_leave(self, run: Run, runner: WorkerRunner) -> None:
        run.drain(run.settings.drain_s)
        runner._send_stats()  # Locust's own figures of the last seconds, before this worker says that it quits
        throw_into(self._main)

    # ---- helpers

    def _prepare_prompts(self, run: Run, host: str | None) -> None:
        runner = self._runner()
        index = max(0, runner.worker_index) if runner else 0
        # A worker that joined late has an index beyond those the run began with.
        assembly.prepare_prompts(run, self._classes(), host, index, max(run.workers, index + 1))

    def _running(self) -> Run:
        if self.run is None:
            Event().wait()  # this worker could not join; the master knows, and will stop it
        return super()._running()

    def _runner(self) -> WorkerRunner | None:
        runner = self.environment.runner  # None while a late worker's runner is still being made
        return runner if isinstance(runner, WorkerRunner) else None

    def _name(self) -> str:
        runner = self._runner()
        return f"w{runner.worker_index}-{runner.client_id[-6:]}" if runner else f"w-{os.getpid()}"
