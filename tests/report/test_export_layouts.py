"""Exports: each file in its tool's layout, under its tool's rules, readable by scripts that were written for it."""

from __future__ import annotations

import csv
import io
import json
import statistics

import numpy as np
import orjson
import pandas as pd
import pytest
from export_runs import COUNT, USERS, make_run, written
from report_logs import T0_S, stream, write_log

from locust_llm.report.export.command import export


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run")


def test_llmperf_files_have_its_names_keys_and_types(folder, tmp_path):
    files = written(folder, "llmperf", tmp_path)
    base = "meta-llama3-8b_200_20"
    assert set(files) == {f"{base}_summary.json", f"{base}_individual_responses.json"}
    summary = json.loads(files[f"{base}_summary.json"])
    assert (summary["version"], summary["name"], summary["model"]) == (
        "2023-08-31",
        f"{base}_summary",
        "meta/llama3-8b",
    )
    for figure in ("inter_token_latency_s", "ttft_s", "end_to_end_latency_s", "request_output_throughput_token_per_s",
                   "number_input_tokens", "number_output_tokens"):  # fmt: skip
        for s in (*(f"quantiles_p{p}" for p in (25, 50, 75, 90, 95, 99)), "mean", "min", "max", "stddev"):
            text = figure.startswith("number_") and s in ("min", "max")
            assert isinstance(summary[f"results_{figure}_{s}"], str if text else float)
    assert (summary["num_concurrent_requests"], summary["mean_input_tokens"], summary["stddev_output_tokens"]) == (
        4,
        200,
        5,
    )
    assert summary["results_error_code_frequency"] == "{429: 1, -1: 1}"
    assert summary["results_number_errors"] == 2
    assert summary["results_num_completed_requests"] == COUNT + 1
    assert isinstance(summary["timestamp"], int)
    assert summary["framework"] == "vLLM"


@pytest.mark.parametrize(
    ("extra", "keys"),
    [
        ('{"temperature": 0.7, "stop": ["a"], "guided": {"json": {}, "choice": "b"}}',
         {"temperature": 0.7, "stop": ["a"], "guided_choice": "b"}),
        ("{}", {}), ("no json", {}), ("[1]", {}), (None, {}),
    ],
)  # fmt: skip
def test_llmperf_summary_has_the_sampling_parameters_flattened_as_it_flattens_them(folder, tmp_path, extra, keys):
    card = orjson.loads((folder / "run.json").read_bytes())
    (folder / "run.json").write_bytes(orjson.dumps(card | {"options": {"--llm-extra": extra}}))
    files = written(folder, "llmperf", tmp_path)
    summary = json.loads(next(v for k, v in files.items() if "summary" in k))
    begin = "additional_sampling_params_"
    assert {k.removeprefix(begin): v for k, v in summary.items() if k.startswith(begin)} == keys
    if keys:
        names = list(summary)
        assert names.index(f"{begin}temperature") == names.index("num_concurrent_requests") + 1


def test_llmperf_responses_give_the_summary_back(folder, tmp_path):
    files = written(folder, "llmperf", tmp_path)
    responses = json.loads(next(v for k, v in files.items() if "individual" in k))
    summary = json.loads(next(v for k, v in files.items() if "summary" in k))
    frame = pd.DataFrame(responses)
    valid = frame[frame["error_code"].isna()]
    assert len(frame) == COUNT + 3
    for figure in ("ttft_s", "end_to_end_latency_s", "inter_token_latency_s", "request_output_throughput_token_per_s"):
        assert valid[figure].quantile(0.95) == pytest.approx(summary[f"results_{figure}_quantiles_p95"])
        assert valid[figure].std() == pytest.approx(summary[f"results_{figure}_stddev"])
    assert (valid["number_total_tokens"] == valid["number_input_tokens"] + valid["number_output_tokens"]).all()
    assert valid["ttft_s"].iloc[0] == pytest.approx(0.050)
    # its "ITL" is the last content's time over the number of messages: role, 20 contents, finish
    assert valid["inter_token_latency_s"].iloc[0] == pytest.approx((0.050 + 19 * 0.010) / 22)
    assert set(frame[frame["error_code"] == 429].dropna(axis=1).columns) == {"error_code", "error_msg"}


