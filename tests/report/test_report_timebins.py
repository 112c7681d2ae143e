"""Equal stretches of a window: round widths, exact levels and percentiles; failures in time."""

from __future__ import annotations

import numpy as np
import pytest
from report_logs import record, stream, write_log

from locust_llm.exchange import ExchangeError
from locust_llm.report.failures import SAMPLES
from locust_llm.report.runs import load_run
from locust_llm.report.timebins import bins_of, mean_level, percentiles
from locust_llm.report.window import Window


@pytest.mark.parametrize(
    ("seconds", "most", "width"),
    [(10, 240, 1), (240, 240, 1), (241, 240, 2), (3600, 240, 15), (86400, 240, 600), (0, 10, 1)],
)
def test_widths_are_round_and_bins_are_few(seconds, most, width):
    bins = bins_of(Window("all", 0, seconds * 1_000_000), most)
    assert bins.width_us == width * 1_000_000
    assert 1 <= bins.count <= most
    assert bins.seconds.sum() == pytest.approx(max(seconds, 0), abs=1e-6)


def test_the_last_bin_has_its_true_length():
    assert bins_of(Window("all", 0, 2_500_000), 100).seconds.tolist() == [1.0, 1.0, 0.5]


def test_a_year_still_fits():
    assert bins_of(Window("all", 0, 365 * 86_400_000_000), 100).count <= 100


def test_the_level_is_time_weighted():
    bins = bins_of(Window("all", 1_000_000, 4_000_000), 100)
    start, end = np.array([1_000_000, 1_500_000]), np.array([4_000_000, 2_000_000])
    assert mean_level(start, end, bins).tolist() == [1.5, 1.0, 1.0]
    none = np.zeros(0, dtype=np.int64)
    assert mean_level(none, none, bins).tolist() == [0, 0, 0]


def test_percentiles_by_bin_are_numpys():
    rng = np.random.default_rng(1)
    at, values = rng.integers(0, 5, 500), rng.exponential(1, 500)
    values[::50] = np.nan
    for q in (0.5, 0.95):
        found = percentiles(at, values, 6, q)
        for i in range(5):
            assert found[i] == pytest.approx(np.nanpercentile(values[at == i], q * 100))
        assert np.isnan(found[5])


def failures_of(folder, *records):
    write_log(folder / "events.jsonl", records)
    return load_run([folder]).summary["failures"]


def test_failures_are_counted_where_they_ended(tmp_path):
    bad = [record(i, 2.9, end_ms=200, outcome="timeout", error=ExchangeError("idle", "silent")) for i in range(10, 14)]
    found = failures_of(tmp_path, stream(0), *bad, record(20, 5.0, end_ms=1, outcome="empty"))
    assert found["count"] == 5
    assert found["bins"] == [{"t_s": 3.0, "timeout": 4}, {"t_s": 5.0, "empty": 1}]
    assert (found["first_s"], found["last_s"]) == (pytest.approx(3.1), pytest.approx(5.001))


def test_samples_show_every_kind_before_a_second_of_the_same(tmp_path):
    many = [record(i, i * 0.01, end_ms=1, outcome="http_status", status=500) for i in range(100)]
    rare = [
        record(200, 2.0, end_ms=1, outcome="http_status", status=429),
        record(201, 2.1, end_ms=1, outcome="connection", error=ExchangeError("reset", "by peer")),
    ]
    samples = failures_of(tmp_path, *many, *rare, stream(300, 0.0))["samples"]
    assert len(samples) == SAMPLES
    assert {s.get("status") for s in samples} == {500, 429, None}
    assert [s["t_s"] for s in samples] == sorted(s["t_s"] for s in samples)
    assert samples[-1]["message"] == "by peer"


def test_a_run_without_failures_has_none(tmp_path):
    assert failures_of(tmp_path, stream(0)) == {"count": 0}


def test_only_the_last_attempt_of_a_retried_exchange_can_be_a_failure(tmp_path):
    first = record(0, 0.0, end_ms=5, outcome="http_status", status=503, exchange="x", attempt=1)
    assert failures_of(tmp_path, first, stream(1, 0.1, exchange="x", attempt=2)) == {"count": 0}
