"""Other tools' definitions: each tool's own arithmetic, written out by hand on known timings."""

from __future__ import annotations

import numpy as np
import pytest
from report_logs import T0_S, log_of, record, stream

from locust_llm.report.definitions import NAMES, compare
from locust_llm.report.definitions_table import render_definitions
from locust_llm.report.summary import summarise

# One answer with every kind of event, times in ms after the start.
EVENTS = [
    (40, "role"), (55, "empty"), (60, "reasoning"), (75, "reasoning"), (100, "content"), (112, "content"),
    (112, "content"), (150, "content"), (155, "finish"), (160, "usage"), (170, "done"),
]  # fmt: skip
MIXED = {"n_out": 9, "n_reasoning": 3, "out_source": "usage", "n_in": 20, "end_ms": 171, "asked_out": 12}


def mixed(seq=0, at_s=0.0, **members):
    return record(seq, at_s, EVENTS, **(MIXED | members))


def one(folder, tool, *records):
    return compare(log_of(folder, *records), [tool])[0]


def mean(of, name):
    return of.metrics[name]["mean"] * 1e3


def test_aiperf(tmp_path):
    # first and last content, reasoning or tool chunk; (latency - ttft) / (n - 1), one value a request
    of = one(tmp_path, "aiperf", mixed())
    assert (mean(of, "ttft"), mean(of, "e2e_latency")) == pytest.approx((60, 150))
    assert mean(of, "itl") == pytest.approx((150 - 60) / (9 - 1))
    assert of.metrics["itl"]["count"] == 1
    assert (mean(of, "icl"), of.metrics["icl"]["count"]) == (pytest.approx((150 - 60) / 5), 5)
    assert of.rates == {"output_tps": pytest.approx(9 / 0.150), "requests_per_s": pytest.approx(1 / 0.150)}


def test_genai_perf(tmp_path):
    # answer text only; tokens of the text; mean rounded to nanoseconds
    of = one(tmp_path, "genai-perf", mixed())
    assert (mean(of, "ttft"), mean(of, "e2e_latency")) == pytest.approx((100, 150))
    assert of.metrics["itl"]["mean"] == round((150_000_000 - 100_000_000) / (6 - 1)) / 1e9
    assert of.rates["output_tps"] == pytest.approx(6 / 0.150)


def test_guidellm(tmp_path):
    # ITL (last - first) / (n - 1); TPOT (last - start) / n; latency to the end of the stream
    of = one(tmp_path, "guidellm", mixed())
    assert (mean(of, "ttft"), mean(of, "e2e_latency")) == pytest.approx((60, 171))
    assert (mean(of, "itl"), mean(of, "tpot")) == pytest.approx(((150 - 60) / 8, 150 / 9))
    assert of.rates == {"output_tps": pytest.approx(9 / 0.171), "requests_per_s": pytest.approx(1 / 0.171)}


def test_guidellm_counts_chunks_without_usage(tmp_path):
    of = one(tmp_path, "guidellm", mixed(n_out=None, out_source=None))
    assert mean(of, "tpot") == pytest.approx(150 / 6)


def test_vllm(tmp_path):
    # every chunk with choices, role and finish too; itl is the list of their gaps; tpot (latency - ttft) / (n - 1)
    of = one(tmp_path, "vllm", mixed())
    chunks = np.array([40, 55, 60, 75, 100, 112, 112, 150, 155.0])
    assert (mean(of, "ttft"), mean(of, "e2e_latency")) == pytest.approx((40, 155))
    assert mean(of, "tpot") == pytest.approx((155 - 40) / 8)
    assert of.metrics["itl"]["count"] == len(chunks) - 1
    assert mean(of, "itl") == pytest.approx(np.diff(chunks).mean())
    assert of.metrics["itl"]["p99"] * 1e3 == pytest.approx(np.percentile(np.diff(chunks), 99))
    assert of.metrics["itl"]["std"] * 1e3 == pytest.approx(np.std(np.diff(chunks)))


def test_vllm_counts_one_token_without_usage(tmp_path):
    of = one(tmp_path, "vllm", mixed(n_out=None, out_source=None))
    assert "tpot" in of.absent
    assert of.rates["output_tps"] == pytest.approx(1 / 0.171)


