"""What the live statistics cost: in a process under load, and in a master of many workers.

    python benchmarks/live.py                                  # about 4 minutes
    python benchmarks/live.py --seconds 10 --repeats 1         # try it out

First a process with streams, with and without them, in turns; the share is thread CPU time inside the statistics over
all CPU time of the process, page included (a snapshot a second). Then reports of workers, made by the collector from
invented exchanges, are fed to one Board as fast as it takes them, in the order in which they would come, with a
snapshot for each second of the replayed time.
"""

from __future__ import annotations

import os
import random
import time
from types import SimpleNamespace

import gevent
import orjson
from common import HERE, Row, Table, closed_loop, ground_truth, leave, medians, options, save, say, show, workplace

from locust_llm.exchange import Exchange
from locust_llm.live.board import Board
from locust_llm.live.collector import Collector
from locust_llm.live.delta import decode, encode
from locust_llm.run import Run
from locust_llm.settings import Settings
from locust_llm.telemetry.check import Schedule

REPORT_S = 3
TOKENS = 150
ITL_S = 0.010

COLLECTOR_COLUMNS = [
    ("streams", "streams", "d"), ("tokens_per_s", "tokens/s", ".0f"), ("cpu_with", "cores, with", ".3f"),
    ("cpu_without", "cores, without", ".3f"), ("records_share", "records", ".2%"),
    ("streams_share", "open streams", ".2%"), ("reports_share", "reports", ".2%"), ("page_share", "page", ".2%"),
    ("share", "all of it", ".2%"),
    ("us_per_token", "us a token", ".2f"), ("longest_ms", "longest piece, ms", ".2f"),
]  # fmt: skip
BOARD_COLUMNS = [
    ("workers", "workers", "d"), ("tokens_per_s", "tokens/s in all", ".0f"), ("names", "names", "d"),
    ("report_kb", "a report, kB", ".1f"), ("merge_ms", "decode and merge a report, ms", ".2f"),
    ("snapshot_ms", "a snapshot, ms", ".1f"), ("core", "share of one core", ".1%"), ("cells", "numbers held", "d"),
]  # fmt: skip

TEXT = """\
*Collector*: one process and the C server; *records* is the work on finished exchanges, *open streams* the look at them
once a second, *reports* the merge into the Board, *page* one snapshot a second. Shares are of the CPU time of the
process. *Board*: reports of so many workers with 200 streams of 10 ms a token each, replayed; share of one core that
they would take in real time, with one reader of the page."""


def main() -> int:
    given = options(
        __doc__,
        streams=200,
        itl_us=10_000,
        tokens=TOKENS,
        seconds=30,
        repeats=3,
        workers=[10, 50],
        names=[1, 8],
        replay=300,
    ).parse_args()
    rows = [_collector(given.streams, Schedule(0.05, given.itl_us / 1e6, given.tokens), given.seconds, given.repeats)]
    boards = [_board(workers, names, given.replay) for workers in given.workers for names in given.names]
    tables = [Table("Collector", COLLECTOR_COLUMNS, rows), Table("Board", BOARD_COLUMNS, boards)]
    save(given.json, "Live statistics", TEXT, tables, vars(given))
    return 0


def _collector(streams: int, schedule: Schedule, seconds: int, repeats: int) -> Row:
    runs: dict[str, list[Row]] = {"on": [], "off": []}
    for turn in range(repeats):
        for mode in runs:
            runs[mode].append(_run(mode, streams, schedule, seconds))
            say(f"turn {turn + 1}/{repeats}, {mode}: {show(runs[mode][-1])}")
    row = medians(runs["on"])
    return row | {"streams": streams, "cpu_without": medians(runs["off"])["cpu_with"]}


def _run(mode: str, streams: int, schedule: Schedule, seconds: int) -> Row:
    with workplace() as (tools, work), ground_truth(tools, work, schedule) as server:
        out = work / "figures.json"
        os.environ |= {"LIVE_BENCH": mode, "LIVE_BENCH_OUT": str(out)}
        closed_loop(server, work, streams, seconds, more=["-f", str(HERE / "live_locustfile.py")])
        of = orjson.loads(out.read_bytes())
        left = server.truth()
        tokens = float((left["index"] > 0).sum() / ((left["time_ns"].max() - left["time_ns"].min()) / 1e9))
    parts = {f"{part}_share": of[f"{part}_s"] / of["cpu_s"] for part in ("records", "streams", "reports", "page")}
    spent = sum(of[f"{part}_s"] for part in ("records", "streams", "reports", "page"))
    return {
        "tokens_per_s": tokens, "cpu_with": of["cpu_s"] / of["seconds"], **parts, "share": sum(parts.values()),
        "us_per_token": 1e6 * spent / (tokens * of["seconds"]),
        "longest_ms": max(of[f"{part}_longest_ms"] for part in ("records", "streams", "reports", "page")),
    }  # fmt: skip


