"""Truth log against event log: each known error is found where it is, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from truth_logs import EPOCH_US, ITL_US, record, served, steady, truth

from locust_llm.exchange import TIMEOUT, UNFINISHED
from locust_llm.telemetry.truth import compare, join, schedule_lag_ms


def test_a_log_that_is_the_truth_has_no_error() -> None:
    joined = join([record(7, steady(5))], truth(served(7, steady(5), read_us=0)))
    assert len(joined) == 1
    assert joined.arrival_error_ms.tolist() == [0.0] * 5
    assert joined.gap_ms.tolist() == joined.gap_true_ms.tolist() == [10.0] * 4
    assert joined.ttft_ms.tolist() == joined.ttft_true_ms.tolist() == [50.0]
    assert (joined.mismatched, joined.unlogged) == ((), 0)


def test_one_late_stamp_is_one_arrival_error_and_two_gaps() -> None:
    measured = steady(5)
    measured[2] += 3_000
    joined = join([record(0, measured)], truth(served(0, steady(5))))
    assert joined.arrival_error_ms.tolist() == [0.0, 0.0, 3.0, 0.0, 0.0]
    assert (joined.gap_ms - joined.gap_true_ms).tolist() == [0.0, 3.0, -3.0, 0.0]


def test_true_ttft_begins_when_the_request_had_been_read() -> None:
    joined = join([record(0, steady(2), sent_us=100)], truth(served(0, steady(2), read_us=4_100)))
    assert joined.ttft_ms.tolist() == [50.0]
    assert joined.ttft_true_ms.tolist() == [pytest.approx(45.9)]
    assert joined.read_lag_ms.tolist() == [4.0]


def test_a_request_read_before_the_client_looked_at_its_clock_has_no_read_lag() -> None:
    joined = join([record(0, steady(2), sent_us=300)], truth(served(0, steady(2), read_us=50)))
    assert joined.read_lag_ms.tolist() == [0.0]


def test_errors_drawn_at_random_come_back_as_they_were_drawn() -> None:
    rng = np.random.default_rng(3)
    errors_us = rng.integers(0, 40_000, size=(30, 20))
    starts = EPOCH_US + rng.permutation(30) * 1_000_000
    records, requests = [], []
    for number, (late, start) in enumerate(zip(errors_us, starts.tolist(), strict=True)):
        measured = np.maximum.accumulate(np.array(steady(20)) + late)
        errors_us[number] = measured - steady(20)
        records.append(record(number, measured.tolist(), start_us=start))
        requests.append(served(number, steady(20), start_us=start))
    log = truth(*requests)
    joined = join(records, log[rng.permutation(len(log))])  # the order in the file means nothing
    assert joined.arrival_error_ms == pytest.approx(errors_us.ravel() / 1e3)
    assert joined.ttft_ms - joined.ttft_true_ms == pytest.approx(errors_us[:, 0] / 1e3 + 0.1)


def test_events_of_several_tokens_are_joined_by_their_order() -> None:
    log = truth(served(0, steady(3)))
    log["index"] *= 4
    assert join([record(0, steady(3))], log).arrival_error_ms.tolist() == [0.0] * 3
    assert schedule_lag_ms(log, 0.05, ITL_US / 4e6).tolist() == pytest.approx([-0.1] * 3)


def test_a_success_with_another_number_of_events_is_named_not_joined() -> None:
    joined = join([record(0, steady(4)), record(1, steady(5))], truth(served(0, steady(5)), served(1, steady(5))))
    assert len(joined) == 1
    assert joined.mismatched == ("sim-0: 5 events left, 4 were seen",)


@pytest.mark.parametrize("response_id", ["sim-9", None, "sim-x", ""])
def test_a_success_that_the_server_knows_nothing_of_is_named(response_id: str | None) -> None:
    joined = join([record(0, steady(2), response_id=response_id)], truth(served(0, steady(2))))
    assert len(joined) == 0
    assert len(joined.mismatched) == 1


@pytest.mark.parametrize("outcome", [TIMEOUT, UNFINISHED])
def test_failures_and_cut_streams_are_not_joined_but_are_in_the_log(outcome: str) -> None:
    joined = join([record(0, steady(2), outcome=outcome)], truth(served(0, steady(5))))
    assert (len(joined), joined.mismatched, joined.unlogged) == (0, (), 0)


def test_a_request_that_no_record_names_is_counted() -> None:
    log = truth(served(0, steady(2)), served(1, steady(2)), served(2, []))
    assert join([record(0, steady(2))], log).unlogged == 2


def test_a_window_keeps_the_exchanges_that_started_inside_with_their_events() -> None:
    starts = [EPOCH_US, EPOCH_US + 1_000, EPOCH_US + 2_000]
    records = [record(n, steady(3 + n), start_us=start) for n, start in enumerate(starts)]
    log = truth(*(served(n, steady(3 + n), start_us=start) for n, start in enumerate(starts)))
    joined = join(records, log).between(EPOCH_US + 500, EPOCH_US + 2_000)
    assert joined.start_us.tolist() == starts[1:]
    assert joined.event_owner.tolist() == [0] * 4 + [1] * 5
    assert joined.gap_owner.tolist() == [0] * 3 + [1] * 4
    assert len(joined.arrival_error_ms) == 9
    assert len(join(records, log).between(0, 1)) == 0


def test_nothing_to_join_is_an_empty_join() -> None:
    joined = join([], truth(served(0, [])))
    assert (len(joined), joined.unlogged, len(joined.gap_ms)) == (0, 1, 0)
    assert len(join([], truth())) == 0


def test_schedule_lag_is_that_of_the_server_alone() -> None:
    left = steady(4)
    left[3] += 7_000
    log = truth(served(0, [at + 100 for at in left], read_us=100))
    assert schedule_lag_ms(log, 0.05, 0.01).tolist() == pytest.approx([0.0, 0.0, 0.0, 7.0])


@pytest.mark.parametrize(
    ("true_ms", "error_ms", "off"),
    [
        (50.0, 0.9, []),  # below 1 ms
        (50.0, 2.4, []),  # within 5 %
        (10.0, 1.1, ["p50", "p95"]),  # beyond 5 % and 1 ms, within 2 ms at p99
        (10.0, 2.1, ["p50", "p95", "p99"]),
        (1000.0, 49.0, []),
        (1000.0, 51.0, ["p50", "p95"]),
    ],
)
def test_a_percentile_is_off_beyond_its_share_and_its_least(true_ms: float, error_ms: float, off: list[str]) -> None:
    true = np.full(200, true_ms, dtype=np.float64)
    compared = compare("TTFT", true + error_ms, true)
    assert [line.split()[1] for line in compared.off] == off
    assert compared.error_p50 == pytest.approx(error_ms)
    assert compared.error_mean == pytest.approx(error_ms)


def test_errors_are_of_pairs_while_percentiles_are_of_distributions() -> None:
    true = np.arange(100.0)
    compared = compare("ITL", true[::-1].copy(), true)
    assert compared.measured == compared.true
    assert compared.off == ()
    assert (compared.error_mean, compared.count) == (0.0, 100)
    assert compared.error_p50 > 20
