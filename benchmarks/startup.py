"""How long until the first request: imports, and a start of the tool on one process and on two.

    python benchmarks/startup.py                        # about a minute
    python benchmarks/startup.py --repeats 1

Times from the start of the process to what the server's truth log and the run card say. What a start of many users at
once does to the first answers is in ``start.py``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import Row, Table, Tools, closed_loop, ground_truth, leave, medians, options, save, say, show, workplace

from locust_llm.exchange import MEASURE
from locust_llm.telemetry.check import Schedule
from locust_llm.telemetry.trial import clean_environment

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
TEXT = """\
Seconds from the start of the process. *First contact* is the trial exchange before the load."""


def main() -> int:
    given = options(__doc__, processes=[1, 2], repeats=3).parse_args()
    starts: list[Row] = []
    with workplace() as (tools, work):
        times = [{"what": what, "s": import_s(words, given.repeats)} for what, words in IMPORTS.items()]
        for row in times:
            say(show(row))
        for processes in given.processes:
            starts.append(medians([start(tools, work, processes) for _ in range(given.repeats)]))
            say(f"start: {show(starts[-1])}")
    tables = [Table("Imports", TIMES, times), Table("Start of a run", STARTS, starts)]
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


if __name__ == "__main__":
    leave(main)