def test_vllm_result_is_one_object_with_parallel_lists(folder, tmp_path):
    files = written(folder, "vllm", tmp_path)
    (name,) = files
    assert name.startswith("openai-chat-infqps-concurrency4-llama3-8b-")
    assert name.endswith(".json")
    result = json.loads(files[name])
    head = ["date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "framework",
            "request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed"]  # fmt: skip
    assert list(result)[: len(head)] == head
    lists = (
        "input_lens",
        "output_lens",
        "ttfts",
        "itls",
        "latencies",
        "start_times",
        "queue_times",
        "generated_texts",
        "errors",
    )
    assert {len(result[k]) for k in lists} == {COUNT + 4}
    assert (result["completed"], result["failed"], result["request_rate"]) == (COUNT + 1, 2, "inf")
    failed = [i for i, e in enumerate(result["errors"]) if e]
    assert [(result["ttfts"][i], result["itls"][i], result["output_lens"][i]) for i in failed] == [(0, [], 0)] * 2


def test_vllm_figures_are_those_of_its_own_formulas_over_its_own_lists(folder, tmp_path):
    (content,) = written(folder, "vllm", tmp_path).values()
    r = json.loads(content)
    ok = [i for i, n in enumerate(r["output_lens"]) if n]
    ttft = np.array([r["ttfts"][i] for i in ok])
    assert r["mean_ttft_ms"] == pytest.approx(ttft.mean() * 1e3)
    assert r["std_ttft_ms"] == pytest.approx(ttft.std() * 1e3)
    assert r["p99_ttft_ms"] == pytest.approx(np.percentile(ttft, 99) * 1e3)
    itls = [g for i in ok for g in r["itls"][i]]
    assert r["mean_itl_ms"] == pytest.approx(np.mean(itls) * 1e3)
    tpots = [(r["latencies"][i] - r["ttfts"][i]) / (r["output_lens"][i] - 1) for i in ok if r["output_lens"][i] > 1]
    assert r["median_tpot_ms"] == pytest.approx(np.median(tpots) * 1e3)
    assert r["output_throughput"] == pytest.approx(sum(r["output_lens"]) / r["duration"])
    assert r["request_throughput"] == pytest.approx(r["completed"] / r["duration"])
    # the role chunk is its first, and the finish chunk is one too
    assert r["ttfts"][0] == pytest.approx(0.049)
    assert len(r["itls"][0]) == 20 + 1


def test_genai_perf_files_have_its_rows_and_numbers(folder, tmp_path):
    files = written(folder, "genai-perf", tmp_path)
    tree = "artifacts/meta_llama3-8b-openai-chat-concurrency4/profile_export_genai_perf"
    assert set(files) == {f"{tree}.json", f"{tree}.csv"}
    found = json.loads(files[f"{tree}.json"])
    full = ["unit", "avg", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "min", "max", "std"]
    for tag, unit in {"request_latency": "ms", "time_to_first_token": "ms", "time_to_second_token": "ms",
                      "inter_token_latency": "ms", "output_token_throughput_per_user": "tokens/sec/user",
                      "output_sequence_length": "tokens", "input_sequence_length": "tokens"}.items():  # fmt: skip
        assert list(found[tag]) == full
        assert found[tag]["unit"] == unit
    assert {k: list(found[k]) for k in ("request_throughput", "request_count", "output_token_throughput")} == {
        key: ["unit", "avg"] for key in ("request_throughput", "request_count", "output_token_throughput")
    }
    assert found["request_count"]["avg"] == COUNT + 2
    assert found["inter_token_latency"]["avg"] == pytest.approx(10)
    config = found["input_config"]
    assert config["model_names"] == ["meta/llama3-8b"]
    assert config["perf_analyzer"] == {"stimulus": {"concurrency": 4}}
    assert config["input"] == {
        "synthetic_tokens": {"mean": 200, "stddev": 0},
        "output_tokens": {"mean": 20, "stddev": 5},
    }
    lines = files[f"{tree}.csv"].decode().split("\r\n")
    assert lines[0] == "Metric,avg,min,max,p99,p95,p90,p75,p50,p25,p10,p5,p1"
    assert [line.partition(",")[0] for line in lines[1:12]] == [
        "Time To First Token (ms)", "Time To Second Token (ms)", "Request Latency (ms)", "Inter Token Latency (ms)",
        "Output Token Throughput Per User (tokens/sec/user)", "Output Sequence Length (tokens)",
        "Input Sequence Length (tokens)", "", "Metric", "Output Token Throughput (tokens/sec)",
        "Request Throughput (per sec)",
    ]  # fmt: skip
    cells = next(csv.reader([lines[1]]))
    assert float(cells[1].replace(",", "")) == pytest.approx(found["time_to_first_token"]["avg"], abs=0.01)


