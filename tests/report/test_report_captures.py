"""Replays of real servers' streams: all six definitions can be computed from the log, and each is that tool's own loop.

The loops below are short retellings of what each tool does with the messages of a stream, over the raw bytes and their
times; they know nothing of our decoders or our record.
"""

from __future__ import annotations

import math

import pytest
from capture_records import FOLDER, Capture, captures
from report_logs import write_log

from locust_llm.report.definitions import NAMES, compare
from locust_llm.report.reading import read
from locust_llm.report.summary import report

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="tests/captures is not here")

CAPTURES = captures() if FOLDER.is_dir() else []
GOOD = [c for c in CAPTURES if c.record.outcome == "ok"]
STREAMS = [c for c in GOOD if c.record.streamed]


def text(message):
    return message.delta().get("content") or ""


def reasoning(message):
    delta = message.delta()
    return delta.get("reasoning_content") or delta.get("reasoning") or ""


def tool(message):
    return message.delta().get("tool_calls") or []


def has_choices(message):
    """As vLLM asks; but LiteLLM's usage message, which carries a choice that says nothing, is usage in the record."""
    choices = (message.data or {}).get("choices")
    says_nothing = not any(message.delta().values()) and choices and not choices[0].get("finish_reason")
    return bool(choices) and not (message.data.get("usage") and says_nothing)


def mean_gap(first, last, n):
    return (last - first) / (n - 1) if n is not None and n > 1 else None


def aiperf(of: Capture, n):
    at = [m.at_ms for m in of.messages if text(m) or reasoning(m) or tool(m)]
    return {"ttft": at[0], "e2e_latency": at[-1], "itl": mean_gap(at[0], at[-1], n)}


def genai_perf(of: Capture, n):
    at = [m.at_ms for m in of.messages if text(m)]
    return {"ttft": at[0], "e2e_latency": at[-1], "itl": mean_gap(at[0], at[-1], n)}


def guidellm(of: Capture, n):
    at = [m.at_ms for m in of.messages if text(m) or reasoning(m) or tool(m)]
    n = n if n is not None else len(at)
    return {"ttft": at[0], "e2e_latency": of.end_ms, "itl": mean_gap(at[0], at[-1], n), "tpot": at[-1] / n}


def vllm(of: Capture, n):
    first = last = None
    gaps = []
    for m in of.messages:
        if has_choices(m):
            if first is None:
                first = m.at_ms
            else:
                gaps.append(m.at_ms - last)
            last = m.at_ms
    itl = sum(gaps) / len(gaps) if gaps else None
    return {"ttft": first, "e2e_latency": last, "itl": itl, "tpot": mean_gap(first, last, n if n is not None else 1)}


def sglang(of: Capture, n):
    at = [m.at_ms for m in of.messages if text(m) or reasoning(m)]
    last_line = of.messages[-1].at_ms
    itl = (at[-1] - at[0]) / (len(at) - 1) if len(at) > 1 else None
    return {"ttft": at[0], "e2e_latency": last_line, "itl": itl, "tpot": mean_gap(at[0], last_line, n)}


def llmperf(of: Capture, n):
    at = [m.at_ms for m in of.messages if text(m)]
    messages = [m for m in of.messages if has_choices(m)]  # it asks for no usage
    per_second = n / of.end_ms * 1e3 if n is not None else None
    return {"ttft": at[0], "e2e_latency": of.end_ms, "itl": at[-1] / len(messages), "output_tps_per_user": per_second}


LOOPS = {
    "aiperf": aiperf,
    "genai-perf": genai_perf,
    "guidellm": guidellm,
    "vllm": vllm,
    "sglang": sglang,
    "llmperf": llmperf,
}


def test_there_are_streams_of_every_server():
    assert len({c.record.name for c in STREAMS}) == 6
    assert len(STREAMS) > 60


@pytest.mark.parametrize("of", STREAMS, ids=lambda c: c.name)
def test_each_definition_is_the_tools_own_loop_over_the_bytes(tmp_path, of):
    log = read([write_log(tmp_path / "events.jsonl", [of.record])])
    for definition in compare(log, NAMES):
        for name, value in LOOPS[definition.tool](of, of.record.n_out).items():
            if value is None:
                assert name not in definition.metrics, (definition.tool, name)
                continue
            scale = 1 if name.endswith("user") else 1e3
            got = definition.metrics[name]["mean"] * scale
            assert math.isclose(got, value, rel_tol=1e-6, abs_tol=0.0021), (definition.tool, name, got, value)


def test_all_six_definitions_can_be_computed_from_the_log_of_the_replays(tmp_path):
    log = read([write_log(tmp_path / "events.jsonl", [c.record for c in CAPTURES])])
    for definition in compare(log, NAMES):
        assert {"ttft", "itl", "e2e_latency"} <= set(definition.metrics)
        assert ("tpot" in definition.metrics) == (definition.tool in ("guidellm", "vllm", "sglang"))
        assert definition.rates["requests_per_s"] > 0
        for of in definition.metrics.values():
            assert all(math.isfinite(v) for v in of.values())


def test_the_report_of_the_replays_counts_what_the_bytes_say(tmp_path):
    write_log(tmp_path / "events.jsonl", [c.record for c in CAPTURES])
    total = report([tmp_path], "all")["total"]
    assert total["outcomes"]["ok"] == len(GOOD)
    assert sum(total["outcomes"].values()) == len(CAPTURES)
    assert total["metrics"]["ttft"]["count"] == len(STREAMS)
    usages = [m.data["usage"] for c in GOOD for m in c.messages if m.data is not None and m.data.get("usage")]
    assert total["tokens"]["output"] >= max(u["completion_tokens"] for u in usages)
    assert total["tokens"]["output"] == sum(c.record.n_out for c in GOOD if c.record.n_out is not None)
