"""Where everything that shows a run while it is on gets its figures: page, console, files, Prometheus.

The one thing to know: there is one for an environment, whatever the number of runs; ``snapshot`` is the contract (its
members are those of ``summary.json``), and ``on_run`` says when runs begin and end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import orjson
from locust.env import Environment
from locust.runners import STATE_MISSING, MasterRunner

from ..run import Run
from . import judge
from .board import Board
from .collector import Collector
from .delta import decode
from .reporting import ENTRY, EPOCH
from .rows import finished

if TYPE_CHECKING:
    from ..load.lead import Lead

logger = logging.getLogger(__name__)

SCHEMA = 1
SLICE_S = 0.002
_MOST_MARKS = 200
_HIDDEN_MARKS = ("test_start", "test_stop")

Listener = Callable[[Run], None]


class Desk:
    """The live figures of an environment's runs.

    Args:
        set_rate: changes the rate of arrivals (``Conductor.set_rate``).

    Attributes:
        run_folder: of the current or last run; None before the first.
        board: what was measured of it.
        clock_offsets_us: by node; workers' clocks against ours, as far as known.
    """

    def __init__(self, environment: Environment, set_rate: Callable[..., None]) -> None:
        self.set_rate = set_rate
        self.run_folder: Path | None = None
        self.board: Board | None = None
        self.clock_offsets_us: dict[str, int] = {}
        self._environment = environment
        self._run: Run | None = None
        self._lead: Lead | None = None
        self._run_time_s = 0.0
        self._collector: Collector | None = None
        self._listeners: list[tuple[Listener, Listener]] = []
        self._epoch = 0
        self._ended_s = 0.0
        """When the last run was over (monotonic)."""
        self._cleared: list[str] = []
        events: Any = environment.events
        events.worker_report.add_listener(self._worker_report)
        events.reset_stats.add_listener(self.reset)

    def attach(self, web_ui: Any) -> None:
        """Locust is up: let everything that shows figures take its place. ``web_ui``: Locust's, None without a page."""
        from . import console, csv_files, html_section  # here, so that a worker does not load them

        console.attach(self._environment, self)
        csv_files.attach(self._environment, self)
        html_section.attach(self)
        if web_ui is not None:
            from . import prometheus, web

            prometheus.attach(web_ui, self)
            web.attach(web_ui, self)

    def on_run(self, begin: Listener, end: Listener) -> None:
        """Call ``begin`` when a run has begun (its folder is there), ``end`` when it is over and all data is in."""
        self._listeners.append((begin, end))

    # ---- for the conductor

    def begin(self, run: Run, folder: Path, lead: Lead | None, run_time_s: float) -> None:
        """A run begins."""
        if self.board is not None:
            self._epoch = self.board.epoch + 1
        self._run, self.run_folder, self._lead = run, folder, lead
        self._run_time_s = run_time_s
        self.board = Board(run.id, epoch=self._epoch)
        self._remember_epoch()
        if not self._distributed:
            self._collector = Collector(run, self._push)
            self._collector.reset(self._epoch)
        gevent.spawn(self._watch, run, self.board)
        self._tell(0, run)

    def end(self, run: Run) -> None:
        """The run is over, its log is closed."""
        if run is not self._run or self.board is None:
            return
        if self._collector is not None:
            self._collector.close()
            self._collector.settle()
            self._push()
            self._collector = None
        self.board.ended = True
        self.board.version += 1
        self._tell(1, run)
        self._ended_s = time.monotonic()

    def on_spawning_complete(self) -> None:
        """All users are there: ``--reset-stats`` begins anew."""
        if self._environment.reset_stats:
            self.reset()

    def on_quitting(self) -> None:
        """The process is about to end: what Locust writes gets what came in last."""
        from . import csv_files, html_section

        if self.run_folder is not None:
            html_section.write_again(self._environment)
            csv_files.let_locust_write(self._environment, self._ended_s)

    def reset(self, **_: Any) -> None:
        """Forget what was measured so far, on all nodes; what is in flight counts when it ends."""
        if self.board is None:
            return
        self.board.reset()
        self._remember_epoch()
        if self._collector is not None:
            self._collector.reset(self.board.epoch)
        for node in list(getattr(self._environment.runner, "clients", {})):  # also those that have not reported yet
            self._tell_epoch(node)

    # ---- for those who look

    def snapshot(self, since: int = 0) -> dict[str, Any]:
        """Return all that is known, as plain data.

        Args:
            since: the ``version`` of the snapshot that the caller has; points that have not changed are left out.
        """
        run, board = self._run, self.board
        now = time.time()
        told: dict[str, Any] = {"schema": SCHEMA, "version": 0, "epoch": self._epoch, "state": "ready", "now": now}
        if run is None or board is None:
            return told | {"verdict": {"state": "unknown", "reasons": []}, "rates": [], "server": {}}
        version, epoch, started = board.version, board.epoch, board.started  # a reset may come while this rests
        parts = board.parts(since, _Pauses())
        goal = run.settings.goal
        seconds = board.seconds()
        told |= {
            "version": version, "run": run.id, "epoch": epoch, "state": self._state(run),
            "started": started, "elapsed_s": seconds, "progress": self._progress(run, board, seconds), **parts,
            "verdict": judge.verdict(board.total, board, run.settings.limits),
            "marks": _marks(run, started),
            "objectives": judge.objectives(board, goal),
            "rates": self._rates(), "incomplete": list(board.incomplete), "server": {},
        }  # fmt: skip
        if goal.goodput:
            told["goodput"] = judge.goodput(board.total, goal, seconds)
        if self._distributed:
            told["workers"] = self._workers(board)
        return told

    # ---- helpers

    @property
    def _distributed(self) -> bool:
        return isinstance(self._environment.runner, MasterRunner)

    def _state(self, run: Run) -> str:
        if run.closed:
            return "stopped"
        return "stopping" if run.ending else "running"

    def _progress(self, run: Run, board: Board, seconds: float) -> dict[str, Any]:
        progress: dict[str, Any] = {"ended": int(finished(board.total))}
        if run.settings.requests:
            progress["requests_asked"] = run.settings.requests
        limit_s = self._run_time_s or run.settings.run_time_s
        if limit_s:
            progress["run_time_s"] = limit_s
        if run.ending:
            return progress
        estimates = [limit_s - seconds] if limit_s else []
        if run.settings.requests and progress["ended"] and seconds > 0:
            left = run.settings.requests - progress["ended"]
            estimates.append(left * seconds / progress["ended"])
        return progress | ({"remaining_s": max(min(estimates), 0.0)} if estimates else {})

    def _rates(self) -> list[dict[str, Any]]:
        lead, run = self._lead, self._run
        if lead is None or run is None or run.ending:
            return []
        return [
            {"stream": stream, "label": stream or "all users", "rate": pacer.rate}
            for stream, pacer in lead.pacers.items()
        ]

    def _workers(self, board: Board) -> list[dict[str, Any]]:
        workers = []
        for node, process in board.processes.items():
            worker: dict[str, Any] = {
                "name": process.worker, "state": self._state_of(node), "records": process.exchanges,
                "cpu": process.gauges.cpu,
            }  # fmt: skip
            if node in self.clock_offsets_us:
                worker["clock_offset_us"] = self.clock_offsets_us[node]
            workers.append(worker)
        return workers

    def _state_of(self, node: str) -> str:
        clients: Mapping[str, Any] = getattr(self._environment.runner, "clients", {})
        client = clients.get(node)
        if client is None:
            return "left"
        return "lost" if client.state == STATE_MISSING else "running"

    def _push(self) -> None:
        if self._collector is not None and self.board is not None:
            self.board.merge("", self._collector.take())

    def _worker_report(self, client_id: str, data: dict[str, Any], **_: Any) -> None:
        try:
            found = data.pop(ENTRY, None)
        except AttributeError:
            return
        board = self.board
        if found is None or board is None:
            return
        try:
            delta = decode(found)
            board.merge(client_id, delta)
        except Exception as e:
            board.say(f"a report of worker {client_id} could not be used ({str(e)[:200]}): it is missing here")
            return
        if delta.run == board.run and delta.epoch < board.epoch:
            self._tell_epoch(client_id)

    def _tell_epoch(self, node: str) -> None:
        runner, board = self._environment.runner, self.board
        if isinstance(runner, MasterRunner) and board is not None and node in runner.clients:
            runner.send_message(EPOCH, {"run": board.run, "epoch": board.epoch}, client_id=node)

    def _remember_epoch(self) -> None:
        """Workers that join later learn the epoch with the state of the run."""
        options = self._environment.parsed_options
        if self.board is None or options is None or not getattr(options, "llm_run_state", ""):
            return
        state = orjson.loads(options.llm_run_state)
        options.llm_run_state = orjson.dumps(state | {"epoch": self.board.epoch}).decode()

    def _watch(self, run: Run, board: Board) -> None:
        """Once a second: the rate asked for, and workers that have gone."""
        while not run.closed and self.board is board:
            if self._lead is not None and not run.ending:
                board.sample(rate_asked=sum(pacer.rate for pacer in self._lead.pacers.values()), rate_seconds=1)
            if self._distributed:
                self._look_for_lost(board)
            gevent.sleep(1.0)

    def _look_for_lost(self, board: Board) -> None:
        for node, process in board.processes.items():
            state = self._state_of(node)
            if state == "running" or process.gone:
                continue
            line = (
                f"worker {process.worker} was lost at {time.strftime('%H:%M:%S')}: what it measured since its last "
                "report is missing here; its own file has it"
            )
            board.lost(node, line if state == "lost" else "")

    def _tell(self, which: int, run: Run) -> None:
        for listeners in self._listeners:
            try:
                listeners[which](run)
            except Exception:
                logger.exception("a listener of the live statistics failed")


