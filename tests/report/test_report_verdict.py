"""The verdict: what makes a run doubtful or overloaded, just below and just above each threshold."""

from __future__ import annotations

import orjson
import pytest
from report_logs import T0_S, log_of, record, stream, write_log

from locust_llm.report.summary import report, summarise


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


def test_a_first_token_that_may_be_much_earlier_is_doubted_by_the_size_of_it(tmp_path):
    # One exchange of a hundred may have had its first token 30 ms before its stamp: p99 may be off, p95 is not.
    records = [*streams(98), *(stream(98 + i, 99.0 + i, 80.0, uncertain_reads=[1, 1, 30_000]) for i in range(2))]
    got = summarise(steady_log(tmp_path, *records), card())["verdict"]
    (error,) = got["reasons"]
    assert (got["state"], error["code"], error["level"]) == ("doubtful", "error", "doubtful")
    assert "ttft p99 of 80.0 ms is 50.0 to 80.0" in error["effect"]
    assert error["value"] == pytest.approx(30.0, abs=0.1)
    assert {"ttft", "ttfvt"} <= set(error["figures"])
    assert "e2e_latency" not in error["figures"]
    assert got["bounds"]["ttft"]["p99"] == pytest.approx([50.0, 80.0], abs=0.1)
    assert "p50" not in got["bounds"]["ttft"]


def test_what_is_uncertain_by_less_than_a_reader_cares_for_is_sound(tmp_path):
    got, reasons = judged(tmp_path, streams(100, tokens=150, uncertain_reads=[1, 1, 2_300]))
    assert (got, reasons) == ("sound", {})  # 2.3 of 47.7 ms are less than 5 %
    got, reasons = judged(tmp_path, streams(100, tokens=150, uncertain_reads=[1, 1, 2_500]))
    assert (got, set(reasons)) == ("overloaded", {"error_median"})  # the medians, too


def test_a_median_that_may_be_off_is_graver_than_a_tail(tmp_path):
    records = [stream(i, 1.0 + i, uncertain_reads=[1, 5, 20_000]) for i in range(100)]
    got, reasons = judged(tmp_path, records)
    assert got == "overloaded"
    assert {"ttft", "itl"} <= set(reasons["error_median"]["figures"])


def test_requests_that_left_late_make_ttft_too_long_and_say_so(tmp_path):
    state, reasons = judged(tmp_path, streams(100, sent_us=30_000))
    assert state == "overloaded"
    assert set(reasons) == {"error_median", "send_lag"}
    assert reasons["send_lag"]["level"] == "note"
    assert "30.0 ms" in reasons["send_lag"]["effect"]
    # Connecting is no fault of the client's.
    records = streams(100, reused=False, dns_us=1000, tcp_us=9000, tls_us=20_000, connected_us=30_000, sent_us=30_050)
    assert judged(tmp_path, records) == ("sound", {})


def test_a_log_of_before_the_uncertainty_of_each_read_is_taken_at_its_worst(tmp_path):
    records = streams(100, late_joined=1, uncertain_us_max=30_650)
    path = write_log(tmp_path / "events.jsonl", [stream(0, 0.0, tags={"user": "w1-0"}, worker="w0"), *records])
    path.write_bytes(path.read_bytes().replace(b'"uncertain_reads":[],', b""))
    (tmp_path / "run.json").write_bytes(orjson.dumps(card()))
    verdict = report([tmp_path])["verdict"]
    assert verdict["state"] == "overloaded"
    assert verdict["bounds"]["ttft"]["p50"] == pytest.approx([19.35, 50.0])


@pytest.mark.parametrize(("late", "codes"), [(0, set()), (2, set()), (3, {"late_joined"})])
def test_late_joined_events_alone_are_a_note(tmp_path, late, codes):
    records = [stream(i, 1.0 + i, tokens=2, late_joined=int(i < late), uncertain_us_max=1_100) for i in range(100)]
    got, reasons = judged(tmp_path, records)
    assert (got, set(reasons)) == ("sound", codes)
    if codes:
        assert "1.5%" in reasons["late_joined"]["effect"]
        assert "1.1 ms" in reasons["late_joined"]["effect"]
        assert reasons["late_joined"]["value"] == pytest.approx(0.015)
        assert reasons["late_joined"]["limit"] == 0.01


def test_a_client_that_reads_late_lowers_the_load_and_is_doubted_for_it(tmp_path):
    few = [stream(i, 1.0 + i, lag_us_max=25_000 if i < 2 else 200) for i in range(100)]
    state, reasons = judged(tmp_path, few)
    assert (state, set(reasons)) == ("sound", {"lag"})  # a note: kernel stamps do not suffer
    assert reasons["lag"]["level"] == "note"
    state, reasons = judged(tmp_path, streams(100, lag_us_max=60_000))  # one user, one exchange a second
    assert (state, set(reasons)) == ("doubtful", {"lag", "lost_load"})
    assert "system_output_tps" in reasons["lost_load"]["figures"]
    assert "ttft" not in reasons["lost_load"]["figures"]
    waiting = streams(100, lag_us_max=60_000, scheduled_us=T0_S * 1_000_000)
    assert "lost_load" not in judged(tmp_path, waiting)[1]  # open loop: the schedule does not wait


