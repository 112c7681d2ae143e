"""Is the arrival process that was asked for the one that the server sees?

    python benchmarks/arrivals.py                                    # about 25 minutes
    python benchmarks/arrivals.py --workers 1 --seeds 1 --seconds 20

Poisson arrivals over 1, 2 and 4 workers, three seeds each, then constant ones over two workers. The rate and the gaps
are those between the moments at which the C server had read the requests, so nothing rests on the client's word; the
Kolmogorov-Smirnov test asks whether the gaps are exponential at the rate asked for. Exit code 1: a goal was missed.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import Row, Table, Tools, closed_loop, ground_truth, leave, options, save, say, show, workplace

from locust_llm.errors import UsageError
from locust_llm.exchange import MEASURE
from locust_llm.telemetry.check import Schedule

ANSWER = Schedule(0.05, 0.01, 50)
USERS = 100
EDGE_S = 2.0
"""Left out at both ends: users start, and the last exchanges end."""

RATE_WITHIN = 0.02
LEAST_P = 0.01
LAG_P99_MS = 5.0
SPACING_P99_MS = 3.0

COLUMNS = [
    ("process", "arrivals", ""),
    ("workers", "workers", "d"),
    ("seed", "seed", "d"),
    ("arrivals", "seen", "d"),
    ("rate", "rate, 1/s", ".2f"),
    ("rate_error", "off by", ".2%"),
    ("own_p", "p of the schedule's own gaps", ".3f"),
    ("ks_p", "p of the gaps at the server", ".3f"),
    ("spacing_p99_ms", "spacing off by, p99, ms", ".2f"),
    ("lag_p50_ms", "schedule lag p50, ms", ".2f"),
    ("lag_p99_ms", "p99", ".2f"),
    ("verdict", "verdict", ""),
    ("held", "all held", ""),
]

TEXT = f"""\
Open loop against the C server ({ANSWER.tokens} tokens, 10 ms apart, {USERS} users). Rate and gaps: of the moments at
which the server had read each request. *p*: Kolmogorov-Smirnov test of the gaps against the exponential distribution at
the rate asked for; the schedule's own gaps: between the due times. Goals: rate within {RATE_WITHIN:.0%}, p above
{LEAST_P}, schedule lag p99 at most {LAG_P99_MS:g} ms, constant spacing within {SPACING_P99_MS:g} ms at p99."""


def main() -> int:
    parser = options(
        __doc__, rate=50.0, constant_rate=100.0, workers=[1, 2, 4], constant_workers=2, seeds=[1, 2, 3], seconds=120
    )
    given = parser.parse_args()
    rows = []
    with workplace() as (tools, work):
        for workers in given.workers:
            for seed in given.seeds:
                rows.append(run(tools, work, "poisson", given.rate, workers, seed, given.seconds))
        if given.constant_workers:
            rows.append(run(tools, work, "constant", given.constant_rate, given.constant_workers, 1, given.seconds))
    save(given.json, "Arrivals", TEXT, [Table("", COLUMNS, rows)], vars(given))
    return 0 if all(row["held"] == "yes" for row in rows) else 1


def run(tools: Tools, work: Path, process: str, rate: float, workers: int, seed: int, seconds: int) -> Row:
    """Return what one run of arrivals came to."""
    more = ["--llm-rate", f"{rate:g}", "--llm-arrivals", process, "--llm-seed", str(seed)]
    with ground_truth(tools, work, ANSWER) as server:
        trial = closed_loop(server, work, USERS, seconds, workers, [*more, "-r", str(USERS)])
        truth = server.truth()
    records = [r for r in trial.records() if r.phase == MEASURE and r.scheduled_us is not None]
    if not records:
        raise UsageError("no exchange had a schedule")
    due_us = np.sort(np.array([r.scheduled_us for r in records], dtype=np.int64))
    lag_ms = np.array([r.start_us - (r.scheduled_us or 0) for r in records]) / 1e3
    begin, end = float(due_us[0]) / 1e6 + EDGE_S, float(due_us[-1]) / 1e6 - EDGE_S
    read_s = np.sort(truth["time_ns"][truth["index"] == 0]) / 1e9
    read_s = read_s[(read_s >= begin) & (read_s < end)]
    seen = len(read_s) / (end - begin)
    row: Row = {
        "process": process,
        "workers": workers,
        "seed": seed,
        "arrivals": len(read_s),
        "rate": seen,
        "rate_error": abs(seen / rate - 1),
        "lag_p50_ms": float(np.percentile(lag_ms, 50)),
        "lag_p99_ms": float(np.percentile(lag_ms, 99)),
        "verdict": trial.summary["verdict"]["state"],
    }
    if process == "constant":
        row["spacing_p99_ms"] = float(np.percentile(np.abs(np.diff(read_s) - 1 / rate) * 1e3, 99))
        fine = row["spacing_p99_ms"] <= SPACING_P99_MS
    else:
        row["own_p"] = exponential_p(np.diff(due_us / 1e6), rate)
        row["ks_p"] = exponential_p(np.diff(read_s), rate)
        fine = row["ks_p"] > LEAST_P
    held = fine and row["rate_error"] <= RATE_WITHIN and row["lag_p99_ms"] <= LAG_P99_MS
    row["held"] = "yes" if held else "no"
    say(show(row))
    return row


def exponential_p(gaps_s: npt.NDArray[np.float64], rate: float) -> float:
    """Return the p value of a Kolmogorov-Smirnov test of gaps against the exponential distribution.

    The limit distribution with Stephens' correction (1970), right to a percent of itself from about twenty gaps on.
    """
    of_each = np.sort(-np.expm1(-rate * gaps_s))
    number = len(of_each)
    steps = np.arange(number + 1) / number
    distance = max(float((steps[1:] - of_each).max()), float((of_each - steps[:-1]).max()))
    scaled = distance * (math.sqrt(number) + 0.12 + 0.11 / math.sqrt(number))
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, sum(terms))) if scaled > 0.2 else 1.0


if __name__ == "__main__":
    leave(main)