def test_sglang(tmp_path):
    # content and reasoning chunks for ttft and itl; latency and tpot up to the last line, [DONE] too
    of = one(tmp_path, "sglang", mixed())
    assert (mean(of, "ttft"), mean(of, "e2e_latency")) == pytest.approx((60, 170))
    assert mean(of, "tpot") == pytest.approx((170 - 60) / 8)
    assert mean(of, "itl") == pytest.approx(np.diff([60, 75, 100, 112, 112, 150.0]).mean())


def test_sglang_takes_the_length_asked_for_without_usage(tmp_path):
    of = one(tmp_path, "sglang", mixed(n_out=9, out_source="tokenizer"))
    assert mean(of, "tpot") == pytest.approx((170 - 60) / 11)
    assert of.rates["output_tps"] == pytest.approx(12 / 0.171)


def test_llmperf(tmp_path):
    # first text; sum of text gaps with ttft inside = last text; divided by the data messages; sample deviation
    of = one(tmp_path, "llmperf", mixed(0), mixed(1, 1.0, end_ms=200))
    messages = 9  # role, empty, 2 reasoning, 4 content, finish
    assert (mean(of, "ttft"), mean(of, "itl")) == pytest.approx((100, 150 / messages))
    assert of.metrics["e2e_latency"]["mean"] == pytest.approx((0.171 + 0.200) / 2)
    assert of.metrics["e2e_latency"]["std"] == pytest.approx(np.std([0.171, 0.200], ddof=1))
    assert of.metrics["output_tps_per_user"]["mean"] == pytest.approx((6 / 0.171 + 6 / 0.200) / 2)
    assert of.rates == {"output_tps": pytest.approx(12 / 1.2), "requests_per_s": pytest.approx(2 / 1.2)}


def test_tool_calls_are_invisible_to_some(tmp_path):
    r = record(0, 0.0, [(40, "role"), (60, "tool"), (80, "tool"), (90, "finish")], n_out=2, out_source="usage")
    of = {d.tool: d for d in compare(log_of(tmp_path, r), NAMES)}
    assert {tool: "ttft" in d.metrics for tool, d in of.items()} == {
        "aiperf": True, "genai-perf": False, "guidellm": True, "vllm": True, "sglang": False, "llmperf": False,
    }  # fmt: skip
    assert all(d.absent["ttft"] for d in of.values() if "ttft" not in d.metrics)


def random_log(folder, n=300):
    rng = np.random.default_rng(3)
    records = []
    for i in range(n):
        k = int(rng.integers(1, 30))
        outcome = "timeout" if rng.random() < 0.05 else "ok"
        records.append(
            stream(i, i * 0.02, round(rng.gamma(4, 15) + 2, 3), round(rng.gamma(9, 1), 3), k, outcome=outcome)
        )
    records[-1] = stream(n - 1, n * 0.02, tokens=3, outcome="timeout", end_ms=9000)
    return records, log_of(folder, *records)


def parts(r):
    """Seconds: start, role, tokens, finish, done, end; tokens."""
    times = np.cumsum(r.event_gaps_us) / 1e6
    return times[0], times[1 : 1 + r.n_out], times[-3], times[-1], r.end_us / 1e6, r.n_out


