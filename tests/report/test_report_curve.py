"""Several runs as a curve: series, knee, readings, CSV, page; and the leaderboard, LLMPerf's own files included."""

from __future__ import annotations

import csv
import json

import orjson
import pytest
from report_logs import record, stream, write_log

from locust_llm.cli import main
from locust_llm.report.curve import knee, limits_of, point, readings, row, series_of, to_csv
from locust_llm.report.export.command import export
from locust_llm.report.leaderboard import NO_SIZE, size_of
from locust_llm.report.page import parts
from locust_llm.report.page.curve_charts import curve_charts
from locust_llm.report.runs import load_run


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch):
    monkeypatch.setattr(parts, "plotly_js", lambda: "/* plotly */")


def make_run(
    folder, users, ttft_ms=50.0, itl_ms=10.0, tokens=100, per_user=30, lengths=("200,0", "100,0"), meta=None, **members
):
    """A closed loop of equal exchanges: ``users`` side by side, each exchange right after the other."""
    folder.mkdir(parents=True)
    took = (ttft_ms + itl_ms * (tokens - 1)) / 1000
    given = {"run": folder.name, "n_in": 200, "asked_in": 200, "asked_out": tokens} | members
    records = [
        stream(i, (i // users) * took, ttft_ms, itl_ms, tokens, tags={"user": f"u{i % users}"}, **given)
        for i in range(users * per_user)
    ]
    write_log(folder / "events.jsonl", records)
    card = {
        "run": folder.name, "load": {"users": users}, "events": [], "meta": meta or {},
        "lengths": {"input_tokens": lengths[0], "output_tokens": lengths[1]},
    }  # fmt: skip
    (folder / "run.json").write_bytes(orjson.dumps(card))
    return folder


@pytest.fixture
def sweep(tmp_path):
    """A server with 8 slots: beyond 8 users they wait, and no more tokens come out."""
    shapes = {1: 50, 4: 50, 8: 60, 16: 1110, 32: 3210}
    return [make_run(tmp_path / f"r{users:02}", users, ttft) for users, ttft in shapes.items()]


def series(folders, **options):
    runs = [load_run([f], **options) for f in folders]
    return series_of([point(r.summary, r.card) for r in runs])


def test_runs_in_open_loop_are_a_series_of_their_own_in_order_of_their_rate(tmp_path):
    folders = [make_run(tmp_path / name, users) for name, users in (("closed", 4), ("fast", 40), ("slow", 50))]
    for folder, rate in zip(folders[1:], (8.0, 2.0), strict=True):
        card = orjson.loads((folder / "run.json").read_bytes())
        card["arrivals"] = {"asked": {"--llm-rate": {"process": f"poisson {rate:g}/s", "rate": rate}}}
        (folder / "run.json").write_bytes(orjson.dumps(card))
    closed, opened = sorted(series(folders), key=lambda s: s.name)
    assert [p.short_load for p in closed.points] == ["4"]
    assert [(p.label, p.short_load) for p in opened.points] == [("slow", "2/s"), ("fast", "8/s")]
    assert "open loop" in opened.name
    rows = list(csv.DictReader(to_csv([closed, opened]).splitlines()))
    assert [(each["users"], each["rate"]) for each in rows] == [("4", ""), ("", "2"), ("", "8")]
    assert any("At 8 arrivals per second:" in line for line in readings(opened, limits_of("ttft:p95<=500ms")))


def test_runs_of_the_same_model_and_lengths_are_one_series_in_order_of_load(sweep):
    (found,) = series(reversed(sweep))
    assert [p.load for p in found.points] == [1, 4, 8, 16, 32]
    assert [p.tps for p in found.points] == pytest.approx([96, 381, 755, 755, 757], rel=0.02)


def test_use_cases_are_series_named_by_what_differs(tmp_path):
    folders = [
        make_run(tmp_path / f"{i}-{users}", users, lengths=lengths)
        for i, lengths in enumerate([("200,0", "200,0"), ("200,0", "5,0"), ("1000,0", "200,0")])
        for users in (1, 2)
    ]
    assert [s.name for s in series(folders)] == ["200 in, 200 out", "200 in, 5 out", "1000 in, 200 out"]


def test_the_knee_is_where_more_users_only_wait(sweep):
    (found,) = series(sweep)
    assert knee(found).load == 8
    assert knee(series(sweep[:3])[0]) is None
    assert "try a higher load" in readings(series(sweep[:3])[0], [])[-1]
    assert "2 loads, 3 are needed" in readings(series(sweep[:2])[0], [])[-1]


def test_answers_that_took_no_time_have_no_knee(tmp_path):
    folder = tmp_path / "r"
    folder.mkdir()
    records = [record(i, i, [(0, "content")], n_out=1, out_source="usage", run="r") for i in range(3)]
    write_log(folder / "events.jsonl", records)
    (found,) = series([folder])
    assert knee(found) is None
    assert "No knee can be found" in readings(found, [])[-1]


def test_both_readings_of_the_guide_are_sentences(sweep):
    (found,) = series(sweep)
    said = readings(found, limits_of("ttft:p95<=500ms, e2e:p90<=20ms"))
    assert said[0] == "At TTFT p95 ≤ 500 ms: 8 users, 761.8 tokens/s (measured 60.00 ms)."
    assert said[1].startswith("At e2e latency p90 ≤ 20 ms: none of the loads; the fastest is 1040 ms at 1 user")
    assert said[5].startswith("At 16 users: TTFT p95 1110 ms, e2e latency p90 2100 ms, 761")
    assert any(s.startswith("The knee is at 8 users: 761") for s in said)


def test_a_load_with_too_few_exchanges_cannot_meet_a_budget(tmp_path):
    folders = [make_run(tmp_path / "a", 1, per_user=5), make_run(tmp_path / "b", 2)]
    said = readings(series(folders)[0], limits_of("ttft:p95<=500ms"))
    assert said[0].startswith("At TTFT p95 ≤ 500 ms: 2 users")
    assert "too few exchanges to say it of 1 user" in said[0]
    assert "TTFT p95 50.00 ms~" in said[1]


def test_the_cheapest_load_is_named_where_prices_are_known(sweep):
    said = readings(series(sweep, priced=(None, None, 3.6))[0], [])
    assert any(s.startswith("Cheapest by the price of the hour: 1.3") for s in said)


@pytest.mark.parametrize(
    "text", ["ttft:p95>=500ms", "error_rate<=1%", "chat.ttft:p95<=1s", "output_tokens:p50<=5", "ttft:p95"]
)
def test_what_is_no_latency_budget_is_refused(sweep, text, capsys):
    assert report(*sweep, "--limit", text) == 2
    assert "--limit" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ("--slo", "ttft:p95<=1s"), ("--goodput", "ttft:500"), ("--exit-undecided", "0"), ("--junit", "j.xml"),
        ("--markdown", "m.md"), ("--by", "model"), ("--definitions", "vllm"), ("--tokenizer", "gpt2"),
    ],
)  # fmt: skip
def test_what_is_asked_of_one_run_is_refused_for_several_and_not_left_out(sweep, options, capsys):
    assert report(*sweep, *options) == 2
    assert f"{options[0]} is for one run; several runs make a curve" in capsys.readouterr().err
    assert not list(sweep[0].parent.glob("curve*"))


