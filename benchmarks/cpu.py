"""What a token costs: CPU of locust-llm beside a bare gevent reader, an aiohttp reader and the C reader.

    python benchmarks/cpu.py                              # about 7 minutes
    python benchmarks/cpu.py --streams 50 --repeats 1 --seconds 5 --venvs /tmp/venvs

The same server and load for each, one after the other, in turns. *Streaming*: CPU between the moment when all streams
run and the last exchange's begin, over the tokens that left the server then. *Whole run*: all CPU, start and end
included, over all tokens. aiohttp is taken from this Python if it is there, else installed into --venvs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

from common import (
    COST_COLUMNS,
    HERE,
    Row,
    Server,
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
    token_cost,
    workplace,
)
from venvs import NotInstalled, environment

from locust_llm.errors import UsageError
from locust_llm.telemetry.check import Schedule
from locust_llm.telemetry.trial import Ended, clean_environment, run_watched

OURS, RAW, AIOHTTP, C = "locust-llm", "bare gevent reader", "aiohttp reader", "C reader"
_SLACK_S = 60.0

COLUMNS = [
    ("reader", "client", ""),
    *COST_COLUMNS,
    ("streaming_ratio", "streaming, ratio to bare gevent", ".2f"),
    ("whole_ratio", "whole run, ratio", ".2f"),
]

TEXT = """\
CPU a token at the same load on the same server. *Bare gevent reader*: reads, takes the kernel's stamp, counts events;
no HTTP, no JSON, no record. *aiohttp reader*: lines, JSON and a time stamp an event, as most Python benchmarks do.
*Whole run* has start, imports, drain and (ours) the report in it, so it depends on how long the run is: each client
began new answers for {seconds} s."""

Reader = Callable[[Server], Ended]


def main() -> int:
    parser = options(__doc__, streams=[200], itl_us=10_000, tokens=200, seconds=30, repeats=3)
    parser.add_argument("--venvs", type=Path, help="folder for a virtual environment with aiohttp")
    given = parser.parse_args()
    schedule = Schedule(0.05, given.itl_us / 1e6, given.tokens)
    rows: list[Row] = []
    every: list[Row] = []
    skipped: list[str] = []
    with workplace() as (tools, work):
        for streams in given.streams:
            readers = _readers(work, streams, given.seconds, given.venvs, skipped)
            runs: dict[str, list[Row]] = {name: [] for name in (*readers, C)}
            for turn in range(given.repeats):
                for name, reader in readers.items():
                    with ground_truth(tools, work, schedule) as server:
                        runs[name].append({"reader": name, **token_cost(reader(server), server, streams)})
                    say(f"turn {turn + 1}/{given.repeats}: {show(runs[name][-1])}")
                runs[C].append(_c_row(tools, work, schedule, streams, given.seconds))
                say(f"turn {turn + 1}/{given.repeats}: {show(runs[C][-1])}")
            rows += _with_ratios([medians(of) for of in runs.values()])
            every += [row for of in runs.values() for row in of]
    text = TEXT.format(seconds=given.seconds) + "".join(f"\n\nSkipped: {line}" for line in dict.fromkeys(skipped))
    save(given.json, "CPU a token", text, [Table("", COLUMNS, rows)], vars(given), every)
    return 0


def _readers(work: Path, streams: int, seconds: int, venvs: Path | None, skipped: list[str]) -> dict[str, Reader]:
    def script(python: str, name: str) -> Reader:
        def run(server: Server) -> Ended:
            command = [python, str(HERE / "readers" / name)]
            command += map(str, (server.port, streams, server.schedule.tokens, seconds))
            ended = run_watched(command, work, seconds + _SLACK_S, clean_environment(package=False))
            if ended.code:
                raise UsageError(f"{name} failed: {ended.last_line()}")
            return ended

        return run

    readers: dict[str, Reader] = {
        OURS: lambda server: closed_loop(server, work, streams, seconds).process,
        RAW: script(sys.executable, "raw.py"),
    }
    try:
        readers[AIOHTTP] = script(_python_with_aiohttp(venvs), "with_aiohttp.py")
    except NotInstalled as e:
        skipped.append(f"the aiohttp reader: {e}")
        say(skipped[-1])
    return readers


def _python_with_aiohttp(venvs: Path | None) -> str:
    if importlib.util.find_spec("aiohttp") is not None:
        return sys.executable
    if venvs is None:
        raise NotInstalled("aiohttp is not installed here, and no --venvs folder was given to install it into")
    return str(environment(venvs, "aiohttp") / "python")


def _c_row(tools: Tools, work: Path, schedule: Schedule, streams: int, seconds: int) -> Row:
    with ground_truth(tools, work, schedule) as server:
        read = c_reader(tools, server, streams, repeats=max(1, round(seconds / schedule.exchange_s)))
    return {"reader": C, "streams": streams, "tokens_per_s": read.events_per_s, "whole_us": read.cpu_us_per_event}


def _with_ratios(rows: list[Row]) -> list[Row]:
    bare = next(row for row in rows if row["reader"] == RAW)
    for row in rows:
        for name in ("streaming", "whole"):
            if row.get(f"{name}_us") is not None and bare[f"{name}_us"]:
                row[f"{name}_ratio"] = row[f"{name}_us"] / bare[f"{name}_us"]
    return rows


if __name__ == "__main__":
    leave(main)