def test_a_limit_that_the_user_sets_on_a_cause_is_meant(tmp_path):
    given = {"options": {"--llm-limits": "lag_p99=10ms"}}
    state, reasons = judged(tmp_path, streams(100, lag_us_max=15_000), **given)
    assert (state, reasons["lag"]["level"], reasons["lag"]["limit"]) == ("doubtful", "doubtful", 10.0)
    assert judged(tmp_path, streams(100, lag_us_max=9_000), **given) == ("sound", {})


def test_limits_of_the_error_can_be_widened(tmp_path):
    records = streams(100, tokens=150, uncertain_reads=[1, 1, 2_500])
    assert judged(tmp_path, records, options={"--llm-limits": "error=6%"})[0] == "sound"


@pytest.mark.parametrize(
    ("member", "fine", "beyond", "code", "said"),
    [
        ("cpu", 0.9, 0.95, "cpu", "95%"),
        ("loop_away_p99_ms", 20.0, 33.0, "loop_lag", "33 ms"),
        ("loop_away_max_ms", 250.0, 400.0, "standstill", "400 ms"),
        ("gc_max_ms", 50.0, 80.0, "collector_pause", "80 ms"),
        ("gc_ms", 200.0, 300.0, "collector", "3.0%"),
    ],
)
def test_what_a_process_suffered_is_a_note_that_names_it(tmp_path, member, fine, beyond, code, said):
    report_of = {"seconds": 10.0, member: fine}
    assert judged(tmp_path, streams(9), client={"w1": report_of}) == ("sound", {})
    state, reasons = judged(tmp_path, streams(9), client={"w1": report_of, "w2": {"seconds": 10.0, member: beyond}})
    assert (state, set(reasons)) == ("sound", {code})
    assert reasons[code]["level"] == "note"
    assert said in reasons[code]["effect"]
    assert "w2" in reasons[code]["effect"]
    assert reasons[code]["figures"]


def test_time_that_the_host_took_is_doubtful_for_no_other_figure_can_see_it(tmp_path):
    assert judged(tmp_path, streams(9), client={"w1": {"stolen": 0.02}}) == ("sound", {})
    state, reasons = judged(tmp_path, streams(9), client={"w1": {"stolen": 0.05}})
    assert (state, reasons["stolen"]["level"]) == ("doubtful", "doubtful")
    assert "5.0%" in reasons["stolen"]["effect"]


def test_a_master_reads_no_streams_so_only_its_processor_is_judged(tmp_path):
    master = {"master": {"seconds": 10.0, "cpu": 0.95, "loop_away_max_ms": 900.0, "gc_max_ms": 300.0}}
    assert set(judged(tmp_path, streams(9), client=master)[1]) == {"cpu"}


def test_a_full_processor_is_overload_only_where_figures_are_spoilt(tmp_path):
    busy = {"w1": {"seconds": 10.0, "cpu": 0.97}}
    assert judged(tmp_path, streams(100), client=busy)[0] == "sound"
    state, reasons = judged(tmp_path, streams(100, lag_us_max=60_000), client=busy)
    assert state == "overloaded"
    assert reasons["cpu"]["level"] == "overloaded"
    assert "system_output_tps" in reasons["cpu"]["figures"]
    assert "ttft" not in reasons["cpu"]["figures"]


def test_the_gravest_reason_comes_first_and_decides(tmp_path):
    records = [stream(i, 1.0 + i, uncertain_reads=[1, 5, 20_000], stamp="user") for i in range(100)]
    got = summarise(steady_log(tmp_path, *records), card(workers_missing=["w3"]))["verdict"]
    assert got["state"] == "overloaded"
    assert [r["level"] for r in got["reasons"]] == ["overloaded", "doubtful", "note"]


def test_changes_of_the_load_are_told_from_users_that_were_moved(tmp_path):
    def effect(*changes):
        of = card()
        of["events"] += [{"t": T0_S + 1.0, "event": "load_changed"} | change for change in changes]
        return {r["code"]: r for r in summarise(steady_log(tmp_path, *streams(100)), of)["verdict"]["reasons"]}[
            "load_changed"
        ]["effect"]

    moved = {"users": 8, "moved": True}
    assert effect(moved, moved).startswith("users were moved between workers 2 times while it ran: the steady window")
    both = effect({"rate": 40, "rate_before": 20, "stream": ""}, moved)
    assert "changed once while it ran, last to 40 arrivals per second; users were moved between workers once" in both


def test_what_a_lost_worker_held_of_the_requests_asked_for_is_named(tmp_path):
    held = {"w3": {"tickets": 39, "received": 27}, "w1": {"tickets": 50, "received": 50}}
    _, reasons = judged(tmp_path, streams(100), workers_missing=["w3"], worker_details=held)
    assert "Of the exchanges that --llm-requests asks for, 12 were theirs" in reasons["workers_missing"]["effect"]


def test_the_clients_health_stands_in_the_summary(tmp_path):
    processes = {"w1": {"seconds": 10.0, "cpu": 0.5}}
    records = streams(100, lag_us_max=2_000, sent_us=100, late_joined=0, uncertain_us_max=300)
    client = summarise(steady_log(tmp_path, *records), card(client=processes))["client"]
    assert client["processes"] == processes
    assert client["lag_p99_ms"] == 2.0
    assert client["send_lag_p50_ms"] == pytest.approx(0.1)
    assert client["late_joined_share"] == 0.0
    assert client["lost_load"] == pytest.approx(0.002, rel=0.1)


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
