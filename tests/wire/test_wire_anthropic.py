"""Rules of the Anthropic reader that the cases do not show, or not alone."""

from __future__ import annotations

from typing import Any

import pytest
from events import document, outcome, raw, typed

from locust_llm.wire.answer import Answer, Usage

STOP = {"type": "message_stop"}


def start(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": usage}}


def text(piece: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}


def end(reason: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage or None}


def block(index: int = 0, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": content}


def read(*events: Any) -> Answer:
    return typed(*events, api="anthropic")


def test_input_is_what_was_read_from_the_cache_written_to_it_and_neither() -> None:
    counts = {"input_tokens": 5, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 7, "output_tokens": 1}
    answer = read(start(**counts), text("a"), end(output_tokens=4), STOP)
    assert answer.usage == Usage(n_in=42, n_out=4, n_cached=30)
    assert (answer.response_id, answer.model) == ("msg_1", "m")


def test_the_last_message_delta_counts_and_what_it_does_not_say_stays() -> None:
    answer = read(start(input_tokens=5), text("a"), end(None, output_tokens=2), end(output_tokens=9), STOP)
    assert answer.usage == Usage(n_in=5, n_out=9)
    late = read(start(input_tokens=0), text("a"), end(input_tokens=5, cache_read_input_tokens=3, output_tokens=9), STOP)
    assert late.usage == Usage(n_in=8, n_out=9, n_cached=3)
    zeros = read(start(input_tokens=5), text("a"), end(input_tokens=0, output_tokens=9), STOP)
    assert zeros.usage == Usage(n_in=5, n_out=9)


def test_the_count_of_message_start_is_no_total() -> None:
    for last in (end(), end(output_tokens=0), {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}):
        answer = read(start(input_tokens=5, output_tokens=1), text("a"), text("b"), last, STOP)
        assert answer.usage is not None
        assert (answer.usage.n_in, answer.usage.n_out) == (5, None)


def test_a_stop_reason_or_message_stop_is_an_end_and_a_running_usage_is_none() -> None:
    assert outcome(read(start(), text("a"), end())) == "ok"
    assert outcome(read(start(), text("a"), STOP)) == "ok"
    assert outcome(read(start(), text("a"), end(None, output_tokens=3))) == "truncated"
    assert outcome(read(start(), text("a"), {"type": "content_block_stop", "index": 0})) == "truncated"


def test_nothing_after_message_stop_counts() -> None:
    answer = read(start(), text("a"), end(), STOP, text("LATE"), {"type": "error", "error": {"message": "late"}})
    assert (answer.text(), outcome(answer), answer.done_ns) == ("a", "ok", 1)


@pytest.mark.parametrize(
    "reason", ["max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded"]
)
def test_every_stop_reason_of_the_api_is_a_success_under_its_own_name(reason: str) -> None:
    answer = read(start(), text("a"), end(reason, output_tokens=1), STOP)
    assert (outcome(answer), answer.finish_reason) == ("ok", reason)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (start(), "role"),
        (block(type="text", text=""), "empty"),
        (block(type="text", text="a"), "content"),
        (block(type="thinking", thinking="", signature=""), "empty"),
        (block(type="redacted_thinking", data="x"), "other"),
        (block(type="tool_use", id="t", name="f", input={}), "tool"),
        (block(type="server_tool_use", id="t", name="web_search", input={}), "tool"),
        (block(type="web_search_tool_result", content=[]), "other"),
        (text(" "), "content"),
        (text(""), "empty"),
        ({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}, "reasoning"),
        ({"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "x"}}, "other"),
        ({"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": {}}}, "other"),
        ({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": ""}}, "empty"),
        ({"type": "content_block_stop", "index": 0}, "other"),
        (end(output_tokens=3), "finish"),
        (end(None, output_tokens=3), "usage"),
        (end(None), "empty"),
        (STOP, "done"),
        ({"type": "something_new"}, "other"),
    ],
)
def test_each_event_has_its_kind(event: dict[str, Any], kind: str) -> None:
    assert read(event).kinds == [kind]


def test_pings_are_no_events_by_name_or_by_type() -> None:
    answer = read({"type": "ping"}, start(), text("a"))
    unnamed = raw(b'data: {"type":"ping"}\n\n: x\n\n', api="anthropic")
    assert (answer.pings, len(answer.kinds)) == (1, 2)
    assert (unnamed.pings, unnamed.kinds) == (2, [])


def test_the_name_of_the_frame_stands_in_for_a_missing_type() -> None:
    body = b'event: content_block_delta\ndata: {"index":0,"delta":{"type":"text_delta","text":"a"}}\n\n'
    answer = raw(body + b"event: message_stop\ndata: {}\n\n", api="anthropic")
    assert (answer.text(), outcome(answer)) == ("a", "ok")


def test_tool_calls_are_put_together_block_by_block() -> None:
    def piece(index: int, json: str) -> dict[str, Any]:
        return {
            "type": "content_block_delta",
            "index": index,
            "delta": {"type": "input_json_delta", "partial_json": json},
        }

    answer = read(
        start(),
        block(1, type="tool_use", id="a", name="f", input={}),
        piece(1, '{"q"'),
        block(2, type="tool_use", id="b", name="g", input={"whole": 1}),
        piece(1, ": 1}"),
        end("tool_use"),
        STOP,
    )
    assert answer.tool_calls == [
        {"id": "a", "name": "f", "arguments": '{"q": 1}'},
        {"id": "b", "name": "g", "arguments": '{"whole": 1}'},
    ]


def test_an_error_in_the_middle_is_the_outcome_with_the_type_as_code() -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    answer = read(start(), text("a"), overloaded)
    assert outcome(answer) == "in_band_error"
    assert answer.error is not None
    assert (answer.error.code, answer.error.type) == ("overloaded_error", "overloaded_error")
    unnamed = raw(b'data: {"type":"error","error":{"type":"api_error","message":"x"}}\n\n', api="anthropic")
    assert outcome(unnamed) == "in_band_error"


def test_a_whole_message_is_one_event_with_all_its_tokens() -> None:
    message = {
        "id": "msg_1",
        "type": "message",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "text", "text": "a"},
            {"type": "text", "text": "b"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"q": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 9},
    }
    answer = document(message, api="anthropic")
    assert (answer.whole, answer.ended, answer.kinds, answer.tokens) == (True, True, ["content"], [9])
    assert (answer.text(), answer.reasoning, answer.finish_reason) == ("ab", ["hm"], "tool_use")
    assert answer.tool_calls == [{"id": "t", "name": "f", "arguments": '{"q": 1}'}]
    assert answer.usage == Usage(7, 9, None, 2)
    refused = document({"type": "error", "error": {"type": "api_error", "message": "x"}}, api="anthropic")
    assert outcome(refused) == "in_band_error"
    assert outcome(document({"hello": 1}, api="anthropic")) == "malformed"
