"""How the extension lives inside Locust: which event does what, on the local runner, the master and its workers.

Importing this module registers the listeners on ``locust.events``. All that a run does is in ``Run``; here is only the order
of things: options → ``init`` (simulator, signals) → ``test_start`` (settings, first contact, run folder) → ``spawning_complete`` →
``test_stopping`` (drain) → ``test_stop`` (log closed, report started) → ``quitting`` (exit code) → ``quit`` (table).
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import secrets
import sys
import weakref
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import locust
import locust.argument_parser
import orjson
from gevent.lock import RLock
from locust.env import Environment
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

from . import assembly, options
from .client import LLMClient
from .distributed import Drained, MasterLink, WorkerLink
from .ending import Report, interrupt_handler, throw_into
from .errors import UsageError
from .eventlog import run_stamp
from .exchange import decode
from .options import Settings, settings_from
from .run import Run, Tickets
from .runcard import CARD_SCHEMA, command_line, git_state, machine, options_given, write_card
from .sim.process import Simulator
from .sim.process import start as start_simulator
from .webui import attach

if TYPE_CHECKING:
    from .users import LLMUser
    from .workload.prompts import Prompt

logger = logging.getLogger(__name__)

WORKER_OUT = "LOCUST_LLM_WORKER_OUT"
EXIT_USAGE = 2
EXIT_NOTHING_MEASURED = 1


class Plugin:
    """The extension in one Locust environment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.run: Run | None = None
        self._prepared: Run | None = None
        self._folder: Path | None = None
        self._card: dict[str, Any] = {}
        self._report: Report | None = None
        self._simulator: Simulator | None = None
        self._master: MasterLink | None = None
        self._worker = WorkerLink(
            self._worker_runner, self._preflight_for_master, self._take_tickets, self._drain_for_master
        )
        self._ending = RLock()
        self._draining = False
        self._failed = False
        self._main: Any = None

    # ---- for users

    def client_for(self, user: LLMUser) -> LLMClient:
        """Return a client for a user that is being spawned."""
        run = self._running()
        target = assembly.target_of(run, self._spec(type(user)))
        return LLMClient(run, target, type(user).__name__, run.new_user_id(), self._environment.events.request)

    def model_of(self, user: LLMUser) -> str:
        return user.model or user.client.target.facts.model

    def next_prompt(self, user: LLMUser) -> tuple[Prompt, str | None, bool]:
        """Return the next prompt for a user, the source of its length, and whether its answer's length is asked for exactly."""
        run, runner = self._running(), self._environment.runner
        index = max(0, getattr(runner, "worker_index", 0)) if runner else 0
        workers = max(run.workers, index + 1)
        source = assembly.source_of(run, type(user), user.client.target, index, workers)
        return source.workload.next(), source.length_source, source.exact

    # ---- Locust's events, in their order

    def on_init(self, runner: Any, web_ui: Any) -> None:
        if not self._classes():
            return
        self._main = gevent.getcurrent()
        if isinstance(runner, WorkerRunner):
            self._worker.register()
            self._refuse_simulator_here()
            interrupt_handler(self._interrupted_worker)
            return
        try:
            settings = settings_from(self._values())
            self._host_or_simulator(settings, must=web_ui is None)
        except UsageError as e:
            print(f"locust-llm: error: {e}", file=sys.stderr)
            sys.exit(EXIT_USAGE)
        if isinstance(runner, MasterRunner):
            self._master = MasterLink(runner, lambda: self._stop("all exchanges asked for have ended"), self._give_up)
        if runner is not None:
            interrupt_handler(self._interrupted)
        if web_ui is not None:
            attach(web_ui, self._prepare_from_form, self._notice)
        self._check_ramp(settings)

    def on_test_start(self) -> None:
        if not self._classes():
            return
        gc.collect()
        gc.freeze()  # what is alive now stays; later collections need not look at it again
        try:
            if self._is_worker():
                self._start_on_worker()
            else:
                self._start_here()
        except UsageError as e:
            self._refuse(e)

    def on_spawning_complete(self, user_count: int) -> None:
        run = self.run
        if run is None or run.ending or self._is_worker():
            return
        first = not any(event["event"] == "ramp_complete" for event in run.events)
        run.mark("ramp_complete" if first else "load_changed", users=user_count)
        if first and run.settings.run_time_s:
            gevent.spawn_later(
                run.settings.run_time_s, self._stop, f"run time of {run.settings.run_time_s:g} s is over", run
            )

    def on_test_stopping(self) -> None:
        run = self.run
        if run is None or run.closed:
            return
        if self._draining:  # told to stop a second time
            self._hurry()
            return
        self._draining = True
        try:
            self._drain(run)
        finally:
            self._draining = False

    def on_test_stop(self) -> None:
        run = self.run
        if run is None or run.closed:
            return
        run.mark("test_stop")
        run.close()
        gc.unfreeze()
        if not self._is_worker():
            self._write_card(run)
            self._report = Report(self._folder) if self._folder else None
            if self._report and self._environment.web_ui is not None:
                gevent.spawn(self._show_when_done, self._report)

    def on_quitting(self) -> None:
        with self._ending:  # SIGTERM and the main greenlet can both come here
            if self._environment.runner is not None:
                self._environment.runner.quit()
            self._stop_simulator()
            if self._is_worker() or not self._classes():
                return
            if self._report is not None:
                self._patiently(self._report.wait)
            if self._failed:
                self._environment.process_exit_code = EXIT_USAGE
            elif self.run is not None and not self._finished() and self._environment.process_exit_code is None:
                logger.error("no exchange has ended: nothing was measured")
                self._environment.process_exit_code = EXIT_NOTHING_MEASURED

    def on_quit(self) -> None:
        if self._report is not None:
            self._report.show()

    # ---- start

    def _start_here(self) -> None:
        run = self._prepared or self._prepare({})
        self._prepared = None
        self._environment_values()["llm_run_state"] = orjson.dumps(
            {"run": run.id, "seed": run.seed, "facts": run.facts, "workers": run.workers}
        ).decode()
        self._folder = Path(run.settings.out) / run.id
        run.open_log(self._folder / "events.jsonl")
        run.mark("test_start")
        run.on_hopeless = self._give_up
        if self._master is not None:
            self._master.new_run(run.settings.requests)
        elif run.settings.requests:
            run.tickets = Tickets(ask=lambda wanted: None, left=run.settings.requests, more=False)
            run.on_idle = lambda: self._stop("all exchanges asked for have ended", run)
        self.run = run
        self._write_card(run)

    def _prepare(self, changes: Mapping[str, Any]) -> Run:
        """Validate the settings, load what prompts need, make first contact. ``changes``: values over the options'."""
        values = {**self._values(), **{key: value for key, value in changes.items() if key != "host"}}
        settings = settings_from(values)
        self._host_or_simulator(settings, must=not changes.get("host"))
        host = str(changes.get("host") or "") or self._environment.host
        seed = settings.seed if settings.seed >= 0 else secrets.randbelow(2**31)
        run_id = f"{run_stamp()}-{_folder_name(settings.name)}{secrets.token_hex(3)}"
        run = Run(run_id, "master" if self._master else "local", settings, seed)
        self._open_users(run)
        assembly.prepare_prompts(run)
        if self._master is None:
            run.facts = assembly.contact_all(run, self._classes(), host, logger.info)
        else:
            run.workers = max(1, len(self._master.alive()))
            answer = self._master.preflight(
                {"values": _plain(values), "host": host, "run": run.id, "seed": seed}, settings.wait_ready_s
            )
            run.facts = answer["facts"]
            run.held += [decode(line) for line in answer["records"]]
            for line in answer["said"]:
                logger.info(line)
        logger.info("run %s, seed %d", run.id, seed)
        return run

    def _start_on_worker(self) -> None:
        self._worker.register()
        values = self._values()
        settings = settings_from(values)
        state = orjson.loads(settings.run_state or "{}")
        if not state:
            raise UsageError("the master does not run locust-llm: start it with the same locustfile and version")
        run = Run(state["run"], self._worker_name(), settings, state["seed"])
        run.facts, run.workers = state["facts"], state["workers"]
        self._open_users(run)
        assembly.prepare_prompts(run)
        out = Path(os.environ.get(WORKER_OUT) or settings.out)
        run.open_log(out / run.id / f"events-{run.worker}.jsonl")
        run.on_hopeless = self._worker.abort
        if settings.requests:
            run.tickets = Tickets(ask=self._worker.ask_tickets)
            run.on_idle = self._worker.idle
        self.run = run

    def _preflight_for_master(self, job: dict[str, Any]) -> dict[str, Any]:
        said: list[str] = []
        try:
            run = Run(job["run"], self._worker_name() + "-preflight", settings_from(job["values"]), job["seed"])
            run.facts = assembly.contact_all(run, self._classes(), job["host"], said.append)
        except UsageError as e:
            return {"error": str(e)}
        return {"facts": run.facts, "records": [record.encode().decode() for record in run.held], "said": said}

    def _prepare_from_form(self, form: Mapping[str, str]) -> None:
        runner = self._environment.runner
        if runner is None or runner.state not in (STATE_RUNNING, STATE_SPAWNING):
            self._prepared = None
            self._prepared = self._prepare(form)

    def _refuse(self, error: UsageError) -> None:
        """Do not start: say why, and end with exit code 2 unless a page can be used to mend it."""
        if self._is_worker():
            logger.error("locust-llm: %s", error)
            self._worker.abort(str(error))
            return
        print(f"locust-llm: error: {error}", file=sys.stderr)
        if self._environment.web_ui is None:
            self._failed = True
            if self._environment.runner is not None:
                gevent.spawn(self._environment.runner.quit)
        raise gevent.GreenletExit  # ends the greenlet that starts the test, before it spawns a user

    # ---- stop

    def _stop(self, reason: str, run: Run | None = None) -> None:
        """Stop the test (and end the process, if headless). ``run``: only if this one is still on."""
        if run is not None and (run is not self.run or run.ending):
            return
        runner = self._environment.runner
        if runner is None:
            return
        logger.info("%s, stopping", reason)
        # Not from a user's greenlet, which the stop kills.
        gevent.spawn(runner.quit if self._environment.web_ui is None else runner.stop)

    def _give_up(self, reason: str) -> None:
        """The run cannot succeed: stop it, exit code 2."""
        if self.run is not None and not self.run.ending:
            print(f"locust-llm: error: stopping, {reason}", file=sys.stderr)
            self._failed = True
            self._stop("nothing to measure", self.run)

    def _drain(self, run: Run) -> None:
        run.stop_starting()
        limit_s = run.settings.drain_s
        try:
            self._let_others_end()
            if self._master is not None:
                for report in self._master.drain(limit_s):
                    run.finished.update(report.finished)
                    if report.cut:
                        run.mark("cut", worker=report.worker, exchanges=report.cut)
            run.drain(limit_s)
        except KeyboardInterrupt:  # a second Ctrl-C, where it still reaches us as one (Windows)
            run.drain(0)

    def _drain_for_master(self, limit_s: float) -> Drained:
        run = self.run
        if run is None:
            return Drained(self._worker_name())
        if limit_s <= 0:
            run.hurry()
        run.drain(limit_s)
        log = run.event_log
        return Drained(
            run.worker, run.cut, dict(run.finished),
            log.written if log else 0, log.lost if log else 0, log.error if log else None,
            [[step.at_us, step.by_us] for step in run.anchor.steps],
        )  # fmt: skip

    def _let_others_end(self) -> None:
        """Users that are none of ours stop at the end of their task; ours wait at their next exchange."""
        from .users import LLMUser

        runner = self._environment.runner
        for greenlet in list(runner.user_greenlets) if runner is not None else ():
            user = greenlet.args[0] if greenlet.args else None
            if isinstance(user, locust.User) and not isinstance(user, LLMUser):
                user.stop(force=False)

    def _hurry(self) -> None:
        if self.run is not None:
            self.run.hurry()
        if self._master is not None:
            self._master.hurry()

    def _interrupted(self) -> bool:
        if self._draining:
            self._hurry()
        return self._draining

    def _interrupted_worker(self) -> bool:
        """Drain before the process ends; the master may be telling us the same at this moment."""
        run, runner = self.run, self._worker_runner()
        if self._draining:
            self._hurry()
        elif run is None or run.closed or runner is None:
            return False
        else:
            self._draining = True
            gevent.spawn(self._drain_and_leave, run, runner)
        return True

    def _drain_and_leave(self, run: Run, runner: WorkerRunner) -> None:
        run.drain(run.settings.drain_s)
        runner._send_stats()  # Locust's own figures of the last seconds, before the worker says that it quits
        throw_into(self._main)

    # ---- run card and report

    def _write_card(self, run: Run) -> None:
        if not self._card or self._card.get("run") != run.id:
            values = self._environment_values()
            self._card = {
                "schema": CARD_SCHEMA,
                "run": run.id,
                "name": run.settings.name,
                "command": command_line(),
                "options": options_given(values),
                "load": {
                    "users": values.get("num_users"),
                    "spawn_rate": values.get("spawn_rate"),
                    "run_time_s": run.settings.run_time_s or values.get("run_time"),
                    "requests": run.settings.requests or None,
                    "user_classes": [cls.__name__ for cls in self._environment.user_classes],
                },
                "lengths": {
                    "input_tokens": str(run.settings.input_tokens),
                    "output_tokens": str(run.settings.output_tokens),
                    "natural_stop": run.settings.natural_stop,
                    "prompts": run.settings.prompts or None,
                },
                "seed": run.seed,
                "host": assembly.shown_host(self._environment.host),
                "simulated": self._simulator is not None,
                "machine": machine(),
                "git": git_state(getattr(self._environment, "parsed_locustfiles", None) or []),
                "meta": run.settings.meta,
            }
        log = run.event_log
        reports = self._master.reports if self._master else []
        self._card |= {
            "workers": [report.worker for report in reports] or [run.worker],
            "workers_missing": self._master.missing() if self._master else [],
            "targets": run.facts
            if self._master
            else {spec.key: assembly.facts_to_json(t.facts) for spec, t in run.targets.items()},
            "events": run.events,
            "clock_steps": [[step.at_us, step.by_us] for step in run.anchor.steps]
            + [s for r in reports for s in r.steps],
            "records": (log.written if log else 0) + sum(report.written for report in reports),
            "records_lost": (log.lost if log else 0) + sum(report.lost for report in reports),
            "log_errors": [e for e in [log.error if log else None, *(r.error for r in reports)] if e],
            "finished": dict(run.finished),
        }
        try:
            write_card(self._folder or Path(run.settings.out), self._card)
        except OSError as e:
            logger.error("run.json: %s", e.strerror)

    def _show_when_done(self, report: Report) -> None:
        report.wait()
        report.show()

    def _finished(self) -> int:
        return sum(self.run.finished.values()) if self.run else 0

    # ---- helpers

    def _values(self) -> dict[str, Any]:
        return dict(self._environment_values())

    def _environment_values(self) -> dict[str, Any]:
        parsed = self._environment.parsed_options
        return vars(parsed) if parsed is not None else {}

    def _classes(self) -> list[type[LLMUser]]:
        return assembly.llm_classes(self._environment.user_classes)

    def _spec(self, user_class: type[LLMUser]) -> assembly.Spec:
        return assembly.spec_of(user_class, self._environment.host, self._running().settings)

    def _running(self) -> Run:
        if self.run is None:
            if self._is_worker() or self._failed:
                gevent.event.Event().wait()  # this node could not start; the master knows
            raise UsageError("no test is running: call locust_llm.setup(environment) before the runner starts")
        return self.run

    def _open_users(self, run: Run) -> None:
        runner = self._environment.runner
        if runner is not None:
            run.count_users = lambda: runner.user_count

    def _is_worker(self) -> bool:
        runner = self._environment.runner
        if runner is None:  # a late worker's test_start can come before its runner is known
            return bool(self._environment_values().get("worker"))
        return isinstance(runner, WorkerRunner)

    def _worker_runner(self) -> WorkerRunner | None:
        runner = self._environment.runner
        return runner if isinstance(runner, WorkerRunner) else None

    def _worker_name(self) -> str:
        runner = self._worker_runner()
        return f"w{runner.worker_index}-{runner.client_id[-6:]}" if runner else f"w-{os.getpid()}"

    def _take_tickets(self, granted: int, more: bool) -> None:
        if self.run is not None and self.run.tickets is not None:
            self.run.tickets.grant(granted, more)
            self.run.look_idle()

    def _refuse_simulator_here(self) -> None:
        values = self._environment_values()
        if values.get("llm_simulate") and not values.get("processes"):
            print(
                "locust-llm: error: --llm-simulate belongs to the master, not to a worker on its own", file=sys.stderr
            )
            sys.exit(EXIT_USAGE)

    def _host_or_simulator(self, settings: Settings, must: bool) -> None:
        """Start the simulator if it is asked for; make sure that there is a server to test (``must``)."""
        environment = self._environment
        if settings.simulate:
            if self._simulator is None:
                if environment.host:
                    raise UsageError("--llm-simulate and --host are both given: which server is to be tested?")
                self._simulator = start_simulator(settings.simulate_options)
                environment.host = self._environment_values()["host"] = self._simulator.url
                logger.warning(
                    "SIMULATED SERVER at %s: timings are made up, no model is behind it", self._simulator.url
                )
            return
        for cls in self._classes() if must else ():
            assembly.spec_of(cls, environment.host, settings)

    def _stop_simulator(self) -> None:
        if self._simulator is not None:
            self._simulator.stop()
            self._simulator = None

    def _notice(self) -> str:
        return "Simulated server: timings are made up, no model is behind it" if self._simulator else ""

    def _check_ramp(self, settings: Settings) -> None:
        values = self._environment_values()
        users, rate, run_time = values.get("num_users") or 1, values.get("spawn_rate") or 1, values.get("run_time")
        if run_time and self._environment.shape_class is None and users / rate > run_time:
            logger.warning(
                "%d users at %g a second take %.0f s to start, but the test ends after %g s (-t): the load asked for is never reached; "
                "raise -r, or use locust-llm run, which counts -t from the end of the ramp", users, rate, users / rate, run_time,
            )  # fmt: skip

    def _patiently(self, wait: Any) -> None:
        try:
            wait()
        except KeyboardInterrupt:
            logger.warning("report interrupted; the log is complete")


