"""What master and workers tell each other, the worker's side; ``distributed`` explains the kinds of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import gevent
from locust.exception import RPCError, RPCSendError
from locust.runners import WorkerRunner

from .distributed import Drained


class WorkerLink:
    """A worker's side.

    Args:
        runner: gives the runner, None while it is still being made (a late worker's ``test_start`` can be that early).
        do_preflight: makes first contact, with a function that takes lines for the console; returns the answer's data.
        on_tickets: takes the run, how many are granted, and whether there will be more.
        on_drain: takes the run and the limit in seconds; has a greenlet of its own.
        on_pace: takes the run and a segment of the arrivals (``load.open_loop.from_message``).
        on_others: listeners by kind of message; they take its data, and must be quick.
    """

    def __init__(
        self,
        runner: Callable[[], WorkerRunner | None],
        do_preflight: Callable[[dict[str, Any], Callable[[str], None]], dict[str, Any]],
        on_tickets: Callable[[str, int, bool], None],
        on_drain: Callable[[str, float], None],
        on_pace: Callable[[str, dict[str, Any]], None],
        on_others: Mapping[str, Callable[[dict[str, Any]], None]],
    ) -> None:
        self._runner = runner
        self._do_preflight = do_preflight
        self._on_tickets = on_tickets
        self._on_drain = on_drain
        self._on_pace = on_pace
        self._on_others = on_others
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
            for kind, listener in self._on_others.items():
                runner.register_message(kind, lambda environment, msg, take=listener, **_: take(msg.data))

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

    def refused(self, run: str, reason: str) -> None:
        """Say that this worker cannot join."""
        self._send("llm_refused", {"run": run, "reason": reason})

    def drained(self, report: Drained) -> None:
        self._send("llm_drained", asdict(report))

    def records(self, data: dict[str, Any]) -> None:
        """Send a batch of records. Raises ``OSError`` if the socket does not take it."""
        self._send("llm_records", data)

    def clock(self, data: dict[str, Any]) -> None:
        self._send("llm_clock", data)

    def _send(self, kind: str, data: dict[str, Any]) -> None:
        while (runner := self._runner()) is None:
            gevent.sleep(0.01)
        self.register()
        try:
            runner.send_message(kind, data)
        except (RPCError, RPCSendError) as e:
            raise ConnectionError(str(e)) from None

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
        self._on_drain(msg.data["run"], float(msg.data["limit_s"]))