def test_a_budget_for_a_leaderboard_without_a_page_is_refused(sweep, capsys):
    assert leaderboard(*sweep, "--limit", "ttft:p95<=1s") == 2
    assert "which --out DIR writes" in capsys.readouterr().err


def report(*argv):
    return main(["report", *(str(a) for a in argv)])


def leaderboard(*argv):
    return main(["leaderboard", *(str(a) for a in argv)])


def test_report_of_several_runs_prints_the_curve_and_writes_it_beside_them(sweep, tmp_path, capsys):
    assert report(*sweep) == 0
    out = capsys.readouterr().out
    assert "At TTFT p95 ≤ 500 ms: 8 users" in out
    with open(tmp_path / "curve.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    assert [r["users"] for r in rows] == ["1", "4", "8", "16", "32"]
    assert float(rows[3]["ttft_p95_ms"]) == pytest.approx(1110)
    html = (tmp_path / "curve.html").read_text()
    assert html.count('<div class="chart"') == 5
    assert "logarithmic" in html
    assert not list(sweep[0].glob("report.html"))


def test_what_lies_beside_the_runs_is_no_run(sweep, tmp_path, capsys):
    """``report sweep/*`` again, when the curve already stands there."""
    assert report(*sweep) == 0
    (tmp_path / "README.md").write_text("x")
    first = (tmp_path / "curve.csv").read_text()
    assert report(*tmp_path.iterdir()) == 0
    assert (tmp_path / "curve.csv").read_text() == first
    assert leaderboard(*tmp_path.iterdir()) == 0
    assert len(export([str(p) for p in tmp_path.iterdir()], "genai-perf", str(tmp_path / "out"))[0]) == 2 * len(sweep)


def test_loads_at_which_the_client_was_overloaded_meet_no_budget_and_are_no_knee(tmp_path):
    folders = [make_run(tmp_path / f"r{n}", n, sent_us=40_000 if n > 4 else 0) for n in (1, 2, 4, 8, 16)]
    (found,) = series(folders)
    said = readings(found, limits_of("ttft:p95<=500ms"))
    assert said[0].startswith("At TTFT p95 ≤ 500 ms: 4 users")
    assert "the client was overloaded at 8 users, 16 users" in said[0]
    assert said[4].endswith("(the client was overloaded).")
    assert knee(found) is None
    markers = curve_charts([found])[0].data[0]["marker"]["symbol"]
    assert markers == ["circle"] * 3 + ["circle-open"] * 2


def test_the_curve_can_be_printed_only_or_put_elsewhere(sweep, tmp_path, capsys):
    assert report(*sweep, "--no-write") == 0
    assert not list(tmp_path.glob("curve*"))
    assert report(*sweep, "--out", tmp_path / "x" / "y", "--no-html") == 0
    assert [p.name for p in (tmp_path / "x" / "y").iterdir()] == ["curve.csv"]


def test_runs_in_several_places_need_out(tmp_path, capsys):
    folders = [make_run(tmp_path / "a" / "r1", 1), make_run(tmp_path / "b" / "r2", 2)]
    assert report(*folders) == 2
    assert "--out" in capsys.readouterr().err


def test_absent_figures_are_empty_cells_and_no_points(tmp_path, capsys):
    folder = tmp_path / "bad"
    folder.mkdir()
    write_log(folder / "events.jsonl", [record(i, i, end_ms=5, outcome="empty", run="bad") for i in range(3)])
    groups = series([folder, make_run(tmp_path / "r1", 1)])
    flat = {r["run"]: r for r in csv.DictReader(to_csv(groups).splitlines())}
    assert flat["bad"]["ttft_p50_ms"] == ""
    assert "nan" not in to_csv(groups).lower()
    assert report(folder, tmp_path / "r1") == 0
    assert "tokens/s unknown" not in capsys.readouterr().out.split("At 1 user")[1]


def test_a_row_has_costs(sweep):
    (found,) = series(sweep[:1], priced=(1.0, 2.0, 3.0))
    flat = row(found.points[0], "s")
    assert flat["cost_by_tokens_per_request"] == pytest.approx((200 + 200) / 1e6)
    assert flat["cost_by_hour_per_hour"] == 3.0


@pytest.mark.parametrize(
    ("model", "given", "size"),
    [
        ("meta-llama/Llama-2-70b-chat-hf", None, "70B"), ("llama2-7b", None, "7B"), ("Mixtral-8x7B-v1", None, "8x7B"),
        ("SmolLM2-135M-Instruct", None, "135M"), ("qwen2.5-0.5b", None, "0.5B"), ("gpt-4o", None, NO_SIZE),
        ("gpt-4o", "about 200B", "200B"), ("gpt-4o", "large", "large"), ("accounts/13b-org/llama", None, "13B"),
        ("smollm2_135m", None, "135M"), ("h2o-danube3-4b-chat", "8", "8B"), ("4bit-model", None, NO_SIZE),
    ],
)  # fmt: skip
def test_the_size_of_a_model_is_given_or_in_its_name(model, given, size):
    assert size_of(model, given) == size


def test_the_boards_are_grouped_by_size_and_hold_llmperfs_figures(tmp_path, capsys):
    make_run(tmp_path / "a", 5, ttft_ms=200, model="llama-2-7b", meta={"framework": "vLLM", "framework_version": "0.9"})
    make_run(tmp_path / "b", 5, ttft_ms=100, model="llama-2-70b", meta={"framework": "SGLang", "price_hour": "2"})
    assert leaderboard(tmp_path / "a", tmp_path / "b") == 0
    text = capsys.readouterr().out
    assert text.index("### 70B models") < text.index("### 7B models")
    # n / (time to [DONE]): 100 / (0.2 + 0.99 + 0.003); TTFT in seconds
    assert f"| vLLM 0.9 | llama-2-7b | {100 / 1.193:.1f} |" in text
    assert "| vLLM 0.9 | llama-2-7b | 0.200 | 0.200 |" in text
    assert "Cost per 1M tokens" in text
    assert "not the leaderboard's configuration" in text
    assert "TTFT depends on where the client was" in text


def test_the_configuration_of_the_leaderboard_is_recognised(tmp_path, capsys):
    folder = make_run(tmp_path / "a", 5, lengths=("550,0", "150,0"))
    card = orjson.loads((folder / "run.json").read_bytes())
    card["load"]["requests"] = 150
    (folder / "run.json").write_bytes(orjson.dumps(card))
    assert leaderboard(folder) == 0
    assert "not the leaderboard's configuration" not in capsys.readouterr().out


def test_few_requests_are_marked(tmp_path, capsys):
    make_run(tmp_path / "a", 1, per_user=10)
    assert leaderboard(tmp_path / "a") == 0
    out = capsys.readouterr().out
    assert "~ |" in out
    assert "too few requests" in out


LLMPERF = {
    "version": "2023-08-31", "name": "x_550_150_summary", "model": "meta/llama2-13b-chat", "mean_input_tokens": 550,
    "stddev_input_tokens": 0, "mean_output_tokens": 150, "stddev_output_tokens": 0, "num_concurrent_requests": 5,
    "results_ttft_s_quantiles_p50": 0.5, "results_ttft_s_quantiles_p25": 0.4, "results_ttft_s_quantiles_p75": 0.6,
    "results_ttft_s_quantiles_p95": 0.7, "results_ttft_s_quantiles_p99": 0.8, "results_ttft_s_mean": 0.51,
    "results_ttft_s_min": 0.3, "results_ttft_s_max": 0.9, "results_num_completed_requests": 150,
    "results_request_output_throughput_token_per_s_quantiles_p50": 40.0,
    "results_request_output_throughput_token_per_s_min": "33", "framework": "fireworks",
}  # fmt: skip
RESPONSES = [
    *(
        {"error_code": None, "ttft_s": 0.1 * (i + 1), "request_output_throughput_token_per_s": 50.0 + i}
        for i in range(5)
    ),
    {"error_code": 429, "error_msg": "slow down"},
]


def test_llmperfs_own_files_are_lines_of_the_boards(tmp_path, capsys):
    (tmp_path / "x_550_150_summary.json").write_text(json.dumps(LLMPERF | {"results_x": float("nan")}))
    assert leaderboard(tmp_path) == 0
    out = capsys.readouterr().out
    assert "### 13B models" in out
    assert "| fireworks | meta/llama2-13b-chat | 40.0 | – | 33.0 |" in out
    assert "| fireworks | meta/llama2-13b-chat | 0.500 | 0.510 | 0.300 | 0.900 | 0.400 | 0.600 | 0.700 | 0.800 |" in out
    assert "150 requests, 5 at a time, 550 (±0) tokens in, 150 (±0) out (LLMPerf" in out
    (tmp_path / "x_550_150_individual_responses.json").write_text(json.dumps(RESPONSES))
    for source in (tmp_path, tmp_path / "x_550_150_summary.json", tmp_path / "x_550_150_individual_responses.json"):
        assert leaderboard(source) == 0
        assert "| fireworks | meta/llama2-13b-chat | 52.0 | 52.0 | 50.0 | 54.0 |" in capsys.readouterr().out


def test_the_boards_are_written_as_markdown_html_and_csv(sweep, tmp_path, capsys):
    (tmp_path / "x_summary.json").write_text(json.dumps(LLMPERF))
    assert leaderboard(*sweep, tmp_path / "x_summary.json", "--out", tmp_path / "board") == 0
    assert sorted(p.name for p in (tmp_path / "board").iterdir()) == [
        "leaderboard.csv",
        "leaderboard.html",
        "leaderboard.md",
    ]
    html = (tmp_path / "board" / "leaderboard.html").read_text()
    assert "13B models" in html
    assert "The knee is at 8 users" in html
    assert html.count('<div class="chart"') == 5


def test_names_in_the_markdown_cannot_break_the_table(tmp_path, capsys):
    make_run(tmp_path / "a", 1, model="a|b<c>\nd", meta={"framework": "`x`"})
    assert leaderboard(tmp_path / "a") == 0
    assert r"\`x\` | a\|b\<c> d |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"), [("{", "not JSON"), ('{"a": 1}', "not an event log"), ("[]", "not an event log")]
)
def test_a_file_that_is_neither_is_one_line(tmp_path, capsys, content, said):
    (tmp_path / "x.json").write_text(content + "\n")
    assert leaderboard(tmp_path / "x.json") == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_run_without_a_streamed_success_has_no_place(tmp_path, capsys):
    folder = tmp_path / "r"
    folder.mkdir()
    write_log(folder / "events.jsonl", [record(0, end_ms=5, streamed=False, n_out=3, out_source="usage")])
    assert leaderboard(folder) == 2
    assert "no streamed exchange succeeded" in capsys.readouterr().err