class _Pauses:
    """Lets the event loop look at its sockets when a piece of work has taken long."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    def __call__(self) -> None:
        if time.perf_counter() > self._until:
            gevent.sleep(0.0005)
            self._until = time.perf_counter() + SLICE_S


def _marks(run: Run, since: float) -> list[dict[str, Any]]:
    """Return what happened to the load, in words."""
    events = [e for e in run.events if e["event"] not in _HIDDEN_MARKS and e["t"] >= since - 1]
    return [{"t": event["t"], "text": _words(event)} for event in events[-_MOST_MARKS:]]


def _words(event: Mapping[str, Any]) -> str:
    what = event["event"]
    if "rate" in event:
        before = f" {event['rate_before']:g}/s" if "rate_before" in event else ""
        return f"rate{before} → {event['rate']:g}/s" + (f" ({event['stream']})" if event.get("stream") else "")
    if "users" in event:
        more = " (target reached)" if what == "ramp_complete" else ", moved between workers" if "moved" in event else ""
        return f"{event['users']} users{more}"
    if what == "cut":
        return f"{event.get('exchanges')} streams cut"
    if what == "stop":
        return "told to stop"
    if what == "shares_changed":
        gone = event.get("gone")
        workers = event.get("workers")
        return f"arrivals shared by {workers} worker{'' if workers == 1 else 's'}" + (
            f", {len(gone)} gone" if gone else ""
        )
    if what == "worker_foreign":
        return "a worker without locust-llm has users"
    words = str(what).replace("_", " ")
    return words.replace("worker", f"worker {event['worker']}", 1) if "worker" in event else words
