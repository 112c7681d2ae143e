"""A list of prompts in one request is one exchange, one record, and a text for each prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from exchanges import Consumer, target_at
from loopback import LAST_CHUNK, STREAM_HEAD, Peer, Server, chunk, plain

from locust_llm.exchange import OK, TRUNCATED
from locust_llm.wire.api import Call

PROMPTS = ["one", "two", "three"]


def piece(index: int, text: str = "", finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "text": text, "finish_reason": finish}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 6}}
OPENAI = [
    *(piece(1, "b"), piece(0, "a"), piece(1, "B", "stop"), piece(2, "c"), piece(0, "A", "length")),
    *(piece(2, "C", "stop"), USAGE),
]


def llama(index: int, text: str, n: int, stop: bool = False) -> dict[str, Any]:
    return {
        "index": index, "content": text, "tokens_predicted": n, "tokens_evaluated": 4, "stop": stop, "stop_type": "eos",
    }  # fmt: skip


LLAMA = [
    *(llama(1, "b", 1), llama(0, "a", 1), llama(2, "c", 1), llama(1, "B", 2), llama(1, "", 2, True)),
    *(llama(0, "A", 2), llama(2, "C", 2), llama(0, "", 2, True), llama(2, "", 2, True)),
]


def sglang(index: int, text: str, n: int, finish: str | None = None) -> dict[str, Any]:
    reason = {"type": finish} if finish else None
    return {
        "index": index, "text": text,
        "meta_info": {"prompt_tokens": 4, "completion_tokens": n, "finish_reason": reason},
    }  # fmt: skip


SGLANG = [
    *(sglang(1, "b", 1), sglang(0, "a", 1), sglang(1, "bB", 2, "stop"), sglang(2, "cC", 2, "stop")),
    sglang(0, "aA", 2, "length"),
]


def stream(events: list[Any], done: bool) -> bytes:
    pieces = [chunk(b"data: %b\n\n" % json.dumps(event).encode()) for event in events]
    return STREAM_HEAD + b"".join(pieces) + (chunk(b"data: [DONE]\n\n") if done else b"") + LAST_CHUNK


def send(api: str, answer: bytes, asked: list[bytes], **call: Any) -> tuple[Consumer, Any]:
    def play(peer: Peer) -> None:
        for request in peer.requests():
            asked.append(request.partition(b"\r\n\r\n")[2])
            peer.send(answer)

    with Server(play) as server:
        consumer = Consumer(target_at(server.port, api=api))
        reply = consumer.client.send(Call(model="m", prompt=PROMPTS, **call), name="batch")
    return consumer, reply


@pytest.mark.parametrize(
    ("api", "events", "field"),
    [("openai-completions", OPENAI, "prompt"), ("llamacpp", LLAMA, "prompt"), ("sglang", SGLANG, "text")],
)
def test_a_streamed_batch_is_one_exchange_with_a_text_for_each_prompt(api: str, events: list[Any], field: str) -> None:
    asked: list[bytes] = []
    consumer, reply = send(api, stream(events, api != "llamacpp"), asked)
    assert json.loads(asked[0])[field] == PROMPTS
    (record,) = consumer.records
    assert (record.outcome, record.n_out, record.n_in) == (OK, 6, 12)
    assert reply.texts == {0: "aA", 1: "bB", 2: "cC"}
    assert reply.text == "aA"
    assert reply.finish_reason in ("length", "eos")
    assert len(consumer.fired) == 1


@pytest.mark.parametrize("api", ["openai-completions", "llamacpp", "sglang"])
def test_a_batch_of_which_one_prompt_has_no_end_is_truncated(api: str) -> None:
    events = {"openai-completions": OPENAI[:-2], "llamacpp": LLAMA[:-1], "sglang": SGLANG[:-1]}[api]
    consumer, _ = send(api, stream(events, done=False), [])
    assert consumer.records[0].outcome == TRUNCATED


def test_a_batch_that_is_not_streamed_has_its_texts_too() -> None:
    choices = [{"index": i, "text": text, "finish_reason": "stop"} for i, text in enumerate(["a", "b", "c"])]
    body = json.dumps({"choices": choices, "usage": USAGE["usage"]}).encode()
    consumer, reply = send("openai-completions", plain(200, body), [], stream=False)
    assert reply.texts == {0: "a", 1: "b", 2: "c"}
    assert (consumer.records[0].streamed, consumer.records[0].n_out) == (False, 6)
