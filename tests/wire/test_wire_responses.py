"""Rules of the reader of OpenAI's Responses that the cases do not show, or not alone."""

from __future__ import annotations

from typing import Any

import pytest
from events import document, outcome, raw, tokens_of, typed

from locust_llm.wire.answer import Answer, Usage


def event(name: str, **members: Any) -> dict[str, Any]:
    return {"type": f"response.{name}", **members}


def text(piece: str, index: int = 0, **more: Any) -> dict[str, Any]:
    return event("output_text.delta", output_index=index, item_id=f"i{index}", delta=piece, **more)


def last(status: str = "completed", **members: Any) -> dict[str, Any]:
    return event(status, response={"id": "resp_1", "model": "m", "status": status, "output": [], **members})


USAGE = {
    "input_tokens": 7, "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2},
}  # fmt: skip
CALL = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f", "arguments": ""}


def read(*events: dict[str, Any]) -> Answer:
    return typed(*events, api="openai-responses")


@pytest.mark.parametrize(
    ("event_", "kind"),
    [
        (event("created", response={"id": "r", "status": "in_progress"}), "other"),
        (event("queued", response={"id": "r", "status": "queued"}), "other"),
        (event("output_item.added", output_index=0, item={"type": "message", "role": "assistant"}), "role"),
        (event("output_item.added", output_index=0, item={"type": "reasoning", "summary": []}), "other"),
        (event("output_item.added", output_index=0, item=CALL), "tool"),
        (event("content_part.added", part={"type": "output_text", "text": ""}), "other"),
        (text("a"), "content"),
        (text(""), "empty"),
        (event("refusal.delta", delta="no"), "refusal"),
        (event("reasoning_text.delta", delta="hm"), "reasoning"),
        (event("reasoning_summary_text.delta", delta="hm"), "reasoning"),
        (event("function_call_arguments.delta", item_id="fc", delta="{"), "tool"),
        (event("custom_tool_call_input.delta", item_id="fc", delta="x"), "tool"),
        (event("mcp_call_arguments.delta", item_id="fc", delta="{"), "tool"),
        (event("code_interpreter_call_code.delta", item_id="fc", delta="print"), "tool"),
        (event("output_audio.delta", delta="AAAA"), "content"),
        (event("image_generation_call.partial_image", partial_image_b64="x"), "other"),
        (event("web_search_call.searching"), "other"),
        (last(), "finish"),
        (last("incomplete"), "finish"),
    ],
)
def test_each_event_has_its_kind(event_: dict[str, Any], kind: str) -> None:
    assert read(event_).kinds == [kind]


def test_counts_and_reason_come_with_the_whole_response() -> None:
    answer = read(text("a"), last(usage=USAGE))
    assert (answer.usage, answer.usage_raw) == (Usage(7, 5, 2, 3), USAGE)
    assert (answer.finish_reason, answer.response_id, answer.model) == ("completed", "resp_1", "m")
    assert (answer.ended, answer.done_ns, outcome(answer)) == (True, 1, "ok")
    assert read(text("a"), last(usage=None)).usage is None


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
def test_an_incomplete_response_is_a_success_under_its_reason(reason: str) -> None:
    answer = read(text("a"), last("incomplete", incomplete_details={"reason": reason}, usage=USAGE))
    assert (outcome(answer), answer.finish_reason) == ("ok", reason)


def test_a_failed_or_cancelled_response_is_an_error_with_or_without_a_reason() -> None:
    error = {"code": "rate_limit_exceeded", "message": "slow down"}
    answer = read(text("a"), last("failed", error=error))
    assert outcome(answer) == "in_band_error"
    assert answer.error is not None
    assert (answer.error.message, answer.error.code) == ("slow down", "rate_limit_exceeded")
    for status in ("failed", "cancelled"):
        silent = read(text("a"), last(status))
        assert outcome(silent) == "in_band_error"
        assert silent.error is not None
        assert (silent.error.message, silent.error.type) == (f"the response is {status}", status)


@pytest.mark.parametrize(
    "body",
    [
        b'event: error\ndata: {"type":"error","code":"server_error","message":"boom","param":null}\n\n',
        b'data: {"type":"error","code":"server_error","message":"boom","param":null}\n\n',
        b'data: {"type":"error","error":{"type":"x","code":"server_error","message":"boom"}}\n\n',
    ],
)
def test_an_error_event_is_the_outcome(body: bytes) -> None:
    answer = raw(body, api="openai-responses")
    assert outcome(answer) == "in_band_error"
    assert answer.error is not None
    assert (answer.error.message, answer.error.code) == ("boom", "server_error")


