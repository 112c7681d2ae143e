"""Figures of one exchange against timings known by construction (metrics.md 2)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_logs import log_of, record, stream

from locust_llm.exchange import FAILURES
from locust_llm.report.figures import CONFIRMED, KNOWN, UNKNOWN, figures
from locust_llm.wire.answer import TOKEN_KINDS, VISIBLE_KINDS


def figures_of(folder, *records):
    return figures(log_of(folder, *records))


def values(folder, r):
    """Figures of one record that has them, in ms where they are times."""
    of = figures_of(folder, r)
    times = (
        "ttft",
        "ttfvt",
        "ttst",
        "tpot",
        "e2e_latency",
        "stream_end",
        "schedule_lag",
        "scheduled_ttft",
        "scheduled_latency",
    )
    return {k: float(v[0]) * (1e3 if k in times else 1) for k, v in of.values.items() if not np.isnan(v[0])}


def test_an_even_stream_has_the_figures_it_was_made_with(tmp_path):
    assert values(tmp_path, stream(ttft_ms=50, itl_ms=10, tokens=5, n_in=100)) == pytest.approx({
        "ttft": 50, "ttfvt": 50, "ttst": 60, "tpot": 10, "e2e_latency": 90, "stream_end": 93,
        "output_tps_per_user": 5 / 0.090, "decode_tps_per_user": 100, "prefill_tps": 100 / 0.050,
        "output_tokens": 5, "input_tokens": 100,
    })  # fmt: skip


def test_role_empty_finish_usage_and_done_are_no_tokens(tmp_path):
    r = record(
        events=[(5, "role"), (6, "empty"), (20, "content"), (30, "other"), (40, "content"), (70, "finish"),
                (80, "usage")],
        end_ms=90, n_out=2, out_source="usage",
    )  # fmt: skip
    got = values(tmp_path, r)
    assert (got["ttft"], got["e2e_latency"], got["tpot"], got["stream_end"]) == pytest.approx((20, 40, 20, 90))


def test_reasoning_is_a_token_but_not_a_visible_one(tmp_path):
    r = record(
        events=[(20, "reasoning"), (30, "reasoning"), (45, "content")], n_out=3, n_reasoning=2, out_source="usage"
    )
    got = values(tmp_path, r)
    assert (got["ttft"], got["ttfvt"], got["ttst"], got["tpot"]) == pytest.approx((20, 45, 30, 12.5))


def test_a_tool_call_is_visible_and_a_refusal_is_not(tmp_path):
    tool = values(tmp_path, record(events=[(20, "tool"), (30, "tool")], n_out=2, out_source="usage"))
    assert (tool["ttft"], tool["ttfvt"], tool["tpot"]) == pytest.approx((20, 20, 10))
    refusal = values(tmp_path, record(events=[(20, "refusal"), (30, "refusal")], n_out=2, out_source="usage"))
    assert refusal["ttft"] == pytest.approx(20)
    assert "ttfvt" not in refusal


def test_hidden_reasoning_does_not_shorten_tpot(tmp_path):
    # 100 tokens of reasoning were paid for and never streamed: 5 tokens came in 40 ms.
    r = stream(ttft_ms=500, itl_ms=10, tokens=5, n_out=105, n_reasoning=100)
    of = figures_of(tmp_path, r)
    assert of.hidden[0] == 100
    assert of.n_stream[0] == 5
    assert of.m_state[0] == CONFIRMED
    assert of.values["tpot"][0] == pytest.approx(0.010)
    assert of.values["output_tps_per_user"][0] == pytest.approx(105 / 0.540)


def test_reasoning_that_was_streamed_is_not_hidden(tmp_path):
    events = [(20, "reasoning"), (30, "reasoning"), (45, "content")]
    of = figures_of(tmp_path, record(events=events, n_out=3, n_reasoning=2, out_source="usage"))
    assert (of.hidden[0], of.n_stream[0]) == (0, 3)


def test_known_tokens_of_the_first_event_are_left_out_of_tpot(tmp_path):
    # 4 + 3 + 3 tokens in three events, 30 ms apart: six tokens after the first event took 60 ms.
    r = stream(ttft_ms=50, itl_ms=30, tokens=3, n_out=10, event_tokens=[0, 4, 3, 3, 0, 0, 0])
    of = figures_of(tmp_path, r)
    assert of.m_state[0] == KNOWN
    assert of.values["tpot"][0] == pytest.approx(0.010)


def test_without_known_tokens_the_first_event_counts_as_one(tmp_path):
    of = figures_of(tmp_path, stream(itl_ms=30, tokens=3, n_out=10))
    assert of.m_state[0] == UNKNOWN
    assert of.values["tpot"][0] == pytest.approx(0.060 / 9)


@pytest.mark.parametrize(
    "r",
    [
        stream(tokens=1),
        stream(tokens=1, n_out=40),  # all tokens in one event: no time between them was seen
        stream(tokens=3, n_out=1),
        stream(tokens=3, n_out=None, out_source=None),
        stream(tokens=2, n_out=5, event_tokens=[0, 5, 0, 0, 0, 0]),  # nothing left after the first event
        stream(tokens=4, n_out=8, out_source="chunks"),
    ],
)
def test_tpot_is_undefined_rather_than_zero(tmp_path, r):
    got = values(tmp_path, r)
    assert "tpot" not in got
    assert "decode_tps_per_user" not in got
    assert got["ttft"] == pytest.approx(50)


def test_unknown_token_counts_leave_times_alone(tmp_path):
    got = values(tmp_path, stream(tokens=5, n_out=None, out_source=None, n_in=None, in_source=None))
    assert set(got) == {"ttft", "ttfvt", "ttst", "e2e_latency", "stream_end"}


def test_chunks_are_never_taken_for_tokens(tmp_path):
    of = figures_of(tmp_path, stream(tokens=5, n_out=5, out_source="chunks"))
    assert np.isnan(of.n[0])
    assert of.m_state[0] == UNKNOWN


def test_an_answer_that_was_not_streamed_has_only_its_end(tmp_path):
    r = record(events=[(300, "content")], end_ms=301, streamed=False, n_out=30, out_source="usage", n_in=10)
    assert values(tmp_path, r) == pytest.approx({
        "e2e_latency": 301, "stream_end": 301, "output_tps_per_user": 30 / 0.301, "output_tokens": 30,
        "input_tokens": 10,
    })  # fmt: skip


@pytest.mark.parametrize("outcome", sorted(FAILURES))
def test_a_failure_gives_no_latency_sample(tmp_path, outcome):
    of = figures_of(tmp_path, stream(tokens=5, outcome=outcome), stream(1))
    assert all(np.isnan(v[0]) for v in of.values.values())
    assert of.failed.tolist() == [True, False]
    assert not of.gives_gaps[0]


@pytest.mark.parametrize("outcome", ["cancelled", "unfinished"])
def test_a_cut_exchange_keeps_its_start_and_gaps_but_has_no_end(tmp_path, outcome):
    r = stream(tokens=5, outcome=outcome, n_out=None, out_source=None)
    of = figures_of(tmp_path, r)
    assert of.cut[0]
    assert of.gives_gaps[0]
    assert not of.failed[0]
    got = values(tmp_path, r)
    assert set(got) == {"ttft", "ttfvt", "ttst", "prefill_tps"}


def test_a_cut_exchange_without_a_token_gives_nothing(tmp_path):
    of = figures_of(tmp_path, stream(tokens=0, outcome="unfinished", n_out=None))
    assert all(np.isnan(v[0]) for v in of.values.values())


def test_scheduled_figures_begin_when_the_exchange_was_due(tmp_path):
    r = stream(at_s=1.0, scheduled_us=1_800_000_000_750_000)
    got = values(tmp_path, r)
    assert (got["schedule_lag"], got["scheduled_ttft"], got["scheduled_latency"]) == pytest.approx((250, 300, 340))


def test_a_failure_still_has_the_lag_of_the_client(tmp_path):
    r = stream(at_s=1.0, scheduled_us=1_800_000_000_750_000, outcome="timeout")
    assert values(tmp_path, r) == pytest.approx({"schedule_lag": 250})


@pytest.mark.parametrize("phase", ["preflight", "warmup"])
def test_preflight_and_warmup_are_outside_all_figures(tmp_path, phase):
    of = figures_of(tmp_path, stream(0, phase=phase), stream(1))
    assert of.measured.tolist() == of.counted.tolist() == [False, True]
    assert all(np.isnan(v[0]) for v in of.values.values())


def test_a_retried_exchange_counts_once_with_its_last_attempt(tmp_path):
    of = figures_of(
        tmp_path,
        stream(0, exchange="a", attempt=1, outcome="http_status"),
        stream(1, exchange="b"),
        stream(2, exchange="a", attempt=3, ttft_ms=70),
        stream(3, exchange="a", attempt=2, outcome="connection"),
        stream(4, exchange="a", attempt=1, run="r2"),
    )
    assert of.counted.tolist() == [False, True, True, False, True]
    assert of.measured.all()
    assert of.values["ttft"][2] == pytest.approx(0.070)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from(["role", "content", "reasoning", "tool", "usage"])), max_size=8
    )
)
def test_figures_agree_with_a_plain_loop_over_the_record(tmp_path_factory, gaps):
    at, with_times = 0.0, []
    for gap, kind in gaps:
        at += gap / 1000
        with_times.append((at, kind))
    r = record(events=with_times, n_out=4, out_source="usage")
    got = figures_of(tmp_path_factory.mktemp("log"), r)
    tokens = [t / 1e3 for t, k in with_times if k in TOKEN_KINDS]
    visible = [t / 1e3 for t, k in with_times if k in VISIBLE_KINDS]

    def one(name):
        value = got.values[name][0]
        return None if np.isnan(value) else pytest.approx(value, abs=1.1e-6)

    assert one("ttft") == (tokens[0] if tokens else None)
    assert one("ttft") == r.ttft  # what the client says while it runs
    assert one("ttfvt") == (visible[0] if visible else None)
    assert one("ttst") == (tokens[1] if len(tokens) > 1 else None)
    assert one("e2e_latency") == (tokens[-1] if tokens else None)
    assert one("tpot") == ((tokens[-1] - tokens[0]) / 3 if len(tokens) > 1 else None)
