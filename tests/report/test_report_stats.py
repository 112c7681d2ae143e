"""Statistics against numpy, and which percentiles are thin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locust_llm.report.metrics import PERCENTILES
from locust_llm.report.shares import needed
from locust_llm.report.stats import describe, quantile, sample

some = st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 5)), min_size=1, max_size=30).filter(
    lambda v: any(c for _, c in v)
)


@given(some)
def test_statistics_of_counted_values_are_those_of_the_written_out_ones(pairs):
    values, counts = (np.array(column) for column in zip(*pairs, strict=True))
    flat = np.repeat(values, counts)
    got = describe(sample(values, counts), scale=1000.0)
    assert got["count"] == len(flat)
    assert got["mean"] == pytest.approx(flat.mean() * 1e3)
    assert (got["min"], got["max"]) == (flat.min() * 1e3, flat.max() * 1e3)
    if len(flat) > 1:
        assert got["std"] == pytest.approx(flat.std(ddof=1) * 1e3, abs=1e-6)
    else:
        assert "std" not in got
    for name, q in PERCENTILES.items():
        assert got[name] == pytest.approx(np.quantile(flat, q, method="linear") * 1e3, rel=1e-9)


def test_a_percentile_is_interpolated_between_order_statistics():
    assert quantile(sample(np.array([4.0, 1.0, 2.0, 3.0])), 0.9) == pytest.approx(3.7)


def test_unknown_values_are_left_out():
    assert sample(np.array([np.nan, 2.0, np.nan, 1.0])).values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("q", "n"), [(0.5, 2), (0.75, 4), (0.9, 10), (0.95, 20), (0.99, 100), (0.999, 1000), (0.01, 100), (0.05, 20)]
)
def test_a_percentile_needs_one_over_its_tail(q, n):
    assert needed(q) == n


@pytest.mark.parametrize(
    ("n", "thin"),
    [
        (1, ["p1", "p5", "p25", "p50", "p75", "p90", "p95", "p99", "p999"]),
        (2, ["p1", "p5", "p25", "p75", "p90", "p95", "p99", "p999"]),
        (19, ["p1", "p5", "p95", "p99", "p999"]), (20, ["p1", "p99", "p999"]), (99, ["p1", "p99", "p999"]),
        (100, ["p999"]), (999, ["p999"]), (1000, []),
    ],
)  # fmt: skip
def test_percentiles_with_too_few_values_are_shown_as_thin(n, thin):
    got = describe(sample(np.arange(float(n))))
    assert got["thin"] == thin
    assert all(name in got for name in PERCENTILES)
