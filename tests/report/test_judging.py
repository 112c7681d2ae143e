"""Objectives on logs: pass, fail, undecided; failures at the worst end; exit codes; goodput; JUnit and Markdown."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import orjson
import pytest
from report_logs import T0_S, log_of, stream, write_log

from locust_llm.cli import main
from locust_llm.report.objectives import parse_goal
from locust_llm.report.summary import analyse, summary_of

CARD = {"events": [{"t": T0_S, "event": "ramp_complete"}]}


def many(count=600, seed=1, **members):
    """One exchange after the other, TTFT around 50 ms, one token each 10 ms."""
    rng = np.random.default_rng(seed)
    return [stream(i, i * 0.1, round(float(rng.gamma(25, 2)), 3), 10.0, 4, **members) for i in range(count)]


def with_failures(records, every):
    return [
        r if i % every else stream(r.seq, i * 0.1, outcome="timeout", end_ms=40) for i, r in enumerate(records)
    ]  # fmt: skip


def judged(folder, records, slo, goodput="", card=CARD, exit_undecided=4):
    log = log_of(folder, *records)
    summary = summary_of(analyse(log, card, goal=parse_goal(slo, goodput, exit_undecided)))
    return summary["objectives"], summary


@pytest.mark.parametrize(
    ("slo", "state", "code"),
    [
        ("ttft:p95<=200ms", "pass", 0),
        ("ttft:p95<=30ms", "fail", 3),
        ("ttft:mean<=50ms", "undecided", 4),
        ("ttft:mean<=60ms, e2e:p50<=1s, error_rate<=2%, tpot:p50<=11ms, itl:p50<=11ms", "pass", 0),
        ("ttft:p95<=200ms, ttft:p50<=10ms", "fail", 3),
        ("ttft:mean<=50ms, ttft:p50<=10ms", "fail", 3),
        ("requests_per_s>=9, system_output_tps>=30", "pass", 0),
        ("requests_per_s>=11", "fail", 3),
        ("output_tps_per_user:p5>=10", "pass", 0),
        ("output_tps_per_user:p50>=100", "fail", 3),
        ("ttft:p999<=200ms", "undecided", 4),
        ("chat.ttft:p95<=200ms", "pass", 0),
        ("other.ttft:p95<=200ms", "undecided", 4),
        ("schedule_lag:p95<=1s", "undecided", 4),
    ],
)
def test_an_objective_passes_if_the_whole_interval_holds_and_fails_if_none_of_it_does(tmp_path, slo, state, code):
    result, _ = judged(tmp_path, many(), slo)
    assert (result["state"], result["exit_code"]) == (state, code)


def test_the_result_tells_figure_interval_and_room(tmp_path):
    result, summary = judged(tmp_path, many(), "ttft:p95<=100ms, system_output_tps>=80")
    first, second = result["results"]
    metric = summary["total"]["metrics"]["ttft"]
    assert first["value"] == metric["p95"]
    assert tuple(first["ci95"]) == tuple(metric["ci95"]["p95"])
    assert first["margin"] == pytest.approx(100 - metric["p95"])
    assert first["margin_share"] == pytest.approx(1 - metric["p95"] / 100)
    assert second["margin"] == pytest.approx(summary["total"]["rates"]["system_output_tps"] - 80)
    assert second["margin"] < 0


def test_failures_lie_beyond_every_limit(tmp_path):
    """One in ten fails at once: the p95 of the successes is fine, that of what users met is not."""
    records = with_failures(many(), 10)
    result, summary = judged(tmp_path, records, "ttft:p95<=1s, itl:p95<=1s, output_tps_per_user:p5>=1, ttft:p50<=1s")
    assert [r["state"] for r in result["results"]] == ["fail", "fail", "fail", "pass"]
    assert "lies on a failed exchange" in result["results"][0]["why"]
    worst = summary["total"]["failures_at_worst"]
    records = [r for r in records if r.start_us >= summary["window"]["start"] * 1e6]
    assert worst["ttft"]["count"] == len(records)
    assert worst["ttft"]["infinite"] == ["p95", "p99", "p999"]
    values = np.array([r.token_times_us()[0] / 1e3 if r.outcome == "ok" else np.inf for r in records])
    assert worst["ttft"]["p75"] == pytest.approx(np.percentile(values, 75))
    assert worst["ttft"]["p50"] > summary["total"]["metrics"]["ttft"]["p50"]
    assert worst["output_tps_per_user"]["infinite"] == ["p1", "p5"]


def test_one_failure_among_thousands_turns_nothing_red_if_the_error_rate_holds(tmp_path):
    records = [*many(2000)[:-1], stream(1999, 199.9, outcome="timeout")]
    result, _ = judged(tmp_path, records, "ttft:p95<=200ms, error_rate<=1%")
    assert result["exit_code"] == 0


def test_a_mean_is_of_the_successes(tmp_path):
    result, _ = judged(tmp_path, with_failures(many(), 10), "ttft:mean<=100ms")
    assert result["state"] == "pass"


def test_too_few_exchanges_are_undecided_and_say_how_many_are_needed(tmp_path):
    result, _ = judged(tmp_path, many(20), "ttft:p95<=10s, requests_per_s>=0.1")
    assert (result["state"], result["exit_code"]) == ("undecided", 4)
    assert "too few exchanges: 19, at least about 72 are needed" in result["results"][0]["why"]


def test_a_thin_percentile_cannot_pass(tmp_path):
    result, _ = judged(tmp_path, many(90), "ttft:p99<=10s")
    assert result["state"] == "undecided"


def test_few_exchanges_far_beyond_the_limit_fail_all_the_same(tmp_path):
    result, _ = judged(tmp_path, many(20), "ttft:p95<=1ms")
    assert result["state"] == "fail"
    assert judged(tmp_path, many(2), "ttft:p50<=1ms")[0]["state"] == "undecided"


def test_exchanges_that_are_all_far_within_the_limit_pass_though_the_run_is_too_short_for_an_interval(tmp_path):
    drifting = [stream(i, i * 0.1, 50 + i, 10.0, 4) for i in range(300)]
    result, summary = judged(tmp_path, drifting, "ttft:p50<=10s, ttft:p50<=190ms, ttft:p999<=10s")
    assert summary["total"]["blocks"]["count"] == 0
    assert [r["state"] for r in result["results"]] == ["pass", "undecided", "undecided"]
    assert "hardly any exchange lies beyond it" in result["results"][0]["why"]


def test_a_run_in_which_everything_failed_misses_its_objectives(tmp_path):
    records = [stream(i, i * 0.1, outcome="connection", end_ms=5) for i in range(300)]
    result, summary = judged(tmp_path, records, "ttft:p95<=1s, ttft:mean<=1s, error_rate<=1%, system_output_tps>=1")
    assert [r["state"] for r in result["results"]] == ["fail"] * 4
    assert "ttft" not in summary["total"]["metrics"]


def test_an_objective_that_an_overloaded_client_spoilt_says_so_before_all_else(tmp_path):
    records = many(sent_us=30_000)
    result, _ = judged(tmp_path, records, "ttft:p95<=1ms, tpot:p50<=1s")
    assert (result["state"], result["exit_code"]) == ("fail", 5)
    assert result["results"][0]["spoilt_by"] == ["error_median"]
    assert "spoilt_by" not in result["results"][1]
    assert judged(tmp_path, records, "tpot:p50<=1s")[0]["exit_code"] == 0
    assert judged(tmp_path, records, "goodput>=1%", "ttft<=1s")[0]["exit_code"] == 5


def test_the_exit_code_of_undecided_can_be_chosen(tmp_path):
    assert judged(tmp_path, many(20), "ttft:p95<=10s", exit_undecided=0)[0]["exit_code"] == 0
    assert judged(tmp_path, many(20), "ttft:p95<=10s, ttft:p50<=1ms", exit_undecided=0)[0]["exit_code"] == 3


def test_goodput_is_the_share_of_requests_that_meet_every_limit(tmp_path):
    records = with_failures(many(400), 8)
    records[1] = stream(1, 0.1, tokens=1)  # no TPOT: a miss
    records[2] = stream(2, 0.2, outcome="cancelled")  # neither
    records[3] = stream(3, 0.3, itl_ms=40)
    log = log_of(tmp_path, *records)
    summary = summary_of(analyse(log, {}, goal=parse_goal("", "ttft<=50ms tpot<=15ms")))
    total = summary["total"]
    good = [
        r.outcome == "ok" and r.token_times_us()[0] <= 50_000 and len(r.token_times_us()) > 1
        and (r.token_times_us()[-1] - r.token_times_us()[0]) / 3 <= 15_000
        for r in records
    ]  # fmt: skip
    finished = sum(r.outcome != "cancelled" for r in records)
    assert total["goodput"]["good"] == sum(good)
    assert total["goodput"]["of"] == finished
    assert total["rates"]["goodput"] == pytest.approx(sum(good) / finished)
    assert total["rates"]["goodput_per_s"] == pytest.approx(sum(good) / summary["window"]["duration_s"])
    assert total["goodput"]["failed"] == 50
    assert total["goodput"]["missed"]["tpot<=15ms"] == {"over": 1, "absent": 1}
    low, high = total["rates_ci95"]["goodput"]
    assert low < total["rates"]["goodput"] < high


def test_the_longest_gap_of_a_request_is_a_limit_of_its_own(tmp_path):
    stalled = stream(0, 0.0, 50, 10, 4)
    stalled.event_gaps_us[2] += 300_000
    log = log_of(tmp_path, stalled, *many(50)[1:])
    for limit, good in (("itl_max<=200ms", 49), ("itl_max<=400ms", 50), ("itl_mean<=50ms", 49)):
        summary = summary_of(analyse(log, {}, goal=parse_goal("", limit)))
        assert summary["total"]["goodput"]["good"] == good, limit


def test_nothing_of_goodput_is_told_without_limits(tmp_path):
    summary = summary_of(analyse(log_of(tmp_path, *many(50)), {}))
    assert "goodput" not in summary["total"]
    assert "goodput" not in summary["total"]["rates"]
    assert "objectives" not in summary


# ---- the command


def report(*argv):
    return main(["report", *(str(a) for a in argv)])


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    folder = tmp_path / "run"
    folder.mkdir()
    write_log(folder / "events.jsonl", many())
    card = CARD | {"run": "r1", "options": {"--llm-slo": "ttft:p95<=200ms"}}
    (folder / "run.json").write_bytes(orjson.dumps(card))
    return folder


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 0),
        (["--slo", "ttft:p95<=10ms"], 3),
        (["--slo", "ttft:mean<=50ms"], 4),
        (["--slo", "ttft:mean<=50ms", "--exit-undecided", "0"], 0),
        (["--slo", "goodput>=99%", "--goodput", "ttft:500"], 0),
        (["--slo", "goodput>=99%"], 2),
        (["--slo", "ttft:p95<=10"], 2),
        (["--slo", ""], 0),
    ],
)
def test_the_report_ends_as_the_objectives_say(run_folder, capsys, arguments, code):
    assert report(run_folder, "--no-html", *arguments) == code
    out, err = capsys.readouterr()
    assert bool(err) == (code == 2)
    if code != 2:
        assert out.splitlines()[-1].startswith("locust-llm: ")
        kept = orjson.loads((run_folder / "summary.json").read_bytes()).get("objectives", {})
        assert kept.get("exit_code", 0) == code


def test_the_last_line_is_the_run_in_one_line(run_folder, capsys):
    report(run_folder, "--no-html", "--slo", "ttft:p95<=10ms, e2e:p50<=1s")
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("locust-llm: FAIL 1 of 2 objectives held; missed ttft:p95<=10ms; TTFT p50 ")
    assert line.endswith("measurement sound")


def test_junit_names_what_was_missed(run_folder, tmp_path):
    file = tmp_path / "junit.xml"
    slo = "ttft:p95<=10ms, ttft:mean<=50ms, e2e:p50<=1s"
    assert report(run_folder, "--no-write", "--slo", slo, "--junit", file) == 3
    suite = ElementTree.parse(file).getroot().find("testsuite")
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3", "failures": "1", "errors": "1", "skipped": "0",
    }  # fmt: skip
    missed = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert missed == ["ttft:p95<=10ms"]
    assert "limit 10.00 ms" in suite.find("testcase/failure").get("message")
    assert suite.find("testcase/error").get("type") == "undecided"
    assert report(run_folder, "--no-write", "--slo", "ttft:mean<=50ms", "--exit-undecided", "0", "--junit", file) == 0
    assert ElementTree.parse(file).getroot().find("testsuite").get("skipped") == "1"


def test_names_from_outside_are_legal_xml(tmp_path, run_folder):
    write_log(run_folder / "events.jsonl", many(name="a\x1b<&b"))
    file = tmp_path / "junit.xml"
    report(run_folder, "--no-write", "--slo", '"a\x1b<&b".ttft:p95<=1s', "--junit", file)
    assert "a?<&b" in ElementTree.parse(file).getroot().find(".//testcase").get("name")


def test_markdown_goes_to_its_file_and_is_appended_to_the_step_summary(run_folder, tmp_path, monkeypatch):
    named, step = tmp_path / "result.md", tmp_path / "step.md"
    step.write_text("before\n")
    named.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    assert report(run_folder, "--no-write") == 0
    assert step.read_text().startswith("before\n### ✅ pass")
    assert report(run_folder, "--no-write", "--markdown", named) == 0
    assert named.read_text().startswith("### ✅ pass")
    assert "| `ttft:p95<=200ms` | ✅ pass |" in named.read_text()
    assert re.search(r"^system output tokens/s [\d.]+; requests/s [\d.]+; error rate 0 %$", named.read_text(), re.M)
    size = step.stat().st_size
    assert report(run_folder, "--no-write", "--slo", "") == 0
    assert step.stat().st_size == size  # no objectives, not asked for


def test_a_file_that_cannot_be_written_is_one_line(run_folder, tmp_path, capsys):
    assert report(run_folder, "--no-write", "--junit", tmp_path / "no" / "junit.xml") == 2
    assert "junit.xml: cannot be written (No such file or directory)" in capsys.readouterr().err


# ---- intervals in the summary


def test_every_figure_has_an_interval_around_it(tmp_path):
    log = log_of(tmp_path, *with_failures(many(1000), 50))
    total = summary_of(analyse(log, CARD))["total"]
    assert total["blocks"]["count"] == 20
    for name in ("ttft", "tpot", "icl", "itl", "e2e_latency", "output_tps_per_user"):
        metric = total["metrics"][name]
        for stat in ("mean", "p50", "p95"):
            low, high = metric["ci95"][stat]
            assert low - 1e-9 <= metric[stat] <= high + 1e-9, (name, stat)
    for name in ("system_output_tps", "system_total_tps", "requests_per_s", "requests_per_min", "error_rate"):
        low, high = total["rates_ci95"][name]
        assert low <= total["rates"][name] <= high, name


def test_a_single_name_and_the_total_are_the_same(tmp_path):
    summary = summary_of(analyse(log_of(tmp_path, *with_failures(many(500), 50)), CARD))
    name, total = summary["names"][0], summary["total"]
    for key in ("metrics", "rates_ci95", "failures_at_worst", "blocks"):
        assert name[key] == total[key]


def test_each_of_many_names_has_intervals_of_its_own(tmp_path):
    fast, slow = many(400, name="fast"), [
        stream(1000 + i, i * 0.1 + 0.05, 200 + i % 7, 20.0, 4, name="slow") for i in range(400)
    ]  # fmt: skip
    summary = summary_of(analyse(log_of(tmp_path, *fast, *slow), CARD))
    ends = {n["name"]: n["metrics"]["ttft"]["ci95"]["p50"] for n in summary["names"]}
    assert ends["fast"][1] < 100 < ends["slow"][0]
    gaps = {n["name"]: n["metrics"]["itl"]["ci95"]["mean"] for n in summary["names"]}
    assert gaps["fast"] == pytest.approx([10, 10])
    assert gaps["slow"] == pytest.approx([20, 20])


def test_hundreds_of_names_are_no_burden_and_say_what_they_lack(tmp_path):
    records = [stream(i, i * 0.01, name=f"n{i % 120}") for i in range(1200)]
    names = summary_of(analyse(log_of(tmp_path, *records), {}))["names"]
    assert all("ci95" in n["absent"] for n in names)
    assert sum("most frequent names" in n["absent"]["ci95"] for n in names) == 70


def test_of_a_very_long_log_a_part_of_the_exchanges_is_enough_for_the_intervals_of_gaps(tmp_path, monkeypatch):
    log = log_of(tmp_path, *[stream(i, i * 0.1, 50, 8 + (i * 7 % 11) / 3, 6) for i in range(800)])
    full = summary_of(analyse(log, CARD))["total"]["metrics"]["itl"]
    monkeypatch.setattr("locust_llm.report.gap_blocks.MOST_EVENTS", len(log.gaps_us) // 4)
    part = summary_of(analyse(log, CARD))["total"]["metrics"]["itl"]
    assert {k: v for k, v in part.items() if k != "ci95"} == {k: v for k, v in full.items() if k != "ci95"}
    for stat in ("mean", "p50"):
        low, high = part["ci95"][stat]
        assert low <= full[stat] <= high
        assert high - low < 5 * (full["ci95"][stat][1] - full["ci95"][stat][0]) + 0.5