_plugins: weakref.WeakKeyDictionary[Environment, Plugin] = weakref.WeakKeyDictionary()


def plugin_of(environment: Environment) -> Plugin:
    """Return the extension's state in an environment, made at first use: events may come in any order on a late worker."""
    plugin = _plugins.get(environment)
    if plugin is None:
        plugin = _plugins[environment] = Plugin(environment)
    return plugin


def setup(environment: Environment) -> None:
    """Attach the extension to an environment made in code (library mode). Call it before the runner starts a test.

    ``Environment(events=locust.events)`` needs no call: importing ``locust_llm``'s users attaches those events.
    """
    if environment.events is not locust.events:
        _listen(environment.events)
    if environment.runner is not None:
        plugin_of(environment).on_init(environment.runner, environment.web_ui)


def _listen(events: Any) -> None:
    def init(environment: Environment, runner: Any = None, web_ui: Any = None, **_: Any) -> None:
        plugin = plugin_of(environment)
        plugin.on_init(runner, web_ui)
        environment.events.quit.add_listener(lambda **_: plugin.on_quit())

    def on(name: str) -> Any:
        def listener(environment: Environment, **_: Any) -> None:
            getattr(plugin_of(environment), f"on_{name}")()

        return listener

    def spawning_complete(user_count: int, **_: Any) -> None:
        # Locust does not say in which environment; a process has one that runs.
        for plugin in list(_plugins.values()):
            plugin.on_spawning_complete(user_count)

    events.init.add_listener(init)
    events.spawning_complete.add_listener(spawning_complete)
    for name in ("test_start", "test_stopping", "test_stop", "quitting"):
        getattr(events, name).add_listener(on(name))


def _add_options(parser: ArgumentParser, **_: Any) -> None:
    options.add_to(parser)


def _folder_name(name: str) -> str:
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")[:60]
    return f"{safe}-" if safe else ""


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the LLM options alone: what travels to a worker must be plain data."""
    return {key: value for key, value in values.items() if key in options.BY_DEST}


locust.events.init_command_line_parser.add_listener(_add_options)
_listen(locust.events)
# Each spawn message makes a worker build one parser per option, 200 ms of standstill for every stream; the answer never changes.
locust.argument_parser.default_args_dict = functools.cache(locust.argument_parser.default_args_dict)
