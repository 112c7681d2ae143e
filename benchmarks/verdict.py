"""Is the client's verdict on itself right? A grid of loads and troubles, each judged by the truth log as well.

    python benchmarks/verdict.py                                  # about 7 minutes
    python benchmarks/verdict.py --capacity 100 --shares 0.1 0.5 --seconds 5

Loads from nearly idle to twice ``--capacity`` (streams that one process just measures soundly here, from
capacity.py), each alone and with a trouble: CPU hogs on every core, a task that blocks the process, answers of 2 MB,
answers that come all at once. Three questions: is ``sound`` ever said where TTFT or ITL are off (never may it); how
often is it said where nothing is off, up to half of the capacity and without hogs (nine times in ten it must); do the
true percentiles lie between the bounds that the client gives? Exit code 1: one of the first two answers is wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import HERE, Row, Table, Tools, closed_loop, ground_truth, leave, options, save, say, show, workplace

from locust_llm.telemetry.check import Schedule, check

SOUND_SHARE = 0.9
NOTHING_OFF = "nothing off"
HOG = "while True: pass"

# Trouble: the user classes of conditions.py that make it, and whether the cores are hogged.
TROUBLES: dict[str, tuple[list[str], bool]] = {
    "none": (["Load"], False),
    "CPU hogs": (["Load"], True),
    "blocking task": (["Load", "Blocking"], False),
    "2 MB answers": (["Load", "Long"], False),
    "bursts": (["Load", "Burst"], False),
}

COLUMNS = [
    ("trouble", "trouble", ""),
    ("streams", "streams", "d"),
    ("tokens_per_s", "tokens/s", ".0f"),
    ("late_joined", "late-joined", ".2%"),
    ("cpu", "CPU, cores", ".2f"),
    ("verdict", "the client says", ""),
    ("why", "because of", ""),
    ("off", "by the truth", ""),
    ("right", "right", ""),
    ("outside", "true, but not within the bounds", ""),
]
SUMMARY = [
    ("points", "points", "d"),
    ("wrong_sound", "sound though off", "d"),
    ("figures", "true percentiles", "d"),
    ("outside", "of these outside of their bounds", "d"),
    ("easy_points", "up to half of the capacity, no hogs", "d"),
    ("easy_off", "of these off by the truth", "d"),
    ("easy_sound", "of the others sound", "d"),
    ("easy_share", "share", ".0%"),
]

TEXT = """\
Each point is a run judged twice: by the client itself, and by the truth log (TTFT and ITL within 5 % or 1 ms at p50
and p95, 10 % or 2 ms at p99). A *sound* that the truth log contradicts is the one error that must not happen. The
client's bounds ([metrics.md](metrics.md), 5) are judged, too: a true percentile is outside if it misses them by more
than those tolerances."""


def main() -> int:
    given = options(
        __doc__, capacity=600, shares=[0.02, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0], troubles=list(TROUBLES),
        itl_us=10_000, tokens=100, seconds=6,
    ).parse_args()  # fmt: skip
    schedule = Schedule(0.05, given.itl_us / 1e6, given.tokens)
    rows: list[Row] = []
    with workplace() as (tools, work):
        for trouble in given.troubles:
            for share in given.shares:
                streams = max(6, round(given.capacity * share))  # more than the users of a trouble
                rows.append(point(tools, work, schedule, trouble, streams, given.seconds))
                rows[-1]["easy"] = share <= 0.5 and not TROUBLES[trouble][1]
                say(show(rows[-1]))
    easy = [row for row in rows if row["easy"]]
    fine = [row for row in easy if row["off"] == NOTHING_OFF]
    sound = sum(row["verdict"] == "sound" for row in fine)
    summary: Row = {
        "points": len(rows),
        "wrong_sound": sum(not row["right"] for row in rows),
        "figures": sum(row["figures"] for row in rows),
        "outside": sum(row["outside_number"] for row in rows),
        "easy_points": len(easy),
        "easy_off": len(easy) - len(fine),
        "easy_sound": sound,
        "easy_share": sound / len(fine) if fine else None,
    }
    say(show(summary))
    save(given.json, "Verdict", TEXT, [Table("", SUMMARY, [summary]), Table("Every point", COLUMNS, rows)], vars(given))
    return 0 if not summary["wrong_sound"] and sound >= SOUND_SHARE * len(fine) else 1


def point(tools: Tools, work: Path, schedule: Schedule, trouble: str, streams: int, seconds: int) -> Row:
    classes, hogged = TROUBLES[trouble]
    with hogs(hogged), ground_truth(tools, work, schedule) as server:
        trial = closed_loop(server, work, streams, seconds, more=["-f", str(HERE / "conditions.py"), *classes])
        load = check(trial, server.truth(), schedule, server.watch, streams)
    return {
        "trouble": trouble,
        "streams": streams,
        "tokens_per_s": load.events_per_s,
        "late_joined": load.late_joined,
        "cpu": load.busiest_cores,
        "verdict": load.verdict,
        "why": ", ".join(reason.partition(":")[0] for reason in load.reasons),
        "reasons": list(load.reasons),
        "bounds": load.bounds,
        "figures": sum(len(of.true) for of in (load.ttft_ms, load.itl_ms) if of is not None),
        "outside": "; ".join(load.outside()),
        "outside_number": len(load.outside()),
        "off": "; ".join(load.off) or NOTHING_OFF,
        "other_cores": load.other_cores,
        "right": not load.wrong_verdict,
    }


@contextmanager
def hogs(wanted: bool) -> Iterator[None]:
    """Keep every core busy inside the block, if wanted."""
    cores = (os.cpu_count() or 1) if wanted else 0
    processes = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(cores)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    leave(main)
