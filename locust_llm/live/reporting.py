"""A worker's side of the live statistics: what it has counted goes along with Locust's own reports.

The one thing to know: it is one ``bytes`` value in Locust's report, which is sent every three seconds and once more
when the worker has drained; nothing else in that report is touched.
"""

from __future__ import annotations

import logging
from typing import Any

from locust.env import Environment
from locust.runners import WorkerRunner

from ..run import Run
from .collector import Collector
from .delta import encode

logger = logging.getLogger(__name__)

ENTRY = "llm"
"""Of Locust's report."""
EPOCH = "llm_epoch"
"""Message to workers: the statistics were reset."""


class Reporter:
    """Sends the statistics of this process's run. Made before Locust's events fire."""

    def __init__(self, environment: Environment) -> None:
        self._collector: Collector | None = None
        self._registered = False
        self._last = False
        events: Any = environment.events
        events.report_to_master.add_listener(self._report)

    def begin(self, run: Run, runner: WorkerRunner, epoch: int) -> None:
        """A run begins; ``epoch``: how often its statistics have been reset already."""
        if not self._registered:
            self._registered = True
            runner.register_message(EPOCH, self._reset)
        self.end()
        self._collector, self._last = Collector(run), False
        self._collector.reset(epoch)

    def settle(self) -> None:
        """Count all that has come, so that the next report has it."""
        if self._collector is not None:
            self._collector.settle()

    def end(self) -> None:
        """The run is over; what it still counts goes with one more report."""
        if self._collector is not None:
            self._collector.close()
            self._collector.settle()
            self._last = True

    def _report(self, client_id: str, data: dict[str, Any], **_: Any) -> None:
        if self._collector is None:
            return
        try:
            data[ENTRY] = encode(self._collector.take())
        except Exception:  # Locust's own report must go
            logger.exception("the live statistics of this report are lost")
        if self._last:
            self._collector = None

    def _reset(self, environment: Any, msg: Any, **_: Any) -> None:
        if self._collector is not None and msg.data["run"] == self._collector.run.id:
            self._collector.reset(int(msg.data["epoch"]))
