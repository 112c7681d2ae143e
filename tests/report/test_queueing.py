"""What is in flight tells how long a queue remembers, in calm runs too; where it tells nothing, nothing changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from report_logs import log_of, stream

from locust_llm.report.exchange_intervals import (
    RUN_PER_IN_FLIGHT,
    exchange_blocks,
    exchange_intervals,
    independent_blocks,
)
from locust_llm.report.figures import figures
from locust_llm.report.intervals import queued_mean_interval
from locust_llm.report.queueing import correlation, in_flight_at_start, level_correlations, queue_memory
from locust_llm.report.student import t_95

LOAD, PREFILL_S = 0.8, 0.05


def queue(rng: Any, runs: int, n: int) -> tuple[Any, Any]:
    """One server, first come, first served: start and TTFT, runs × n, from a queue that is warm."""
    warm = 400
    gaps, service = rng.exponential(1 / LOAD, (runs, n + warm)), rng.exponential(1.0, (runs, n + warm))
    wait = np.zeros((runs, n + warm))
    for i in range(1, n + warm):
        wait[:, i] = np.maximum(wait[:, i - 1] + service[:, i - 1] - gaps[:, i], 0.0)
    return np.cumsum(gaps, axis=1)[:, warm:], (wait + rng.gamma(4, PREFILL_S / 4, wait.shape))[:, warm:]


def in_flight_of(start: Any, seconds: Any) -> Any:
    return np.searchsorted(start, start) - np.searchsorted(np.sort(start + seconds), start, side="right")


def test_what_was_in_flight_agrees_with_counting(tmp_path) -> None:
    rng = np.random.default_rng(4)
    starts = sorted(rng.uniform(0, 10, 60).tolist())
    log = log_of(tmp_path, *(stream(i, at, 20.0 + 900 * (i % 3), 10.0, 3) for i, at in enumerate(starts)))
    ends = log.start_us + log.end_us
    expected = [
        sum(log.start_us[j] < s and ends[j] > s for j in range(len(log)) if j != i) for i, s in enumerate(log.start_us)
    ]
    assert in_flight_at_start(log, figures(log).measured).tolist() == expected


def test_correlations_are_those_of_numpy() -> None:
    rng = np.random.default_rng(5)
    k = rng.integers(0, 9, 400)
    values = k + rng.normal(0, 2, 400)
    levels = np.quantile(values, [0.1, 0.5, 0.95])
    assert correlation(values, k) == pytest.approx(np.corrcoef(values, k)[0, 1])
    found = level_correlations(np.searchsorted(levels, values), 3, k)
    assert found == pytest.approx([np.corrcoef(values <= level, k)[0, 1] for level in levels])


def test_nothing_in_flight_to_follow_says_nothing() -> None:
    values = np.random.default_rng(6).normal(5, 1, 500)
    closed_loop = np.full(500, 15)
    assert correlation(values, closed_loop) == 0.0
    assert queue_memory(0.0, 500, 16.0) == 1.0
    assert queue_memory(0.05, 500, 16.0) == 1.0  # what chance alone brings
    assert queue_memory(0.15, 100_000, 200.0) == 1.0  # a ramp, and no queue
    found = exchange_blocks([values], closed_loop, 2.0)
    assert found.used == found.measured
    labels = found.used.labels(500)
    alone = exchange_intervals(values, labels, found.used.blocks, np.zeros(500, dtype=np.int64), 2.0)
    assert exchange_intervals(values, labels, found.used.blocks, closed_loop, 2.0) == alone


def test_short_runs_of_a_queue_near_saturation_have_intervals_that_hold() -> None:
    """The mean wait is known (Pollaczek and Khinchine): load / (1 - load) for exponential service of 1 s."""
    true = LOAD / (1 - LOAD) + PREFILL_S
    held, blind = [], []
    for start, ttft in zip(*queue(np.random.default_rng(7), 200, 1200), strict=True):
        k = in_flight_of(start, ttft)
        mean = float(ttft.mean()) * LOAD
        cut = exchange_blocks([ttft], k, mean).used
        if cut.blocks:
            low, high = exchange_intervals(ttft, cut.labels(1200), cut.blocks, k, mean)["mean"]
            held.append((low is None or low <= true) and (high is None or true <= high))
        unseen = exchange_blocks([ttft], np.zeros_like(k), mean).used
        if unseen.blocks:
            found = exchange_intervals(ttft, unseen.labels(1200), unseen.blocks, np.zeros_like(k), mean)["mean"]
            blind.append(found[0] <= true <= found[1])
    assert len(held) > 150
    assert np.mean(held) > 0.85
    assert len(blind) < 20, "without it only calm runs have an interval, and these are wrong"


def test_a_queued_run_that_lasts_too_short_has_no_interval_and_says_how_long_it_should_be() -> None:
    """Such runs have one only when they look calm, and then it is wrong."""
    for start, ttft in zip(*queue(np.random.default_rng(9), 20, 300), strict=True):
        k = in_flight_of(start, ttft)
        found = exchange_blocks([ttft], k, 4.0)
        assert found.queue_memory > 1
        assert found.used.blocks == found.measured.blocks == 0
        assert found.measured.needed >= RUN_PER_IN_FLIGHT * 4


def test_the_outer_end_of_a_tail_waits_for_many_exchanges_beyond_it() -> None:
    start, ttft = (a[0] for a in queue(np.random.default_rng(10), 1, 20_000))
    k = in_flight_of(start, ttft)

    def ends(in_flight: float, values: Any = ttft) -> Any:
        return exchange_intervals(values, np.arange(20_000) // 1000, 20, k, in_flight)

    assert None not in ends(4.0)["p90"]
    assert ends(4.0)["p99"][1] is None
    assert None not in ends(4.0)["p1"]
    rises, falls = ends(60.0)["p90"], ends(60.0, 1 / ttft)["p5"]
    assert rises[1] is None
    assert rises[0] is not None
    assert falls[0] is None
    assert falls[1] is not None


def test_the_interval_of_a_queued_mean_is_the_wider_of_blocks_and_queue() -> None:
    sums, counts = np.array([9.0, 11.0] * 5), np.full(10, 10.0)
    by_blocks = queued_mean_interval(sums, counts, 0.0, 50.0)
    by_queue = queued_mean_interval(sums, counts, 4.0, 17.0)
    mean, half = 1.0, t_95(16) * 2 / 4
    assert by_queue == pytest.approx((mean / (1 + half), None))
    less = queued_mean_interval(sums, counts, 0.25, 17.0)
    assert less == pytest.approx((1 / (1 + half / 4), 1 / (1 - half / 4)))
    assert less[0] < by_blocks[0] < 1 < by_blocks[1] < less[1]
    assert queued_mean_interval(sums, counts, 1e-9, 17.0) == by_blocks


def test_a_comparison_waits_for_blocks_that_the_queue_forgets() -> None:
    values = np.random.default_rng(8).exponential(1.0, 4000)
    follows = np.round(5 * values).astype(np.int64)
    assert (
        independent_blocks([values], follows, 5.0).length > 20 * independent_blocks([values], follows * 0, 5.0).length
    )
