"""What all workers send together is the process that was asked for, whatever their number; pure and without clocks."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import pytest

from locust_llm.load.arrivals import constant, gamma, poisson
from locust_llm.load.pacer import Pacer
from locust_llm.load.schedule import Share, count_until, due_ns

SECONDS = 120
SEEDS = (1, 2, 3)


def arrivals_s(pacer: Pacer, seed: int, workers: int, seconds: float = SECONDS) -> np.ndarray:
    """Return the arrivals that so many workers make together, in order."""
    shares = [due_ns(pacer, seed, "", 0, Share(index, workers)) for index in range(workers)]
    due = [at for share in shares for at in takewhile(lambda at: at < seconds * 1e9, share)]
    return np.sort(np.array(due)) / 1e9


def ks_p(values: np.ndarray, rate: float) -> float:
    """Return the p-value of the Kolmogorov-Smirnov test against the exponential distribution (asymptotic)."""
    x, n = np.sort(values), len(values)
    cdf = 1 - np.exp(-rate * x)
    d = max((np.arange(1, n + 1) / n - cdf).max(), (cdf - np.arange(n) / n).max())
    t = d * (n**0.5 + 0.12 + 0.11 / n**0.5)
    return float(min(1.0, 2 * sum((-1) ** (k - 1) * np.exp(-2 * k * k * t * t) for k in range(1, 101))))


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_poisson_over_workers_is_poisson(seed: int, workers: int) -> None:
    due = arrivals_s(poisson(50), seed, workers)
    assert ks_p(np.diff(due), 50) > 0.01
    assert abs(len(due) - 50 * SECONDS) < 4 * (50 * SECONDS) ** 0.5


def test_the_test_of_the_distribution_tells_others_from_poisson() -> None:
    assert ks_p(np.diff(arrivals_s(gamma(50, 0.5), 1, 2)), 50) < 1e-6
    assert ks_p(np.diff(arrivals_s(constant(50), 1, 2)), 50) < 1e-6


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_constant_over_workers_has_no_beat(workers: int) -> None:
    gaps = np.diff(arrivals_s(constant(100), 1, workers))
    assert np.abs(gaps - 0.01).max() < 1e-6
    assert len(gaps) + 1 in (100 * SECONDS, 100 * SECONDS - 1)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_over_workers_has_the_variation_that_was_asked_for(burstiness: float) -> None:
    gaps = np.diff(arrivals_s(gamma(50, burstiness), 7, 4, 400))
    assert gaps.mean() == pytest.approx(0.02, rel=0.06)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.06)


@pytest.mark.parametrize("workers", [2, 4])
def test_no_arrival_is_sent_twice_and_none_is_left_out(workers: int) -> None:
    assert arrivals_s(poisson(50), 5, workers).tolist() == arrivals_s(poisson(50), 5, 1).tolist()


def test_seed_stream_and_segment_each_make_another_schedule() -> None:
    def first(seed: int, stream: str, segment: int) -> int:
        return next(due_ns(poisson(5), seed, stream, segment))

    assert len({first(1, "", 0), first(2, "", 0), first(1, "Chat", 0), first(1, "", 1)}) == 4
    assert first(1, "", 0) == first(1, "", 0)


def test_what_is_due_can_be_counted() -> None:
    assert count_until(due_ns(constant(10), 1, "", 0), int(1.05e9)) == 10
    assert count_until(due_ns(constant(10), 1, "", 0, Share(1, 2)), int(1.05e9)) == 5


def test_pacers_print_themselves() -> None:
    assert [str(p) for p in (constant(2), poisson(0.5), gamma(5, 2))] == [
        "constant 2/s",
        "poisson 0.5/s",
        "gamma 5/s, burstiness 2",
    ]
