"""What the live statistics say in the end is what the report says of the same exchanges: counts exactly, percentiles
within 1 %, however often streams were looked at while they were open, and over however many processes."""

from __future__ import annotations

import random
from collections import Counter
from itertools import accumulate

import pytest
from live_runs import Process, assert_row_is, board_at, random_exchange, summary_of_records
from report_logs import T0_S

from locust_llm.exchange import FAILURES
from locust_llm.wire.answer import TOKEN_KINDS


def played(seed, processes=1, number=60):
    """Return a Board that has seen random exchanges, and them."""
    rng = random.Random(seed)
    board, records = board_at(), []
    for i in range(processes):
        own = [random_exchange(rng, seq, f"w{i}") for seq in range(number)]
        Process(f"w{i}").play(own, board, [rng.uniform(0, 30) for _ in range(6)])
        records += own
    board.ended = True
    return board, records


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_rows_are_those_of_the_summary(tmp_path, processes):
    for seed in range(6):
        board, records = played(seed, processes)
        summary, parts = summary_of_records(tmp_path / str(seed), records), board.parts(0)
        assert_row_is(parts["total"], summary["total_all"])
        assert len(parts["names"]) == len(summary["names"]) == 2
        for row, scope in zip(parts["names"], summary["names"], strict=True):
            assert (row["name"], row["api"], row["model"]) == (scope["name"], scope["api"], scope["model"])
            assert_row_is(row, scope)


def test_goodput_counts_the_same_exchanges_as_good(tmp_path):
    from locust_llm.live import judge

    board, records = played(7, 2)
    summary = summary_of_records(tmp_path, records)["total_all"]
    told = judge.goodput(board.total, Process("x").run.settings.goal, board.seconds())
    assert told["goodput"] == pytest.approx(summary["rates"]["goodput"])
    assert told["goodput_per_s"] == pytest.approx(summary["rates"]["goodput_per_s"])
    assert {k: told[k] for k in ("limits", "good", "of", "failed", "missed")} == summary["goodput"]


def test_tokens_stand_in_the_second_in_which_they_came():
    board, records = played(3, 2)
    ratio = board.total.number("ratio_tokens") / board.total.number("ratio_events")
    true = Counter()
    for record in records:
        if record.outcome in FAILURES:
            continue
        for second, tokens in arrivals(record, ratio):
            true[second] += tokens
    seen = {p["i"] + T0_S: p["output_chunks_per_s"] for p in board.parts(0)["series"]["points"]}
    tallies = {i + T0_S: point.tally for i, point in board.series.points(T0_S + 100)}
    assert seen
    for second, tally in tallies.items():
        tokens = tally.number("tokens") + ratio * tally.number("chunks_unknown")
        assert tokens == pytest.approx(true[second], abs=1e-6), second
    assert sum(true.values()) > 1000


def arrivals(record, ratio):
    """Yield second and tokens of each arrival, straight from the rules of metrics.md 4."""
    at = list(accumulate(record.event_gaps_us))
    kinds = record.kinds()
    places = [i for i, kind in enumerate(kinds) if kind in TOKEN_KINDS]
    n, end = record.n_out, record.start_us + record.end_us
    if not record.streamed:
        yield end // 1_000_000, n or 0
        return
    hidden = 0 if "reasoning" in kinds else record.n_reasoning or 0
    if hidden:
        yield ((record.start_us + at[places[0]]) if places else end) // 1_000_000, hidden
    for i in places:
        if record.event_tokens:
            tokens = record.event_tokens[i]
        else:
            tokens = ratio if n is None else max(n - hidden, 0) / len(places)
        yield (record.start_us + at[i]) // 1_000_000, tokens


def test_an_open_stream_counts_before_its_record_is_there():
    process, rng = Process("w0"), random.Random(1)
    record = next(
        r for r in (random_exchange(rng, i, "w0") for i in range(1000))
        if r.outcome == "ok" and r.event_tokens is None and r.n_out == 60 and r.end_us > 1_500_000
    )  # fmt: skip
    now_us = record.start_us + record.end_us * 2 // 3
    board = board_at(now_us / 1e6)
    process.receive(record, now_us)
    process.collector.tick(now_us // 1_000_000 + 1)
    process.report(board, now_us / 1e6)
    row = board.parts(0)["total"]
    assert row["counts"]["exchanges"] == 0
    assert row["ttft"]["count"] == 1
    assert 10 < row["itl"]["count"] < 59
    assert row["output_chunks_per_s"] > 0
    assert board.processes["w0"].gauges.in_flight == board.processes["w0"].gauges.decoding == 1


def test_a_stream_that_fails_takes_back_all_it_had_given(tmp_path):
    board, records = played(11, 1)
    failed = [r for r in records if r.outcome in FAILURES]
    assert failed
    assert (
        board.total.histograms["ttft"].n
        == summary_of_records(tmp_path, records)["total_all"]["metrics"]["ttft"]["count"]
    )
    for tally in [board.total, *(p.tally for _, p in board.series.points(T0_S + 100))]:
        assert all(count > 0 for h in tally.histograms.values() for count in h.counts.values())
