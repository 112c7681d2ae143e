"""Live statistics of one process: it takes finished records, and looks at the open streams once a second.

The one thing to know: a record is only queued when it comes; one greenlet works the queue off in slices of at most a
millisecond, between which the event loop looks at its sockets. What was counted of a stream while it was open is
provisional, and put right, second by second, when its record comes (``provisional``).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import gevent

from ..exchange import HTTP_STATUS, MEASURE, OK, Exchange
from .delta import Delta, Failed, Gauges, Key
from .figures import UNKNOWN, Figures, figures_of
from .gaps import SECOND_US, Spread
from .good import Goods
from .provisional import Provisional
from .tally import Tally

if TYPE_CHECKING:
    from ..run import Run

logger = logging.getLogger(__name__)

SLICE_NS = 800_000
REST_S = 0.001
TICK_S = 0.5
MOST_KINDS = 100
OTHER = "other"
_EXAMPLE = 200
# Of these the seconds keep histograms; of the second in which the value was known.
_CHARTED = ("ttft", "e2e_latency")


class Collector:
    """Counts what a run does in this process.

    Args:
        run: it is subscribed to.
        on_second: called when the open streams have been looked at.
    """

    def __init__(self, run: Run, on_second: Callable[[], None] = lambda: None) -> None:
        self.run = run
        self._on_second = on_second
        self.epoch = 0
        self._number = 0
        self._since_us = 0
        self._queue: deque[Exchange] = deque()
        self._spread = Spread(self._second)
        self._open = Provisional(self._spread, self._row, self._second)
        self._goods = Goods(run.settings.goal.goodput)
        self._gauges = Gauges()
        self._cpu = (time.process_time(), time.monotonic())
        self._new()
        self._broken = False
        run.subscribers.append(self._queue.append)
        self._loop = gevent.spawn(self._work)

    # ---- for those who carry it further

    def take(self) -> Delta:
        """Return what was counted since the last time."""
        self._spread.flush()
        gauges, log = self._gauges, self.run.event_log
        gauges.lost_records = log.lost if log is not None and log.error else 0
        now = time.process_time(), time.monotonic()
        gauges.cpu = round((now[0] - self._cpu[0]) / max(now[1] - self._cpu[1], 1e-3), 3)
        self._cpu = now
        delta = Delta(
            self.run.id, self.run.worker, self.epoch, self._number, time.time_ns() // 1000,
            self._rows, self._seconds, self._failures, Gauges(**{n: getattr(gauges, n) for n in Gauges.__slots__}),
        )  # fmt: skip
        self._number += 1
        self._new()
        return delta

    def reset(self, epoch: int) -> None:
        """Forget everything; exchanges that are in flight will count when they end, their tokens from now on."""
        if epoch <= self.epoch:
            return
        self.epoch = epoch
        self._since_us = time.time_ns() // 1000
        self._spread.flush()
        self._new()
        self._open.forget(self._since_us)

    def settle(self) -> None:
        """Count all that has come so far; yields between slices."""
        while self._queue:
            self._slice()
            if self._queue:
                gevent.sleep(REST_S)

    def close(self) -> None:
        """The run is over: no more ticks. ``settle`` and ``take`` still work."""
        self._loop.kill(block=False)
        self._gauges.in_flight = self._gauges.decoding = self._gauges.users = 0

    # ---- helpers

    def _new(self) -> None:
        self._rows: dict[Key, Tally] = {}
        self._seconds: dict[int, Tally] = {}
        self._failures: dict[str, Failed] = {}

    def _work(self) -> None:
        looked = int(time.time())
        while True:
            gevent.sleep(TICK_S - time.time() % TICK_S + 0.01)
            try:
                self.settle()
                second = int(time.time())
                if second != looked:
                    self._look(looked, second)
                    looked = second
                    self._on_second()
            except Exception:
                if not self._broken:
                    self._broken = True
                    logger.exception("live statistics are incomplete from now on; the event log is not affected")

    def _slice(self) -> None:
        queue, until_ns = self._queue, time.perf_counter_ns() + SLICE_NS
        while queue:
            self._count(queue.popleft())
            if time.perf_counter_ns() > until_ns:
                return

    def _look(self, looked: int, now: int) -> None:
        """Look at the open streams; ``looked`` is the second in which that was done last."""
        in_flight = decoding = 0
        until_ns = time.perf_counter_ns() + SLICE_NS
        for exchange in list(self.run.attempts):
            found = self.run.attempts.get(exchange)
            if found is None:
                continue
            flying, decodes = self._open.look(exchange, *found)
            in_flight += flying
            decoding += decodes
            if time.perf_counter_ns() > until_ns:
                gevent.sleep(REST_S)
                until_ns = time.perf_counter_ns() + SLICE_NS
        users = self.run.count_users()
        for second in range(max(looked + 1, now - 60), now + 1):  # one for each second, also if some were missed
            into = self._second(second)
            for name, number in (("in_flight", in_flight), ("decoding", decoding), ("users", users)):
                into.add(name, number)
        gauges = self._gauges
        gauges.second, gauges.in_flight, gauges.decoding, gauges.users = now - 1, in_flight, decoding, users

    def _row(self, key: Key) -> Tally:
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = Tally()
        return found

    def _second(self, second: int) -> Tally:
        found = self._seconds.get(second)
        if found is None:
            found = self._seconds[second] = Tally()
        return found

    def _count(self, record: Exchange) -> None:
        if record.phase != MEASURE:
            return
        figures = figures_of(record)
        row = self._row((record.name, record.api, record.model))
        given = self._open.ended(record, figures)
        start_us, end_us = record.start_us, record.start_us + record.end_us
        row.seen(max(start_us, self._since_us), max(end_us, self._since_us))
        row.add(record.outcome)
        self._numbers(row, record, figures)
        for name, value in figures.values.items():
            if given is not None and name in given.values:
                row.of(name).stretch(value, value)
            else:
                row.of(name).add(value)
        row.of("client_lag").add(record.lag_us_max)
        if record.uncertain_us_max:
            row.of("uncertain").add(record.uncertain_us_max)
        self._chart(record, figures, start_us, end_us, given.values if given is not None else ())
        self._open.arrive(row, record, figures, given, self._since_us)
        self._goods.count(row, record, figures)
        if figures.failed:
            self._failed(record)

    def _numbers(self, row: Tally, record: Exchange, figures: Figures) -> None:
        row.add("retries", record.attempt - 1)
        row.add("bytes_in", record.bytes_in)
        row.add("bytes_out", record.bytes_out)
        row.add("events", figures.k)
        row.add("late_joined", record.late_joined)
        if record.event_gaps_us and record.stamp == "user":
            row.add("user_stamps")
        if figures.failed:
            return
        row.add("streamed" if record.streamed else "whole")
        for name, number in (("input", record.n_in), ("output", figures.n), ("reasoning", record.n_reasoning),
                             ("cached", record.n_cached)):  # fmt: skip
            if number is not None:
                row.add(f"tokens_{name}", number)
                row.add(f"knows_{name}")
        if figures.gives_gaps:
            row.add("gives_gaps")
            row.add("gives_itl", figures.gives_itl)
        if figures.ok and figures.k and figures.n_stream is not None:
            row.add("ratio_tokens", figures.n_stream)
            row.add("ratio_events", figures.k)
        if figures.k or not record.streamed:
            which = "ok" if figures.ok else "cut"
            row.add(f"arriving_{which}")
            row.add(f"arriving_{which}_unknown", figures.n_stream is None and figures.state == UNKNOWN)

    def _chart(
        self, record: Exchange, figures: Figures, start_us: int, end_us: int, given: dict[str, float] | tuple[()]
    ) -> None:
        values = figures.values
        at_us = {"ttft": start_us + int(values.get("ttft", 0)), "e2e_latency": end_us}
        for name in _CHARTED:
            if name in values and name not in given:
                self._second(max(at_us[name], self._since_us) // SECOND_US).of(name).add(values[name])
        start, end = max(start_us, self._since_us) // SECOND_US, max(end_us, self._since_us) // SECOND_US
        if "schedule_lag" in values:
            self._second(start).of("schedule_lag").add(values["schedule_lag"])
        if not figures.failed and record.n_in and start_us >= self._since_us:
            self._second(start).add("input", record.n_in)
        if figures.ok or figures.failed:
            self._second(end).add(OK if figures.ok else f"error_{record.outcome}")

    def _failed(self, record: Exchange) -> None:
        error = record.error
        detail = str(record.status) if record.outcome == HTTP_STATUS else error.kind if error else ""
        kind = f"{record.outcome}: {detail}" if detail and detail != record.outcome else record.outcome
        if kind not in self._failures and len(self._failures) >= MOST_KINDS:
            kind = OTHER
        found = self._failures.get(kind)
        if found is None:
            message = (error.message if error else "")[:_EXAMPLE]
            self._failures[kind] = Failed(1, message, record.name)
        else:
            found.count += 1
