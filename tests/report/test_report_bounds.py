"""The bounds of the error hold: whatever the true times were, the true percentiles lie between them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locust_llm.report.bounds import extremes


def gaps_of(times: list[float]) -> list[float]:
    return [b - a for a, b in pairwise(times)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """True times of events; as stamped, with several of a read at the time of its last; uncertainties."""
    true, stamped, unsure, now = [], [], [], 0
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.integers(1, 5))
        arrivals = []
        for _ in range(size):
            now += draw(st.integers(0, 9))
            arrivals.append(now)
        sure = draw(st.booleans())  # the last event ends the read
        stamp = arrivals[-1] + (0 if sure else draw(st.integers(0, 5)))
        now = stamp
        width = stamp - arrivals[0] + draw(st.integers(0, 4))
        true += arrivals
        stamped += [stamp] * size
        unsure += [width] * (size - 1) + [0 if sure else width]
    return true, stamped, unsure


@settings(max_examples=300, deadline=None)
@given(st.lists(streams(), min_size=1, max_size=3))
def test_true_percentiles_of_gaps_lie_between_the_bounds(found: list[tuple[list[int], list[int], list[int]]]) -> None:
    first = np.array([i == 0 for true, _, _ in found for i in range(len(true))])
    stamped = np.array([t for _, s, _ in found for t in s])
    unsure = np.array([u for _, _, us in found for u in us])
    low, high = extremes(first, stamped, unsure, np.ones(len(stamped), dtype=np.int64))
    follows = ~first
    measured = np.append(0, np.diff(stamped)).astype(float)
    low, high = (np.where(np.isnan(v), measured, v)[follows] for v in (low, high))
    truth = np.array([g for true, _, _ in found for g in gaps_of(true)])
    if len(truth):
        for q in np.linspace(0, 100, 21):
            assert np.percentile(low, q) <= np.percentile(truth, q) + 1e-9
            assert np.percentile(high, q) >= np.percentile(truth, q) - 1e-9


@pytest.mark.parametrize(
    ("times", "unsure", "low", "high"),
    [
        ([0, 10, 20], [0, 0, 0], [10, 10], [10, 10]),
        # three came in one read after a stall of 30: each may have been on time
        ([0, 30, 30, 30], [0, 20, 20, 0], [10, 0, 0], [30, 15, 10]),
        # surely not so early
        ([0, 30, 30, 30], [0, 6, 6, 0], [24, 0, 0], [30, 6, 3]),
        # nothing before it: only the next gap can be longer
        ([5, 9], [2, 0], [4], [6]),
        # many in a short stall: not all of them can have waited it out
        ([0, 8, 8, 8, 8, 8], [0, 8, 8, 8, 8, 0], [1.6, 0, 0, 0, 0], [8, 4, 8 / 3, 2, 1.6]),
    ],
)
def test_gaps_of_one_stream_as_short_and_as_long_as_they_may_have_been(
    times: list[int], unsure: list[int], low: list[float], high: list[float]
) -> None:
    first = np.arange(len(times)) == 0
    shortest, longest = extremes(first, np.array(times), np.array(unsure), np.ones(len(times), dtype=np.int64))
    measured = np.diff(times)
    assert np.where(np.isnan(shortest[1:]), measured, shortest[1:]).tolist() == pytest.approx(low)
    assert np.where(np.isnan(longest[1:]), measured, longest[1:]).tolist() == pytest.approx(high)
