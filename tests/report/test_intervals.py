"""Intervals: against tables, counting and the exact binomial; series with memory get wider ones, or none."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from locust_llm.report.intervals import (
    MIN_BLOCKS,
    inflation,
    mean_interval,
    memory,
    quantile_interval,
    share_interval,
)
from locust_llm.report.permutation import Units, change_interval, holm, permutation_p, welch
from locust_llm.report.shares import wilson
from locust_llm.report.stats import sample
from locust_llm.report.student import binomial_ranks, t_95, t_tail


def remembering(rng, n, phi):
    """An autoregressive series: integrated autocorrelation time (1 + phi) / (1 - phi)."""
    noise = rng.normal(size=n + 200)
    out = np.zeros(n + 200)
    for i in range(1, n + 200):
        out[i] = phi * out[i - 1] + noise[i]
    return out[200:] + 50


@pytest.mark.parametrize(
    ("dof", "table"), [(1, 12.706), (2, 4.303), (5, 2.571), (7, 2.365), (19, 2.093), (30, 2.042), (1000, 1.962)]
)
def test_students_t_is_that_of_the_tables(dof, table):
    assert t_95(dof) == pytest.approx(table, abs=6e-4)
    assert t_tail(t_95(dof), dof) == pytest.approx(0.05, abs=1e-9)


@pytest.mark.parametrize(
    ("n", "q"), [(10, 0.5), (30, 0.25), (72, 0.95), (71, 0.95), (400, 0.99), (369, 0.99), (40, 0.05)]
)
def test_ranks_leave_out_a_fortieth_on_each_side_and_lie_next_to_those_of_the_textbook(n, q):
    chances = [math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)]
    below = list(itertools.accumulate(chances))
    low, high = binomial_ranks(n, q, 0.025)
    assert math.floor(low) == sum(c <= 0.025 for c in below)
    assert math.ceil(high) == next(k for k, c in enumerate(below) if c >= 0.975) + 1
    # Between two ranks as much further as there is still to leave out.
    under, over = math.floor(low), math.ceil(high) - 1
    assert (below[under - 1] if under else 0.0) + (low - under) * chances[under] == pytest.approx(0.025)
    assert 1 - below[over] + (over + 1 - high) * chances[over] == pytest.approx(0.025)


def test_broken_ranks_cover_a_median_as_often_as_asked():
    """Whole ranks cover the median of 12 values in 96.1 % of samples, those one further in in 85 %."""
    rng = np.random.default_rng(9)
    of = [quantile_interval(sample(values), 0.5, 1.0, 20) for values in rng.random((8000, 12))]
    assert 0.94 < np.mean([low <= 0.5 <= high for low, high in of]) < 0.96


def test_an_end_that_does_not_exist_is_open():
    few = sample(np.arange(71.0))
    assert quantile_interval(few, 0.95, 1.0, 20)[1] is None
    enough = sample(np.arange(73.0))
    low, high = quantile_interval(enough, 0.95, 1.0, 20)
    assert 64.0 <= low < 65.0
    assert 71.0 < high <= 72.0
    assert quantile_interval(sample(np.arange(10.0)), 0.05, 1.0, 20)[0] is None


def test_a_quantile_of_values_that_are_worth_half_has_the_interval_of_half_as_many():
    many = sample(np.arange(2000.0))
    full, half = quantile_interval(many, 0.5, 1.0, 1000), quantile_interval(many, 0.5, 4.0, 1000)
    assert None not in (*full, *half)
    assert half[1] - half[0] == pytest.approx(2 * (full[1] - full[0]), rel=0.05)


def test_an_end_beside_a_failure_lies_on_it():
    values = np.concatenate((np.arange(93.0), np.full(7, np.inf)))
    assert quantile_interval(sample(values), 0.9, 1.0, 20)[1] == np.inf
    low, high = quantile_interval(sample(-values), 0.1, 1.0, 20)
    assert low == -np.inf
    assert np.isfinite(high)


def test_independent_values_have_no_memory_and_blocks_as_many_as_allowed():
    cut = memory([np.random.default_rng(1).normal(size=5000)])
    assert cut.blocks == 20
    assert np.bincount(cut.labels(5000)).tolist() == [250] * 20


def test_blocks_are_many_times_as_long_as_a_series_remembers():
    series = remembering(np.random.default_rng(2), 60_000, 0.9)  # 19 values
    cut = memory([series])
    assert 8 * 19 * 0.7 < cut.length < 8 * 19 * 2
    short = memory([series[:600]])
    assert short.blocks == 0
    assert short.needed > 600


def test_blocks_hold_twice_what_is_in_flight():
    values = np.random.default_rng(3).normal(size=2000)
    assert memory([values], least=100).length >= 100
    assert memory([values], least=300).blocks == 0
    assert memory([values], least=300).needed >= 300 * MIN_BLOCKS


@pytest.mark.parametrize("values", [np.zeros(0), np.ones(3), np.ones(500)])
def test_nothing_and_values_that_are_all_alike_are_no_error(values):
    cut = memory([values])
    assert cut.blocks == (20 if len(values) == 500 else 0)
    assert memory([]).blocks == 0


def test_the_interval_of_a_mean_is_students_on_blocks_alike():
    rng = np.random.default_rng(4)
    sums = rng.normal(100, 5, 20)
    low, high = mean_interval(sums, np.ones(20))
    half = t_95(19) * sums.std(ddof=1) / math.sqrt(20)
    r = max(0.0, np.corrcoef(sums[1:], sums[:-1])[0, 1])
    assert half * 0.85 < (high - low) / 2 < half * 1.15 * math.sqrt((1 + r) / (1 - r))
    assert mean_interval(sums[:7], np.ones(7)) == (None, None)


@pytest.mark.parametrize("phi", [0.0, 0.8])
def test_means_and_medians_are_covered_with_memory_and_without(phi):
    rng, right, medians, runs = np.random.default_rng(5), 0, 0, 200
    for _ in range(runs):
        series = remembering(rng, 3000, phi)
        cut = memory([series])
        labels = cut.labels(len(series))
        counts = np.bincount(labels).astype(float)
        low, high = mean_interval(np.bincount(labels, series), counts)
        right += low <= 50 <= high
        below = np.bincount(labels, series <= np.median(series))
        low, high = quantile_interval(sample(series), 0.5, inflation(below, counts), cut.blocks)
        medians += low <= 50 <= high
    assert right / runs > 0.9  # 0.95 expected; chance of this bound: below 1 in 500
    assert medians / runs > 0.9


def test_wilsons_interval_is_that_of_the_textbook():
    assert wilson(0.1, 100) == pytest.approx((0.05523, 0.17437), abs=1e-5)
    assert wilson(0.0, 1000) == pytest.approx((0.0, 0.003827), abs=1e-6)
    assert wilson(1.0, 1000) == pytest.approx((0.996173, 1.0), abs=1e-6)


def test_failures_in_one_burst_say_less_than_failures_here_and_there():
    spread, burst = np.zeros(1000), np.zeros(1000)
    spread[::10] = 1
    burst[300:400] = 1
    narrow, wide = share_interval(spread), share_interval(burst)
    assert narrow == pytest.approx(wilson(0.1, 1000), abs=1e-9)
    assert wide[1] - wide[0] > 3 * (narrow[1] - narrow[0])


def test_holm_is_that_of_the_textbook():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_a_permutation_of_few_units_agrees_with_counting_all_of_them():
    rng = np.random.default_rng(6)
    a, b = rng.normal(10, 1, 8), rng.normal(11, 1, 8)

    def statistic(x, y):
        return (y.mean() - x.mean()) / math.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y))

    both, seen, hits = np.concatenate((a, b)), abs(statistic(a, b)), 0
    for chosen in itertools.combinations(range(16), 8):
        mask = np.zeros(16, dtype=bool)
        mask[list(chosen)] = True
        hits += abs(statistic(both[mask], both[~mask])) >= seen - 1e-12
    p = permutation_p(Units(a, np.ones(8)), Units(b, np.ones(8)), adjacent=False)
    assert p == pytest.approx(hits / math.comb(16, 8), abs=0.015)


def test_units_that_are_all_alike_are_no_difference_and_no_error():
    same = Units(np.ones(8), np.ones(8))
    assert permutation_p(same, same) == 1.0
    assert permutation_p(same, Units(np.full(8, 2.0), np.ones(8))) < 0.001


def test_welch_agrees_with_its_formula_and_the_density_of_t():
    a, b = [20.4, 24.2, 15.4, 21.4, 20.2], [21.3, 22.8, 26.1, 25.9, 24.9, 23.3]
    va, vb = np.var(a, ddof=1) / 5, np.var(b, ddof=1) / 6
    t = (np.mean(b) - np.mean(a)) / math.sqrt(va + vb)
    dof = (va + vb) ** 2 / (va**2 / 4 + vb**2 / 5)
    x = np.linspace(t, 4000, 4_000_001)
    density = (1 + x * x / dof) ** (-(dof + 1) / 2)
    density *= math.exp(math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2)) / math.sqrt(dof * math.pi)
    p, low, high = welch(a, b)
    assert p == pytest.approx(2 * np.trapezoid(density, x), rel=1e-4)
    assert (low + high) / 2 == pytest.approx(np.mean(b) - np.mean(a))
    assert (low > 0) == (p < 0.05)


def test_a_change_has_an_open_end_where_one_of_the_sides_has():
    assert change_interval(10, (8, 12), 15, (14, None))[1] is None
    low, _ = change_interval(10, (8, 12), 15, (14, None))
    assert low == pytest.approx(5 - math.hypot(1, 2))
