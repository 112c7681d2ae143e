"""Rates, arrivals, gaps and concurrency of a window against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_logs import T0_S, log_of, record, stream, write_log

from locust_llm.report import events
from locust_llm.report.arrivals import arrivals
from locust_llm.report.figures import figures
from locust_llm.report.gaps import count_gaps
from locust_llm.report.rates import ALWAYS, concurrency, rates
from locust_llm.report.runs import load_run
from locust_llm.report.window import ALL, RANGE, Window, whole


def between(a_s, b_s, kind=RANGE):
    return Window(kind, round((T0_S + a_s) * 1e6), round((T0_S + b_s) * 1e6))


def all_of(folder, records, window=None):
    """Rates, absences and concurrency of all records in a window (default: all)."""
    log = log_of(folder, *records)
    of = figures(log)
    window = window or whole(log, of)
    group = np.zeros(len(log), dtype=np.int64)
    arrived = arrivals(log, of, [window], group)[0]
    numbers, absent = rates(log, of, window, arrived, np.array([0]))
    return numbers, absent, concurrency(log, of, window)


def test_tokens_count_where_they_arrived(tmp_path):
    # Tokens at 1.0, 1.1, … 1.9 s and 2.0, … 2.9 s after T0; the window takes those of 1.45 … 2.45 s.
    records = [stream(0, 0.0, ttft_ms=1000, itl_ms=100, tokens=10), stream(1, 1.0, ttft_ms=1000, itl_ms=100, tokens=10)]
    numbers, absent, _ = all_of(tmp_path, records, between(1.45, 2.45))
    assert numbers["system_output_tps"] == pytest.approx(10)
    assert absent == {"error_rate": "no exchange that started in the window finished"}


def test_an_event_of_unknown_size_brings_its_share_of_the_exchange(tmp_path):
    # 4 events of 40 tokens; three of them arrive inside.
    r = stream(0, 0.0, ttft_ms=1000, itl_ms=500, tokens=4, n_out=40)
    numbers, _, _ = all_of(tmp_path, [r, stream(1, 0.9)], between(0.9, 2.1))
    assert numbers["system_output_tps"] == pytest.approx((30 + 5) / 1.2)


def test_an_event_of_known_size_brings_what_it_carried(tmp_path):
    r = stream(0, 0.0, ttft_ms=1000, itl_ms=500, tokens=3, n_out=10, event_tokens=[0, 7, 2, 1, 0, 0, 0])
    numbers, _, _ = all_of(tmp_path, [r], between(1.2, 2.2))
    assert numbers["system_output_tps"] == pytest.approx(3)


def test_hidden_reasoning_arrives_with_the_first_token_and_is_shown_apart(tmp_path):
    r = stream(0, 0.0, ttft_ms=1000, itl_ms=500, tokens=3, n_out=103, n_reasoning=100)
    numbers, _, _ = all_of(tmp_path, [r], between(0.5, 1.2))
    assert numbers["system_output_tps"] == pytest.approx(101 / 0.7)
    assert numbers["hidden_reasoning_tps"] == pytest.approx(100 / 0.7)
    later, _, _ = all_of(tmp_path, [r], between(1.2, 2.2))
    assert later["system_output_tps"] == pytest.approx(2)
    assert "hidden_reasoning_tps" not in later


def test_an_answer_of_hidden_reasoning_alone_arrives_at_its_end(tmp_path):
    r = record(0, 0.0, [(1500, "finish")], end_ms=1600, n_out=64, n_reasoning=64, out_source="usage")
    assert all_of(tmp_path, [r], between(1, 2))[0]["system_output_tps"] == pytest.approx(64)
    assert all_of(tmp_path, [r], between(0, 1))[0]["system_output_tps"] == 0


def test_an_answer_that_was_not_streamed_arrives_at_its_end(tmp_path):
    r = record(0, 0.0, [(1500, "content")], end_ms=1600, streamed=False, n_out=30, n_reasoning=10, out_source="usage")
    numbers, _, _ = all_of(tmp_path, [r], between(1.55, 2.55))
    assert numbers["system_output_tps"] == pytest.approx(30)
    assert numbers["output_chunks_per_s"] == pytest.approx(1)
    assert "hidden_reasoning_tps" not in numbers


def test_tokens_of_failures_are_a_figure_of_their_own(tmp_path):
    records = [stream(0, 0.0, tokens=10), stream(1, 0.0, tokens=6, outcome="truncated", n_out=None), stream(2, 0.99)]
    numbers, _, _ = all_of(tmp_path, records, between(0, 1))
    assert numbers["system_output_tps"] == pytest.approx(10)
    assert numbers["failed_output_tps"] == pytest.approx(6)
    assert numbers["peak_output_tps"] == pytest.approx(10)


def test_an_earlier_attempt_brings_no_exchange_but_was_in_flight(tmp_path):
    records = [
        stream(0, 0.0, exchange="x", attempt=1, outcome="http_status", tokens=0, end_ms=500, n_in=100),
        stream(1, 0.5, exchange="x", attempt=2, tokens=5, end_ms=500, n_in=100),
    ]
    numbers, _, flight = all_of(tmp_path, records, between(0, 1))
    assert numbers["requests_per_s"] == pytest.approx(1)
    assert numbers["error_rate"] == 0
    assert numbers["system_total_tps"] == pytest.approx(105)
    assert flight["in_flight"]["mean"] == pytest.approx(1)


def test_a_cut_exchange_without_a_count_brings_the_mean_of_the_others_and_that_is_said(tmp_path):
    records = [stream(0, 0.0, tokens=10, n_out=20), stream(1, 0.0, tokens=4, outcome="unfinished", n_out=None)]
    numbers, absent, _ = all_of(tmp_path, records, between(0, 1))
    assert numbers["system_output_tps"] == pytest.approx(20 + 8)
    assert numbers["estimated_output_tps"] == pytest.approx(8)
    assert not absent


def test_without_token_counts_there_are_chunks_per_second_and_a_reason(tmp_path):
    records = [stream(0, 0.0, tokens=10, n_out=None, out_source=None), stream(1, 0.0, tokens=4)]
    numbers, absent, _ = all_of(tmp_path, records, between(0, 1))
    assert {"system_output_tps", "system_total_tps", "peak_output_tps"} <= set(absent)
    assert "unknown for 1 of 2 exchanges" in absent["system_output_tps"]
    assert not set(absent) & set(numbers)
    assert numbers["output_chunks_per_s"] == pytest.approx(14)


def test_input_tokens_count_for_exchanges_that_started_inside(tmp_path):
    records = [
        stream(0, 0.0, tokens=10, n_in=100),
        stream(1, 1.5, tokens=10, n_in=1000),
        stream(2, 0.5, n_in=7, outcome="timeout"),
    ]
    numbers, _, _ = all_of(tmp_path, records, between(0, 1))
    assert numbers["system_total_tps"] == pytest.approx(110)


def test_unknown_input_tokens_leave_the_total_rate_absent(tmp_path):
    numbers, absent, _ = all_of(tmp_path, [stream(0, n_in=None), stream(1)], between(0, 1))
    assert "system_total_tps" not in numbers
    assert "input tokens are unknown for 1 of 2" in absent["system_total_tps"]
    assert numbers["system_output_tps"] == pytest.approx(10)


def test_requests_per_second_are_the_successes_that_ended_inside(tmp_path):
    records = [
        stream(0, 0.0, end_ms=1500), stream(1, 1.5, end_ms=100), stream(2, 1.9, end_ms=900),
        stream(3, 1.2, end_ms=100, outcome="timeout"), stream(4, 1.2, end_ms=100, outcome="cancelled"),
    ]  # fmt: skip
    numbers, _, _ = all_of(tmp_path, records, between(1, 2))
    assert (numbers["requests_per_s"], numbers["requests_per_min"]) == pytest.approx((2, 120))


def test_the_error_rate_is_failures_over_finished(tmp_path):
    outcomes = ["ok", "ok", "ok", "timeout", "cancelled", "unfinished"]
    numbers, _, _ = all_of(tmp_path, [stream(i, outcome=o) for i, o in enumerate(outcomes)])
    assert numbers["error_rate"] == pytest.approx(0.25)


def test_an_outcome_of_a_later_version_is_a_failure_and_stands_among_the_outcomes(tmp_path):
    write_log(tmp_path / "events.jsonl", [stream(i, outcome="ok" if i else "moderated") for i in range(4)])
    total = load_run([tmp_path]).summary["total_all"]
    assert total["rates"]["error_rate"] == pytest.approx(0.25)
    assert {outcome: n for outcome, n in total["outcomes"].items() if n} == {"ok": 3, "moderated": 1}
    assert [e["outcome"] for e in total["errors"]] == ["moderated"]


def test_the_busiest_second_is_one_whole_second_of_the_window(tmp_path):
    # A token each 100 ms in seconds 0 and 2, each 20 ms in second 1; many after 3 s, but that is only half a second.
    def burst(seq, at_s, gap_ms, tokens):
        return stream(seq, at_s, ttft_ms=1.5, itl_ms=gap_ms, tokens=tokens)

    records = [burst(0, 0.0, 100, 10), burst(1, 1.0, 19, 50), burst(2, 2.0, 100, 10), burst(3, 3.0, 1, 300)]
    numbers, _, _ = all_of(tmp_path, records, between(0, 3.5))
    assert numbers["peak_output_tps"] == pytest.approx(50)


def test_a_window_shorter_than_a_second_has_no_busiest_second(tmp_path):
    numbers, absent, _ = all_of(tmp_path, [stream(0)])
    assert "peak_output_tps" not in numbers
    assert "shorter than a second" in absent["peak_output_tps"]


def test_a_window_without_length_has_no_rates(tmp_path):
    numbers, absent, flight = all_of(tmp_path, [record(0, events=[], end_ms=0)])
    assert not numbers
    assert set(absent) == set(ALWAYS)
    assert flight["in_flight"] == {"mean": 0.0, "peak": 0}


def test_concurrency_is_weighted_by_time(tmp_path):
    # In flight 0–4 s and 1–3 s; decoding 1–2 s and 2–3 s: at 2 s one decode ends where the other begins.
    records = [
        record(0, 0.0, [(1000, "content"), (2000, "content")], end_ms=4000),
        record(1, 1.0, [(1000, "content"), (2000, "content")], end_ms=2000),
    ]
    _, _, flight = all_of(tmp_path, records, between(0, 4))
    assert flight == {
        "in_flight": {"mean": pytest.approx(1.5), "peak": 2},
        "decoding": {"mean": pytest.approx(0.5), "peak": 1},
    }
    _, _, flight = all_of(tmp_path, records, between(2, 3))
    assert flight["in_flight"] == {"mean": pytest.approx(2), "peak": 2}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.integers(1, 8), st.floats(0, 900), st.sampled_from([1, 3])),
        min_size=1, max_size=10,
    ),
    st.floats(0, 4), st.floats(0.1, 4), st.integers(1, 9),
)  # fmt: skip
def test_arrivals_agree_with_a_plain_loop_whatever_the_blocks(tmp_path_factory, made, start, length, block):
    records = [stream(i, at, itl_ms=gap, tokens=k, n_out=k * m) for i, (at, k, gap, m) in enumerate(made)]
    window = between(start, start + length)
    log = log_of(tmp_path_factory.mktemp("log"), *records)
    of = figures(log)
    group = np.arange(len(log)) % 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "_BLOCK_EVENTS", block)
        got = arrivals(log, of, [window, Window(ALL, 0, 2**60)], group)
    by_second: dict[tuple[int, int], float] = {}
    for i, (r, (_, k, _, m)) in enumerate(zip(records, made, strict=True)):
        at = [r.start_us + t for t in r.token_times_us()]
        inside = [t for t in at if window.start_us <= t <= window.end_us]
        assert got[0].tokens[i] == pytest.approx(m * len(inside))
        assert got[0].chunks[i] == len(inside)
        assert got[1].tokens[i] == pytest.approx(k * m)
        for t in inside:
            key = (i % 2, (t - window.start_us) // 1_000_000)
            by_second[key] = by_second.get(key, 0) + m
    for groups in ([0], [1], [0, 1]):
        sums: dict[int, float] = {}
        for (g, second), tokens in by_second.items():
            if g in groups and second < int(window.duration_s):
                sums[second] = sums.get(second, 0) + tokens
        busiest = got[0].per_second.busiest(np.array(groups), int(window.duration_s))
        assert busiest == pytest.approx(max(sums.values(), default=0.0))


def test_sums_by_second_are_the_same_when_they_do_not_fit_a_dense_table(tmp_path, monkeypatch):
    records = [stream(i, i * 0.3, tokens=20) for i in range(20)]
    dense = all_of(tmp_path, records)[0]
    monkeypatch.setattr("locust_llm.report.arrivals._DENSE_CELLS", 0)
    assert all_of(tmp_path, records)[0] == dense


def gaps_of(folder, records, group=None):
    log = log_of(folder, *records)
    of = figures(log)
    return count_gaps(log, of, np.zeros(len(log), dtype=np.int64) if group is None else np.array(group))


def test_icl_are_the_raw_gaps_zeros_kept(tmp_path):
    r = record(events=[(10, "content"), (10, "content"), (15, "usage"), (30, "reasoning"), (31, "content")], n_out=4)
    pooled = gaps_of(tmp_path, [r]).icl(np.array([0]))
    assert np.repeat(pooled.values, pooled.counts).tolist() == [0, 0.001, 0.020]


def test_itl_splits_a_gap_on_the_tokens_that_came_with_it(tmp_path):
    r = stream(ttft_ms=50, itl_ms=30, tokens=4, n_out=9, event_tokens=[0, 3, 3, 1, 2, 0, 0, 0])
    pooled = gaps_of(tmp_path, [r]).itl(np.array([0]))
    assert np.repeat(pooled.values, pooled.counts) == pytest.approx([0.010, 0.010, 0.010, 0.015, 0.015, 0.030])


def test_an_event_that_carried_no_token_gives_no_itl_value(tmp_path):
    r = stream(itl_ms=30, tokens=3, n_out=2, event_tokens=[0, 1, 0, 1, 0, 0, 0])
    pooled = gaps_of(tmp_path, [r])
    assert pooled.itl(np.array([0])).size == 1
    assert pooled.icl(np.array([0])).size == 2


def test_gaps_are_pooled_by_group_and_failures_and_left_out_groups_give_none(tmp_path):
    records = [stream(0, itl_ms=10), stream(1, itl_ms=20), stream(2, itl_ms=30),
               stream(3, itl_ms=40, outcome="timeout"), record(4, events=[(5, "content")], n_out=1)]  # fmt: skip
    counts = gaps_of(tmp_path, records, [0, 1, -1, 0, 0])
    assert counts.icl(np.array([0])).values.tolist() == [0.010]
    assert counts.icl(np.array([0, 1])).size == 8
    assert counts.icl(np.array([5])).size == 0


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 10**5), st.integers(1, 3)), min_size=2, max_size=9), min_size=1, max_size=8
    ),
    st.integers(1, 9),
)
def test_counted_gaps_agree_with_a_plain_loop_whatever_the_blocks(tmp_path_factory, made, block):
    records, icl, itl = [], [], []
    for i, pairs in enumerate(made):
        times = np.cumsum([gap for gap, _ in pairs]) / 1000
        tokens = [m for _, m in pairs]
        records.append(record(i, events=[(t, "content") for t in times], n_out=sum(tokens), event_tokens=tokens))
        for gap, m in pairs[1:]:
            icl.append(gap / 1e6)
            itl += [gap / 1e6 / m] * m
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "_BLOCK_EVENTS", block)
        patch.setattr("locust_llm.report.gaps._PENDING_KEYS", block)
        counts = gaps_of(tmp_path_factory.mktemp("log"), records)
    for got, wanted in ((counts.icl(np.array([0])), icl), (counts.itl(np.array([0])), itl)):
        assert np.repeat(got.values, got.counts) == pytest.approx(sorted(wanted), abs=2e-9)
