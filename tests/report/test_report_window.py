"""Windows: which part of a run the figures are of, and why there is no steady one."""

from __future__ import annotations

import pytest
from report_logs import T0_S, log_of, record, stream

from locust_llm.errors import UsageError
from locust_llm.report.figures import figures
from locust_llm.report.window import choose, whole


def card(ramp=2.0, stop=20.0, **members):
    """A run card; times are seconds of the test."""
    marks = [("test_start", 0.0), ("ramp_complete", ramp), ("stop", stop)]
    return {"events": [{"t": T0_S + t, "event": e} for e, t in marks if t is not None]} | members


def user(seq, name, at_s, length_s=1.0, **members):
    return record(
        seq, at_s, [(length_s * 500, "content"), (length_s * 1000, "content")], tags={"user": name}, **members
    )


def two_users():
    """User a from second 0, b from second 2; a's exchanges last one second, b's first one three."""
    return [user(i, "a", float(i)) for i in range(22)] + [user(30, "b", 2.0, 3.0), user(31, "b", 5.0)]


def window_of(folder, records, card, wanted="steady"):
    log = log_of(folder, *records)
    return choose(log, figures(log), card, wanted)


def seconds(window):
    return pytest.approx((window.start_us / 1e6 - T0_S, window.end_us / 1e6 - T0_S))


def test_steady_begins_when_the_last_user_completed_its_first_exchange(tmp_path):
    window = window_of(tmp_path, two_users(), card())
    assert window.kind == "steady"
    assert seconds(window) == (5.0, 20.0)
    assert window.why is None
    assert window.started == 17  # a at 5..20, b at 5
    assert window.duration_s == pytest.approx(15)


def test_steady_begins_with_the_target_load_if_that_comes_later(tmp_path):
    assert seconds(window_of(tmp_path, two_users(), card(ramp=7.5))) == (7.5, 20.0)


def test_a_change_of_load_begins_a_new_steady_part(tmp_path):
    of = card()
    of["events"].append({"t": T0_S + 9.0, "event": "load_changed"})
    assert seconds(window_of(tmp_path, two_users(), of)) == (9.0, 20.0)


def test_a_steady_part_of_less_than_a_second_and_than_an_exchange_is_too_short_to_have_a_rate(tmp_path):
    """Two users, two exchanges each, the last of N started as soon as the first two had ended."""
    of_n = card(ramp=0.1, stop=None, load={"requests": 4})
    records = [user(0, "a", 0.0, 2.0), user(1, "b", 0.0, 2.0), user(2, "a", 2.001, 2.0), user(3, "b", 2.002, 2.0)]
    window = window_of(tmp_path, records, of_n)
    assert (window.kind, window.duration_s) == ("all", pytest.approx(4.002))
    assert window.why == "the steady part of the run, 2 ms, is shorter than an exchange, 2e+03 ms"


def test_a_steady_part_may_be_shorter_than_an_exchange_if_it_lasts_a_second(tmp_path):
    records = [user(0, "a", 0.0, 8.0), user(1, "a", 8.1, 8.0)]
    assert seconds(window_of(tmp_path, records, card(stop=9.5))) == (8.0, 9.5)


def test_a_user_that_came_after_the_stop_does_not_matter(tmp_path):
    late = user(40, "c", 20.5, 4.0)
    assert seconds(window_of(tmp_path, [*two_users(), late], card())) == (5.0, 20.0)


def test_the_first_exchange_of_a_user_counts_in_warmup_and_failed_too(tmp_path):
    records = [
        user(0, "a", 0.0, 6.0, phase="warmup"), user(1, "a", 6.5), user(2, "a", 10.0),
        user(3, "b", 0.0, 7.0, outcome="timeout"), user(4, "b", 8.0),
    ]  # fmt: skip
    assert seconds(window_of(tmp_path, records, card())) == (7.0, 20.0)


def test_the_preflight_is_no_users_first_exchange(tmp_path):
    records = [user(0, "a", 0.0, 9.0, phase="preflight"), user(1, "a", 2.0), user(2, "a", 3.0)]
    assert seconds(window_of(tmp_path, records, card())) == (3.0, 20.0)


def test_a_retried_first_exchange_is_complete_with_its_last_attempt(tmp_path):
    records = [
        user(0, "a", 0.0, 1.0, exchange="x", attempt=1, outcome="http_status"),
        user(1, "a", 1.0, 6.0, exchange="x", attempt=2), user(2, "a", 8.0),
    ]  # fmt: skip
    assert seconds(window_of(tmp_path, records, card())) == (7.0, 20.0)


