"""Shape and order of streamed and whole answers: events, lengths, usage, finish reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from sim_client import Client, request

from locust_llm.sim.process import Simulator
from locust_llm.sim.text import TEMPLATE_TOKENS

USAGE = {"include_usage": True}
CONTINUOUS = {"include_usage": True, "continuous_usage_stats": True}


def test_a_chat_stream_is_role_then_one_token_an_event_then_finish_usage_done(client: Client) -> None:
    answer = client.chat("one two three", stream=True, max_tokens=5, stream_options=USAGE)
    assert answer.status == 200
    assert answer.complete
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.payloads()[-1] == "[DONE]"
    events = answer.events()
    assert len({event["id"] for event in events}) == 1
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert answer.deltas()[0] == {"role": "assistant", "content": ""}
    assert [len(delta["content"].split()) for delta in answer.deltas()[1:6]] == [1] * 5
    assert all(delta["content"].startswith(" ") for delta in answer.deltas()[1:6])
    assert answer.deltas()[6] == {}
    assert events[6]["choices"][0]["finish_reason"] == "length"
    assert events[7]["choices"] == []
    assert events[7]["usage"] == {"prompt_tokens": 3 + TEMPLATE_TOKENS, "completion_tokens": 5, "total_tokens": 16}
    assert len(events) == 8


def test_a_completions_stream_has_text_and_no_role(client: Client) -> None:
    body = {"prompt": "one two", "stream": True, "max_tokens": 4}
    answer = client.post("/v1/completions", body)
    assert answer.complete
    assert {event["object"] for event in answer.events()} == {"text_completion"}
    assert len(answer.texts()) == 4
    assert len(answer.events()) == 5
    assert answer.finish_reasons() == ["length"]


@pytest.mark.parametrize("chat", [True, False])
def test_the_same_request_number_has_the_same_text_streamed_or_not(
    simulate: Callable[..., Simulator], chat: bool
) -> None:
    texts = []
    for stream in (True, False):
        body = {"stream": stream, "max_tokens": 70}
        body |= {"messages": [{"role": "user", "content": "x"}]} if chat else {"prompt": "x"}  # type: ignore[dict-item]
        with Client(simulate().port) as client:
            answer = client.post("/v1/chat/completions" if chat else "/v1/completions", body)
            if stream:
                texts.append("".join(answer.texts()))
            else:
                choice = answer.json()["choices"][0]
                texts.append(choice["message"]["content"] if chat else choice["text"])
    assert texts[0] == texts[1]
    assert len(texts[0].split()) == 70


def test_a_whole_answer_reports_its_counts(client: Client) -> None:
    answer = client.chat("one two three", max_tokens=6)
    assert answer.headers["content-type"] == "application/json"
    choice = answer.json()["choices"][0]
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"].split()) == 6
    assert choice["finish_reason"] == "length"
    assert answer.json()["usage"] == {"prompt_tokens": 11, "completion_tokens": 6, "total_tokens": 17}


def test_without_a_limit_the_default_length_stops_by_itself(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(tokens=9).port) as client:
        answer = client.chat(stream=True)
        assert (len(answer.texts()), answer.finish_reasons()) == (9, ["stop"])
        assert len(client.chat(stream=True, min_tokens=12).texts()) == 12
        assert len(client.chat(stream=True, max_tokens=20, max_completion_tokens=4).texts()) == 4


def test_no_usage_is_sent_unasked(client: Client) -> None:
    assert client.chat(stream=True, max_tokens=3).usages() == []


def test_running_usage_counts_every_event(client: Client) -> None:
    answer = client.chat(stream=True, max_tokens=3, stream_options=CONTINUOUS)
    assert [usage["completion_tokens"] for usage in answer.usages()] == [0, 1, 2, 3, 3, 3]
    assert {usage["prompt_tokens"] for usage in answer.usages()} == {11}


def test_a_server_may_report_usage_only_at_the_end_or_not_at_all(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(usage="final").port) as client:
        answer = client.chat(stream=True, max_tokens=3, stream_options=CONTINUOUS)
        assert [usage["completion_tokens"] for usage in answer.usages()] == [3]
    with Client(simulate(usage="off").port) as client:
        assert client.chat(stream=True, max_tokens=3, stream_options=CONTINUOUS).usages() == []
        assert "usage" not in client.chat(max_tokens=3).json()


def test_several_tokens_an_event_keep_the_count(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(tokens_per_event=4).port) as client:
        answer = client.chat(stream=True, max_tokens=10, stream_options=USAGE)
        assert [len(text.split()) for text in answer.texts()] == [4, 4, 2]
        assert answer.usages()[-1]["completion_tokens"] == 10


def test_reasoning_comes_first_counts_as_output_and_is_reported(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(reasoning=3, tokens_per_event=2).port) as client:
        answer = client.chat(stream=True, max_tokens=7, stream_options=USAGE)
        thoughts = [delta["reasoning_content"] for delta in answer.deltas() if "reasoning_content" in delta]
        assert [len(text.split()) for text in thoughts] == [2, 1]
        assert [len(text.split()) for text in answer.texts()] == [2, 2]
        assert "reasoning_content" in answer.deltas()[2]
        assert answer.usages()[-1]["completion_tokens_details"] == {"reasoning_tokens": 3}
        whole = client.chat(max_tokens=7).json()
        assert len(whole["choices"][0]["message"]["reasoning_content"].split()) == 3
        assert len(whole["choices"][0]["message"]["content"].split()) == 4
        assert whole["usage"]["completion_tokens"] == 7
        only_thoughts = client.chat(stream=True, max_tokens=2)
        assert only_thoughts.texts() == []


def test_each_choice_has_its_own_events_and_finish(client: Client) -> None:
    answer = client.chat(stream=True, max_tokens=4, n=3, stream_options=USAGE)
    assert [event["choices"][0]["index"] for event in answer.events()[:3]] == [0, 1, 2]
    for choice in range(3):
        assert len(answer.texts(choice)) == 4
    assert answer.finish_reasons() == ["length"] * 3
    assert answer.usages()[-1]["completion_tokens"] == 12


def test_a_batch_of_prompts_gives_a_choice_each(client: Client) -> None:
    body = {"prompt": ["one two", "three"], "max_tokens": 3, "n": 2}
    whole = client.post("/v1/completions", body).json()
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert whole["usage"] == {"prompt_tokens": 3 + TEMPLATE_TOKENS, "completion_tokens": 12, "total_tokens": 23}
    answer = client.post("/v1/completions", body | {"stream": True})
    assert [len(answer.texts(choice)) for choice in range(4)] == [3, 3, 3, 3]
    ids = client.post("/v1/completions", {"prompt": [[1, 2, 3], [4]], "max_tokens": 1}).json()
    assert (len(ids["choices"]), ids["usage"]["prompt_tokens"]) == (2, 4 + TEMPLATE_TOKENS)


def test_content_parts_count_as_their_text(client: Client) -> None:
    parts = [{"type": "text", "text": "one two"}, {"type": "image_url", "image_url": {"url": "x"}}]
    body = {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": parts}]}
    assert client.post("/v1/chat/completions", body).json()["usage"]["prompt_tokens"] == 4 + TEMPLATE_TOKENS


def test_natural_stop_varies_the_length_unless_eos_is_ignored(simulate: Callable[..., Simulator]) -> None:
    simulator = simulate(natural_stop=10, seed=3)
    with Client(simulator.port) as client:
        answers = [client.chat(stream=True, max_tokens=60) for _ in range(12)]
        lengths = [len(answer.texts()) for answer in answers]
        assert len(set(lengths)) > 1
        assert all(5 <= length <= 15 for length in lengths)
        assert all(answer.finish_reasons() == ["stop"] for answer in answers)
        assert len(client.chat(stream=True, max_tokens=60, min_tokens=30).texts()) == 30
        exact = client.chat(stream=True, max_tokens=60, ignore_eos=True)
        assert (len(exact.texts()), exact.finish_reasons()) == (60, ["length"])
    with Client(simulate(natural_stop=10, seed=3).port) as again:
        assert [len(again.chat(stream=True, max_tokens=60).texts()) for _ in range(12)] == lengths


def test_a_stop_string_ends_the_answer_before_it(client: Client) -> None:
    text = "".join(client.chat(stream=True, max_tokens=62).texts())
    answer = client.chat(stream=True, max_tokens=62, stop=["slate roofs", "never said"], stream_options=USAGE)
    got = "".join(answer.texts())
    assert "slate" in text
    assert got.split()[-1] == "over"
    assert "slate" not in got
    assert answer.finish_reasons() == ["stop"]
    assert answer.usages()[-1]["completion_tokens"] == len(got.split())
    assert client.chat(max_tokens=5, stop="never said").json()["choices"][0]["finish_reason"] == "length"


def test_the_role_event_comes_with_the_first_token_or_early(simulate: Callable[..., Simulator]) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 2}
    for role, early in (("early", True), ("with_first", False)):
        with Client(simulate(role=role, ttft=0.3).port) as client:
            client.send(request("POST", "/v1/chat/completions", body))
            client.read_until(b"\r\n\r\n")
            if not client.buffer:
                client.more()
            first = client.buffer
            assert b'"role":"assistant"' in first
            assert (b'"content":" ' in first) is not early


def test_cached_tokens_are_the_common_prefix_in_whole_blocks(simulate: Callable[..., Simulator]) -> None:
    words = [f"w{i}" for i in range(100)]
    with Client(simulate(prefix_cache=True).port) as client:

        def cached(prompt: list[str]) -> int:
            usage = client.chat(" ".join(prompt), max_tokens=1).json()["usage"]
            return int(usage["prompt_tokens_details"]["cached_tokens"])

        assert cached(words) == 0
        assert cached(words) == 96
        assert cached([*words[:40], *["new"] * 60]) == 32
        assert cached(["first", *words]) == 0
    with Client(simulate().port) as client:
        assert "prompt_tokens_details" not in client.chat(max_tokens=1).json()["usage"]


def test_tokens_come_at_their_times_and_in_order(simulate: Callable[..., Simulator]) -> None:
    import time

    with Client(simulate(ttft=0.1, itl=0.1, prefill_tps=100).port) as client:
        start = time.monotonic()
        client.send(request("POST", "/v1/completions", {"prompt": "one two", "stream": True, "max_tokens": 5}))
        client.read_head()
        times = []
        while b"[DONE]" not in client.buffer:
            client.more()
            times.append(time.monotonic() - start)
        assert times[0] >= 0.2, "100 ms and the prefill of 10 tokens at 100 a second"
        assert times[-1] >= 0.2 + 4 * 0.1
        assert all(a <= b for a, b in pairwise(times))
        assert len(times) >= 2, "the tokens came one by one"


def test_every_event_is_json_with_utf8_text(client: Client) -> None:
    answer = client.chat(stream=True, max_tokens=62)
    assert all(json.loads(payload) for payload in answer.payloads()[:-1])
    assert {" café", " über"} <= set(answer.texts())
