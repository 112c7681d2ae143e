"""A start of many users at once: what it does to the first answers, with and without ``--llm-prewarm``.

    python benchmarks/start.py                        # about 3 minutes; exit code 1 if a goal is missed
    python benchmarks/start.py --repeats 1 --users 50 --json /tmp/start.json

All users are spawned within a second (``-r N``) on a server whose first token comes after a fixed time, on one process
and on two. *First* are the users' first exchanges, *later* all others; *bend* is how much higher the TTFT of the first
is. The server's log says when each first token left, so that what is ours can be told from what is the server's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import (
    Row,
    Server,
    Table,
    Tools,
    closed_loop,
    ground_truth,
    leave,
    medians,
    options,
    save,
    say,
    show,
    workplace,
)

from locust_llm.errors import UsageError
from locust_llm.exchange import MEASURE, OK, Exchange
from locust_llm.telemetry.check import Schedule
from locust_llm.telemetry.trial import Trial

BEND_P50 = 0.25
BEND_P95_PREWARMED = 0.10
_LOST = "failed to send heartbeat"

COLUMNS = [
    ("processes", "processes", "d"),
    ("prewarm", "pre-warmed", ""),
    ("users", "users", "d"),
    ("spread_ms", "first requests spread over, ms", ".0f"),
    ("connect_p50_ms", "connecting, p50, ms", ".2f"),
    ("first_p50_ms", "TTFT of the first: p50, ms", ".1f"),
    ("first_p95_ms", "p95", ".1f"),
    ("later_p50_ms", "of the later: p50, ms", ".1f"),
    ("later_p95_ms", "p95", ".1f"),
    ("bend_p50", "bend of p50", ".1%"),
    ("bend_p95", "bend of p95", ".1%"),
    ("server_p50_ms", "first, by the server's log: p50, ms", ".1f"),
    ("server_p95_ms", "p95", ".1f"),
    ("heartbeats_lost", "heartbeats lost", "d"),
    ("reached", "goals reached", ""),
]

TEXT = f"""\
Users that all start within a second. *Bend*: how much higher the TTFT of their first exchanges is than that of all
later ones. *By the server's log*: from our start of the request to the moment the server sent its first token; what
TTFT has above that is ours. Goals: no heartbeat of a worker is lost; the median bends by at most {BEND_P50:.0%};
pre-warmed, the 95th percentile by at most {BEND_P95_PREWARMED:.0%}."""


def main() -> int:
    given = options(__doc__, processes=[1, 2], users=500, seconds=5, repeats=3).parse_args()
    rows: list[Row] = []
    every: list[Row] = []
    with workplace() as (tools, work):
        for processes in given.processes:
            for prewarm in (False, True):
                runs = [
                    start(tools, work, processes, given.users, given.seconds, prewarm) for _ in range(given.repeats)
                ]
                every += runs
                rows.append(_judged(medians(runs), runs))
                say(show(rows[-1]))
    save(given.json, "Start of many users", TEXT, [Table("", COLUMNS, rows)], vars(given), every)
    return 0 if all(row["reached"] for row in rows) else 1


def start(tools: Tools, work: Path, processes: int, users: int, seconds: int, prewarm: bool) -> Row:
    """Return what one start did."""
    more = ["-r", str(users), *(["--llm-prewarm"] if prewarm else [])]
    with ground_truth(tools, work, Schedule(0.05, 0.01, 100)) as server:
        trial = closed_loop(server, work, users, seconds, processes, more)
        left_us = _first_tokens_us(server)
    first, later = _first_and_later(trial)
    if not first or not later:
        raise UsageError(
            f"{len(first)} first and {len(later)} later exchanges are too few; let it run longer (--seconds)"
        )
    p50, p95 = np.percentile([_ttft_ms(record) for record in first], [50, 95]).tolist()
    later_p50, later_p95 = np.percentile([_ttft_ms(record) for record in later], [50, 95]).tolist()
    by_server = [
        (left_us[record.response_id] - record.start_us) / 1e3 for record in first if record.response_id in left_us
    ]
    server_p50, server_p95 = np.percentile(by_server, [50, 95]).tolist()
    return {
        "processes": processes,
        "prewarm": prewarm,
        "users": users,
        "spread_ms": float(np.ptp([record.start_us for record in first])) / 1e3,
        "connect_p50_ms": float(np.median([record.connected_us or 0 for record in first])) / 1e3,
        "first_p50_ms": p50,
        "first_p95_ms": p95,
        "later_p50_ms": later_p50,
        "later_p95_ms": later_p95,
        "bend_p50": p50 / later_p50 - 1,
        "bend_p95": p95 / later_p95 - 1,
        "server_p50_ms": server_p50,
        "server_p95_ms": server_p95,
        "heartbeats_lost": trial.process.said.read_text(errors="replace").count(_LOST)
        + len(trial.card["workers_missing"]),
        "new_connections": sum(not record.reused for record in first),
    }


def _first_tokens_us(server: Server) -> dict[str | None, float]:
    """Return when each answer's first token left (wall clock), by the id of the answer."""
    truth: npt.NDArray[np.void] = server.truth()
    first = truth[truth["index"] == 1]
    return {
        f"gt-{number}": ns / 1e3
        for number, ns in zip(first["request"].tolist(), first["time_ns"].tolist(), strict=True)
    }


def _first_and_later(trial: Trial) -> tuple[list[Exchange], list[Exchange]]:
    records = [r for r in trial.records() if r.phase == MEASURE and r.outcome == OK and r.ttft is not None]
    first: dict[str, Exchange] = {}
    later: list[Exchange] = []
    for record in sorted(records, key=lambda r: r.start_us):
        if record.tags["user"] in first:
            later.append(record)
        else:
            first[record.tags["user"]] = record
    return list(first.values()), later


def _ttft_ms(record: Exchange) -> float:
    return (record.ttft or 0.0) * 1e3


def _judged(row: Row, runs: list[Row]) -> Row:
    """Return medians with the goals: no run may lose a heartbeat."""
    lost = max(run["heartbeats_lost"] for run in runs)
    bends = row["bend_p50"] <= BEND_P50 and (not row["prewarm"] or row["bend_p95"] <= BEND_P95_PREWARMED)
    return {**row, "heartbeats_lost": lost, "reached": bends and not lost}


if __name__ == "__main__":
    leave(main)
