"""Live statistics of one process: it takes finished records, and looks at the open streams once a second.

The one thing to know: a record is only queued when it comes; one greenlet works the queue off in slices of at most a
millisecond, between which the event loop looks at its sockets. What was counted of a stream while it was open is
provisional, and put right, second by second, when its record comes (``provisional``).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import gevent
from gevent.lock import BoundedSemaphore

from ..exchange import HTTP_STATUS, MEASURE, OK, Exchange
from .delta import Delta, Failed, Gauges, Key
from .figures import UNKNOWN, Figures, figures_of
from .gaps import SECOND_US, Spread
from .good import Goods
from .provisional import YOUNG_US, Provisional
from .tally import Tally

if TYPE_CHECKING:
    from ..run import Run

logger = logging.getLogger(__name__)

SLICE_NS = 800_000
REST_S = 0.001
TICK_S = 0.1
MOST_KINDS = 100
OTHER = "other"
_EXAMPLE = 200
_NOTHING: Mapping[str, int] = {}
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
        self._looked = int(time.time())
        self._folding = BoundedSemaphore(1)
        self._until_ns = 0
        self._new()
        run.subscribers.append(self._queue.append)
        self._loop = gevent.spawn(self._work)

    # ---- for those who carry it further

    def take(self) -> Delta:
        """Return what was counted since the last time."""
        with self._folding:  # what is being counted belongs to the tallies that are there now
            self._fold()
            self._spread.flush()  # what came meanwhile is little
            for tally in (*self._rows.values(), *self._seconds.values()):
                tally.fold()
            return self._taken()

    def _taken(self) -> Delta:
        gauges, log = self._gauges, self.run.event_log
        gauges.health = self.run.health()
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
        with self._folding:
            self.epoch = epoch
            self._spread.since_us = self._since_us = time.time_ns() // 1000
            self._queue.clear()
            self._spread.flush()
            self._new()
            self._open.forget()

    def tick(self, second: int) -> None:
        """Count all that has come; look at the open streams if a second (epoch) has begun since the last time."""
        self.settle()
        if second != self._looked:
            self._look(self._looked, second)
            self._looked = second
            self._on_second()
        with self._folding:
            self._fold()

    def settle(self) -> None:
        """Count the records that have come; yields between slices."""
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
        while True:
            gevent.sleep(TICK_S - time.time() % TICK_S + 0.01)
            self._try(int(time.time()))

    def _try(self, second: int) -> None:
        try:
            self.tick(second)
        except Exception:
            if not self._gauges.broken:
                self._gauges.broken = True
                logger.exception("live statistics are incomplete from now on; the event log is not affected")

    def _slice(self) -> None:
        queue, until_ns = self._queue, time.perf_counter_ns() + SLICE_NS
        while queue:
            self._count(queue.popleft())
            if time.perf_counter_ns() > until_ns:
                return

    def _fold(self) -> None:
        """Count all that was noted; yields between slices."""
        self._spread.flush(self._pause)
        for tally in (*self._rows.values(), *self._seconds.values()):
            tally.fold()
            self._pause()

    def _pause(self) -> None:
        if time.perf_counter_ns() > self._until_ns:
            gevent.sleep(REST_S)
            self._until_ns = time.perf_counter_ns() + SLICE_NS

    def _look(self, looked: int, now: int) -> None:
        """Look at the open streams; ``looked`` is the second in which that was done last."""
        in_flight = decoding = 0
        now_ns = time.monotonic_ns()
        until_ns = time.perf_counter_ns() + SLICE_NS
        for exchange in list(self.run.attempts):
            found = self.run.attempts.get(exchange)
            if found is None:
                continue
            flying, decodes = self._open.look(exchange, *found, now_ns)
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
        gauges.second = now - 1 - YOUNG_US // SECOND_US
        gauges.in_flight, gauges.decoding, gauges.users = in_flight, decoding, users

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
        self._numbers(row, record, figures)
        noted, before = row.noted, given.values if given is not None else _NOTHING
        for name, value in figures.values.items():
            if name in before:
                row.of(name).stretch(value, value)
            else:
                noted[name].append(value)
        noted["client_lag"].append(record.lag_us_max)
        if record.sent_us is not None:
            noted["send_lag"].append(_send_lag_us(record))
        if record.uncertain_us_max:
            noted["uncertain"].append(record.uncertain_us_max)
        self._chart(record, figures, start_us, end_us, before)
        self._open.arrive(row, record, figures, given)
        self._goods.count(row, record, figures)
        if figures.failed:
            self._failed(record)

    def _numbers(self, row: Tally, record: Exchange, figures: Figures) -> None:
        unknown = figures.n_stream is None and figures.state == UNKNOWN
        numbers: list[tuple[str, int]] = [
            (record.outcome, 1), ("retries", record.attempt - 1), ("bytes_in", record.bytes_in),
            ("bytes_out", record.bytes_out), ("events", figures.k), ("late_joined", record.late_joined),
            ("user_stamps", record.stamp == "user" and bool(record.event_gaps_us)),
        ]  # fmt: skip
        if not figures.failed:
            numbers += (
                ("streamed" if record.streamed else "whole", 1),
                ("gives_gaps", figures.gives_gaps), ("gives_itl", figures.gives_itl),
            )  # fmt: skip
            for name, number in (("input", record.n_in), ("output", figures.n), ("reasoning", record.n_reasoning),
                                 ("cached", record.n_cached)):  # fmt: skip
                if number is not None:
                    numbers += ((f"tokens_{name}", number), (f"knows_{name}", 1))
            if figures.ok and figures.k and figures.n_stream is not None:
                numbers += (("ratio_tokens", figures.n_stream), ("ratio_events", figures.k))
            if figures.k or not record.streamed:
                arriving = "arriving_ok" if figures.ok else "arriving_cut"
                numbers += ((arriving, 1), (f"{arriving}_unknown", unknown))
        totals = row.numbers
        for name, number in numbers:
            if number:
                totals[name] = totals.get(name, 0) + number

    def _chart(
        self, record: Exchange, figures: Figures, start_us: int, end_us: int, given: Mapping[str, float]
    ) -> None:
        values = figures.values
        at_us = {"ttft": start_us + int(values.get("ttft", 0)), "e2e_latency": end_us}
        for name in _CHARTED:
            if name in values and name not in given:
                self._second(max(at_us[name], self._since_us) // SECOND_US).noted[name].append(values[name])
        start, end = max(start_us, self._since_us) // SECOND_US, max(end_us, self._since_us) // SECOND_US
        if "schedule_lag" in values:
            self._second(start).noted["schedule_lag"].append(values["schedule_lag"])
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


def _send_lag_us(record: Exchange) -> int:
    """Return the time from the start to the last byte sent, without DNS, TCP and TLS."""
    connecting = 0 if record.reused else (record.dns_us or 0) + (record.tcp_us or 0) + (record.tls_us or 0)
    return max((record.sent_us or 0) - connecting, 0)
