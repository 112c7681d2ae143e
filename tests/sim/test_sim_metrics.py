"""The simulator's ``/metrics``: what it counts is what it sent, under vLLM's names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sim_client import Client, chat_body, request

from locust_llm.sim.process import Simulator


def counters(client: Client) -> dict[str, float]:
    """Return samples by name, and by name and reason where there is one."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            reason = sample.labels.get("finished_reason")
            found[f"{sample.name} {reason}" if reason else sample.name] = sample.value
    return found


def grown(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {name.removeprefix("vllm:"): value - before[name] for name, value in after.items()}


def test_tokens_are_those_of_the_usage(client: Client) -> None:
    before = counters(client)
    whole = client.chat("one two three", max_tokens=7, ignore_eos=True).json()["usage"]
    client.chat("four five", max_tokens=5, ignore_eos=True, stream=True)
    new = grown(counters(client), before)
    assert new["prompt_tokens_total"] == whole["prompt_tokens"] + whole["prompt_tokens"] - 1
    assert new["generation_tokens_total"] == 12
    assert new["request_success_total length"] == 2


def test_means_are_those_of_the_schedule(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(ttft=0.05, itl=0.005).port) as client:
        for _ in range(2):
            client.chat(max_tokens=10, ignore_eos=True, stream=True)
        found = counters(client)
    counts = {"time_to_first_token": 2, "inter_token_latency": 18, "e2e_request_latency": 2}
    assert {name: found[f"vllm:{name}_seconds_count"] for name in counts} == counts
    ttft_s, decode_s, e2e_s = (found[f"vllm:{name}_seconds_sum"] for name in counts)
    assert ttft_s > 2 * 0.05
    assert e2e_s > 2 * (0.05 + 9 * 0.005)  # due times are absolute: a late first token is followed by shorter gaps
    assert e2e_s == pytest.approx(ttft_s + decode_s)


def test_a_client_that_goes_is_an_abort_and_its_tokens_count(simulate: Callable[..., Simulator]) -> None:
    server = simulate(ttft=0.002, itl=0.02)
    with Client(server.port) as leaver:
        leaver.send(request("POST", "/v1/chat/completions", chat_body(max_tokens=1000, stream=True)))
        leaver.read_until(b"data: ")
    with Client(server.port) as client:
        while not (found := counters(client))["vllm:request_success_total abort"]:
            pass
    assert 0 < found["vllm:generation_tokens_total"] < 1000
    assert found["vllm:num_requests_running"] == 0


def test_the_prefix_cache_counts_looked_up_and_found_tokens(simulate: Callable[..., Simulator]) -> None:
    prompt = " ".join(f"w{i}" for i in range(40))
    with Client(simulate(prefix_cache=True).port) as client:
        usages = [client.chat(prompt, max_tokens=2).json()["usage"] for _ in range(2)]
        found = counters(client)
    assert found["vllm:prefix_cache_queries_total"] == sum(u["prompt_tokens"] for u in usages)
    cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages)
    assert found["vllm:prefix_cache_hits_total"] == cached > 0


def test_an_error_in_the_body_is_a_request_with_an_error(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(error_rate=1.0, error_kind="in_band").port) as client:
        client.chat(max_tokens=5, stream=True)
        assert counters(client)["vllm:request_success_total error"] == 1
