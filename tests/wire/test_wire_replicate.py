"""Replicate: its stream, a prediction as the answer, and the stream of a container (Cog)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from events import outcome, raw

from locust_llm.wire import registry
from locust_llm.wire.answer import Answer, Usage


def read(body: bytes) -> Answer:
    return raw(body, api="replicate")


def event(name: str, data: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"event: {name}\nid: 1:0\n{lines}\n".encode()


def prediction(status: str, **more: Any) -> dict[str, Any]:
    return {"id": "p", "model": "owner/name", "status": status, "error": None, "output": None, **more}


def test_output_is_text_as_it_stands_and_never_json() -> None:
    answer = read(event("output", '{"chunk": 1}') + event("output", "") + event("output", " b\n") + event("done", "{}"))
    assert (answer.text(), answer.kinds) == ('{"chunk": 1} b\n', ["content", "empty", "content", "done"])
    assert (outcome(answer), answer.usage) == ("ok", None)


@pytest.mark.parametrize("data", ["{}", "", '{"reason": null}'])
def test_done_ends_an_answer(data: str) -> None:
    answer = read(event("output", "a") + event("done", data) + event("output", "late"))
    assert (answer.text(), answer.ended, answer.done_ns, outcome(answer)) == ("a", True, 1, "ok")


@pytest.mark.parametrize("reason", ["canceled", "error"])
def test_a_done_that_gives_up_is_an_error(reason: str) -> None:
    answer = read(event("output", "a") + event("done", json.dumps({"reason": reason})))
    assert (outcome(answer), answer.finish_reason) == ("in_band_error", reason)


def test_an_error_event_says_what_it_is() -> None:
    answer = read(event("output", "a") + event("error", '{"detail": "CUDA out of memory"}') + event("done", "{}"))
    assert answer.error is not None
    assert (answer.error.message, outcome(answer)) == ("CUDA out of memory", "in_band_error")


@pytest.mark.parametrize("output", ["ab", ["a", "b"]])
def test_a_prediction_that_is_complete_is_the_answer(output: Any) -> None:
    metrics = {"input_token_count": 7, "output_token_count": 2, "predict_time": 0.1}
    answer = read(json.dumps(prediction("succeeded", output=output, metrics=metrics)).encode())
    assert (answer.text(), answer.whole, answer.tokens, answer.usage) == ("ab", True, [2], Usage(7, 2))
    assert (answer.response_id, answer.model, outcome(answer)) == ("p", "owner/name", "ok")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (prediction("failed", error="boom"), "in_band_error"),
        (prediction("canceled"), "in_band_error"),
        (prediction("processing"), "truncated"),
        ({"title": "Unauthorized", "detail": "no token", "status": 401}, "in_band_error"),
        ({"hello": 1}, "malformed"),
        ([], "malformed"),
    ],
)
def test_other_documents_are_failures_of_their_kind(value: Any, expected: str) -> None:
    assert outcome(read(json.dumps(value).encode())) == expected


def test_a_prediction_that_starts_says_where_its_stream_is_and_the_same_decoder_reads_it() -> None:
    decoder = registry.api("replicate").decoder(True)
    url = "https://stream.example/v1/p"
    decoder.feed(json.dumps(prediction("starting", urls={"stream": url, "get": "x"})).encode(), 1)
    decoder.eof(2)
    answer = decoder.answer
    assert (answer.follow, answer.kinds, answer.whole) == (url, ["other"], False)
    for at_ns, piece in enumerate([b"event: output\nda", b"ta: a\n\n", event("done", "{}")], 5):
        decoder.feed(piece, at_ns)
    decoder.eof(9)
    assert (answer.text(), answer.kinds, answer.times_ns) == ("a", ["other", "content", "done"], [1, 6, 7])
    assert outcome(answer) == "ok"


def test_it_follows_once_and_not_in_circles() -> None:
    decoder = registry.api("replicate").decoder(True)
    for url in ("https://a.example", "https://b.example"):
        decoder.feed(json.dumps(prediction("starting", urls={"stream": url})).encode(), 1)
        decoder.eof(2)
    assert decoder.answer.follow == "https://a.example"
    assert outcome(decoder.answer) == "truncated"


def test_a_container_streams_json_chunks_after_a_start_event() -> None:
    completed = prediction("succeeded", output=["a", "b"], metrics={"predict_time": 0.4})
    answer = read(
        event("start", '{"id":"p","status":"processing"}')
        + event("log", '{"source":"stdout","data":"loading"}')
        + event("output", '{"chunk":"a","index":0}')
        + event("metric", '{"name":"x","value":1,"mode":"replace"}')
        + event("output", '{"chunk":"b","index":1}')
        + event("completed", json.dumps(completed))
    )
    assert (answer.text(), answer.kinds) == ("ab", ["other", "other", "content", "other", "content", "done"])
    assert (outcome(answer), answer.response_id) == ("ok", "p")


def test_a_container_that_fails_says_so_in_its_last_event() -> None:
    answer = read(event("start", "{}") + event("completed", json.dumps(prediction("failed", error="boom"))))
    assert answer.error is not None
    assert (answer.error.message, outcome(answer)) == ("boom", "in_band_error")
