"""How often the report's intervals are right, how often ``compare`` raises a false alarm, and what it can see.

    python benchmarks/judging.py [--runs 400] [--seed 1] [--only coverage|alarms|power]

Prints the tables of docs/statistics.md. Series are independent draws and queues (``queues.py``); the truth is that of
very long runs. Everything judged is the report's own code. (Not named statistics.py: scripts beside it import the
standard module of that name.)
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import queues

from locust_llm.report.compare import ALPHA, common_blocks
from locust_llm.report.compare_figures import exchange_units
from locust_llm.report.exchange_intervals import exchange_blocks, exchange_intervals, independent_blocks
from locust_llm.report.intervals import CONCURRENCIES, mean_interval, memory, share_interval
from locust_llm.report.metrics import PERCENTILES
from locust_llm.report.permutation import holm, permutation_p

Floats = npt.NDArray[np.float64]
Make = Callable[[np.random.Generator, int, int], tuple[Floats, Floats, Floats]]
"""(generator, runs, exchanges) → TTFT, e2e, start; each runs × exchanges."""

SHOWN = ("mean", "p50", "p95", "p99")
CHUNK = 4_000_000


def drawn(rng: np.random.Generator, runs: int, n: int) -> tuple[Floats, Floats, Floats]:
    values = rng.lognormal(0, 0.7, (runs, n))
    return values, values + 1, np.cumsum(rng.exponential(0.1, (runs, n)), axis=1)


def of_queue(series: queues.Series) -> tuple[Floats, Floats, Floats]:
    return series.ttft_s, series.e2e_s, series.start_s


SCENARIOS: dict[str, tuple[Make, float, tuple[int, ...]]] = {
    "independent": (drawn, 1.0, (100, 300, 1000, 5000)),
    "closed loop, users = 2 × slots": (
        lambda rng, runs, n: of_queue(queues.closed(rng, runs, n, 2 * queues.SLOTS)),
        2.0 * queues.SLOTS, (300, 1000, 3000, 10_000),
    ),
    "open loop, 85 % load": (
        lambda rng, runs, n: of_queue(queues.opened(rng, runs, n, 0.85)),
        9.3, (3000, 10_000, 30_000, 100_000),
    ),
}  # fmt: skip
"""Name → how it is made, exchanges in flight, lengths of runs."""


def chunks(runs: int, n: int) -> list[int]:
    each = max(1, min(runs, CHUNK // n))
    return [min(each, runs - done) for done in range(0, runs, each)]


def truth(make: Make, rng: np.random.Generator) -> dict[str, float]:
    values = np.concatenate([make(rng, 100, 50_000)[0].reshape(-1) for _ in range(3)])
    return {"mean": float(values.mean())} | {name: float(np.quantile(values, q)) for name, q in PERCENTILES.items()}


def in_flight_at(start: Floats, e2e: Floats) -> npt.NDArray[np.int64]:
    """How many were in flight when each started; the report takes it from the log."""
    return np.searchsorted(np.sort(start), start) - np.searchsorted(np.sort(start + e2e), start, side="right")


def intervals(
    ttft: Floats, e2e: Floats, start: Floats, in_flight: float
) -> dict[str, tuple[float | None, float | None]]:
    """What the report does with one run."""
    at_start = in_flight_at(start, e2e)
    cut = exchange_blocks([ttft, e2e], at_start, in_flight).used
    if not cut.blocks:
        return {}
    return exchange_intervals(ttft, cut.labels(len(ttft)), cut.blocks, at_start, in_flight)


def coverage(rng: np.random.Generator, runs: int) -> None:
    print("\n| series | exchanges | runs | with intervals | mean | p50 | p95 | p99 | wrong mean, of all runs |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, (make, in_flight, lengths) in SCENARIOS.items():
        true = truth(make, rng)
        for n in lengths:
            right: dict[str, list[bool]] = defaultdict(list)
            shown = 0
            for some in chunks(runs, n):
                ttft, e2e, start = make(rng, some, n)
                for x, y, at in zip(ttft, e2e, start, strict=True):
                    found = intervals(x, y, at, in_flight)
                    shown += bool(found)
                    for figure in SHOWN:
                        low, high = found.get(figure, (None, None))
                        if low is not None and high is not None:
                            right[figure].append(low <= true[figure] <= high)
            cells = [
                f"{np.mean(right[f]):.1%} ({len(right[f]) / runs:.0%})" if right[f] else "none shown" for f in SHOWN
            ]
            wrong = (len(right["mean"]) - sum(right["mean"])) / runs
            print(f"| {name} | {n} | {runs} | {shown / runs:.0%} | {' | '.join(cells)} | {wrong:.1%} |", flush=True)


def rates(rng: np.random.Generator, runs: int) -> None:
    """Requests per second and the share above a limit, of the queues."""
    print("\n| series | exchanges | runs | requests/s | share above a limit (10 %) |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, (make, in_flight, lengths) in list(SCENARIOS.items())[1:]:
        ttft, _, start = make(rng, 60, 50_000)
        limit = float(np.quantile(ttft, 0.9))
        per_s = float(np.mean((start.shape[1] - 1) / (start[:, -1] - start[:, 0])))
        for n in lengths[1:3]:
            right: dict[str, list[bool]] = defaultdict(list)
            for some in chunks(runs, n):
                ttft, e2e, start = make(rng, some, n)
                for x, y, at in zip(ttft, e2e, start, strict=True):
                    low, high = share_interval((x > limit).astype(np.float64), CONCURRENCIES * in_flight)
                    right["share"].append(low <= 0.1 <= high)
                    right_rate(right, at, float(y.mean()), per_s)
            cells = [f"{np.mean(right[k]):.1%} ({len(right[k]) / runs:.0%})" for k in ("rate", "share")]
            print(f"| {name} | {n} | {runs} | {' | '.join(cells)} |", flush=True)


def right_rate(right: dict[str, list[bool]], at: Floats, residence_s: float, true: float, bins: int = 400) -> None:
    seconds = float(at[-1] - at[0])
    came = np.histogram(at, bins=bins)[0].astype(np.float64)
    cut = memory([came], max(1.0, CONCURRENCIES * residence_s * bins / seconds))
    if cut.blocks:
        labels = cut.labels(bins)
        lengths = np.bincount(labels) * seconds / bins
        low, high = mean_interval(np.bincount(labels, came), lengths)
        right["rate"].append(low is not None and high is not None and low <= true <= high)


FIGURES = (("ttft", "mean"), ("ttft", "p50"), ("ttft", "p95"), ("e2e", "mean"), ("e2e", "p50"), ("e2e", "p95"))


def tested(
    base: tuple[Floats, Floats, Floats], new: tuple[Floats, Floats, Floats], in_flight: float
) -> list[float] | None:
    """What ``compare`` does with two runs: p of each figure, None where it is undecided for shortness."""
    sides = (base, new)
    blocks = common_blocks([
        (independent_blocks(side[:2], in_flight_at(side[2], side[1]), in_flight), len(side[0])) for side in sides
    ])  # fmt: skip
    if blocks is None:
        return None
    ps = []
    for column, statistic in FIGURES:
        a, b = exchange_units([side[column == "e2e"] for side in sides], statistic, blocks)
        assert a is not None
        assert b is not None
        ps.append(permutation_p(a, b))
    return ps


def compared(rng: np.random.Generator, pairs: int, slower: float) -> None:
    head = "alarms" if slower == 1.0 else "found"
    print(f"\n| series | exchanges a side | pairs | long enough | {head}: TTFT mean | p50 | p95 | any, Holm | of all |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, (make, in_flight, lengths) in SCENARIOS.items():
        for n in lengths[1:]:
            hits: dict[str, int] = defaultdict(int)
            decided = 0
            for some in chunks(pairs, 2 * n):
                one, other = make(rng, some, n), make(rng, some, n)
                for i in range(some):
                    extra = other[0][i] * (slower - 1)  # the same series, TTFT longer by so much
                    sides = (
                        (one[0][i], one[1][i], one[2][i]),
                        (other[0][i] + extra, other[1][i] + extra, other[2][i]),
                    )
                    ps = tested(*sides, in_flight)
                    if ps is None:
                        continue
                    decided += 1
                    for (column, statistic), p in zip(FIGURES, ps, strict=True):
                        hits[f"{column} {statistic}"] += p < ALPHA
                    hits["any"] += min(holm(ps)) < ALPHA
            share = [f"{hits[k] / max(decided, 1):.1%}" for k in ("ttft mean", "ttft p50", "ttft p95", "any")]
            of_all = f"{hits['any'] / pairs:.1%}"
            print(f"| {name} | {n} | {pairs} | {decided / pairs:.0%} | {' | '.join(share)} | {of_all} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("coverage", "rates", "alarms", "power"))
    args = parser.parse_args()
    rng, began = np.random.default_rng(args.seed), time.perf_counter()
    if args.only in (None, "coverage"):
        coverage(rng, args.runs)
    if args.only in (None, "rates"):
        rates(rng, args.runs)
    if args.only in (None, "alarms"):
        compared(rng, args.runs, 1.0)
    if args.only in (None, "power"):
        compared(rng, args.runs, 1.1)
    print(f"\n{time.perf_counter() - began:.0f} s, seed {args.seed}")


if __name__ == "__main__":
    main()