def test_the_tree_of_the_guide_is_read_by_position_as_the_guide_does(tmp_path):
    """NVIDIA's guide leaves out lines 6 and 7, reads the rest as one table, and takes cells by row number."""
    loads = (1, 2, 5)
    runs = []
    for users in loads:
        run = tmp_path / f"r{users}"
        run.mkdir()
        write_log(run / "events.jsonl", [
            stream(i, (i // users) * 2.0, 50 + users, 10, 200, run=run.name, model="meta/llama3-8b-instruct", n_in=200)
            for i in range(4 * users)
        ])  # fmt: skip
        lengths = {"input_tokens": "200,0", "output_tokens": "200"}
        (run / "run.json").write_bytes(orjson.dumps({"load": {"users": users}, "lengths": lengths}))
        runs.append(str(run))
    export(runs, "genai-perf-24.06", str(tmp_path))
    for users in loads:
        path = (
            tmp_path
            / "artifacts"
            / f"meta_llama3-8b-instruct-openai-chat-concurrency{users}"
            / "200_200_genai_perf.csv"
        )
        lines = path.read_text().splitlines(keepends=True)
        frame = pd.read_csv(io.StringIO("".join(line for i, line in enumerate(lines) if i not in (6, 7))))
        assert frame["Metric"].tolist() == [
            "Time To First Token (ns)", "Inter Token Latency (ns)", "Request Latency (ns)", "Num Output Token",
            "Num Input Token", "Output Token Throughput (per sec)", "Request Throughput (per sec)",
        ]  # fmt: skip
        assert frame.iloc[0]["avg"] / 1e9 == pytest.approx((50 + users) / 1e3)
        assert frame.iloc[1]["p99"] == pytest.approx(10e6)
        seconds = 3 * 2.0 + (50 + users + 1990) / 1e3
        assert frame.iloc[5]["avg"] == pytest.approx(4 * users * 200 / seconds, abs=0.01)


@pytest.mark.parametrize(
    ("process", "burstiness"), [("poisson 2.5/s", 1.0), ("gamma 2.5/s, burstiness 0.5", 0.5), ("constant 2.5/s", None)]
)
def test_an_open_loop_has_its_rate_in_names_and_files_and_no_users_that_bound_it(folder, tmp_path, process, burstiness):
    card = orjson.loads((folder / "run.json").read_bytes())
    card["arrivals"] = {"asked": {"--llm-rate": {"process": process, "rate": 2.5}}}
    (folder / "run.json").write_bytes(orjson.dumps(card))
    ((name, content),) = written(folder, "vllm", tmp_path).items()
    assert name.startswith("openai-chat-2.5qps-llama3-8b-")
    result = json.loads(content)
    asked = (result["request_rate"], result["burstiness"], result["max_concurrency"])
    assert asked == (2.5, burstiness, None)
    tree = "artifacts/meta_llama3-8b-openai-chat-request_rate2.5/profile_export_genai_perf.json"
    config = json.loads(written(folder, "genai-perf", tmp_path)[tree])["input_config"]
    assert config["perf_analyzer"] == {"stimulus": {"request_rate": 2.5}}
    (benchmark,) = json.loads(written(folder, "guidellm", tmp_path)["benchmarks.json"])["benchmarks"]
    kind = "constant" if burstiness is None else "poisson"  # GuideLLM has no gamma
    assert benchmark["config"]["strategy"] == {"type_": kind, "rate": 2.5, "max_concurrency": None}
    assert benchmark["scheduler_metrics"]["strategy_type"] == benchmark["config"]["profile"]["kind"] == kind
    tree = "artifacts/meta_llama3-8b-openai-chat-request_rate2.5/profile_export_aiperf.json"
    (phase,) = json.loads(written(folder, "aiperf", tmp_path)[tree])["input_config"]["phases"]
    assert (phase["type"], phase["rate"]) == (process.split()[0], 2.5)
    assert phase.get("smoothness") == (0.5 if phase["type"] == "gamma" else None)


def test_aiperf_files_have_its_tags_units_and_statistics(folder, tmp_path):
    files = written(folder, "aiperf", tmp_path)
    tree = "artifacts/meta_llama3-8b-openai-chat-concurrency4/"
    assert set(files) == {
        f"{tree}{n}" for n in ("profile_export_aiperf.json", "profile_export_aiperf.csv", "profile_export.jsonl")
    }
    found = json.loads(files[f"{tree}profile_export_aiperf.json"])
    assert found["schema_version"] == "1.4"
    full = [
        "unit",
        "avg",
        "p1",
        "p5",
        "p10",
        "p25",
        "p50",
        "p75",
        "p90",
        "p95",
        "p99",
        "min",
        "max",
        "std",
        "count",
        "sum",
    ]
    for tag in ("request_latency", "time_to_first_token", "time_to_first_output_token", "time_to_second_token",
                "inter_token_latency", "inter_chunk_latency", "output_token_throughput_per_user",
                "e2e_output_token_throughput", "prefill_throughput_per_user", "output_sequence_length"):  # fmt: skip
        assert list(found[tag]) == full
    for tag, unit in {"request_count": "requests", "benchmark_duration": "sec", "total_isl": "tokens",
                      "output_token_throughput": "tokens/sec", "error_request_count": "requests"}.items():  # fmt: skip
        assert found[tag]["unit"] == unit
        assert list(found[tag]) == ["unit", "avg"]
    assert found["request_count"]["avg"] == COUNT + 2
    assert found["was_cancelled"] is True
    assert [e["count"] for e in found["error_summary"]] == [1, 1]
    assert found["start_time"].startswith("2027-01-15T08:00:00")
    table = list(csv.reader(io.StringIO(files[f"{tree}profile_export_aiperf.csv"].decode())))
    assert table[0] == [
        "Metric",
        "avg",
        "min",
        "max",
        "sum",
        "p1",
        "p5",
        "p10",
        "p25",
        "p50",
        "p75",
        "p90",
        "p95",
        "p99",
        "std",
    ]
    split = table.index([])
    assert table[split + 1] == ["Metric", "Value"]
    assert "Time to First Token (ms)" in {r[0] for r in table[1:split]}
    assert ["Request Count", f"{COUNT + 2:.2f}"] in table[split:]


def test_aiperf_lines_give_the_summary_back(folder, tmp_path):
    files = written(folder, "aiperf", tmp_path)
    lines = [json.loads(x) for x in next(v for k, v in files.items() if k.endswith(".jsonl")).splitlines()]
    found = json.loads(next(v for k, v in files.items() if k.endswith("aiperf.json")))
    assert len(lines) == COUNT + 4
    good = [x for x in lines if x["error"] is None]
    ttft = [x["metrics"]["time_to_first_token"]["value"] for x in good if "time_to_first_token" in x["metrics"]]
    assert statistics.mean(ttft) == pytest.approx(found["time_to_first_token"]["avg"])
    chunks = [g for x in good for g in x["metrics"].get("inter_chunk_latency", {"value": []})["value"]]
    assert np.percentile(chunks, 90) == pytest.approx(found["inter_chunk_latency"]["p90"])
    meta = lines[0]["metadata"]
    assert meta["request_start_ns"] == T0_S * 10**9
    assert (meta["benchmark_phase"], meta["was_cancelled"], meta["turn_index"]) == ("profiling", False, 0)
    bad = [x for x in lines if x["error"]]
    assert {x["error"]["code"] for x in bad} == {429, 200}
    assert all(x["metrics"] == {} for x in bad)


def test_guidellm_report_has_a_benchmark_a_run_with_all_its_distributions(folder, tmp_path):
    (content,) = written(folder, "guidellm", tmp_path).values()
    report = json.loads(content)
    assert list(report) == ["metadata", "config", "benchmarks", "conclusions"]
    assert report["metadata"]["version"] == 2
    (b,) = report["benchmarks"]
    assert b["type_"] == "generative_benchmark"
    assert b["config"]["strategy"]["streams"] == USERS
    assert b["scheduler_metrics"]["requests_made"] == {
        "successful": COUNT + 2,
        "errored": 2,
        "incomplete": 0,
        "total": COUNT + 4,
    }
    shape = ["mean", "median", "mode", "variance", "std_dev", "min", "max", "total_sum", "count", "percentiles",
             "pdf", "mean_ci",
             "percentile_cis"]  # fmt: skip
    for name in ("requests_per_second", "request_concurrency", "request_latency", "time_to_first_token_ms",
                 "inter_token_latency_ms", "time_per_output_token_ms", "output_tokens_per_second", "tokens_per_second",
                 "prompt_token_count", "output_token_count"):  # fmt: skip
        for status in ("successful", "errored", "incomplete", "total"):
            found = b["metrics"][name][status]
            assert sorted(found) == sorted(shape)
            assert list(found["percentiles"]) == [
                "p001",
                "p01",
                "p05",
                "p10",
                "p25",
                "p50",
                "p75",
                "p90",
                "p95",
                "p99",
                "p999",
            ]
    assert b["metrics"]["request_latency"]["incomplete"]["count"] == 0


def test_guidellm_figures_follow_its_rules(folder, tmp_path):
    (content,) = written(folder, "guidellm", tmp_path).values()
    (b,) = json.loads(content)["benchmarks"]
    records = b["requests"]["successful"]
    first = records[0]
    # latency ends with the stream; TPOT holds TTFT; ITL does not
    assert first["request_latency"] == pytest.approx(0.050 + 0.190 + 0.003)
    assert first["time_per_output_token_ms"] == pytest.approx(240 / 20)
    assert first["inter_token_latency_ms"] == pytest.approx(10)
    ttfts = sorted(r["time_to_first_token_ms"] for r in records if r["time_to_first_token_ms"] is not None)
    found = b["metrics"]["time_to_first_token_ms"]["successful"]
    assert found["percentiles"]["p90"] in ttfts
    assert found["percentiles"]["p90"] == ttfts[-(-9 * len(ttfts) // 10) - 1]
    assert b["metrics"]["requests_per_second"]["successful"]["mean"] == pytest.approx(len(records) / b["duration"])
    itls = [(r["inter_token_latency_ms"], r["output_tokens"] - 1) for r in records if r["inter_token_latency_ms"]]
    found = b["metrics"]["inter_token_latency_ms"]["successful"]
    assert found["count"] == sum(n for _, n in itls)
    assert found["mean"] == pytest.approx(sum(itl * n for itl, n in itls) / found["count"])
    in_flight = sum(r["request_latency"] for r in records) / b["duration"]
    assert b["metrics"]["request_concurrency"]["successful"]["mean"] == pytest.approx(in_flight, rel=1e-3)
    assert b["requests"]["errored"][0]["info"]["error"] == "too many"
