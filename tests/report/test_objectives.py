"""The grammar of objectives: what is understood, and that what is not is pointed at."""

from __future__ import annotations

import pytest

from locust_llm.errors import UsageError
from locust_llm.report.metrics import METRICS, RATES
from locust_llm.report.objectives import (
    WINDOW,
    Limit,
    Objective,
    goal_of_card,
    parse_goal,
    parse_limits,
    parse_objectives,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ttft:p95<=500ms", Objective(None, "ttft", "p95", "<=", 500)),
        ("ttft : P95 <= 0.5 s", Objective(None, "ttft", "p95", "<=", 500)),
        ("e2e:p90<8s", Objective(None, "e2e_latency", "p90", "<=", 8000)),
        ("e2el:mean≤8s", Objective(None, "e2e_latency", "mean", "<=", 8000)),
        ("request_latency:p99.9<=1m", Objective(None, "e2e_latency", "p999", "<=", 60_000)),
        ("ttfot:median<=200ms", Objective(None, "ttfvt", "p50", "<=", 200)),
        ("ttfo:p50<=200ms", Objective(None, "ttfvt", "p50", "<=", 200)),
        ("itl:p99<=50ms", Objective(None, "itl", "p99", "<=", 50)),
        ("error_rate<=1%", Objective(None, "error_rate", None, "<=", 0.01)),
        ("system_output_tps>=2000", Objective(None, "system_output_tps", None, ">=", 2000)),
        ("requests_per_s>=3.5 req/s", Objective(None, "requests_per_s", None, ">=", 3.5)),
        ("output_tps_per_user:p5>=20 tokens/s", Objective(None, "output_tps_per_user", "p5", ">=", 20)),
        ("chat.ttft:p95<=1s", Objective("chat", "ttft", "p95", "<=", 1000)),
        ("gpt-4.1.ttft:p99.9<=1s", Objective("gpt-4.1", "ttft", "p999", "<=", 1000)),
        ("a:b.error_rate<=1%", Objective("a:b", "error_rate", None, "<=", 0.01)),
        ('"turn 1, long".ttft:p95<=1s', Objective("turn 1, long", "ttft", "p95", "<=", 1000)),
    ],
)  # fmt: skip
def test_an_objective_is_understood_and_written_back_alike(text, expected):
    assert parse_objectives(text) == (expected,)
    assert parse_objectives(str(expected)) == (expected,)


def test_many_objectives_stand_between_commas():
    text = "ttft:p95<=500ms, itl:p99<=50ms, e2e:p90<=8s, error_rate<=1%, goodput>=99%, system_output_tps>=2000"
    goal = parse_goal(text, "ttft<=500ms tpot<=50ms")
    assert [o.metric for o in goal.objectives] == [
        "ttft", "itl", "e2e_latency", "error_rate", "goodput", "system_output_tps",
    ]  # fmt: skip
    assert parse_goal("", "").objectives == ()


def test_names_are_the_keys_of_the_summary():
    assert set(WINDOW) <= set(RATES)
    for name, metric in METRICS.items():
        limit = "1s" if metric.unit == "ms" else "1"
        sign = ">=" if metric.better == "more" else "<="
        assert parse_objectives(f"{name}:p50{sign}{limit}")[0].metric == name


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("ttft:p95<=500ms, tttft:p95<=1s", 18, 'unknown figure "tttft" (did you mean ttft?); known: ttft, ttfvt'),
        ("ttft:p95<=500", 14, "needs a unit; write 500ms or 8s"),
        ("ttft:p95<=500h", 14, '"h" is no unit of ttft'),
        ("error_rate<=1", 14, "needs a unit; write 1%"),
        ("error_rate<=0%", 13, "no number of requests can show"),
        ("goodput>=100%", 10, "leave room, such as goodput>=99.9%"),
        ("ttft<=500ms", 1, "needs a statistic, such as ttft:p95"),
        ("ttft:p96<=500ms", 6, 'no statistic "p96"'),
        ("ttft:max<=5s", 6, "the ends of a sample say little"),
        ("error_rate:p95<=1%", 12, "one figure of the run"),
        ("ttft:p95>=5ms", 9, "less is better, so its limit is <="),
        ("system_output_tps<=5", 18, "more is better, so its limit is >="),
        ("ttft:p95=5ms", 9, "a limit is <= or >="),
        ("ttft:p95", 1, "has no limit"),
        ("<=5ms", 1, "a figure is missing"),
        ("ttft:p95<=fast", 11, '"fast" is no limit'),
        ("ttft:p95<=-3ms", 11, '"-3ms" is no limit'),
        (",", 1, "no objective is in it"),
    ],
)
def test_what_cannot_be_understood_is_pointed_at(text, column, said):
    with pytest.raises(UsageError) as e:
        parse_goal(text, "ttft:500")
    assert f"--llm-slo, column {column}: " in str(e.value)
    assert said in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    "text",
    ["ttft<=500ms tpot<=50ms e2e<=8s", "ttft <= 500ms, tpot <= 50ms, e2el<=8s", "ttft:500 tpot:50 e2el:8000"],
)
def test_limits_are_read_as_ours_and_as_vllms(text):
    assert parse_limits(text) == (
        Limit("ttft", "<=", 500), Limit("tpot", "<=", 50), Limit("e2e_latency", "<=", 8000),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ttft<=1s itl<=50ms", "column 10: a request has no single itl, but many; take tpot"),
        ("itl:50", "itl_mean or itl_max"),
        ("icl<=50ms", "no single icl"),
        ("ttft:p95<=1s", "without a statistic"),
        ("output_tps_per_user:20", "is no time"),
        ("speed<=3s", 'unknown figure "speed"'),
        ("ttft<=1s ttft:500", "ttft has two limits"),
        ("ttft", "has no limit"),
    ],
)
def test_a_limit_that_no_request_can_have_is_refused(text, said):
    with pytest.raises(UsageError, match="--llm-goodput") as e:
        parse_limits(text)
    assert said in str(e.value)


def test_an_objective_on_goodput_needs_limits():
    with pytest.raises(UsageError, match="needs the limits of a good request"):
        parse_goal("goodput>=99%", "")


def test_the_report_takes_what_is_given_else_what_the_run_card_keeps():
    card = {"options": {"--llm-slo": "ttft:p95<=1s", "--llm-goodput": "ttft:500", "--llm-exit-undecided": 0}}
    kept = goal_of_card(card, None, None, None)
    assert ([str(o) for o in kept.objectives], kept.exit_undecided) == (["ttft:p95<=1s"], 0)
    given = goal_of_card(card, "error_rate<=1%", None, 7)
    assert ([str(o) for o in given.objectives], len(given.goodput), given.exit_undecided) == (["error_rate<=1%"], 1, 7)
    assert goal_of_card({}, None, None, None).objectives == ()
    assert goal_of_card(card, "", "", None).objectives == ()
    with pytest.raises(UsageError, match=r"^--slo, column 1"):
        goal_of_card(card, "foo:p95<=1s", None, None)
    with pytest.raises(UsageError, match=r"^run.json, --llm-slo, column 1"):
        goal_of_card({"options": {"--llm-slo": "foo<=1s"}}, None, None, None)
