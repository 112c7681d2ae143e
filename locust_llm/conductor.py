"""The local process, or the master: it starts runs, makes their folders and cards, ends them and says what came out."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import orjson
from gevent.lock import RLock
from locust.env import Environment
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner

from . import assembly, runcard
from .distributed import MasterLink
from .ending import Report, interrupt_handler
from .errors import UsageError
from .eventlog import run_stamp
from .exchange import decode
from .node import EXIT_USAGE, Node, llm_values
from .options import Settings, settings_from
from .run import Run, Tickets
from .webui import attach

if TYPE_CHECKING:
    from .sim.process import Simulator

logger = logging.getLogger(__name__)

EXIT_NOTHING_MEASURED = 1
_ALL_ENDED = "all exchanges asked for have ended"


class Conductor(Node):
    """The extension in the process that starts and ends tests."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._prepared: Run | None = None
        self._folder = Path()
        self._card: dict[str, Any] = {}
        self._report: Report | None = None
        self._simulator: Simulator | None = None
        self._workers: MasterLink | None = None
        self._ending = RLock()
        self._failed = False

    # ---- Locust's events, in their order

    def on_init(self, runner: Any, web_ui: Any) -> None:
        super().on_init(runner, web_ui)
        if isinstance(runner, MasterRunner):
            self._workers = MasterLink(runner, lambda: self._stop(_ALL_ENDED, self.run), self._give_up)
        try:
            self._find_server(settings_from(self._values()), must=web_ui is None)
            if web_ui is None and self._workers is None:
                # Nothing has been started or printed yet: what is wrong is the only line the user sees.
                self._prepared = self._prepare({})
        except UsageError as e:
            self._stop_simulator()
            print(f"locust-llm: error: {e}", file=sys.stderr)
            sys.exit(EXIT_USAGE)
        if runner is not None:
            interrupt_handler(self._interrupted)
        if web_ui is not None:
            attach(web_ui, self._prepare_from_form, self._notice)
        self._check_ramp()

    def on_test_start(self) -> None:
        super().on_test_start()
        try:
            self._start(self._prepared or self._prepare({}))
        except UsageError as e:
            self._refuse(e)
        finally:
            self._prepared = None

    def on_spawning_complete(self, user_count: int) -> None:
        run = self.run
        if run is None or run.ending:
            return
        first = not any(event["event"] == "ramp_complete" for event in run.events)
        run.mark("ramp_complete" if first else "load_changed", users=user_count)
        if first and run.settings.run_time_s:
            over = f"run time of {run.settings.run_time_s:g} s is over"
            gevent.spawn_later(run.settings.run_time_s, self._stop, over, run)

    def on_quitting(self) -> None:
        with self._ending:  # SIGTERM and the main greenlet can both come here
            super().on_quitting()
            self._stop_simulator()
            if self._failed and self.run is None:
                sys.exit(EXIT_USAGE)  # no test was started: Locust's empty tables would only hide why
            if self._report is not None:
                self._report.wait()
            if self._failed:
                self.environment.process_exit_code = EXIT_USAGE
            elif self.run is not None and not self.run.finished and self.environment.process_exit_code is None:
                logger.error("no exchange has ended: nothing was measured")
                self.environment.process_exit_code = EXIT_NOTHING_MEASURED

    def on_quit(self) -> None:
        if self._report is not None:
            self._report.show()

    # ---- start

    def _prepare(self, changes: Mapping[str, Any]) -> Run:
        """Validate the settings, load what prompts need, make first contact.

        Args:
            changes: option values of the start form, and ``host``, over those of the command line.

        Raises:
            UsageError: the test cannot be run so.
        """
        values = {**self._values(), **{key: value for key, value in changes.items() if key != "host"}}
        settings = settings_from(values)
        self._find_server(settings, must=not changes.get("host"))
        host = str(changes.get("host") or "") or self.environment.host
        seed = settings.seed if settings.seed >= 0 else secrets.randbelow(2**31)
        run_id = f"{run_stamp()}-{_folder_name(settings.name)}{secrets.token_hex(3)}"
        run = Run(run_id, "master" if self._workers else "local", settings, seed)
        self._count_users(run)
        if self._workers is None:
            run.facts = assembly.contact_all(run, self._classes(), host, logger.info)
            assembly.prepare_prompts(run, self._classes(), host, worker=0, workers=1)
        else:
            run.workers = max(1, len(self._workers.alive()))
            job = {"values": llm_values(values), "host": host, "run": run.id, "seed": seed}
            answer = self._workers.preflight(job, settings.wait_ready_s)
            run.facts = answer["facts"]
            run.held += [decode(line) for line in answer["records"]]
            for line in answer["said"]:
                logger.info(line)
        return run

    def _start(self, run: Run) -> None:
        state = {"run": run.id, "seed": run.seed, "facts": run.facts, "workers": run.workers}
        self._values()["llm_run_state"] = orjson.dumps(state).decode()
        self._folder = Path(run.settings.out) / run.id
        run.open_log(self._folder / "events.jsonl")
        run.mark("test_start")
        run.on_hopeless = self._give_up
        if self._workers is not None:
            self._workers.new_run(run.settings.requests)
        elif run.settings.requests:
            run.tickets = Tickets(ask=lambda wanted: None, left=run.settings.requests, more=False)
            run.on_idle = lambda: self._stop(_ALL_ENDED, run)
        self.run, self._report = run, None
        self._card = runcard.new_card(run, self._values(), self.environment, simulated=self._simulator is not None)
        self._write_card(run)
        logger.info("run %s, seed %d", run.id, run.seed)

    def _prepare_from_form(self, form: Mapping[str, str]) -> None:
        runner = self.environment.runner
        if runner is None or runner.state not in (STATE_RUNNING, STATE_SPAWNING):
            self._prepared = None
            self._prepared = self._prepare(form)

    def _refuse(self, error: UsageError) -> None:
        """Do not start: say why, and end with exit code 2 unless a page can be used to mend it."""
        print(f"locust-llm: error: {error}", file=sys.stderr)
        if self.environment.web_ui is None:
            self._failed = True
            if self.environment.runner is not None:
                gevent.spawn(self.environment.runner.quit)
        raise gevent.GreenletExit  # ends the greenlet that starts the test, before it spawns a user

    def _find_server(self, settings: Settings, must: bool) -> None:
        """Start the simulator if it is asked for; make sure that there is a server to test (``must``)."""
        environment = self.environment
        if settings.simulate and self._simulator is None:
            if environment.host:
                raise UsageError("--llm-simulate and --host are both given: which server is to be tested?")
            from .sim.process import start

            self._simulator = start(settings.simulate_options)
            environment.host = self._values()["host"] = self._simulator.url
            logger.warning("SIMULATED SERVER at %s: timings are made up, no model is behind it", self._simulator.url)
        elif must:
            for cls in self._classes():
                assembly.spec_of(cls, environment.host, settings)

    def _stop_simulator(self) -> None:
        if self._simulator is not None:
            self._simulator.stop()
            self._simulator = None

    # ---- stop

    def _stop(self, reason: str, run: Run | None) -> None:
        """Stop ``run`` if it is still on, and end the process if headless."""
        runner = self.environment.runner
        if run is None or run is not self.run or run.ending or runner is None:
            return
        logger.info("%s, stopping", reason)
        # Not from a user's greenlet, which the stop kills.
        gevent.spawn(runner.quit if self.environment.web_ui is None else runner.stop)

    def _give_up(self, reason: str) -> None:
        """The run cannot succeed: stop it, exit code 2."""
        if self.run is not None and not self.run.ending:
            print(f"locust-llm: error: stopping, {reason}", file=sys.stderr)
            self._failed = True
            self._stop("nothing to measure", self.run)

    def _drain(self, run: Run) -> None:
        run.stop_starting()
        try:
            if self._workers is not None:
                for report in self._workers.drain(run.settings.drain_s):
                    run.finished.update(report.finished)
                    if report.cut:
                        run.mark("cut", worker=report.worker, exchanges=report.cut)
            super()._drain(run)
        except KeyboardInterrupt:  # a second Ctrl-C, where it still reaches us as one (Windows)
            run.drain(0)

    def _hurry(self) -> None:
        super()._hurry()
        if self._workers is not None:
            self._workers.hurry()

    def _interrupted(self) -> bool:
        if self._draining:
            self._hurry()
        return self._draining

    def _after(self, run: Run) -> None:
        self._write_card(run)
        self._report = Report(self._folder)
        if self.environment.web_ui is not None:
            gevent.spawn(self._report.show)

    def _write_card(self, run: Run) -> None:
        reports, missing = (self._workers.reports, self._workers.missing()) if self._workers else ([], [])
        try:
            runcard.write_card(self._folder, self._card | runcard.what_happened(run, reports, missing))
        except OSError as e:
            logger.error("%s/run.json: %s", self._folder, e.strerror)

    # ---- words

    def _notice(self) -> str:
        return "Simulated server: timings are made up, no model is behind it" if self._simulator else ""

    def _check_ramp(self) -> None:
        values = self._values()
        users, rate, run_time = values.get("num_users") or 1, values.get("spawn_rate") or 1, values.get("run_time")
        if run_time and self.environment.shape_class is None and users / rate > run_time:
            logger.warning(
                "%d users at %g a second take %.0f s to start, but the test ends after %g s (-t): the load asked for is "
                "never reached; raise -r, or use locust-llm run, which counts -t from the end of the ramp",
                users, rate, users / rate, run_time,
            )  # fmt: skip


def _folder_name(name: str) -> str:
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")[:60]
    return f"{safe}-" if safe else ""
