"""How long until the first request, and what a start of many users at once does to the first answers.

    python benchmarks/startup.py                        # about 3 minutes
    python benchmarks/startup.py --repeats 1 --users 50

Times from the start of the process to what the server's truth log and the run card say. Then ``--users`` users at
once: TTFT of their first exchanges against that of all later ones, on one process and on two.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import Row, Table, Tools, closed_loop, ground_truth, leave, medians, options, save, say, show, workplace

from locust_llm.exchange import MEASURE, OK
from locust_llm.telemetry.check import Schedule
from locust_llm.telemetry.trial import Trial, clean_environment

IMPORTS = {
    "python -c pass": ["-c", "pass"],
    "import locust_llm": ["-c", "import locust_llm"],
    "from locust_llm import ChatUser": ["-c", "from locust_llm import ChatUser"],
    "import locust": ["-c", "import locust"],
    "locust-llm --help": ["-m", "locust_llm.cli", "--help"],
    "locust-llm report --help": ["-m", "locust_llm.cli", "report", "--help"],
}

TIMES = [("what", "what", ""), ("s", "seconds", ".2f")]
STARTS = [
    ("processes", "processes", "d"),
    ("first_contact_s", "first request after, s", ".2f"),
    ("first_measured_s", "first measured request after, s", ".2f"),
    ("ramp_s", "all users after, s", ".2f"),
]
BURST = [
    ("processes", "processes", "d"),
    ("users", "users", "d"),
    ("spread_ms", "first requests spread over, ms", ".0f"),
    ("first_p50_ms", "TTFT of the first: p50, ms", ".1f"),
    ("first_p95_ms", "p95", ".1f"),
    ("later_p50_ms", "of the later: p50, ms", ".1f"),
    ("later_p95_ms", "p95", ".1f"),
    ("bend_p50", "bend of p50", ".0%"),
    ("workers_missing", "workers lost", "d"),
]

TEXT = """\
Seconds from the start of the process. *First contact* is the trial exchange before the load. *Bend*: how much higher
the median TTFT of the users' first exchanges is (they connect, all at once) than that of all later ones."""


def main() -> int:
    given = options(__doc__, processes=[1, 2], users=500, repeats=3).parse_args()
    starts: list[Row] = []
    bursts: list[Row] = []
    with workplace() as (tools, work):
        times = [{"what": what, "s": import_s(words, given.repeats)} for what, words in IMPORTS.items()]
        for row in times:
            say(show(row))
        for processes in given.processes:
            starts.append(medians([start(tools, work, processes) for _ in range(given.repeats)]))
            say(f"start: {show(starts[-1])}")
            bursts.append(medians([burst(tools, work, processes, given.users) for _ in range(given.repeats)]))
            say(f"burst: {show(bursts[-1])}")
    tables = [Table("Imports", TIMES, times), Table("Start of a run", STARTS, starts), Table("Burst", BURST, bursts)]
    save(given.json, "Start", TEXT, tables, vars(given))
    return 0


def import_s(words: list[str], repeats: int) -> float:
    """Return the median duration of a Python command, the first run (cold caches) left out."""
    found = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, *words], env=clean_environment(), check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - began)
    return float(np.median(found[1:]))


def start(tools: Tools, work: Path, processes: int) -> Row:
    with ground_truth(tools, work, Schedule(0.05, 0.01, 20)) as server:
        trial = closed_loop(server, work, processes, 2, processes)
        read_ns = server.truth()["time_ns"]
    spawned = trial.process.spawned
    first_us = min(record.start_us for record in trial.records() if record.phase == MEASURE)
    return {
        "processes": processes,
        "first_contact_s": float(read_ns.min()) / 1e9 - spawned,
        "first_measured_s": first_us / 1e6 - spawned,
        "ramp_s": (trial.mark("ramp_complete") or float("nan")) - spawned,
    }


def burst(tools: Tools, work: Path, processes: int, users: int) -> Row:
    with ground_truth(tools, work, Schedule(0.05, 0.01, 100)) as server:
        trial = closed_loop(server, work, users, 5, processes, ["-r", str(users)])
    first, later, starts_us = _first_and_later_ttft_ms(trial)
    p50, p95 = np.percentile(first, [50, 95]).tolist()
    later_p50, later_p95 = np.percentile(later, [50, 95]).tolist()
    return {
        "processes": processes,
        "users": users,
        "spread_ms": float(np.ptp(starts_us)) / 1e3,
        "first_p50_ms": p50,
        "first_p95_ms": p95,
        "later_p50_ms": later_p50,
        "later_p95_ms": later_p95,
        "bend_p50": p50 / later_p50 - 1,
        "workers_missing": len(trial.card["workers_missing"]),
    }


def _first_and_later_ttft_ms(trial: Trial) -> tuple[list[float], list[float], list[int]]:
    records = [r for r in trial.records() if r.phase == MEASURE and r.outcome == OK and r.ttft is not None]
    first: dict[str, float] = {}
    later: list[float] = []
    starts_us: list[int] = []
    for record in sorted(records, key=lambda r: r.start_us):
        user, ttft_ms = record.tags["user"], (record.ttft or 0.0) * 1e3
        if user in first:
            later.append(ttft_ms)
        else:
            first[user] = ttft_ms
            starts_us.append(record.start_us)
    return list(first.values()), later, starts_us


if __name__ == "__main__":
    leave(main)
