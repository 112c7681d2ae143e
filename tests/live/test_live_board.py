"""The Board adds up what processes report: nothing twice, nothing of another run or epoch; it names what is missing."""

from __future__ import annotations

import contextlib
import random

import pytest
from live_runs import Process, board_at, random_exchange
from report_logs import T0_S, stream

from locust_llm.exchange import ExchangeError
from locust_llm.live.board import MOST_KINDS, MOST_NAMES, OTHER, Board
from locust_llm.live.delta import VERSION, decode, encode
from locust_llm.live.series import MOST_POINTS


def delta_of(process, *records, second=T0_S):
    for record in records:
        process.end(record)
    process.collector.tick(second)
    delta = process.collector.take()
    delta.sent_us = second * 1_000_000
    return delta


def test_a_report_that_comes_twice_counts_once():
    board, process = board_at(), Process("w0")
    delta = delta_of(process, stream(1), stream(2, at_s=1))
    board.merge("node", delta)
    board.merge("node", decode(encode(delta)))
    assert board.total.number("ok") == 2
    assert board.incomplete == []


def test_reports_that_never_came_are_named():
    board, process = board_at(), Process("w0")
    board.merge("node", delta_of(process, stream(1)))
    delta_of(process, stream(2))
    delta_of(process, stream(3))
    board.merge("node", delta_of(process, stream(4)))
    assert board.total.number("ok") == 2
    assert board.incomplete == ["2 reports of worker w0 never came: what it measured then is missing here"]


def test_an_error_of_ours_is_named_where_its_figures_are_missing(monkeypatch):
    board, process = board_at(), Process("w0")
    process.end(stream(1))
    with monkeypatch.context() as broken:
        broken.setattr(process.collector, "_count", lambda record: 1 / 0)
        process.collector._try(T0_S)
    board.merge("node", decode(encode(delta_of(process, stream(2)))))
    assert board.total.number("ok") == 1
    (line,) = board.incomplete
    assert "worker w0" in line


def test_a_report_of_another_run_or_an_older_epoch_is_dropped():
    board, process = board_at(), Process("w0")
    old = delta_of(process, stream(1))
    board.reset()
    board.merge("node", old)
    assert board.total.number("ok") == 0
    other = Board("r2", now=lambda: T0_S)
    other.merge("node", old)
    assert other.processes == {}


@pytest.mark.parametrize("seed", range(30))
def test_garbage_raises_one_kind_of_error(seed):
    rng = random.Random(seed)
    whole = encode(delta_of(Process("w0"), *(random_exchange(rng, i, "w0") for i in range(5))))
    cut = bytearray(whole[: rng.randrange(len(whole))]) if rng.random() < 0.5 else bytearray(whole)
    for _ in range(rng.randrange(1, 8)):
        if cut:
            cut[rng.randrange(len(cut))] = rng.randrange(256)
    for data in (
        bytes(cut),
        bytes(rng.randrange(256) for _ in range(50)),
        b"LLM" + bytes([VERSION]) + b"[1,2]",
        "text",
        7,
    ):
        with contextlib.suppress(ValueError):  # a flipped digit is a number still
            decode(data)


def test_a_report_of_another_version_says_so():
    data = bytearray(encode(delta_of(Process("w0"), stream(1))))
    data[3] = VERSION + 1
    with pytest.raises(ValueError, match="another version"):
        decode(bytes(data))


def test_a_worker_whose_clock_is_an_hour_off_stands_where_it_belongs():
    board, process = board_at(), Process("w0")
    delta = delta_of(process, stream(1, at_s=3600.2))
    delta.sent_us += 3_600_000_000
    board.merge("node", delta)
    assert [i for i, point in board.series.points(T0_S + 99) if point.tally.number("tokens")] == [0]
    assert board.total.first_us == pytest.approx((T0_S + 0.2) * 1e6)


def test_a_process_that_is_gone_has_nothing_in_flight():
    board, process = board_at(), Process("w0")
    delta = delta_of(process, stream(1))
    delta.gauges.in_flight = delta.gauges.users = 5
    board.merge("node", delta)
    assert board.parts(0)["head"]["users"] == 5
    board.lost("node")
    assert board.parts(0)["head"]["users"] == board.parts(0)["head"]["in_flight"] == 0


def test_a_process_that_comes_back_brings_what_was_missing_and_is_not_named_any_more():
    board, process = board_at(), Process("w0")
    board.merge("node", delta_of(process, stream(1)))
    board.lost("node", "w0 was lost")
    assert board.incomplete == ["w0 was lost"]
    board.merge("node", delta_of(process, stream(2)))
    assert board.incomplete == []
    assert board.total.number("ok") == 2


def test_only_points_that_changed_are_told_again():
    board, process = board_at(T0_S + 1000), Process("w0")
    board.series.started = T0_S
    for second in range(100):
        board.merge("node", delta_of(process, stream(second, at_s=second), second=T0_S + 1000))
    assert len([p for p in board.parts(0)["series"]["points"] if p["output_chunks_per_s"]]) == 100
    version = board.version
    board.merge("node", delta_of(process, stream(200, at_s=7), second=T0_S + 1000))
    assert old(board.parts(version)) == [7]
    assert old(board.parts(board.version)) == []


def old(parts):
    """Return which points are told, but for those that may just have been completed."""
    return [point["i"] for point in parts["series"]["points"] if point["i"] < 900]


