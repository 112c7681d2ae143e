"""Exchanges as a collector sees them: open at first, looked at now and then, then over and a record."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import report_logs
from report_logs import T0_S, ms, write_log

from locust_llm.exchange import Exchange, ExchangeError
from locust_llm.live.board import Board
from locust_llm.live.collector import Collector
from locust_llm.live.delta import decode, encode
from locust_llm.report.objectives import parse_goal
from locust_llm.report.reading import read
from locust_llm.report.summary import analyse, summary_of
from locust_llm.run import Run
from locust_llm.settings import Settings
from locust_llm.transport.transfer import Transfer
from locust_llm.wire.answer import Answer

START_NS = 1_000
LIMITS = "ttft<=200ms tpot<=30ms itl_max<=90ms output_tokens>=3"


def random_exchange(rng: random.Random, seq: int, worker: str) -> Exchange:
    """Make an exchange of any kind there is: outcomes, shapes of streams, what the server says of tokens."""
    at_s = rng.uniform(0, 8)
    shape = rng.choice(["one each", "one each", "chunks", "running", "mixed", "whole", "no usage", "hidden", "empty"])
    outcome = rng.choice(["ok"] * 6 + ["timeout", "cancelled", "unfinished", "in_band_error", "truncated"])
    count = rng.choice([1, 2, 3, 20, 60])
    kinds = ["content"] * count
    if shape == "mixed":
        kinds = [rng.choice(["reasoning", "content", "tool", "other", "empty", "refusal"]) for _ in range(count)]
    if shape in ("whole", "empty"):
        kinds = []
    at_ms, events = rng.uniform(1, 400), [(0.5, "role")] if rng.random() < 0.5 else []
    for kind in kinds:
        events.append((at_ms, kind))
        at_ms += rng.choice([0.0, rng.expovariate(1 / 20), rng.uniform(0, 200)])
    if outcome == "ok" and shape != "empty":
        events += [(at_ms + 1, "usage"), (at_ms + 2, "done")]
    given: dict[str, Any] = {"n_in": rng.choice([None, 10, 100]), "n_cached": rng.choice([None, 0, 5])}
    tokens = sum(kind in ("content", "reasoning", "tool", "refusal") for kind in kinds)
    if shape == "running":
        per = [rng.choice([0, 1, 2, 5]) if kind in ("content",) else 0 for _, kind in events]
        given |= {"event_tokens": per, "n_out": sum(per), "out_source": "usage"}
    elif shape == "chunks":
        given |= {"n_out": tokens * 3 + 1, "out_source": "usage"}
    elif shape == "hidden":
        given |= {"n_out": tokens + 50, "n_reasoning": 50, "out_source": "usage"}
    elif shape == "whole":
        given |= {"n_out": rng.choice([None, 7]), "out_source": "usage", "streamed": False}
    elif shape in ("one each", "mixed"):
        given |= {"n_out": tokens, "out_source": "usage"}
    if outcome != "ok":
        given |= {"error": ExchangeError("idle", "no byte for 5 s")}
        if rng.random() < 0.7:
            given |= {"n_out": None, "out_source": None}
    if rng.random() < 0.3:
        given["scheduled_us"] = round((T0_S + at_s) * 1e6) - rng.choice([0, 500, 30_000])
    return report_logs.record(
        seq, at_s, events, at_ms + 5, outcome=outcome, worker=worker, exchange=f"{worker}-{seq}",
        name=rng.choice(["chat", "other"]), lag_us_max=rng.randrange(3000), late_joined=rng.choice([0, 0, 2]),
        uncertain_us_max=rng.randrange(2000), bytes_in=rng.randrange(9999), bytes_out=rng.randrange(999), **given,
    )  # fmt: skip


class Process:
    """A process whose clock the test turns; it is told of exchanges as if they were being received."""

    def __init__(self, worker: str, goal: str = LIMITS) -> None:
        self.run = Run("r1", worker, Settings(goal=parse_goal("", goal)), 0)
        self.collector = Collector(self.run)
        self.collector.close()
        self.collector._looked = T0_S - 1

    def play(self, records: Sequence[Exchange], board: Board, report_s: Sequence[float]) -> None:
        """Let exchanges happen; look each second, report at some moments, and once more at the end."""
        waiting = sorted(records, key=lambda r: r.start_us + r.end_us)
        reports = sorted(report_s)
        for second in range(T0_S, T0_S + 40):
            for moment in (second, second + 0.5):
                self._receive(waiting, moment)
                self.collector.tick(int(moment))
                while reports and T0_S + reports[0] <= moment:
                    reports.pop(0)
                    self.report(board)
        assert not waiting
        self.report(board)

    def report(self, board: Board, at_s: float = T0_S) -> None:
        delta = self.collector.take()
        delta.sent_us = round(at_s * 1e6)
        board.merge(self.run.worker, decode(encode(delta)))

    def _receive(self, waiting: list[Exchange], moment_s: float) -> None:
        now_us = round(moment_s * 1e6)
        while waiting and waiting[0].start_us + waiting[0].end_us <= now_us:
            self.end(waiting.pop(0))
        for record in waiting:
            if record.start_us <= now_us:
                self.receive(record, now_us)

    def receive(self, record: Exchange, now_us: int) -> None:
        """An exchange is under way and has brought what had come by then."""
        found = self.run.attempts.get(record.exchange)
        if found is None:
            draft = SimpleNamespace(
                name=record.name, target=SimpleNamespace(api=SimpleNamespace(name=record.api)),
                call=SimpleNamespace(model=record.model, stream=record.streamed), asked_in=50, scheduled_ns=None,
                run=SimpleNamespace(anchor=SimpleNamespace(wall_us=lambda ns: record.start_us)),
            )  # fmt: skip
            # Long ago by the clock that the collector looks at, so that every stream is old enough to be looked into.
            attempt = SimpleNamespace(answer=Answer(), transfer=Transfer(start_ns=START_NS))
            found = self.run.attempts[record.exchange] = draft, attempt  # type: ignore[assignment]
        answer, kinds = found[1].answer, record.kinds()
        at_us = list(accumulate(record.event_gaps_us))
        for i in range(len(answer.times_ns), len(at_us)):
            if record.start_us + at_us[i] > now_us:
                break
            tokens = record.event_tokens[i] if record.event_tokens else -1 if kinds[i] == "content" else 0
            answer.add(START_NS + at_us[i] * 1000 + 321, kinds[i], tokens)

    def end(self, record: Exchange) -> None:
        """An exchange is over."""
        self.run.attempts.pop(record.exchange, None)
        for subscriber in self.run.subscribers:
            subscriber(record)


def board_at(second: float = T0_S) -> Board:
    """Return a Board whose clock stands still."""
    return Board("r1", now=lambda: second)


def summary_of_records(folder: Path, records: Sequence[Exchange], goal: str = LIMITS) -> dict[str, Any]:
    """Return what ``locust-llm report`` says of these."""
    folder.mkdir(parents=True, exist_ok=True)
    log = read([write_log(folder / "events.jsonl", records)])
    return summary_of(analyse(log, {}, "all", goal=parse_goal("", goal)))


def assert_row_is(row: dict[str, Any], scope: dict[str, Any]) -> None:
    """A row of the snapshot says what a scope of ``summary.json`` says of the whole run."""
    for name, of in scope["metrics"].items():
        assert row[name]["count"] == of["count"], name
        for statistic in ("mean", "min", "max"):
            assert row[name][statistic] == pytest.approx(of[statistic], rel=1e-9, abs=1e-9), (name, statistic)
        for p in ("p50", "p90", "p95", "p99"):
            assert row[name][p] == pytest.approx(of[p], rel=0.01, abs=1e-9), (name, p)
    for name in scope["absent"].keys() & {"ttft", "itl", "icl", "tpot", "e2e_latency", "schedule_lag"}:
        assert name not in row
        assert row["absent"][name]
    assert {k: v for k, v in row["counts"].items() if k != "exchanges"} == {
        k: v for k, v in scope["outcomes"].items() if v
    }
    assert row["tokens"] == {
        k: v for k, v in scope["tokens"].items() if k in ("input", "output", "reasoning", "cached")
    }
    for name in ("requests_per_s", "system_output_tps", "output_chunks_per_s"):
        assert row.get(name) == pytest.approx(scope["rates"].get(name)), name
    assert row.get("error_rate") == scope["rates"].get("error_rate")


__all__ = ["LIMITS", "Process", "assert_row_is", "board_at", "ms", "random_exchange", "summary_of_records"]
