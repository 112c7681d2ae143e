"""What memory a stream costs, and whether a long run grows.

    python benchmarks/memory.py                          # about 5 minutes; exit code 1 if a goal is missed
    python benchmarks/memory.py --streams 100 --exchanges 50000

Resident memory of all the tool's processes, seen from outside: with one slow stream and with ``--streams`` of them;
then over ``--exchanges`` short answers on 50 connections, after the first 20 000 and at the end.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from common import Row, Table, Tools, closed_loop, ground_truth, leave, options, save, say, show, workplace

from locust_llm.errors import UsageError
from locust_llm.telemetry.check import Schedule
from locust_llm.telemetry.trial import Trial

MB = 1 << 20
SLOW = Schedule(0.5, 0.5, 20)
SHORT = Schedule(0.001, 0.001, 4)
SHORT_STREAMS = 50
SETTLED_AT = 20_000
ADDED_MB = 60
GROWTH_SHARE = 0.1

STREAMS = [
    ("idle_mb", "one stream, MB", ".1f"),
    ("streams", "streams", "d"),
    ("open_mb", "with them, MB", ".1f"),
    ("added_mb", "added, MB", ".1f"),
    ("kb_per_stream", "kB a stream", ".1f"),
]
GROWTH = [
    ("exchanges", "exchanges", "d"),
    ("per_s", "exchanges/s", ".0f"),
    ("settled_at", "settled after", "d"),
    ("settled_mb", "then, MB", ".1f"),
    ("end_mb", "at the end, MB", ".1f"),
    ("growth", "growth", ".1%"),
    ("mb_per_million", "MB a million exchanges", ".0f"),
]

TEXT = """\
Resident memory of the load generator, all of its processes. *Open streams* are slow ones (two tokens a second), all
at once; goal: 1 000 add at most 60 MB. *Growth*: short answers, as fast as they go; from 20 000 exchanges, when caches
are full, to the end; goal: at most 10 %."""


def main() -> int:
    given = options(__doc__, streams=1000, exchanges=200_000, seconds=8).parse_args()
    with workplace() as (tools, work):
        streams = open_streams(tools, work, given.streams, given.seconds)
        say(show(streams))
        growth = long_run(tools, work, given.exchanges)
        say(show(growth))
    tables = [Table("Open streams", STREAMS, [streams]), Table("A long run", GROWTH, [growth])]
    save(given.json, "Memory", TEXT, tables, vars(given))
    return 0 if streams["added_mb"] <= ADDED_MB * given.streams / 1000 and growth["growth"] <= GROWTH_SHARE else 1


def open_streams(tools: Tools, work: Path, streams: int, seconds: int) -> Row:
    rss = []
    for users in (1, streams):
        with ground_truth(tools, work, SLOW) as server:
            trial = closed_loop(server, work, users, seconds)
        begin, end = _loaded(trial)
        rss.append(max(_rss_mb(trial, begin, end)))
        say(f"{users} streams: {rss[-1]:.1f} MB")
    added = rss[1] - rss[0]
    return {
        "idle_mb": rss[0],
        "streams": streams,
        "open_mb": rss[1],
        "added_mb": added,
        "kb_per_stream": added * 1024 / streams,
    }


def long_run(tools: Tools, work: Path, exchanges: int) -> Row:
    with ground_truth(tools, work, SHORT) as server:
        trial = closed_loop(server, work, SHORT_STREAMS, 0, more=["--llm-requests", str(exchanges)])
        truth = server.truth()
    read_s = np.sort(truth["time_ns"][truth["index"] == 0]) / 1e9
    if len(read_s) <= SETTLED_AT:
        raise UsageError(f"--exchanges {exchanges}: growth is counted from {SETTLED_AT} on; ask for more")
    begin, settled, end = float(read_s[0]), float(read_s[SETTLED_AT]), float(read_s[-1])
    settled_mb = float(np.median(_rss_mb(trial, settled - 1.0, settled + 1.0)))
    end_mb = float(np.median(_rss_mb(trial, end - 2.0, end)))
    return {
        "exchanges": len(read_s),
        "per_s": len(read_s) / (end - begin),
        "settled_at": SETTLED_AT,
        "settled_mb": settled_mb,
        "end_mb": end_mb,
        "growth": end_mb / settled_mb - 1,
        "mb_per_million": (end_mb - settled_mb) / (exchanges - SETTLED_AT) * 1e6,
    }


def _loaded(trial: Trial) -> tuple[float, float]:
    begin, end = trial.mark("ramp_complete"), trial.mark("stop")
    if begin is None or end is None:
        raise UsageError("the run card does not say when the load was complete and when it stopped")
    return begin + 1.0, end


def _rss_mb(trial: Trial, begin: float, end: float) -> list[float]:
    """Return the resident memory of all processes at each sample between two moments."""
    of_each = list(trial.process.watch.rss_bytes(begin, end).values())
    if not of_each:
        raise UsageError("no sample of the memory was taken: too short a run")
    turns = min(map(len, of_each))
    return [sum(samples[i][1] for samples in of_each) / MB for i in range(turns)]


if __name__ == "__main__":
    leave(main)
