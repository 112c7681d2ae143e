"""How many tokens a second can one process, and one machine, measure soundly?

    python benchmarks/capacity.py                           # one and two processes: about 20 minutes
    python benchmarks/capacity.py --processes 1 --streams 100 200 --seconds 5

Rising loads in lockstep against the C server, each checked against its truth log (``telemetry.check``: both the truth
and the client's own verdict must be in favour), until two in a row are not sound. Then one saturated process beside
the C reader, and what more processes cost at equal load.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from common import (
    Row,
    Table,
    Tools,
    c_reader,
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

from locust_llm.telemetry.check import LoadCheck, Schedule, check

TTFT_S = 0.05
UNSOUND_IN_A_ROW = 2

LOADS = [
    ("processes", "processes", "d"),
    ("streams", "streams", "d"),
    ("tokens_per_s", "tokens/s", ".0f"),
    ("delivered", "delivered", ".1%"),
    ("ttft_error_p99_ms", "TTFT error p99, ms", ".2f"),
    ("itl_error_p99_ms", "ITL error p99, ms", ".2f"),
    ("cpu_us_per_token", "CPU a token, us", ".1f"),
    ("busiest_cores", "busiest process, cores", ".2f"),
    ("verdict", "the client says", ""),
    ("accurate", "true", ""),
    ("sound", "sound", ""),
]
BEST = [
    ("processes", "processes", "d"),
    ("streams", "streams", "d"),
    ("tokens_per_s", "tokens/s, sound", ".0f"),
    ("ended_by", "ended by", ""),
]
SATURATED = [
    ("run", "run", ""),
    ("tokens_per_s", "tokens/s", ".0f"),
    ("c_tokens_per_s", "C reader", ".0f"),
    ("share_of_c", "share", ".2f"),
    ("verdict", "the client says", ""),
]
EQUAL = [
    ("processes", "processes", "d"),
    ("streams", "streams", "d"),
    ("cpu_us_per_token", "CPU a token, us", ".1f"),
    ("ratio", "ratio to one process", ".2f"),
]

TEXT = """\
*Sound*: the client calls itself sound, and TTFT and ITL are within 5 % or 1 ms of the truth at p50 and p95 and within
10 % or 2 ms at p99. Users in lockstep, TTFT 50 ms, ITL 10 ms. Client and server share the cores, so a machine that
runs only the client measures more."""


def main() -> int:
    given = options(
        __doc__, processes=[1, 2], streams=[100, 200, 300, 400, 600, 800, 1200], itl_us=10_000, tokens=200, seconds=10,
        saturated_streams=800, saturated_itl_us=5_000, saturated_repeats=5,
        equal_streams=[200, 400, 600], equal_repeats=7,
    ).parse_args()  # fmt: skip
    schedule = Schedule(TTFT_S, given.itl_us / 1e6, given.tokens)
    loads: list[Row] = []
    best: list[Row] = []
    with workplace() as (tools, work):
        for processes in given.processes:
            found, highest = rise(tools, work, schedule, processes, given)
            loads += found
            best.append(highest)
            say(f"highest sound load: {show(highest)}")
        saturated = saturate(tools, work, given)
        equal = equal_load(tools, work, schedule, given)
    tables = [
        Table("Highest sound load", BEST, best),
        Table("Every load", LOADS, loads),
        Table(f"One saturated process: {given.saturated_streams} streams × {given.saturated_itl_us / 1e3:g} ms",
              SATURATED, saturated),
        Table("Equal load", EQUAL, equal),
    ]  # fmt: skip
    save(given.json, "Capacity", TEXT, tables, vars(given))
    return 0


def rise(tools: Tools, work: Path, schedule: Schedule, processes: int, given: Namespace) -> tuple[list[Row], Row]:
    """Return every load tried, and the highest sound one."""
    rows: list[Row] = []
    in_a_row = 0
    ended_by = "no larger load was asked for"
    for streams in given.streams:
        load = measure(tools, work, schedule, streams, processes, given.seconds)
        rows.append(as_row(load))
        say(show(rows[-1]))
        for line in (*load.off, *load.reasons):
            say(f"    {line}")
        in_a_row = 0 if load.sound else in_a_row + 1
        if in_a_row == UNSOUND_IN_A_ROW:
            ended_by = "two loads in a row were not sound"
            if load.server is not None and load.server.was_the_limit:
                ended_by += "; the server was late, too"
            break
    sound = [row for row in rows if row["sound"]]
    top: Row = max(sound, key=lambda row: row["tokens_per_s"], default={"streams": None, "tokens_per_s": None})
    highest = {name: top[name] for name in ("streams", "tokens_per_s")}
    return rows, {"processes": processes, **highest, "ended_by": ended_by}


def saturate(tools: Tools, work: Path, given: Namespace) -> list[Row]:
    """Return what one process takes in at far more than it can do, beside the C reader's: each run, and the medians."""
    schedule = Schedule(TTFT_S, given.saturated_itl_us / 1e6, given.tokens)
    streams = given.saturated_streams
    runs: list[Row] = []
    for number in range(given.saturated_repeats):
        with ground_truth(tools, work, schedule) as server:
            before = c_reader(tools, server, streams, repeats=3).events_per_s
            trial = closed_loop(server, work, streams, given.seconds)
            after = c_reader(tools, server, streams, repeats=3).events_per_s
            load = check(trial, server.truth(), schedule, server.watch, streams, only=False)
        c_rate = (before + after) / 2
        share = load.events_per_s / c_rate
        runs.append({"run": str(number + 1), **as_row(load), "c_tokens_per_s": c_rate, "share_of_c": share})
        say(f"saturated: {show(runs[-1])}")
    verdicts = ", ".join(sorted({run["verdict"] for run in runs}))
    return [*runs, medians(runs) | {"run": "median", "verdict": verdicts}]


def equal_load(tools: Tools, work: Path, schedule: Schedule, given: Namespace) -> list[Row]:
    """Return CPU per token of the same load on one and on more processes, in turns."""
    rows: list[Row] = []
    for streams in given.equal_streams:
        runs: dict[int, list[Row]] = {processes: [] for processes in (1, *given.processes)}
        for _ in range(given.equal_repeats):
            for processes, of in runs.items():
                of.append(as_row(measure(tools, work, schedule, streams, processes, given.seconds)))
                say(f"equal load: {show(of[-1])}")
        medians_of = [medians(of) for of in runs.values()]
        one = medians_of[0]["cpu_us_per_token"]
        rows += [row | {"ratio": row["cpu_us_per_token"] / one if one else None} for row in medians_of]
    return rows


def measure(tools: Tools, work: Path, schedule: Schedule, streams: int, processes: int, seconds: int) -> LoadCheck:
    with ground_truth(tools, work, schedule) as server:
        trial = closed_loop(server, work, streams, seconds, processes)
        truth = server.truth()
    return check(trial, truth, schedule, server.watch, streams, processes)


def as_row(load: LoadCheck) -> Row:
    return {
        "processes": load.processes,
        "streams": load.streams,
        "tokens_per_s": load.events_per_s,
        "delivered": load.delivered,
        "ttft_error_p99_ms": load.ttft_ms.error_p99 if load.ttft_ms else None,
        "itl_error_p99_ms": load.itl_ms.error_p99 if load.itl_ms else None,
        "cpu_us_per_token": load.cpu_us_per_event,
        "busiest_cores": load.busiest_cores,
        "other_cores": load.other_cores,
        "verdict": load.verdict,
        "accurate": not load.off,
        "sound": load.sound,
    }


if __name__ == "__main__":
    leave(main)
