"""A worker: it gets the run from the master, keeps its log and sends it, drains when told to or when it must end."""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gevent
import orjson
from gevent.event import Event
from locust.env import Environment
from locust.runners import WorkerRunner

from . import __version__, assembly
from .distributed import PULSE_S, Drained
from .ending import interrupt_handler
from .errors import UsageError
from .live import clocks
from .live.post import Post
from .live.reporting import Reporter
from .load.arrivals import pacers_of
from .load.open_loop import OpenLoop, from_message
from .load.schedule import Share
from .node import EXIT_USAGE, Node, llm_values
from .run import Run
from .settings import settings_from
from .tickets import Tickets
from .worker_link import WorkerLink

logger = logging.getLogger(__name__)

WORKER_OUT = "LOCUST_LLM_WORKER_OUT"


class WorkerNode(Node):
    """The extension in a worker process."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._prepared: Run | None = None
        self._reporter = Reporter(environment)
        self._post: Post | None = None
        self._concluding = ""
        """The run whose end is being reported, or has been."""
        self._concluded = Event()
        self._master = WorkerLink(
            self._runner, self._preflight, self._take_tickets, self._drain_as_told, self._take_pace,
            {"llm_records": self._take_answer, "llm_clock": self._tell_time},
        )  # fmt: skip

    # ---- Locust's events

    def on_init(self, runner: Any, web_ui: Any) -> None:
        self._master.register()
        values = self._values()
        if values.get("llm_simulate") and not values.get("processes"):
            print(
                "locust-llm: error: --llm-simulate belongs to the master, not to a worker of its own", file=sys.stderr
            )
            sys.exit(EXIT_USAGE)
        # "quitting" fires in reverse order: this drains before Locust's own listener tells the master that we are gone.
        quitting: Any = self.environment.events.quitting
        quitting.add_listener(self._leave)
        interrupt_handler(self._interrupted)
        if values.get("processes"):
            gevent.spawn(self._watch_parent, os.getppid())

    def on_test_start(self) -> None:
        super().on_test_start()
        self.run = None
        self._await_runner()
        self._master.register()
        state = orjson.loads(self._values().get("llm_run_state") or "{}")
        try:
            self.run = self._join(state)
        except UsageError as e:
            if "run" in state:
                logger.error("%s", e)
                self._master.refused(state["run"], f"worker {self._name()}: {e}")
            else:
                print(f"locust-llm: error: {e}", file=sys.stderr)
            self._desert()

    def _join(self, state: dict[str, Any]) -> Run:
        """Take part in the master's run."""
        if "run" not in state:
            raise UsageError("the master does not run locust-llm: start it with the same locustfile")
        if state.get("version") != __version__:
            raise UsageError(_other_version(state))
        run, self._prepared = self._prepared, None
        prepared = run
        if run is None or run.id != state["run"] or run.workers != state["workers"]:  # joined late
            # Locust's index grows with each worker that connects, so it is beyond those that the run began with.
            index = max(0, self._await_runner().worker_index)
            job = {"index": index, "host": self.environment.host, "values": llm_values(self._values())}
            run = self._prepare(state | job, logger.info)
            if prepared is not None and prepared.id == run.id:  # its warm-up was for the same run
                prepared.disconnect()
                run.held += [replace(record, worker=f"{record.worker}-warmup") for record in prepared.held]
        self._quieten()
        self._count_users(run)
        own = os.environ.get(WORKER_OUT)
        folder = Path(own or run.settings.out) / run.id
        run.open_log(folder / f"events-{run.worker}.jsonl", WORKER_OUT if own else "--llm-out")
        if self._post is not None:
            self._post.close()
        if run.event_log is not None:
            self._post = Post(run.id, run.worker, run.event_log, self._master.records)
        run.on_hopeless = lambda reason: self._master.abort(run.id, reason)
        if run.settings.requests:
            run.tickets = Tickets(ask=lambda wanted: self._master.ask_tickets(run.id, wanted))
            run.on_idle = lambda: self._master.idle(run.id)
        pacers = pacers_of(run.settings, self._classes())
        if pacers:
            run.open_loop = OpenLoop(pacers, run.seed)
            gevent.spawn(self._pulse, run)
        self._reporter.begin(run, self._await_runner(), int(state.get("epoch", 0)))
        self._master.joined(run.id, run.worker)
        return run

    def _leave(self, **_: Any) -> None:
        """This process ends: let streams finish, say what was measured, then let Locust say goodbye."""
        runner = self._runner()
        if runner is None or self.run is None:
            return
        if not self.run.closed:
            runner.stop()  # drains, and reports when the log is closed
        self._after(self.run)  # the master may have asked for the same: wait for its end
        runner._send_stats()

    def _pulse(self, run: Run) -> None:
        while not run.ending:
            gevent.sleep(PULSE_S)
            self._master.pulse(run.id)

    def _watch_parent(self, master: int) -> None:
        """A forked worker ends when its master was killed; by itself Locust would notice after a minute."""
        while os.getppid() == master:
            gevent.sleep(1)
        if self.run is not None and not self.run.closed:
            logger.error("the master has gone: this worker ends")
        if self.environment.runner is not None:
            self.environment.runner.quit()

    def _desert(self) -> None:
        """End this process: its master cannot be told what is wrong."""
        self.environment.process_exit_code = EXIT_USAGE
        runner = self._runner()
        if runner is not None:
            gevent.spawn(runner.quit)

    # ---- what the master asks

    def _preflight(self, job: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
        run = self._prepared
        if job.get("version") != __version__:
            logger.error("%s", _other_version(job))
            return {"error": f"worker {self._name()}: {_other_version(job)}"}
        try:
            if run is None or (run.id, run.index, run.workers) != (job["run"], job["index"], job["workers"]):
                if run is not None:
                    run.disconnect()
                run = self._prepared = self._prepare(job, say)
            if "warmup_users" in job:
                share = Share(run.index % run.workers, run.workers)
                assembly.warm_up(run, self._classes(), int(job["warmup_users"]), share, say)
                if job["prewarm"]:
                    assembly.prewarm(run, self._classes(), int(job["warmup_users"]), share)
        except UsageError as e:
            return {"error": f"worker {self._name()}: {e}" if "facts" in job else str(e)}
        except Exception as e:
            logger.exception("first contact failed")
            return {"error": f"first contact failed on worker {self._name()}: {type(e).__name__}: {e}"}
        if "facts" in job:  # what this run holds is its warm-up, and goes into its log
            return {"facts": run.facts, "warm_s": run.warm_s, "prewarmed": run.prewarmed}
        # The run that this worker joins numbers its records from the start again; these keep keys of their own.
        records = [replace(r, worker=f"{r.worker}-preflight", exchange=f"preflight-{r.exchange}") for r in run.held]
        run.held.clear()
        return {"facts": run.facts, "records": [record.encode().decode() for record in records]}

    def _prepare(self, job: dict[str, Any], say: Callable[[str], None]) -> Run:
        """Make a run ready; first contact is made if its facts are not known yet."""
        run = Run(job["run"], self._name(), settings_from(job["values"]), job["seed"])
        run.host, run.workers = job["host"], job["workers"]
        run.facts = job.get("facts") or assembly.contact_all(run, self._classes(), run.host, say)
        run.index = job["index"]
        assembly.prepare_prompts(run, self._classes(), run.host, run.index, max(run.workers, run.index + 1))
        return run

    def _take_tickets(self, run: str, granted: int, more: bool) -> None:
        if self.run is not None and self.run.id == run and self.run.tickets is not None:
            self.run.tickets.grant(granted, more)
            self.run.look_idle()

    def _take_pace(self, run: str, segment: dict[str, Any]) -> None:
        if self.run is not None and self.run.id == run and self.run.open_loop is not None:
            self.run.open_loop.begin(*from_message(segment))

    def _take_answer(self, answer: dict[str, Any]) -> None:
        if self._post is not None and self.run is not None and answer["run"] == self.run.id:
            self._post.answered(answer)

    def _tell_time(self, question: dict[str, Any]) -> None:
        run, now_ns = self.run, time.monotonic_ns()
        at_us = time.time_ns() // 1000 if run is None else run.anchor.wall_us(now_ns)
        self._master.clock(clocks.answer(question, at_us))

    def _drain_as_told(self, run_id: str, limit_s: float) -> None:
        run = self.run
        if run is None or run.id != run_id:
            self._master.drained(Drained(run_id, self._name()))
            return
        if limit_s <= 0:
            run.hurry()
        self._let_others_end()
        run.drain(limit_s)
        if not run.closed:
            run.close()
            gc.unfreeze()
        self._after(run)

    def _after(self, run: Run) -> None:
        """Send what is unsent, then say what became of the run here; once, whoever comes second waits for it."""
        if self._concluding == run.id:
            self._concluded.wait()
            return
        self._concluding = run.id
        self._concluded.clear()
        runner = self._runner()
        try:
            self._reporter.end()
            if runner is not None:
                runner._send_stats()  # Locust's own figures, and ours, before the master learns that it need not wait
            if self._post is not None:
                self._post.finish()
            self._master.drained(self._report(run))
        finally:
            self._concluded.set()

    # ---- helpers

    def _report(self, run: Run) -> Drained:
        log = run.event_log
        taken, written, lost, error = (log.taken, log.written, log.lost, log.error) if log else (0, 0, 0, None)
        steps = [[step.at_us, step.by_us] for step in run.anchor.steps]
        return Drained(run.id, run.worker, run.cut, dict(run.finished), taken, written, lost, error, steps, run.client,
                       run.open_loop.report() if run.open_loop else {})  # fmt: skip

    def _running(self) -> Run:
        if self.run is None:
            Event().wait()  # this worker could not join; the master knows, and will stop it
        return super()._running()

    def _await_runner(self) -> WorkerRunner:
        while (runner := self._runner()) is None:  # a late worker: it is still being made
            gevent.sleep(0.01)
        return runner

    def _runner(self) -> WorkerRunner | None:
        runner = self.environment.runner  # None while a late worker's runner is still being made
        return runner if isinstance(runner, WorkerRunner) else None

    def _name(self) -> str:
        runner = self._runner()
        return f"w{runner.worker_index}-{runner.client_id[-6:]}" if runner else f"w-{os.getpid()}"


def _other_version(told: dict[str, Any]) -> str:
    version = told.get("version", "of an older version")
    return f"the master has locust-llm {version}, this worker {__version__}: install the same"
