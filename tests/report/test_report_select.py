"""``--where`` and ``--by``: which exchanges, in which windows, and what is said when there are none."""

from __future__ import annotations

import orjson
import pytest
from report_logs import T0_S, record, stream, write_log

from locust_llm.errors import UsageError
from locust_llm.report.breakdown import MOST_GROUPS, breakdown
from locust_llm.report.runs import load_run


def tagged(seq, at_s, user="u0", **tags):
    return stream(seq, at_s, tags={"user": user, **tags})


@pytest.fixture
def folder(tmp_path):
    def make(*records, events=()):
        write_log(tmp_path / "events.jsonl", records)
        if events:
            (tmp_path / "run.json").write_bytes(orjson.dumps({"run": "r1", "events": list(events)}))
        return [tmp_path]

    return make


def ok(summary):
    return summary["total"]["outcomes"]["ok"]


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (["turn=1"], 10), (["turn=1,2"], 20), (["turn!=1"], 20), (["turn="], 10), (["turn=1", "worker=w2"], 5),
        (["name=chat"], 30), (["model=m", "api=openai-chat", "outcome=ok"], 30), (["tag:turn=2"], 10),
    ],
)  # fmt: skip
def test_filters_keep_the_exchanges_they_name(folder, where, left):
    tags = [{}, {"turn": "1"}, {"turn": "2"}]
    records = [stream(i, i * 0.1, tags={"user": "u", **tags[i % 3]}, worker=f"w{1 + (i // 3) % 2}") for i in range(30)]
    run = load_run(folder(*records), where=where)
    assert ok(run.summary) == left
    assert run.summary["where"] == where


def test_stage_is_a_number(folder):
    records = [stream(i, i, stage=i // 5) for i in range(15)]
    assert ok(load_run(folder(*records), where=["stage=2"]).summary) == 5


def test_a_filter_leaves_the_window_that_of_the_whole_run(folder):
    events = [
        {"t": T0_S, "event": "test_start"},
        {"t": T0_S + 1, "event": "ramp_complete"},
        {"t": T0_S + 9, "event": "stop"},
    ]
    records = [stream(i, i * 0.1, worker=f"w{i % 2}") for i in range(100)]
    where = folder(*records, events=events)
    everyone, half = load_run(where).summary, load_run(where, where=["worker=w1"]).summary
    assert half["window"]["start"] == everyone["window"]["start"]
    assert half["window"]["started"] * 2 == pytest.approx(everyone["window"]["started"], abs=1)
    tps = [s["total"]["rates"]["system_output_tps"] for s in (half, everyone)]
    assert tps[0] * 2 == pytest.approx(tps[1], rel=0.1)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (["model=gpt"], "no measured exchange is left; model is m"),
        (["colour=red"], "no record has colour .there are name, model"),
        (["model"], "must be KEY=VALUE"),
        (["=x"], "must be KEY=VALUE"),
    ],
)
def test_a_filter_that_nothing_meets_is_one_line(folder, where, said):
    with pytest.raises(UsageError, match=said) as refused:
        load_run(folder(stream(0), stream(1, 1.0)), where=where)
    assert "\n" not in str(refused.value)


def test_groups_add_up_to_the_total_and_come_in_natural_order(folder):
    records = [tagged(i, i * 0.1, turn=str(i % 12)) for i in range(120)]
    run = load_run(folder(*records))
    found = breakdown(run.analysis, "turn")
    assert [g["value"] for g in found["groups"]] == [str(i) for i in range(12)]
    assert sum(g["outcomes"]["ok"] for g in found["groups"]) == 120
    total = run.summary["total"]
    assert sum(g["rates"]["system_output_tps"] for g in found["groups"]) == pytest.approx(
        total["rates"]["system_output_tps"]
    )
    for g in found["groups"]:
        assert g["metrics"]["itl"]["count"] == 10 * 4
        assert g["metrics"]["ttft"]["p50"] == pytest.approx(50)


def test_exchanges_without_the_key_are_a_group_without_a_value(folder):
    records = [tagged(0, 0.0, turn="1"), stream(1, 0.5), stream(2, 0.7)]
    groups = breakdown(load_run(folder(*records)).analysis, "turn")["groups"]
    assert [(g.get("value"), g["outcomes"]["ok"]) for g in groups] == [("1", 1), (None, 2)]


def test_a_key_that_no_record_has_is_said_not_refused(folder):
    found = breakdown(load_run(folder(stream(0))).analysis, "turn")
    assert found["groups"] == []
    assert "no record has turn; there are name, model, api, worker, " in found["absent"]
    assert "stage" not in found["absent"]
    assert found["absent"].endswith(", run, user")


def test_each_stage_has_a_window_of_its_own(folder):
    first = [stream(i, i * 0.5, stage=0, tokens=10) for i in range(20)]
    second = [stream(20 + i, 10 + i * 0.1, stage=1, tokens=10) for i in range(100)]
    groups = breakdown(load_run(folder(*first, *second)).analysis, "stage")["groups"]
    assert [g["value"] for g in groups] == ["0", "1"]
    assert groups[0]["window"]["end"] <= groups[1]["window"]["start"]
    assert groups[0]["rates"]["system_output_tps"] == pytest.approx(20, rel=0.1)
    assert groups[1]["rates"]["system_output_tps"] == pytest.approx(100, rel=0.1)


def test_a_stage_is_counted_from_the_moment_every_user_has_completed_an_exchange_in_it(folder):
    slow = [stream(0, 0.0, stage=0, ttft_ms=3000, tags={"user": "slow"})]
    quick = [stream(1 + i, i * 0.1, stage=0, tags={"user": "quick"}) for i in range(60)]
    window = breakdown(load_run(folder(*slow, *quick)).analysis, "stage")["groups"][0]["window"]
    assert window["start"] == pytest.approx(T0_S + 3.043, abs=1e-3)


def test_failures_of_a_group_are_its_own(folder):
    bad = [record(50 + i, i * 0.1, end_ms=5, outcome="empty", worker="w2") for i in range(10)]
    groups = breakdown(load_run(folder(*(stream(i, i * 0.1) for i in range(10)), *bad)).analysis, "worker")["groups"]
    assert [g["rates"]["error_rate"] for g in groups] == [0.0, 1.0]
    assert groups[1]["absent"]["ttft"] == "no exchange succeeded"


def test_a_thousand_sessions_are_cut_to_the_largest_groups(folder):
    records = [tagged(i, i * 0.01, session=f"s{i % 150}") for i in range(400)]
    found = breakdown(load_run(folder(*records)).analysis, "session")
    assert len(found["groups"]) == MOST_GROUPS
    assert found["left_out"] == 50