def _board(workers: int, names: int, seconds: int) -> Row:
    """Replay reports of so many workers over so many seconds."""
    rng = random.Random(1)
    began = int(time.time())
    reports = [_reports(rng, f"w{i}", names, began) for i in range(4)]
    clock = SimpleNamespace(now=float(began))
    board = Board("replay", now=lambda: clock.now)
    merged = snapshots = merge_s = snapshot_s = 0.0
    version, size = 0, 0
    for second in range(seconds):
        clock.now = began + second + 1.5
        for worker in range(workers):
            if (second + worker) % REPORT_S:
                continue
            number = second // REPORT_S
            data = reports[worker % len(reports)][number % len(reports[0])]
            size += len(data)
            cpu = time.process_time()
            delta = decode(data)
            merge_s += time.process_time() - cpu
            # The same few reports again and again, moved to where they would be.
            delta.worker, delta.number = f"w{worker}", number
            shift = second - second % REPORT_S - (number % len(reports[0])) * REPORT_S
            delta.seconds = {at + shift: tally for at, tally in delta.seconds.items()}
            delta.sent_us, delta.gauges.second = round(clock.now * 1e6), int(clock.now) - 1
            cpu = time.process_time()
            board.merge(f"w{worker}", delta)
            merge_s += time.process_time() - cpu
            merged += 1
        cpu = time.process_time()
        orjson.dumps(board.parts(version))
        snapshot_s += time.process_time() - cpu
        snapshots += 1
        version = board.version
    row: Row = {
        "workers": workers, "tokens_per_s": board.total.number("tokens") / seconds, "names": names,
        "report_kb": size / merged / 1e3, "merge_ms": 1e3 * merge_s / merged,
        "snapshot_ms": 1e3 * snapshot_s / snapshots, "core": (merge_s + snapshot_s) / seconds, "cells": _cells(board),
    }  # fmt: skip
    say(f"board: {show(row)}")
    return row


def _reports(rng: random.Random, worker: str, names: int, began: int, reports: int = 5) -> list[bytes]:
    """Let a collector make reports of 200 streams at 10 ms a token."""
    run = Run("replay", worker, Settings(), 0)
    collector = Collector(run)
    collector.close()
    gevent.sleep(0)
    made = []
    rate = 200 / (0.05 + TOKENS * ITL_S)
    for number in range(reports):
        for i in range(round(rate * REPORT_S)):
            for subscriber in run.subscribers:
                subscriber(_exchange(rng, worker, f"name {i % names}", began + number * REPORT_S + i / rate))
        collector.settle()
        made.append(encode(collector.take()))
    return made


def _exchange(rng: random.Random, worker: str, name: str, end_s: float) -> Exchange:
    gaps = [round(rng.lognormvariate(10.8, 0.1))]
    gaps += [*(round(rng.gauss(ITL_S, 0.0008) * 1e6) for _ in range(TOKENS - 1)), 90]
    length = sum(gaps)
    return Exchange(
        run="replay", worker=worker, seq=0, exchange=f"{worker}-{end_s}", name=name, user_class="Chat",
        api="openai-chat", model="m", outcome="ok", start_us=round(end_s * 1e6) - length, end_us=length + 100,
        event_gaps_us=gaps, kind_names=["content", "done"], kind_runs=[TOKENS, 1], n_out=TOKENS, out_source="usage",
        n_in=550, in_source="usage", bytes_in=30_000, bytes_out=4_000, stamp="kernel",
        lag_us_max=round(rng.expovariate(1 / 200)), sent_us=200, reused=True,
    )  # fmt: skip


def _cells(board: Board) -> int:
    """Return how many counters and buckets a Board holds."""
    tallies = [board.total, *board.names.values(), *board.models.values()]
    tallies += [point.tally for _, point in board.series.points(1 << 40)]
    return sum(len(t.numbers) + sum(len(h.counts) for h in t.histograms.values()) for t in tallies)


if __name__ == "__main__":
    leave(main)
