"""The verdict: what makes a run doubtful or overloaded, just below and just above each threshold."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from report_logs import T0_S, log_of, record, stream, write_log

from locust_llm.report.summary import report, summarise
from locust_llm.report.verdict import LIMITS


def card(ramp=0.0, stop=1e6, **members):
    return {"events": [{"t": T0_S + ramp, "event": "ramp_complete"}, {"t": T0_S + stop, "event": "stop"}]} | members


def steady_log(folder, *records):
    """A log whose first exchange is over at once, so that the rest lies in a steady window from second 1 on."""
    first = record(0, 0.0, [(1000, "content"), (1000, "content")], n_out=2, out_source="usage", worker="w0")
    return log_of(folder, first, *records)


def judged(folder, records, /, **members):
    got = summarise(steady_log(folder, *records), card(**members))
    assert got["window"]["kind"] == "steady"
    return got["verdict"]["state"], {r["code"]: r for r in got["verdict"]["reasons"]}


def streams(n, **members):
    return [stream(i, 1.0 + i, **members) for i in range(n)]


def test_an_undisturbed_run_is_sound(tmp_path):
    assert judged(tmp_path, streams(100)) == ("sound", {})


def test_no_steady_window_is_doubtful_unless_another_was_asked_for(tmp_path):
    log = log_of(tmp_path, *streams(3))
    reasons = summarise(log, {})["verdict"]["reasons"]
    assert [(r["code"], r["level"]) for r in reasons] == [("no_steady_window", "doubtful")]
    assert "system_output_tps" in reasons[0]["figures"]
    assert summarise(log, {}, "all")["verdict"] == {"state": "sound", "reasons": []}
    assert summarise(log, {}, "0..9")["verdict"] == {"state": "sound", "reasons": []}


@pytest.mark.parametrize(("cut", "state"), [(1, "sound"), (2, "doubtful")])
def test_more_than_one_percent_censored_is_doubtful(tmp_path, cut, state):
    records = [*streams(100 - cut), *(stream(100 - cut + i, 50.0, outcome="unfinished") for i in range(cut))]
    got, reasons = judged(tmp_path, records)
    assert got == state
    assert ("censored" in reasons) == (state == "doubtful")


@pytest.mark.parametrize(("cached", "state"), [(35, "sound"), (36, "doubtful")])
def test_more_than_one_percent_of_cached_input_beyond_the_template_is_doubtful(tmp_path, cached, state):
    targets = {"http://h/v1 openai-chat": {"overhead": 30.0}}
    got, reasons = judged(tmp_path, streams(10, asked_in=100, n_in=100, n_cached=cached), targets=targets)
    assert got == state
    assert ("cached_input" in reasons) == (state == "doubtful")


def test_prompts_of_the_users_own_may_be_cached(tmp_path):
    assert judged(tmp_path, streams(10, asked_in=None, n_in=100, n_cached=90)) == ("sound", {})


def test_later_turns_of_a_conversation_are_meant_to_be_cached(tmp_path):
    first = streams(10, asked_in=100, n_in=100, n_cached=0, tags={"user": "u", "turn": "1"})
    later = [
        stream(10 + i, 20.0 + i, asked_in=100, n_in=100, n_cached=90, tags={"user": "u", "turn": "2"})
        for i in range(10)
    ]
    assert judged(tmp_path, first + later) == ("sound", {})


@pytest.mark.parametrize(("short", "told"), [(1, False), (2, True)])
def test_short_answers_are_a_note_with_a_remedy(tmp_path, short, told):
    records = [stream(i, 1.0 + i, tokens=100, asked_out=100) for i in range(100 - short)]
    records += [stream(100 - short + i, 200.0, tokens=94, asked_out=100) for i in range(short)]
    state, reasons = judged(tmp_path, records)
    assert state == "sound"
    assert ("short_answers" in reasons) == told
    if told:
        assert "--llm-natural-stop" in reasons["short_answers"]["effect"]
        assert reasons["short_answers"]["level"] == "note"
        _, natural = judged(tmp_path, records, lengths={"natural_stop": True})
        assert "short_answers" not in natural  # short is what was asked for


def test_five_percent_less_than_asked_is_not_short(tmp_path):
    assert "short_answers" not in judged(tmp_path, streams(10, tokens=95, asked_out=100))[1]


@pytest.mark.parametrize(("late", "state"), [(0, "sound"), (2, "doubtful"), (20, "overloaded")])
def test_events_whose_time_is_uncertain_spoil_the_figures(tmp_path, late, state):
    # each has 10 events; ``late`` events of 100 are late-joined
    records = [
        stream(i, 1.0 + i, tokens=6, late_joined=1 if i < late else 0, uncertain_us_max=30_650) for i in range(10)
    ]
    if late == 20:
        records = [replace(r, late_joined=2) for r in records]
    got, reasons = judged(tmp_path, records)
    assert got == state
    if late:
        assert "30.6 ms" in reasons["late_joined"]["effect"] or "30.7 ms" in reasons["late_joined"]["effect"]
        assert "ttft" in reasons["late_joined"]["figures"]


def test_a_client_that_reads_late_is_doubtful_and_one_that_always_does_overloaded(tmp_path):
    limit_us = round(LIMITS["lag_p99_ms"] * 1000)
    quick, slow = {"lag_us_max": 200}, {"lag_us_max": limit_us + 5000}
    assert judged(tmp_path, streams(100, **quick))[0] == "sound"
    some = [stream(i, 1.0 + i, **(slow if i % 10 == 0 else quick)) for i in range(100)]
    state, reasons = judged(tmp_path, some)
    assert (state, set(reasons)) == ("doubtful", {"lag"})
    assert judged(tmp_path, streams(100, **slow))[0] == "overloaded"


def test_user_space_stamps_are_said_without_a_doubt(tmp_path):
    state, reasons = judged(tmp_path, streams(4, stamp="user"))
    assert state == "sound"
    assert "4 of 4 exchanges" in reasons["user_stamps"]["effect"]


def test_a_run_in_which_nothing_succeeded_is_doubtful(tmp_path):
    state, reasons = judged(tmp_path, streams(4, outcome="timeout"))
    assert (state, set(reasons)) == ("doubtful", {"nothing_ok"})


def test_tokens_that_are_mostly_estimated_are_doubtful(tmp_path):
    records = [*streams(10), *(stream(10 + i, 5.0, outcome="cancelled", n_out=None) for i in range(3))]
    state, reasons = judged(tmp_path, records)
    assert (state, set(reasons)) == ("doubtful", {"estimated_tokens"})


def test_a_damaged_log_is_doubtful_with_every_reason(tmp_path):
    good = [stream(i, 1.0 + i) for i in (0, 1, 4)] + [stream(0, 9.0, run="r2")]
    path = write_log(
        tmp_path / "events.jsonl", [record(9, 0.0, [(900, "content")], worker="w9", tags={"user": "w1-0"}), *good]
    )
    path.write_bytes(
        path.read_bytes() + b"garbage\n" + stream(7, 10.0).encode().replace(b'"schema":1', b'"schema":2') + b'{"cut'
    )
    (tmp_path / "run.json").write_bytes(orjson.dumps(card()))
    verdict = report([tmp_path])["verdict"]
    assert verdict["state"] == "doubtful"
    reasons = {r["code"]: r["effect"] for r in verdict["reasons"]}
    assert set(reasons) == {"log_cut", "log_damaged", "records_missing", "newer_schema", "mixed_runs"}
    assert "5 bytes" in reasons["log_cut"]
    assert "events.jsonl:6" in reasons["log_damaged"]
    assert "4 records" in reasons["records_missing"]


@pytest.mark.parametrize(
    ("members", "code", "said", "level"),
    [
        ({"log_errors": ["No space left on device"], "records_lost": 12}, "log_write_failed", "12 records", "doubtful"),
        ({"records": 500}, "records_elsewhere", "500 records, 5 were read", "doubtful"),
        ({"workers_missing": ["w3"]}, "workers_missing", "w3", "doubtful"),
        ({"clock_steps": [[1, 5], [2, -70_000]]}, "clock_step", "70 ms", "doubtful"),
        ({"targets": {"x": {"dropped": ["ignore_eos"]}}}, "fields_dropped", "ignore_eos", "note"),
        ({"simulated": True}, "simulated", "made up", "note"),
    ],
)
def test_what_the_run_card_knows_is_in_the_verdict(tmp_path, members, code, said, level):
    state, reasons = judged(tmp_path, streams(4), **members)
    assert state == ("doubtful" if level == "doubtful" else "sound")
    assert set(reasons) == {code}
    assert said in reasons[code]["effect"]
    assert reasons[code]["level"] == level


def test_a_run_card_of_strange_types_breaks_nothing(tmp_path):
    strange = {"log_errors": 3, "records": "x", "clock_steps": [3, ["a", "b"]], "targets": [1], "lengths": 5, "load": 7}
    assert judged(tmp_path, streams(4), **strange)[0] == "doubtful"
