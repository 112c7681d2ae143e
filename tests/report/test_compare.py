"""``locust-llm compare``: two runs, several a side, what it refuses, and the gate of CI."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
from report_logs import T0_S, stream, write_log

from locust_llm.cli import main
from locust_llm.report.compare import _state
from locust_llm.report.compare_figures import Figure
from locust_llm.report.runs import load_run


def make(folder, run, seed, count=700, slower=1.0, card=None, fail_every=0, **members):
    """One exchange after the other: TTFT about 50 ms × slower, 10 ms a token."""
    rng = np.random.default_rng(seed)
    records = []
    for i in range(count):
        ttft = round(float(rng.gamma(25, 2)) * slower, 3)
        outcome = "timeout" if fail_every and i % fail_every == 0 else "ok"
        r = stream(i, i * 0.1, ttft, round(float(rng.normal(10, 0.5)), 3), 4, run=run, outcome=outcome, **members)
        records.append(r)
    path = folder / run
    path.mkdir()
    write_log(path / "events.jsonl", records)
    base = {
        "run": run, "events": [{"t": T0_S, "event": "ramp_complete"}],
        "load": {"users": 1, "user_classes": ["Chat"], "run_time_s": 60},
        "lengths": {"input_tokens": "100", "output_tokens": "4", "natural_stop": False, "prompts": None},
        "options": {},
    }  # fmt: skip
    (path / "run.json").write_bytes(orjson.dumps(base | (card or {})))
    return path


def compare(*argv):
    return main(["compare", *(str(a) for a in argv)])


def told(tmp_path, *argv):
    code = compare(*argv, "--json", tmp_path / "told.json")
    return code, [
        {row["figure"]: row for row in each["figures"]} for each in orjson.loads((tmp_path / "told.json").read_bytes())
    ]


def test_equal_servers_are_not_different(tmp_path, capsys):
    a, b = make(tmp_path, "a", 1), make(tmp_path, "b", 2)
    code, (rows,) = told(tmp_path, a, b)
    assert code == 0
    assert {row["state"] for row in rows.values()} <= {"same", "undecided"}
    assert rows["ttft:mean"]["state"] == "same"
    low, high = rows["ttft:mean"]["change_ci95"]
    assert low < rows["ttft:mean"]["change"] < high
    out = capsys.readouterr().out
    assert out.startswith("base a\nnew  b\n")
    row = next(line for line in out.splitlines() if line.startswith("ttft:mean  "))
    assert row.endswith("  same")
    assert max(map(len, out.splitlines()[:-1])) <= 110


def test_a_slower_server_is_worse_and_a_faster_one_better(tmp_path):
    a, b = make(tmp_path, "a", 1), make(tmp_path, "b", 2, slower=1.2)
    _, (rows,) = told(tmp_path, a, b)
    for figure in ("ttft:mean", "ttft:p50", "ttft:p95"):
        assert rows[figure]["state"] == "worse", figure
    one, other = (load_run([path]).summary["total"]["metrics"]["ttft"] for path in (a, b))
    assert rows["ttft:p50"]["change"] == pytest.approx(other["p50"] / one["p50"] - 1)
    assert rows["tpot:p50"]["state"] in ("same", "undecided")
    _, (rows,) = told(tmp_path, b, a)
    assert rows["ttft:p95"]["state"] == "better"


@pytest.mark.parametrize(
    ("interval", "state"),
    [((0.01, 0.05), "worse"), ((-0.01, 0.05), "undecided"), ((0.0, 0.05), "undecided"), ((None, 0.05), "worse")],
)
def test_what_the_test_finds_is_called_so_only_if_the_interval_beside_it_leaves_out_0(interval, state):
    row = {"p_holm": 0.01, "change": 0.03, "change_ci95": interval}
    assert _state(row, Figure("ttft", "mean")) == state
    assert ("why" in row) == (state == "undecided")


def test_failures_make_a_percentile_worse_and_are_told_as_points(tmp_path):
    a, b = make(tmp_path, "a", 1, fail_every=100), make(tmp_path, "b", 1, fail_every=12)
    _, (rows,) = told(tmp_path, a, b)
    assert rows["error_rate"]["state"] == "worse"
    assert rows["error_rate"]["change"] == pytest.approx(1 / 12 - 1 / 100, abs=0.002)
    assert rows["ttft:p95"]["state"] == "undecided"  # the p95 of b lies on a failure, so there is no change to tell


def test_each_new_run_is_compared_with_the_base(tmp_path):
    paths = [make(tmp_path, name, seed) for seed, name in enumerate("abc")]
    assert len(told(tmp_path, *paths)[1]) == 2


def test_costs_stand_below_the_figures_untested(tmp_path, capsys):
    a, b = make(tmp_path, "a", 1), make(tmp_path, "b", 2, n_in=200)
    assert compare(a, b) == 0
    assert "cost" not in capsys.readouterr().out
    prices = ("--price-input", 1, "--price-output", 10, "--price-hour", 3.6)
    assert compare(a, b, *prices, "--json", tmp_path / "told.json") == 0
    costs = {row["figure"]: row for row in orjson.loads((tmp_path / "told.json").read_bytes())[0]["costs"]}
    assert costs["cost/1k req (tokens)"] == {
        "figure": "cost/1k req (tokens)", "base": pytest.approx(0.14), "new": pytest.approx(0.24),
        "change": pytest.approx(0.24 / 0.14 - 1),
    }  # fmt: skip
    assert costs["cost/1M out (hour)"]["base"] == pytest.approx(3.6 / 3600 / 40 * 1e6, rel=0.02)
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("cost/1k req (tokens) "))
    assert row.split()[3:] == ["0.140", "0.240", "+71.4", "%", "not", "tested"]
    assert max(map(len, out.splitlines()[:-1])) <= 115


def test_short_runs_are_undecided_and_say_how_long_they_should_be(tmp_path, capsys):
    a, b = make(tmp_path, "a", 1, count=40), make(tmp_path, "b", 2, count=700, slower=3)
    code, (rows,) = told(tmp_path, a, b)
    assert code == 0
    assert {row["state"] for row in rows.values()} == {"undecided"}
    assert "too short: 39 exchanges, about" in rows["ttft:p95"]["why"]


def test_several_runs_a_side_are_compared_run_by_run(tmp_path):
    base = [make(tmp_path, f"a{i}", i, count=120) for i in range(3)]
    new = [make(tmp_path, f"b{i}", 10 + i, count=120, slower=1.5) for i in range(3)]
    code, (rows,) = told(tmp_path, "--base", *base, "--new", *new, "--fail-if-worse", "ttft:mean 10%")
    assert code == 3
    assert rows["ttft:mean"]["state"] == "worse"
    assert rows["ttft:mean"]["change"] == pytest.approx(0.5, abs=0.1)
    means = [[load_run([p]).summary["total"]["metrics"]["ttft"]["mean"] for p in side] for side in (base, new)]
    assert rows["ttft:mean"]["base"] == pytest.approx(np.mean(means[0]))
    _, (rows,) = told(tmp_path, "--base", base[0], base[1], "--new", new[0], base[2])
    assert rows["ttft:mean"]["state"] == "undecided"


@pytest.mark.parametrize(
    ("slower", "gate", "code"),
    [
        (1.2, "ttft:p95 5%", 3),
        (1.2, "ttft:p95 60%", 0),
        (1.0, "ttft:mean 8%", 0),
        (1.0, "ttft:p95 0.1%", 4),
        (1.0, "system_output_tps 5%", 0),
        (0.7, "ttft:p50 1%", 0),
    ],
)
def test_the_gate_fails_on_what_is_surely_worse_and_by_too_much(tmp_path, slower, gate, code):
    a, b = make(tmp_path, "a", 1), make(tmp_path, "b", 2, slower=slower)
    assert compare(a, b, "--fail-if-worse", gate) == code
    if code == 4:
        assert compare(a, b, "--fail-if-worse", gate, "--exit-undecided", "0") == 0


def test_a_figure_of_an_overloaded_client_ends_with_5(tmp_path):
    a = make(tmp_path, "a", 1)
    b = make(tmp_path, "b", 2, slower=1.5, sent_us=30_000)
    assert compare(a, b, "--fail-if-worse", "ttft:p95 5%") == 5
    assert compare(a, b, "--fail-if-worse", "tpot:p50 5%") == 0


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({"load": {"users": 2, "user_classes": ["Chat"]}}, "load, users: 1 against 2"),
        ({"lengths": {"input_tokens": "200", "output_tokens": "4"}}, "lengths, input_tokens: 100 against 200"),
        ({"options": {"--llm-extra": '{"temperature": 0}'}}, "options, --llm-extra: None against"),
        ({"simulated": True}, "simulated server"),
    ],
)
def test_runs_of_another_test_are_refused_unless_told_to(tmp_path, capsys, card, said):
    a, b = make(tmp_path, "a", 1), make(tmp_path, "b", 2, card=card)
    assert compare(a, b) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert compare(a, b, "--anyway") == 0
    assert f"note: not the same test: {said}" in capsys.readouterr().out or "simulated" in said


def test_what_is_worth_knowing_is_a_note(tmp_path, capsys):
    a = make(tmp_path, "a", 1)
    b = make(tmp_path, "b", 2, model="other", asked_out=4, card={"load": {"users": 1, "user_classes": ["Chat"]}})
    (a / "run.json").unlink()
    assert compare(a, b, "--window", "all") == 0
    out = capsys.readouterr().out
    assert "note: a run has no run card" in out
    assert "note: model: m against other" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{a}"], "give two runs"),
        (["{a}", "{a}"], "a run is given twice"),
        (["--base", "{a}", "--new", "{b}"], "at least two runs each"),
        (["{a}", "{tmp}/nowhere"], "no such file or folder"),
        (["{a}", "{b}", "--fail-if-worse", "ttft:p95"], "is FIGURE N%, such as 'ttft:p95 5%'"),
        (["{a}", "{b}", "--fail-if-worse", "speed 5%"], 'unknown figure "speed"'),
        (["{a}", "{b}", "--fail-if-worse", "ttft 5%"], "needs a statistic"),
        (["{a}", "{b}", "--fail-if-worse", "output_tokens:mean 5%"], "neither less nor more is worse"),
        (["{a}", "{b}", "--figures", "ttft:p95,,"], "--figures takes FIGURE:STATISTIC"),
        (["{a}", "{b}", "--figures", "error_rate:p95"], "one figure of the run"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, arguments, said):
    paths = {"a": make(tmp_path, "a", 1, count=30), "b": make(tmp_path, "b", 2, count=30), "tmp": tmp_path}
    assert compare(*(a.format(**paths) for a in arguments)) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("locust-llm: error: ")
    assert err.count("\n") == 1


def test_the_figures_can_be_chosen(tmp_path):
    a, b = make(tmp_path, "a", 1), make(tmp_path, "b", 2)
    _, (rows,) = told(tmp_path, a, b, "--figures", "e2el:p90,requests_per_s", "--fail-if-worse", "ttft:p50 50%")
    assert list(rows) == ["e2e_latency:p90", "requests_per_s", "ttft:p50"]
    assert str(Figure("ttft", "p95")) == "ttft:p95"


def test_a_figure_that_a_run_lacks_is_undecided(tmp_path):
    a, b = make(tmp_path, "a", 1), make(tmp_path, "b", 2, streamed=False)
    _, (rows,) = told(tmp_path, a, b)
    assert rows["ttft:p95"]["state"] == "undecided"
    assert rows["ttft:p95"]["why"] == "the answers were not streamed"
    assert rows["e2e_latency:p50"]["state"] != "undecided" or "p" in rows["e2e_latency:p50"]
