"""What ``locust-llm report`` costs: wall, CPU and memory, over logs of 100 000 and 1 000 000 exchanges.

    python benchmarks/report.py                               # about 4 minutes, 1.5 GB in the temporary folder
    python benchmarks/report.py --exchanges 100000 --repeats 1
    python benchmarks/report.py --exchanges 1000000 --keep /tmp/logs     # keep the logs for the next time

The logs are made of ``Exchange`` records, 150 token events each, of 200 users in a closed loop under two names, with
1 % failures; gaps scatter as those of a busy server do. Goals: 100 000 in 4 s, page and all; 1 000 000 in 30 s, 2 GB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

import numpy as np
from common import Row, Table, leave, medians, options, save, say, show

from locust_llm.errors import UsageError
from locust_llm.exchange import Exchange, ExchangeError

GOALS_S = {100_000: 4.0, 1_000_000: 30.0}
GOAL_MB = 2000.0
TOKENS = 150
USERS = 200
FAILED = 0.01
T0_US = 1_800_000_000_000_000
_CHUNK = 2000

COLUMNS = [
    ("exchanges", "exchanges", "d"),
    ("log_mb", "log, MB", ".0f"),
    ("wall_s", "wall, s", ".2f"),
    ("goal_s", "goal, s", ".0f"),
    ("cpu_s", "CPU, s", ".2f"),
    ("us_per_exchange", "wall µs an exchange", ".1f"),
    ("rss_mb", "peak memory, MB", ".0f"),
    ("html_mb", "report.html, MB", ".1f"),
]

TEXT = """\
`locust-llm report RUN`, from the start of the process to its end, with `summary.json`, `summary.csv` and `report.html`.
Records of 150 token events, two names, 200 users in a closed loop, 1 % failures. CPU is that of all threads; the log is
in the page cache."""


def main() -> int:
    parser = options(__doc__, exchanges=[100_000, 1_000_000], repeats=3)
    parser.add_argument("--keep", type=Path, help="folder of the logs; kept, and used again")
    given = parser.parse_args()
    rows, runs = [], []
    with tempfile.TemporaryDirectory(prefix="locust-llm-bench-") as name:
        for exchanges in given.exchanges:
            folder = made(given.keep or Path(name), exchanges)
            of_this = []
            for _ in range(given.repeats):
                of_this.append(measure(folder, exchanges))
                say(show(of_this[-1]))
            rows.append(medians(of_this))
            runs += of_this
    save(given.json, "Report", TEXT, [Table("", COLUMNS, rows)], vars(given), runs)
    met = [row["rss_mb"] <= GOAL_MB and row["wall_s"] <= GOALS_S.get(row["exchanges"], np.inf) for row in rows]
    return 0 if all(met) else 1


def measure(folder: Path, exchanges: int) -> Row:
    """Report one run in a process of its own."""
    log = folder / "events.jsonl"
    with open(log, "rb") as f:  # into the page cache
        while f.read(1 << 24):
            pass
    begin = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "locust_llm.cli", "report", str(folder)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    wall_s = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise UsageError(f"the report of {exchanges} exchanges ended with exit code {child.returncode}")
    return {
        "exchanges": exchanges,
        "log_mb": log.stat().st_size / 1e6,
        "wall_s": wall_s,
        "goal_s": GOALS_S.get(exchanges),
        "cpu_s": used.ru_utime + used.ru_stime,
        "us_per_exchange": wall_s / exchanges * 1e6,
        "rss_mb": used.ru_maxrss / 1e3 * 1.024,
        "html_mb": (folder / "report.html").stat().st_size / 1e6,
    }


def made(under: Path, exchanges: int) -> Path:
    """Return a run folder with a log of so many exchanges, made if it is not there."""
    folder = under / f"run-{exchanges}"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "events.jsonl"
    if not log.exists():
        say(f"making a log of {exchanges} exchanges")
        part = log.with_suffix(".part")
        with open(part, "wb") as f:
            _write(f, exchanges)
        part.rename(log)
    return folder


def _write(f: BinaryIO, exchanges: int) -> None:
    rng = np.random.default_rng(1)
    free_us = np.linspace(0, 2e6, USERS).astype(np.int64)  # when each user starts its next exchange
    for first in range(0, exchanges, _CHUNK):
        n = min(_CHUNK, exchanges - first)
        gaps = (rng.lognormal(np.log(10_000), 0.25, (n, TOKENS)) + rng.exponential(300, (n, TOKENS))).astype(np.int64)
        gaps[:, 0] = rng.lognormal(np.log(120_000), 0.5, n)
        asked = np.maximum(rng.normal(550, 150, n), 1).astype(int).tolist()
        lines = []
        for i, row in enumerate(gaps.tolist()):
            user = (first + i) % USERS
            start = int(free_us[user])
            failed = bool(rng.random() < FAILED)
            exchange = _exchange(
                first + i, user, T0_US + start, row[: TOKENS // 2] if failed else row, asked[i], failed
            )
            free_us[user] += exchange.end_us + 1000
            lines.append(exchange.encode())
        f.write(b"".join(lines))


def _exchange(seq: int, user: int, start_us: int, gaps: list[int], n_in: int, failed: bool) -> Exchange:
    """Return a record as the client writes it: a role event, the tokens, finish, usage and ``[DONE]``."""
    after = [] if failed else [5, 10, 5]
    kinds = ["role", "content"] if failed else ["role", "content", "finish", "usage", "done"]
    return Exchange(
        run="20270115T080000Z-bench", worker="local", seq=seq, exchange=f"local-{seq}",
        name="chat" if seq % 3 else "sum",
        user_class="ChatUser", api="openai-chat", model="llama-3.1-8b", tags={"user": f"local-{user}"},
        outcome="timeout" if failed else "ok", error=ExchangeError("idle", "no event for 30 s") if failed else None,
        status=200, finish_reason=None if failed else "length",
        start_us=start_us, reused=True, connected_us=40, sent_us=90, headers_us=gaps[0] - 2000,
        end_us=sum(gaps) + sum(after),
        event_gaps_us=[gaps[0] - 1500, 1500, *gaps[1:], *after], kind_names=kinds,
        kind_runs=[1, len(gaps), *[1] * len(after)], n_out=None if failed else len(gaps), n_in=n_in,
        out_source=None if failed else "usage", in_source="usage", asked_in=550, asked_out=TOKENS,
        bytes_in=len(gaps) * 210, bytes_out=2900, stamp="kernel", lag_us_max=400, uncertain_us_max=60,
    )  # fmt: skip


if __name__ == "__main__":
    leave(main)