def test_every_tool_on_a_random_log_by_its_own_arithmetic(tmp_path):
    records, log = random_log(tmp_path)
    ok = [r for r in records if r.outcome == "ok"]
    of = {d.tool: d for d in compare(log, NAMES)}
    first = T0_S
    last_end = max(r.start_us / 1e6 + r.end_us / 1e6 for r in records)
    last_token = max(r.start_us / 1e6 + parts(r)[1][-1] for r in ok)
    tokens = sum(r.n_out for r in ok)

    def same(values, of, lower=False, ddof=0, weights=1):
        values = np.repeat(values, weights)
        assert of["count"] == len(values)
        assert of["mean"] == pytest.approx(values.mean())
        assert of["std"] == pytest.approx(values.std(ddof=ddof))
        for name, q in (("p50", 50), ("p90", 90), ("p99", 99)):
            assert of[name] == pytest.approx(np.percentile(values, q, method="inverted_cdf" if lower else "linear"))

    ttft = [parts(r)[1][0] for r in ok]
    mean_gap = [(e[-1] - e[0]) / (n - 1) for _, e, _, _, _, n in map(parts, ok) if n > 1]
    same(ttft, of["aiperf"].metrics["ttft"])
    same(mean_gap, of["aiperf"].metrics["itl"])
    same([parts(r)[1][-1] for r in ok], of["aiperf"].metrics["e2e_latency"])
    assert of["aiperf"].rates["output_tps"] == pytest.approx(tokens / (last_token - first))

    same([round(g * 1e9) / 1e9 for g in mean_gap], of["genai-perf"].metrics["itl"])
    assert of["genai-perf"].rates["requests_per_s"] == pytest.approx(len(ok) / (last_token - first))

    same(ttft, of["guidellm"].metrics["ttft"], lower=True)
    # its ITL and TPOT: a request weighs as much as it has tokens
    counts = [r.n_out for r in ok]
    same(mean_gap, of["guidellm"].metrics["itl"], lower=True, weights=[n - 1 for n in counts if n > 1])
    same([e[-1] / n for _, e, _, _, _, n in map(parts, ok)], of["guidellm"].metrics["tpot"], lower=True, weights=counts)
    same([r.end_us / 1e6 for r in ok], of["guidellm"].metrics["e2e_latency"], lower=True)

    same([parts(r)[0] for r in ok], of["vllm"].metrics["ttft"])
    same([(f - role) / (n - 1) for role, _, f, _, _, n in map(parts, ok) if n > 1], of["vllm"].metrics["tpot"])
    gaps = [np.diff([role, *e, f]) for role, e, f, _, _, _ in map(parts, ok)]
    same(np.concatenate(gaps), of["vllm"].metrics["itl"])
    assert of["vllm"].rates["output_tps"] == pytest.approx(tokens / (last_end - first))
    assert of["vllm"].rates["requests_per_s"] == pytest.approx(len(ok) / (last_end - first))

    same(np.concatenate([np.diff(parts(r)[1]) for r in ok]), of["sglang"].metrics["itl"])
    same([(d - e[0]) / (n - 1) for _, e, _, d, _, n in map(parts, ok) if n > 1], of["sglang"].metrics["tpot"])

    same([e[-1] / (n + 2) for _, e, _, _, _, n in map(parts, ok)], of["llmperf"].metrics["itl"], ddof=1)
    same([n / end for *_, end, n in map(parts, ok)], of["llmperf"].metrics["output_tps_per_user"], ddof=1)


def test_tools_that_always_stream_find_nothing_in_answers_that_were_not(tmp_path):
    r = record(0, 0.0, [(300, "content")], end_ms=301, streamed=False, n_out=30, out_source="usage")
    of = {d.tool: d for d in compare(log_of(tmp_path, r), NAMES)}
    for tool in ("vllm", "llmperf"):
        assert not of[tool].metrics
        assert not of[tool].rates
        assert "not streamed" in of[tool].absent["output_tps"]
    for tool in ("aiperf", "genai-perf", "guidellm", "sglang"):
        assert mean(of[tool], "e2e_latency") == pytest.approx(301)
        assert "not streamed" in of[tool].absent["ttft"]
        assert of[tool].rates["output_tps"] == pytest.approx(30 / 0.301)


@pytest.mark.parametrize("tool", NAMES)
def test_a_log_without_a_success_gives_reasons_and_no_numbers(tmp_path, tool):
    of = one(tmp_path, tool, mixed(outcome="timeout"), mixed(1, outcome="cancelled"), mixed(2, phase="warmup"))
    assert not of.metrics
    assert not of.rates
    assert "no exchange succeeded" in of.absent["ttft"]


def test_the_table_shows_all_tools_beside_ours_and_one_line_why(tmp_path):
    _, log = random_log(tmp_path)
    text = render_definitions(compare(log, NAMES), summarise(log, {})["total_all"])
    lines = text.splitlines()
    assert lines[1].split() == ["locust-llm", *NAMES]
    assert max(map(len, lines)) <= 100
    assert "nan" not in text.lower()
    for tool in NAMES:
        assert sum(line.startswith(f"{tool}: ") for line in lines) == 1