def test_a_run_of_n_exchanges_is_steady_until_the_last_was_started(tmp_path):
    records = two_users()
    of = card(stop=40.0, load={"requests": len(records)})
    assert seconds(window_of(tmp_path, records, of)) == (5.0, 21.0)
    unfinished = card(stop=40.0, load={"requests": len(records) + 1})  # stopped by hand before all N
    assert seconds(window_of(tmp_path, records, unfinished)) == (5.0, 40.0)


def test_a_killed_run_is_steady_until_its_last_known_start(tmp_path):
    assert seconds(window_of(tmp_path, two_users(), card(stop=None))) == (5.0, 21.0)


@pytest.mark.parametrize(
    ("records", "card", "why"),
    [
        (two_users(), {}, "no run card"),
        (two_users(), card(ramp=None), "target load was never reached"),
        (two_users(), card(ramp=21.0), "told to stop before its target"),
        (two_users(), card(stop=4.0), "before every user had completed its first exchange"),
        ([user(0, "a", 0.0), user(1, "b", 1.0, 9.0, outcome="unfinished")], card(), "not every user completed"),
        ([record(0, 0.0, tags={}), record(1, 5.0, tags={})], card(), "no tag 'user'"),
        ([user(0, "a", 0.0)], card(), "no exchange started in the steady part"),
        ([user(0, "a", 0.0, phase="warmup")], card(), "no exchange was measured"),
        (two_users(), {"events": "torn"}, "target load was never reached"),
        (two_users(), {"events": [3, {"event": "ramp_complete", "t": "noon"}]}, "target load was never reached"),
    ],
)
def test_without_a_steady_window_the_whole_run_stands_in_and_says_why(tmp_path, records, card, why):
    window = window_of(tmp_path, records, card)
    assert window.kind == "all"
    assert window.why is not None
    assert why in window.why


def test_all_is_first_start_to_last_end(tmp_path):
    records = [
        stream(0, 2.0),
        stream(1, 1.0, end_ms=8000),
        stream(2, 0.0, phase="preflight"),
        stream(3, 50.0, phase="warmup"),
    ]
    log = log_of(tmp_path, *records)
    window = whole(log, figures(log))
    assert seconds(window) == (1.0, 9.0)
    assert window.started == 2


def test_exchanges_cut_by_the_end_of_the_run_are_censored(tmp_path):
    records = [*two_users(), user(50, "a", 19.0, outcome="unfinished"), user(51, "a", 19.0, outcome="cancelled"),
               user(52, "b", 4.0, outcome="unfinished")]  # fmt: skip
    window = window_of(tmp_path, records, card())
    assert (window.started, window.censored) == (19, 1)


@pytest.mark.parametrize(
    ("wanted", "bounds"),
    [
        ("3..7", (3, 7)), ("3.5..7.25", (3.5, 7.25)), ("3s..7000ms", (3, 7)), ("..7", (0, 7)), ("4..", (4, 22)),
        ("0.1m..1m", (6, 60)), (" 3 .. 7 ", (3, 7)), ("0..0.001h", (0, 3.6)),
    ],
)  # fmt: skip
def test_a_range_is_in_seconds_after_the_start_of_the_test(tmp_path, wanted, bounds):
    window = window_of(tmp_path, two_users(), card(), wanted)
    assert window.kind == "range"
    assert bounds == seconds(window)


def test_without_a_run_card_a_range_counts_from_the_first_start(tmp_path):
    assert seconds(window_of(tmp_path, [stream(0, 10.0), stream(1, 30.0)], {}, "3..7")) == (13.0, 17.0)


@pytest.mark.parametrize("wanted", ["", "fast", "3", "3-7", "a..b", "-3..7", "7..3", "5..5", "3..7..9", "1e3..2e3"])
def test_a_window_that_is_none_is_a_usage_error_of_one_line(tmp_path, wanted):
    with pytest.raises(UsageError, match="--window") as e:
        window_of(tmp_path, two_users(), card(), wanted)
    assert "\n" not in str(e.value)


def test_a_window_beside_the_run_says_where_the_exchanges_are(tmp_path):
    records = [stream(0, 10.0), stream(1, 30.0)]
    with pytest.raises(UsageError, match=r"900\.\.999: nothing lies between; the exchanges are from 0\.0 to 20\.1 s"):
        window_of(tmp_path, records, {}, "900..999")
