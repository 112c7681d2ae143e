"""The limits of the verdict: what is read, what is refused and where, what the report and the live snapshot share."""

from __future__ import annotations

import subprocess
import sys

import pytest

from locust_llm.errors import UsageError
from locust_llm.report.client_health import Reads, judge_processes, judge_reads, state
from locust_llm.report.limits import LIMITS, Limits, limits_of_card, read_limits
from locust_llm.settings import settings_from


def test_what_is_not_named_keeps_its_default() -> None:
    limits = read_limits("late_joined_share=2%, lag_p99 = 30ms,cpu=0.8,gc_max=1s")
    assert dict(limits.given) == {"late_joined_share": 0.02, "lag_p99": 30.0, "cpu": 0.8, "gc_max": 1000.0}
    assert limits["error"] == LIMITS["error"].default
    assert read_limits("") == read_limits("  ") == Limits()


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("lag_p99=30ms, lag=3ms", 15, 'unknown limit "lag" (did you mean lag_p99?)'),
        ("lag_p99", 1, "NAME=VALUE"),
        ("lag_p99=", 9, "is no value for lag_p99; such as 30ms"),
        ("lag_p99=fast", 9, '"fast" is no value'),
        ("lag_p99=-3ms", 9, "is no value"),
        ("lag_p99=30", 11, "needs a unit; write 30ms"),
        ("lag_p99=3%", 10, '"%" is no unit of lag_p99; write 30ms'),
        ("cpu=3ms", 6, '"ms" is no unit of cpu; write 2%'),
        ("cpu=200%", 5, "at most 100%"),
        ("cpu=5%, gc_max=3s, cpu=6%", 20, "given twice"),
        (",", 1, "no limit is in it"),
    ],
)
def test_a_limit_that_cannot_be_read_is_refused_with_its_column(text: str, column: int, said: str) -> None:
    with pytest.raises(UsageError) as error:
        settings_from({"llm_limits": text})
    assert str(error.value).startswith(f"--llm-limits, column {column}: ")
    assert said in str(error.value)


def test_the_report_takes_the_runs_limits_unless_others_are_given() -> None:
    card = {"options": {"--llm-limits": "lag_p99=30ms"}}
    assert limits_of_card(card)["lag_p99"] == 30.0
    assert limits_of_card(card, "cpu=50%").given == {"cpu": 0.5}
    assert limits_of_card(card, "").given == {}
    assert limits_of_card({"options": [1]}).given == {}
    with pytest.raises(UsageError, match=r"run.json, --llm-limits, column 1"):
        limits_of_card({"options": {"--llm-limits": "x=1ms"}})
    with pytest.raises(UsageError, match="--limits, column 1"):
        limits_of_card(card, "x=1ms")


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_can_be_set_and_then_judges(name: str) -> None:
    limits = read_limits(f"{name}={'0.5%' if LIMITS[name].unit == 'share' else '3ms'}")
    assert limits[name] == pytest.approx(0.005 if LIMITS[name].unit == "share" else 3.0)
    assert limits.level(name) == "doubtful"
    assert Limits().level(name) == ("doubtful" if LIMITS[name].judges else "note")


def test_what_is_not_known_is_not_judged() -> None:
    assert list(judge_reads(Reads())) == []
    assert list(judge_processes({"w1": {}, "w2": None, "w3": {"cpu": "much"}})) == []


def test_a_live_snapshot_is_judged_by_the_same_limits_from_plain_numbers() -> None:
    limits = read_limits("lag_p99=10ms")
    reasons = [*judge_reads(Reads(lag_p50_ms=2.0, lag_p99_ms=15.0), limits), *judge_processes({"w": {"cpu": 0.95}})]
    assert [(r.code, r.level) for r in reasons] == [("lag", "doubtful"), ("cpu", "note")]
    assert state(reasons) == "doubtful"
    assert state(reasons[1:]) == "sound"


def test_a_worker_that_judges_itself_loads_no_numpy() -> None:
    code = "import sys, locust_llm.report.client_health as c; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
