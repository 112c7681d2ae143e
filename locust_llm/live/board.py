"""What all processes have measured of one run, put together; the local process or the master has one.

The one thing to know: it only adds up. It never sees a record, and its size does not grow with the run: names, kinds
of failure, points and processes are bounded, what is beyond is counted under ``other``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .delta import Delta, Failed, Gauges, Key
from .rows import exchanges, failed, finished, head_of, itl_known, point_of, ratio_of, row_of, tokens_known
from .series import Series
from .tally import Tally

MOST_NAMES = 200
MOST_KINDS = 100
MOST_LINES = 50
OTHER = "other"
RECENT_S = 10
_LATE_S = 9
_SKEW_S = 5.0
_US = 1_000_000


class Process:
    """What the Board knows of one process."""

    __slots__ = ("exchanges", "gauges", "gone", "heard_at", "lost", "next", "skew_s", "worker")

    def __init__(self, worker: str, number: int, skew_s: int) -> None:
        self.worker = worker
        self.next = number
        self.skew_s = skew_s
        self.gauges = Gauges()
        self.exchanges = 0
        self.heard_at = 0.0
        self.gone = False
        self.lost = ""
        """The line that says so, as long as it is."""


class Board:
    """The live statistics of a run.

    Args:
        run: its id.
        now: the wall clock (epoch seconds).

    Attributes:
        version: grows with each change. epoch: grows with each reset.
        incomplete: what is missing here, in words.
    """

    def __init__(self, run: str, now: Callable[[], float] = time.time, epoch: int = 0) -> None:
        self.run = run
        self.version = 0
        self.epoch = epoch
        self.incomplete: list[str] = []
        self.processes: dict[str, Process] = {}
        self.ended = self.was_reset = False
        self._now = now
        self._clear()

    def _clear(self) -> None:
        self.started = self._now()
        self.total = Tally()
        self.names: dict[Key, Tally] = {}
        self.models: dict[str, Tally] = {}
        self.failures: dict[str, Failed] = {}
        self.series = Series(int(self.started))
        self._rows: tuple[int, dict[str, Any]] = (-1, {})

    def reset(self) -> None:
        """Begin a new epoch; reports of the last one are dropped when they come."""
        self.epoch += 1
        self.version += 1
        self.was_reset = True
        for process in self.processes.values():
            process.exchanges = 0
        self._clear()

    def merge(self, node: str, delta: Delta) -> None:
        """Add a report of a process (``node``: its name among the nodes). One that came already, or is of another run
        or an older epoch, is dropped."""
        if delta.run != self.run:
            return
        process = self.processes.get(node) or self._under_another_name(node, delta.worker)
        if process is None:
            skew_s = self._now() - delta.sent_us / _US
            process = Process(delta.worker, 0, round(skew_s) if abs(skew_s) > _SKEW_S else 0)
            self.processes[node] = process
        if delta.number < process.next:
            return
        if delta.number > process.next:
            missed = delta.number - process.next
            self.say(f"{missed} reports of worker {delta.worker} never came: what it measured then is missing here")
        process.next = delta.number + 1
        process.gauges, process.heard_at, process.gone = delta.gauges, self._now(), False
        if process.lost in self.incomplete:  # it is back, and brings what it had not reported
            self.incomplete.remove(process.lost)
        self.version += 1
        if delta.gauges.broken:
            where = f"worker {delta.worker}" if node else "this process"
            self.say(f"an error of the live statistics in {where}: figures are missing here, the event log has them")
        if delta.epoch != self.epoch:
            return
        for key, tally in delta.rows.items():
            tally.first_us += process.skew_s * _US
            tally.last_us += process.skew_s * _US
            self.total.merge(tally)
            self._name(key).merge(tally)
            self._model(key[2]).merge(tally)
            process.exchanges += int(exchanges(tally))
        for second, tally in delta.seconds.items():
            self.series.merge(second + process.skew_s, tally, self.version, int(self._now()))
        for kind, more in delta.failures.items():
            self._failed(kind, more)

    def sample(self, **numbers: float) -> None:
        """Note figures of this second that no process reports (the rate asked for)."""
        tally = Tally()
        for name, number in numbers.items():
            tally.add(name, number)
        self.version += 1
        self.series.merge(int(self._now()), tally, self.version, int(self._now()))

    def say(self, line: str) -> None:
        """Name something that is missing here; once, and at most ``MOST_LINES`` of them."""
        if line not in self.incomplete and len(self.incomplete) < MOST_LINES:
            self.incomplete.append(line)
            self.version += 1

    def lost(self, node: str, line: str = "") -> None:
        """A process has gone: what it had in flight is not in flight any more. ``line`` says so until it is back."""
        process = self.processes.get(node)
        if process is not None and not process.gone:
            process.gone, process.lost = True, line
            if line:
                self.say(line)
            process.gauges = Gauges(second=process.gauges.second)
            self.version += 1

    def seconds(self) -> float:
        """Return the length of the run so far: from the first start to the last end, or to now while it goes on."""
        first_us, last_us = self.total.first_us, self.total.last_us
        if not self.ended:
            last_us = max(last_us, self._now() * _US)
        return max((last_us - first_us) / _US, 0.0) if first_us < last_us else 0.0

    def rate(self, tally: Tally, name: str) -> float | None:
        """Return a rate of the run so far (``report.metrics.RATES``), None if it is not known."""
        seconds = self.seconds()
        row = row_of(tally, seconds, ratio_of(self.total), rates_only=True)
        if name == "requests_per_min":
            return row["requests_per_s"] * 60 if "requests_per_s" in row else None
        if name == "goodput_per_s":
            return tally.number("good") / seconds if seconds > 0 else None
        if name == "system_total_tps" and "system_output_tps" in row:
            return float(row["system_output_tps"]) + tally.number("tokens_input") / seconds
        return row.get(name)

    def parts(self, since: int, pause: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Return what a snapshot says of what was measured: rows, head, series, errors (live.md).

        Args:
            since: points that have not changed after this version are left out.
            pause: called between pieces of work, of which each takes less than a few milliseconds.
        """
        if self._rows[0] != self.version:
            self._rows = (self.version, self._make_rows(pause))
        return {**self._rows[1], "head": self._head(), "series": self._series(since, pause), "errors": self._errors()}

    # ---- helpers

    def _make_rows(self, pause: Callable[[], None]) -> dict[str, Any]:
        seconds, ratio = self.seconds(), ratio_of(self.total)
        total = row_of(self.total, seconds, ratio)

        def row(tally: Tally, of: int) -> dict[str, Any]:
            pause()
            return total if of == 1 else row_of(tally, seconds, ratio)  # a single one is all there is

        rows: dict[str, Any] = {"total": total, "names": [], "models": []}
        names, models = self.names, self.models  # a reset may come while a reader rests
        for key in sorted(names):
            name = {k: v for k, v in zip(("name", "api", "model"), key, strict=True) if v}
            rows["names"].append(name | row(names[key], len(names)))
        for model in sorted(models):
            rows["models"].append({"model": model} | row(models[model], len(models)))
        return rows

    def _head(self) -> dict[str, Any]:
        total, ratio = self.total, ratio_of(self.total)
        if self.ended:
            head = {"of": "run since its reset" if self.was_reset else "whole run", **self._whole(ratio)}
        else:
            until = self._complete()
            begin = max(until - max(RECENT_S, self.series.step_s), self.series.started)
            recent = self.series.between(begin, until)
            seconds = until - max(begin, total.first_us / _US)  # nothing was asked for before
            head = {"of": "last 10 s", **(head_of(recent, seconds, ratio, total) if seconds >= 1 else {})}
        for name in ("in_flight", "decoding", "users"):
            head[name] = sum(getattr(process.gauges, name) for process in self.processes.values())
        if ended := finished(total):
            head["error_rate"] = failed(total) / ended
        return head

    def _whole(self, ratio: float) -> dict[str, Any]:
        """Return the head line of the whole run; it is the row of all."""
        row, head = self._rows[1].get("total", {}), {}
        for ours, name in (("output_tps", "system_output_tps"), ("requests_per_s", "requests_per_s"),
                           ("output_chunks_per_s", "output_chunks_per_s")):  # fmt: skip
            if name in row:
                head[ours] = row[name]
        if (seconds := self.seconds()) > 0:
            head["input_tps"] = self.total.number("tokens_input") / seconds
        for name in ("ttft", "itl" if itl_known(self.total) else "icl"):
            for p in ("p50", "p95"):
                if name in row:
                    head[f"{name}_{p}_ms"] = row[name][p]
        return head

    def _complete(self) -> int:
        """Return the second (epoch) up to which all processes have reported; those that are late are not waited for."""
        now = int(self._now())
        reported = [p.gauges.second + 1 + p.skew_s for p in self.processes.values() if not p.gone and p.gauges.second]
        return max(min(reported, default=now), now - _LATE_S) if not self.ended else now + 1

    def _series(self, since: int, pause: Callable[[], None]) -> dict[str, Any]:
        series, ratio, until = self.series, ratio_of(self.total), self._complete()
        known = (tokens_known(self.total), itl_known(self.total))
        step_s, layout = series.step_s, series.layout
        points = []
        for count, (index, point) in enumerate(series.points(until)):
            if point.version <= since and not self._just_complete(index, until):
                continue
            length = min(step_s, max(until - series.started - index * step_s, 1))
            state = (point.version, length, ratio, known)
            if point.shown[0] != state:
                point.shown = (state, {"i": index, **point_of(point.tally, length, ratio, self.total)})
            points.append(point.shown[1])
            if count % 8 == 7:
                pause()
        return {"step_s": step_s, "layout": layout, "started": series.started, "points": points}

    def _just_complete(self, index: int, until: int) -> bool:
        """Whether a point was held back until lately, so that a reader may not have it though it has not changed."""
        return self.series.started + (index + 1) * self.series.step_s > until - 2 * _LATE_S

    def _errors(self) -> list[dict[str, Any]]:
        found = sorted(self.failures.items(), key=lambda item: -item[1].count)
        return [{"kind": k, "count": f.count, "example": f.example, "name": f.name} for k, f in found]

    def _under_another_name(self, node: str, worker: str) -> Process | None:
        """Return a process that has connected anew."""
        for other, process in self.processes.items():
            if process.worker == worker:
                self.processes[node] = self.processes.pop(other)
                return process
        return None

    def _name(self, key: Key) -> Tally:
        found = self.names.get(key)
        if found is None:
            if len(self.names) >= MOST_NAMES:
                key = (OTHER, "", "")
            found = self.names.setdefault(key, Tally())
        return found

    def _model(self, model: str) -> Tally:
        if model not in self.models and len(self.models) >= MOST_NAMES:
            model = OTHER
        return self.models.setdefault(model, Tally())

    def _failed(self, kind: str, more: Failed) -> None:
        if kind not in self.failures and len(self.failures) >= MOST_KINDS:
            kind = OTHER
        old = self.failures.get(kind)
        if old is None:
            self.failures[kind] = Failed(more.count, more.example, more.name)
        else:
            old.count += more.count
