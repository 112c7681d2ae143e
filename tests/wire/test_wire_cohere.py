"""Rules of the Cohere reader that the cases do not show, or not alone."""

from __future__ import annotations

from typing import Any

import pytest
from events import document, outcome, tokens_of, typed

from locust_llm.wire.answer import Answer, Usage


def event(kind: str, message: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": kind, **({} if message is None else {"delta": {"message": message}}), **more}


def text(piece: str, **more: Any) -> dict[str, Any]:
    return event("content-delta", {"content": {"text": piece}}, index=0, **more)


def end(reason: str = "COMPLETE", **more: Any) -> dict[str, Any]:
    return {"type": "message-end", "delta": {"finish_reason": reason, **more}}


def read(*events: dict[str, Any]) -> Answer:
    return typed(*events, api="cohere")


@pytest.mark.parametrize(
    ("event_", "kind"),
    [
        (event("message-start", {"role": "assistant"}, id="i"), "role"),
        (event("content-start", {"content": {"type": "text", "text": ""}}), "empty"),
        (event("content-start", {"content": {"type": "text", "text": "a"}}), "content"),
        (text("a"), "content"),
        (event("content-delta", {"content": {"thinking": "hm"}}), "reasoning"),
        (event("content-end"), "other"),
        (event("tool-plan-delta", {"tool_plan": "I look"}), "reasoning"),
        (event("tool-call-start", {"tool_calls": {"id": "t", "function": {"name": "f", "arguments": ""}}}), "tool"),
        (event("tool-call-delta", {"tool_calls": {"function": {"arguments": ""}}}), "empty"),
        (event("tool-call-end"), "other"),
        (event("citation-start", {"citations": {"text": "a"}}), "other"),
        (end(), "finish"),
    ],
)
def test_each_event_has_its_kind(event_: dict[str, Any], kind: str) -> None:
    assert read(event_).kinds == [kind]


def test_counts_are_the_tokens_and_the_billed_ones_only_if_there_are_no_others() -> None:
    billed, tokens = {"input_tokens": 4, "output_tokens": 3}, {"input_tokens": 70, "output_tokens": 5}
    both = read(text("a"), end(usage={"billed_units": billed, "tokens": tokens, "cached_tokens": 2}))
    assert both.usage == Usage(70, 5, None, 2)
    assert read(text("a"), end(usage={"billed_units": billed})).usage == Usage(4, 3)


def test_message_end_is_the_end() -> None:
    assert outcome(read(text("a"))) == "truncated"
    answer = read(text("a"), end("MAX_TOKENS"), text("LATE"))
    assert (answer.text(), answer.finish_reason, outcome(answer), answer.done_ns) == ("a", "MAX_TOKENS", "ok", 1)


@pytest.mark.parametrize("reason", ["ERROR", "TIMEOUT"])
def test_a_reason_that_means_the_server_gave_up_is_an_error(reason: str) -> None:
    answer = read(text("a"), end(reason))
    assert outcome(answer) == "in_band_error"
    told = read(text("a"), end(reason, error="internal"))
    assert told.error is not None
    assert (told.error.message, told.error.type) == ("internal", reason)


def test_calls_are_put_together_by_index() -> None:
    def piece(index: int, **call: Any) -> dict[str, Any]:
        kind = "tool-call-start" if "id" in call else "tool-call-delta"
        arguments = {k: call.pop(k) for k in ("name", "arguments") if k in call}
        return event(kind, {"tool_calls": {**call, "function": arguments}}, index=index)

    answer = read(
        piece(0, id="a", name="f", arguments=""), piece(0, arguments="{}"),
        piece(1, id="b", name="g", arguments=""), piece(1, arguments="[]"), end("TOOL_CALL"),
    )  # fmt: skip
    assert answer.tool_calls == [
        {"id": "a", "name": "f", "arguments": "{}"},
        {"id": "b", "name": "g", "arguments": "[]"},
    ]


def test_token_ids_tell_the_tokens_of_an_event() -> None:
    answer = read(text("ab", logprobs={"token_ids": [1, 2], "text": "ab"}), text("c"), end())
    assert tokens_of(answer) == [2, -1]


def test_a_whole_answer_is_one_event_with_all_its_tokens() -> None:
    message = {
        "role": "assistant",
        "tool_plan": "I look",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}],
        "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    usage = {"tokens": {"input_tokens": 9, "output_tokens": 4}}
    answer = document({"id": "i", "finish_reason": "COMPLETE", "message": message, "usage": usage}, api="cohere")
    assert (answer.whole, answer.kinds, answer.tokens, answer.text()) == (True, ["content"], [4], "a")
    assert (answer.reasoning, answer.response_id) == (["I look", "hm"], "i")
    assert answer.tool_calls == [{"id": "t", "name": "f", "arguments": "{}"}]
    assert (outcome(answer), answer.usage) == ("ok", Usage(9, 4))
    assert outcome(document({"message": "invalid api token"}, api="cohere")) == "in_band_error"