def test_without_the_whole_response_or_done_the_answer_is_cut() -> None:
    done = event("output_text.done", output_index=0, item_id="i0", text="a")
    assert outcome(read(text("a"), done)) == "truncated"
    relay = raw(b'data: {"type":"response.output_text.delta","delta":"a"}\n\ndata: [DONE]\n\n', api="openai-responses")
    assert outcome(relay) == "ok"


def test_what_done_events_repeat_is_said_once() -> None:
    item = {"type": "message", "id": "i0", "role": "assistant", "content": [{"type": "output_text", "text": "ab"}]}
    answer = read(
        text("a"),
        text("b"),
        event("output_text.done", output_index=0, item_id="i0", text="ab"),
        event("output_item.done", output_index=0, item=item),
        last(output=[item]),
    )
    assert (answer.text(), answer.kinds) == ("ab", ["content", "content", "other", "other", "finish"])


def test_what_no_delta_said_is_taken_from_the_first_event_that_has_it() -> None:
    parts = [{"type": "output_text", "text": "ab"}, {"type": "output_text", "text": "c"}]
    item = {"type": "message", "id": "i0", "role": "assistant", "content": parts}
    by_item = read(event("output_item.done", output_index=0, item=item), last(output=[item]))
    assert (by_item.text(), by_item.kinds) == ("abc", ["content", "finish"])
    by_response = read(last(output=[item]))
    assert (by_response.text(), by_response.kinds) == ("abc", ["content"])
    arguments = event("function_call_arguments.done", output_index=0, item_id="fc", arguments="{}")
    call = read(event("output_item.added", output_index=0, item=CALL), arguments, last(output=[CALL]))
    assert call.tool_calls == [{"id": "c1", "name": "f", "arguments": "{}"}]


def test_items_are_told_apart_by_index_or_id_and_an_id_that_changes_does_no_harm() -> None:
    def arguments(piece: str, **where: Any) -> dict[str, Any]:
        return event("function_call_arguments.delta", delta=piece, **where)

    other = {**CALL, "id": "fd", "call_id": "c2", "name": "g"}
    by_index = read(
        event("output_item.added", output_index=1, item=CALL), event("output_item.added", output_index=2, item=other),
        arguments("{", output_index=1, item_id="x"), arguments("[]", output_index=2, item_id="y"),
        arguments("}", output_index=1, item_id="z"), last(),
    )  # fmt: skip
    by_id = read(
        event("output_item.added", item=CALL), event("output_item.added", item=other),
        arguments("{", item_id="fc"), arguments("[]", item_id="fd"), arguments("}", item_id="fc"), last(),
    )  # fmt: skip
    expected = [{"id": "c1", "name": "f", "arguments": "{}"}, {"id": "c2", "name": "g", "arguments": "[]"}]
    assert by_index.tool_calls == expected
    assert by_id.tool_calls == expected


def test_log_probabilities_tell_the_tokens_of_an_event() -> None:
    answer = read(text("ab", logprobs=[{"token": "a"}, {"token": "b"}]), text("c", logprobs=[]), last())
    assert tokens_of(answer) == [2, -1]


def test_a_whole_response_is_one_event_with_all_its_tokens() -> None:
    output = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {**CALL, "arguments": '{"q":1}'},
    ]
    whole = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": output}
    answer = document({**whole, "usage": USAGE, "error": None}, api="openai-responses")
    assert (answer.whole, answer.kinds, answer.tokens) == (True, ["content"], [5])
    assert (answer.text(), answer.reasoning, answer.refusal) == ("a", ["hm"], ["no"])
    assert answer.tool_calls == [{"id": "c1", "name": "f", "arguments": '{"q":1}'}]
    assert (outcome(answer), answer.usage) == ("ok", Usage(7, 5, 2, 3))
    failed = document({"status": "failed", "output": [], "error": {"code": "c", "message": "x"}}, "openai-responses")
    assert outcome(failed) == "in_band_error"
    assert outcome(document({"status": "queued", "output": []}, api="openai-responses")) == "truncated"
    assert outcome(document({"error": {"message": "x"}}, api="openai-responses")) == "in_band_error"
