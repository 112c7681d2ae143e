"""How often the report's intervals are right, how often ``compare`` raises a false alarm, and what it can see.

    python benchmarks/judging.py [--runs 400] [--seed 1] [--only coverage|others|rates|alarms|power] [--series NAME]

Prints the tables of docs/statistics.md; ``others`` are series that nothing was fitted to. Series are independent draws
and queues (``queues.py``); the truth is that of very long runs. Everything judged is the report's own code. (Not named
statistics.py: scripts beside it import the standard module of that name.)
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
from locust_llm.report.intervals import mean_interval, memory, share_interval
from locust_llm.report.metrics import PERCENTILES
from locust_llm.report.permutation import holm, permutation_p
from locust_llm.report.shares import CONCURRENCIES

Floats = npt.NDArray[np.float64]
Make = Callable[[np.random.Generator, int, int], tuple[Floats, Floats, Floats]]
"""(generator, runs, exchanges) → TTFT, e2e, start; each runs × exchanges."""

SHOWN = ("mean", "p50", "p95", "p99")
CHUNK = 4_000_000


def drawn(rng: np.random.Generator, runs: int, n: int, sigma: float = 0.7) -> tuple[Floats, Floats, Floats]:
    """One user, one exchange after the other."""
    values = rng.lognormal(0, sigma, (runs, n))
    return values, values + 1, np.cumsum(values + 1, axis=1) - values - 1


def of_queue(series: queues.Series) -> tuple[Floats, Floats, Floats]:
    return series.ttft_s, series.e2e_s, series.start_s


def closed_loop(users: int) -> Make:
    return lambda rng, runs, n: of_queue(queues.closed(rng, runs, n, users))


def open_loop(load: float, slots: int = queues.SLOTS, lengths: queues.Lengths = queues.chats) -> Make:
    return lambda rng, runs, n: of_queue(queues.opened(rng, runs, n, load, slots=slots, lengths=lengths))


SCENARIOS: dict[str, Make] = {
    "independent": drawn,
    "closed loop, users = 2 × slots": closed_loop(2 * queues.SLOTS),
    "open loop, 85 % load": open_loop(0.85),
}
OTHERS: dict[str, Make] = {
    "independent, heavy tail (σ 1.3)": lambda rng, runs, n: drawn(rng, runs, n, 1.3),
    "closed loop, users = slots": closed_loop(queues.SLOTS),
    "closed loop, users = 4 × slots": closed_loop(4 * queues.SLOTS),
    "open loop, 85 %, exponential answers": open_loop(0.85, lengths=queues.exponential),
    "open loop, 85 %, answers of one length": open_loop(0.85, lengths=queues.fixed),
    "open loop, 70 %": open_loop(0.7),
    "open loop, 50 %": open_loop(0.5),
    "open loop, 70 %, one slot": open_loop(0.7, slots=1),
    "open loop, 80 %, heavy-tailed answers": open_loop(0.8, lengths=queues.heavy),
    "open loop, 70 %, one slot, heavy-tailed answers": open_loop(0.7, slots=1, lengths=queues.heavy),
}
LENGTHS = {"coverage": (200, 1000, 2000, 5000, 20_000), "others": (1000, 5000, 20_000)}
PAIR_LENGTHS = {
    "independent": (300, 1000, 5000), "closed loop, users = 2 × slots": (1000, 3000, 10_000),
    "open loop, 85 % load": (10_000, 30_000, 100_000),
}  # fmt: skip


def chunks(runs: int, n: int) -> list[int]:
    each = max(1, min(runs, CHUNK // n))
    return [min(each, runs - done) for done in range(0, runs, each)]


def truth(make: Make, rng: np.random.Generator) -> dict[str, float]:
    values = np.concatenate([make(rng, 100, 50_000)[0].reshape(-1) for _ in range(3)])
    return {"mean": float(values.mean())} | {name: float(np.quantile(values, q)) for name, q in PERCENTILES.items()}


def in_flight_at(start: Floats, e2e: Floats) -> npt.NDArray[np.int64]:
    """How many were in flight when each started; the report takes it from the log."""
    return np.searchsorted(np.sort(start), start) - np.searchsorted(np.sort(start + e2e), start, side="right")


def mean_in_flight(start: Floats, e2e: Floats) -> float:
    return float(e2e.sum() / (start[-1] - start[0]))


def intervals(ttft: Floats, e2e: Floats, start: Floats) -> dict[str, tuple[float | None, float | None]]:
    """What the report does with one run."""
    at_start, in_flight = in_flight_at(start, e2e), mean_in_flight(start, e2e)
    cut = exchange_blocks([ttft, e2e], at_start, in_flight).used
    if not cut.blocks:
        return {}
    return exchange_intervals(ttft, cut.labels(len(ttft)), cut.blocks, at_start, in_flight)


def coverage(rng: np.random.Generator, runs: int, scenarios: dict[str, Make], lengths: tuple[int, ...]) -> None:
    print("\n| series | exchanges | runs | with intervals | mean | p50 | p95 | p99 | wrong mean, of all runs |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, make in scenarios.items():
        true = truth(make, rng)
        for n in lengths:
            right: dict[str, list[bool]] = defaultdict(list)
            shown = 0
            for some in chunks(runs, n):
                ttft, e2e, start = make(rng, some, n)
                for x, y, at in zip(ttft, e2e, start, strict=True):
                    found = intervals(x, y, at)
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


def rates(rng: np.random.Generator, runs: int, scenarios: dict[str, Make]) -> None:
    """Requests per second and the share above a limit, of the queues."""
    print("\n| series | exchanges | runs | requests/s | share above a limit (10 %) |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, make in scenarios.items():
        ttft, _, start = make(rng, 60, 50_000)
        limit = float(np.quantile(ttft, 0.9))
        per_s = float(np.mean((start.shape[1] - 1) / (start[:, -1] - start[:, 0])))
        for n in PAIR_LENGTHS[name][:2]:
            right: dict[str, list[bool]] = defaultdict(list)
            for some in chunks(runs, n):
                ttft, e2e, start = make(rng, some, n)
                for x, y, at in zip(ttft, e2e, start, strict=True):
                    least = CONCURRENCIES * mean_in_flight(at, y)
                    low, high = share_interval((x > limit).astype(np.float64), least)
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


def tested(base: tuple[Floats, Floats, Floats], new: tuple[Floats, Floats, Floats]) -> list[float] | None:
    """What ``compare`` does with two runs: p of each figure, None where it is undecided for shortness."""
    sides = (base, new)
    blocks = common_blocks([
        (independent_blocks(side[:2], in_flight_at(side[2], side[1]), mean_in_flight(side[2], side[1])), len(side[0]))
        for side in sides
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


def compared(rng: np.random.Generator, pairs: int, slower: float, scenarios: dict[str, Make]) -> None:
    head = "alarms" if slower == 1.0 else "found"
    print(f"\n| series | exchanges a side | pairs | long enough | {head}: TTFT mean | p50 | p95 | any, Holm | of all |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, make in scenarios.items():
        for n in PAIR_LENGTHS[name]:
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
                    ps = tested(*sides)
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
    parser.add_argument("--only", choices=("coverage", "others", "rates", "alarms", "power"))
    parser.add_argument("--series", default="", help="only those whose name holds this")
    args = parser.parse_args()
    rng, began = np.random.default_rng(args.seed), time.perf_counter()
    main_ones, others = ({n: m for n, m in of.items() if args.series in n} for of in (SCENARIOS, OTHERS))
    if args.only in (None, "coverage"):
        coverage(rng, args.runs, main_ones, LENGTHS["coverage"])
    if args.only in (None, "others"):
        coverage(rng, args.runs, others, LENGTHS["others"])
    if args.only in (None, "rates"):
        rates(rng, args.runs, {n: m for n, m in main_ones.items() if m is not drawn})
    if args.only in (None, "alarms"):
        compared(rng, args.runs, 1.0, main_ones)
    if args.only in (None, "power"):
        compared(rng, args.runs, 1.1, main_ones)
    print(f"\n{time.perf_counter() - began:.0f} s, seed {args.seed}")


if __name__ == "__main__":
    main()
