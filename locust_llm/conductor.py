"""The local process, or the master: it starts runs, makes their folders and cards, ends them and says what came out."""

from __future__ import annotations

import atexit
import logging
import sys
import time
from pathlib import Path
from typing import Any

import gevent
import orjson
from gevent.event import Event
from locust.env import Environment
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner

from . import __version__, assembly, runcard
from .distributed import MasterLink
from .ending import Report, console, interrupt_handler
from .errors import UsageError
from .live import roll
from .live.desk import Desk
from .load.arrivals import ALL, pacers_of, stream_of
from .load.lead import Lead
from .load.open_loop import OpenLoop, from_message, hint
from .node import EXIT_USAGE, Node
from .options import BY_DEST
from .run import Run
from .server_metrics import ServerMetrics
from .settings import settings_from
from .starting import Starter, must_have_users, warn_of_short_run
from .tickets import Tickets
from .webui import Form, attach

logger = logging.getLogger(__name__)

EXIT_NOTHING_MEASURED = 1
_ALL_ENDED = "all exchanges asked for have ended"
_SAME_MOVE_S = 1.0
"""Locust says twice that all users are there when a worker has joined."""


class Conductor(Node):
    """The extension in the process that starts and ends tests."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._starter = Starter(environment)
        self._prepared: Run | None = None
        self._folder = Path()
        self._card: dict[str, Any] = {}
        self._report: Report | None = None
        self._workers: MasterLink | None = None
        self._told_to_stop: Run | None = None
        self._quitting: Any = None
        self._failed = False
        self._run_time_s = 0.0
        self._lead: Lead | None = None
        self.desk = Desk(environment, self.set_rate)
        self._server_metrics: ServerMetrics | None = None

    def set_rate(self, rate: float, stream: str = ALL) -> None:
        """Change the rate of arrivals while a test is on; all workers follow within a second, and the card says when.

        Args:
            rate: exchanges per second over all workers.
            stream: a User class with arrivals of its own; default: those of ``--llm-rate``.

        Raises:
            UsageError: no test with such arrivals is on, or no such rate.
        """
        if self._lead is None or self.run is None or self.run.ending:
            raise UsageError("no test with arrivals is on: start one with --llm-rate R")
        self._lead.set_rate(rate, stream)

    # ---- Locust's events, in their order

    def on_init(self, runner: Any, web_ui: Any) -> None:
        try:
            settings = settings_from(self._values())
            self._starter.find_server(settings)
            if web_ui is None:
                must_have_users(self._values(), self.environment.shape_class)
                for cls in self._classes():
                    assembly.spec_of(cls, self.environment.host, settings)
                pacers_of(settings, self._classes())
        except UsageError as e:
            self._starter.stop_simulator()
            print(f"locust-llm: error: {e}", file=sys.stderr)
            sys.exit(EXIT_USAGE)
        if isinstance(runner, MasterRunner):
            self._workers = self._starter.workers = MasterLink(
                runner, lambda: self._stop(_ALL_ENDED, self.run), self._give_up
            )
            self.desk.clock_offsets_us = self._workers.clocks.offsets_us
        if runner is not None:
            interrupt_handler(self._interrupted)
        # "quitting" fires in reverse order: this comes before Locust's own listener, ``on_quitting`` after it.
        quitting: Any = self.environment.events.quitting
        quitting.add_listener(self._quit_once)
        if web_ui is not None:
            attach(web_ui, self._prepare_from_form, self._stop_again, self._notice)
        self.desk.attach(web_ui)
        warn_of_short_run(self._values(), self.environment.shape_class)
        if web_ui is None:
            self._take_run_time()
        gevent.spawn(runcard.git_state, tuple(self.environment.parsed_locustfiles or ()))  # it takes a while

    def on_test_start(self) -> None:
        super().on_test_start()
        if not self._classes():  # none of ours is picked in the page
            self.run = None
            return
        try:
            self._start(self._prepared or self._starter.prepare(self._values(), None, self._classes()))
        except UsageError as e:
            self._refuse(e)
        finally:
            self._prepared = None

    def on_spawning_complete(self, user_count: int) -> None:
        self.desk.on_spawning_complete()
        run = self.run
        if run is None or run.ending:
            return
        if self._lead is not None:
            self._start_arrivals(run, self._lead, user_count)
        levels = [event for event in run.events if "users" in event]
        first = not levels
        if first:
            run.mark("ramp_complete", users=user_count)
        elif levels[-1]["users"] != user_count:
            run.mark("load_changed", users=user_count)
        elif self._workers is not None and time.time() - levels[-1]["t"] > _SAME_MOVE_S:
            run.mark("load_changed", users=user_count, moved=True)
        if first and run.settings.run_time_s:
            self._stop_after(run.settings.run_time_s, run)

    def _quit_once(self, **_: Any) -> None:
        """SIGTERM, or a second one, while the process is being ended: who came first goes on with that."""
        me = gevent.getcurrent()
        if self._quitting not in (None, me) and not getattr(self._quitting, "dead", True):
            if not self._drained.is_set():
                self._hurry()
            Event().wait()
        self._quitting = me

    def on_quitting(self) -> None:
        super().on_quitting()
        self._starter.stop_simulator()
        if self._report is not None:
            self._report.wait()
        self.desk.on_quitting()
        if self._failed:
            self.environment.process_exit_code = EXIT_USAGE
        elif self._autoquit_s is not None and self.environment.process_exit_code is None:
            self.environment.process_exit_code = self._exit_code()

    def _exit_code(self) -> int | None:
        """Return what the objectives say, not 0 if nothing was measured; without objectives Locust decides (None)."""
        judged = self._report.exit_code if self._report is not None else None
        if self.run is None:
            logger.error("the run ended before it could start: nothing was measured")
        elif not self.run.measured:
            logger.error("no exchange has come to an end of its own: nothing was measured")
        else:
            return judged
        return judged or EXIT_NOTHING_MEASURED

    def on_quit(self) -> None:
        if self._report is not None:
            self._report.show()

    # ---- start

    def _take_run_time(self) -> None:
        """Make ``-t`` count from the first user. Locust's own timer starts before first contact is made."""
        options = self.environment.parsed_options
        if options is not None and options.run_time and self.environment.shape_class is None:
            self._run_time_s, options.run_time = float(options.run_time), None
            logging.getLogger("locust.main").addFilter(lambda line: "No run time limit" not in line.getMessage())

    def _start(self, run: Run) -> None:
        """Open the run's folder and let its users begin."""
        state = {
            "version": __version__, "run": run.id, "seed": run.seed, "facts": run.facts, "workers": run.workers,
        }  # fmt: skip
        self._quieten()
        self._values()["llm_run_state"] = orjson.dumps(state).decode()
        self._server_metrics = ServerMetrics(run, self._classes())
        self._server_metrics.read_before()
        self._folder = Path(run.settings.out) / run.id
        run.open_log(self._folder / "events.jsonl")
        run.mark("test_start")
        run.on_hopeless = self._give_up
        self._count_users(run)
        if self._workers is not None:
            self._workers.new_run(run)
        elif run.settings.requests:
            run.tickets = Tickets(ask=lambda wanted: None, left=run.settings.requests, more=False)
            run.on_idle = lambda: self._stop(_ALL_ENDED, run)
        self._lead = self._new_lead(run)
        if self._run_time_s:
            self._values()["run_time"] = self._run_time_s
        self.run, self._report, self._failed = run, None, False
        simulated = self._starter.simulator is not None
        self._card = runcard.new_card(run, self._values(), self.environment, simulated)
        self._write_card(run)
        self.desk.begin(run, self._folder, self._lead, self._run_time_s)
        if self.environment.runner is None:  # run_single_user never fires test_stop
            atexit.register(self._end_single_user)
            if self._lead is not None:
                self._lead.start()
        logger.info("run %s, seed %d", run.id, run.seed)
        if self._run_time_s:
            self._stop_after(self._run_time_s, run)

    def _new_lead(self, run: Run) -> Lead | None:
        """Return who decides the arrivals of a run; None in closed loop."""
        pacers = pacers_of(run.settings, self._classes())
        if not pacers:
            return None
        if self._workers is None:
            own = run.open_loop = OpenLoop(pacers, run.seed)
            senders = dict.fromkeys(pacers, (run.worker,))
            return Lead(pacers, run.seed, lambda: senders, lambda _, data: own.begin(*from_message(data)), run.mark)
        workers = self._workers
        names = [cls.__name__ for cls in self._classes()]
        classes = {s: [name for name in names if stream_of(pacers, name) == s] for s in pacers}

        def members() -> dict[str, tuple[str, ...]]:
            return {stream: workers.senders(classes[stream]) for stream in pacers}

        return Lead(pacers, run.seed, members, workers.tell_pace, run.mark)

    def _start_arrivals(self, run: Run, lead: Lead, users: int) -> None:
        if not lead.segments:
            for line in hint(lead.pacers, users, run.warm_s):
                logger.info("%s", line)
        lead.start()

    def _end_single_user(self) -> None:
        self.on_test_stop()
        self.on_quit()

    def _prepare_from_form(self, form: Form) -> None:
        """Make a run ready for the test that the page wants to start.

        Raises:
            UsageError: it cannot be started.
        """
        runner = self.environment.runner
        values = self._values()
        if not self._drained.is_set():
            raise UsageError("the last test lets its streams finish; wait, or stop again to cut them")
        if runner is not None and runner.state in (STATE_RUNNING, STATE_SPAWNING):
            changed = [BY_DEST[key].flag for key, text in form.options.items() if text != _as_text(values.get(key))]
            if changed:
                tab = self._lead is not None and "--llm-rate" in changed
                how = "stop the test first; only its load can change while it runs"
                raise UsageError(f"{', '.join(changed)}: {how}{' (the rate in the tab LLM)' if tab else ''}")
            return
        self._prepared = None
        classes = self._classes() if form.user_classes is None else assembly.llm_classes(form.user_classes)
        if classes:
            users = {"num_users": form.users} if form.users else {}
            self._prepared = self._starter.prepare(values | form.options | users, form.host, classes)

    def _refuse(self, error: UsageError) -> None:
        """Do not start: say why, and end with exit code 2 unless a page can be used to mend it."""
        if self._quitting is not None:
            raise gevent.GreenletExit  # it was not the input: the process ends
        print(f"locust-llm: error: {error}", file=sys.stderr)
        runner = self.environment.runner
        if runner is None:  # run_single_user
            sys.exit(EXIT_USAGE)
        if self.environment.web_ui is None:
            self._failed = True
            console.disabled = True  # no test was started: Locust's empty tables would only hide why
            gevent.spawn(runner.quit)
        raise gevent.GreenletExit  # ends the greenlet that starts the test, before it spawns a user

    # ---- stop

    def _stop_after(self, seconds: float, run: Run) -> None:
        gevent.spawn_later(seconds, self._stop, f"the run time of {seconds:g} s is over", run)

    def _stop(self, reason: str, run: Run | None) -> None:
        """Stop ``run`` if it is still on, and end the process if headless."""
        runner = self.environment.runner
        if run is None or run is not self.run or run.ending or run is self._told_to_stop or runner is None:
            return
        self._told_to_stop = run
        logger.info("%s, stopping", reason)
        gevent.spawn(self._stop_and_quit)  # not from a user's greenlet, which the stop kills

    def _stop_and_quit(self) -> None:
        """Stop, and end the process if it ends by itself: without a page at once, with one as ``--autoquit`` says."""
        runner, web_ui = self.environment.runner, self.environment.web_ui
        if runner is None:
            return
        if web_ui is None:
            runner.quit()
            return
        runner.stop()
        if self._autoquit_s is not None:
            gevent.sleep(self._autoquit_s)
            runner.quit()
            web_ui.stop()  # type: ignore[no-untyped-call]

    @property
    def _autoquit_s(self) -> float | None:
        """How long after a test the process ends by itself; None: it does not."""
        if self.environment.web_ui is None:
            return 0.0
        options = self.environment.parsed_options
        after_s = getattr(options, "autoquit", -1) if getattr(options, "autostart", False) else -1
        return None if after_s == -1 else float(after_s)

    def _stop_for_a_task(self, run: Run) -> None:
        self._stop("a task says so", run)

    def _stop_again(self) -> bool:
        """The page's stop while a drain is under way: cut. Returns whether it was so."""
        if self._drained.is_set():
            return False
        self._hurry()
        self._drained.wait()
        return True

    def _give_up(self, reason: str) -> None:
        """The run cannot succeed: stop it, exit code 2."""
        if self.run is not None and not self.run.ending and not self._failed:
            print(f"locust-llm: error: stopping: {reason}", file=sys.stderr)
            self._failed = True
            self._stop("nothing to measure", self.run)

    def _drain(self, run: Run) -> None:
        run.stop_starting()
        if self._lead is not None:
            self._lead.stop()
        try:
            if self._workers is not None:
                for report in self._workers.drain(run.settings.drain_s):
                    run.finished.update(report.finished)
                    if report.cut:
                        run.mark("cut", worker=report.worker, exchanges=report.cut)
            super()._drain(run)
        except KeyboardInterrupt:  # a second Ctrl-C, where it still reaches us as one (Windows)
            run.drain(0)
        if self._server_metrics is not None:
            self._server_metrics.read_after(lambda: run.hurried)

    def _hurry(self) -> None:
        super()._hurry()
        if self._workers is not None:
            self._workers.hurry()
        if self._report is not None and self._quitting is not None:
            self._report.give_up()

    def _after(self, run: Run) -> None:
        if self._server_metrics is not None:  # nothing any more, unless there was no drain
            self._server_metrics.read_after(lambda: run.hurried)
        self._write_card(run, last=True)
        self.desk.end(run)
        if self._workers is not None and (line := roll.elsewhere(self._workers, self._folder)):
            logger.warning("%s", line)
        settings = run.settings
        files = [f"--{kind}={path}" for kind in ("junit", "markdown") if (path := getattr(settings, kind))]
        self._report = Report(self._folder, settings.goal, files)
        if self.environment.web_ui is not None:
            gevent.spawn(self._report.show)

    def _write_card(self, run: Run, last: bool = False) -> None:
        happened = runcard.what_happened(run, self._workers)
        if self._lead is not None:
            happened["arrivals"] = runcard.arrivals(run, self._lead, self._workers)
        if self._server_metrics is not None:
            happened["server_metrics"] = self._server_metrics.card()
        try:
            runcard.write_card(self._folder, self._card | happened, last)
        except OSError as e:
            logger.error("%s/run.json: %s", self._folder, e.strerror)

    # ---- words

    def _notice(self) -> str:
        return "Simulated server: timings are made up, no model is behind it" if self._starter.simulator else ""


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