def test_the_board_does_not_grow_with_the_run():
    """So many exchanges over ten hours, with ever new names and errors."""
    number = 20_000
    clock = [float(T0_S)]
    board, process = Board("r1", now=lambda: clock[0]), Process("w0", goal="")
    sizes = []
    for part in range(50):
        for seq in range(part * number // 50, (part + 1) * number // 50):
            more = {"outcome": "timeout", "error": ExchangeError(f"kind {seq}", "x" * 300)} if seq % 50 == 0 else {}
            more["name"] = f"name {seq // 20}"
            process.end(stream(seq, at_s=seq * 36_000 / number, ttft_ms=50 + seq % 97, tokens=3, **more))
        clock[0] = T0_S + (part + 1) * 720
        board.merge("node", delta_of(process, second=int(clock[0])))
        sizes.append(cells(board))
    parts = board.parts(0)
    assert len(parts["names"]) == MOST_NAMES + 1
    assert sum(row["counts"]["exchanges"] for row in parts["names"]) == number
    others = [row["counts"]["exchanges"] for row in parts["names"] if row["name"] == OTHER]
    assert others == [number - 20 * MOST_NAMES]
    assert len(parts["errors"]) == MOST_KINDS + 1
    assert sum(error["count"] for error in parts["errors"]) == number // 50
    assert all(len(error["example"]) <= 200 for error in parts["errors"])
    series = parts["series"]
    assert MOST_POINTS / 2 <= len(series["points"]) <= MOST_POINTS
    assert (series["step_s"], series["layout"]) == (32, 5)
    assert max(sizes) < 250_000


def cells(board):
    """Return how many numbers a Board holds."""
    tallies = [board.total, *board.names.values(), *board.models.values()]
    tallies += [point.tally for _, point in board.series.points(T0_S + 1_000_000)]
    return sum(len(t.numbers) + sum(len(h.counts) for h in t.histograms.values()) for t in tallies)


def test_after_a_reset_a_stream_counts_when_it_ends_and_its_tokens_from_then_on():
    board, process = board_at(T0_S + 20), Process("w0")
    board.series.started = T0_S
    record = stream(1, at_s=0.5, ttft_ms=500, itl_ms=1000, tokens=10)
    process.receive(record, (T0_S + 5) * 1_000_000)
    process.collector.tick(T0_S + 5)
    before = decode(encode(process.collector.take()))
    before.sent_us = (T0_S + 20) * 1_000_000
    assert before.rows[("chat", "openai-chat", "m")].number("chunks") == 5

    board.reset()
    board.series.started = T0_S
    process.collector.reset(board.epoch)
    process.collector._spread.since_us = process.collector._since_us = (T0_S + 5) * 1_000_000 + 1
    board.merge("node", before)
    process.receive(record, (T0_S + 8) * 1_000_000)
    process.collector.tick(T0_S + 8)
    process.end(record)
    board.merge("node", delta_of(process, second=T0_S + 20))
    total = board.parts(0)["total"]
    assert total["counts"] == {"exchanges": 1, "ok": 1}
    assert total["tokens"]["output"] == 10
    assert total["ttft"]["max"] == pytest.approx(500)
    assert total["itl"]["count"] == 9
    assert board.total.number("tokens") == 5
    assert board.total.first_us == (T0_S + 5) * 1e6 + 1


def test_the_rates_of_the_head_do_not_count_the_time_before_the_first_exchange():
    clock = [float(T0_S)]
    board, process = Board("r1", now=lambda: clock[0]), Process("w0")
    clock[0] = T0_S + 7.0  # first contact, a warm-up: four seconds
    for at_s in (4, 5):
        delta = delta_of(process, stream(at_s, at_s=at_s, tokens=10, itl_ms=10))
        delta.gauges.second = T0_S + at_s  # the last that is reported as a whole
        board.merge("node", delta)
    assert board.parts(0)["head"]["output_chunks_per_s"] == pytest.approx(10)


def test_the_head_of_a_run_that_was_reset_does_not_speak_of_the_whole_run():
    board, process = board_at(), Process("w0")
    board.merge("node", delta_of(process, stream(1)))
    board.ended = True
    assert board.parts(0)["head"]["of"] == "whole run"
    board.reset()
    assert board.parts(0)["head"]["of"] == "run since its reset"


def test_a_reset_or_a_new_layout_while_a_reader_rests_disturbs_nobody():
    board, process = board_at(T0_S + 5000), Process("w0")
    board.series.started = T0_S
    for second in range(50):
        board.merge("node", delta_of(process, stream(second, at_s=second, name=f"name {second}"), second=T0_S + 5000))
    turns = iter([lambda: board.series._double(board.version), board.reset])

    def rest():
        if (turn := next(turns, None)) is not None:
            turn()

    parts = board.parts(0, rest)
    assert len(parts["names"]) == 50
    assert (parts["series"]["step_s"], parts["series"]["points"]) == (1, [])
    assert board.parts(0)["names"] == []


def test_a_process_that_connects_anew_goes_on():
    board, process = board_at(), Process("w0")
    board.merge("node", delta_of(process, stream(1)))
    board.merge("the same", delta_of(process, stream(2)))
    assert list(board.processes) == ["the same"]
    assert board.total.number("ok") == 2
    assert board.incomplete == []
