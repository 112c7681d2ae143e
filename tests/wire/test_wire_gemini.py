"""Rules of the Gemini reader that the cases do not show, or not alone: kinds, counts, ends, both framings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from events import document, outcome, raw, tokens_of

from locust_llm.wire.answer import Answer, Usage


def event(*parts: dict[str, Any], reason: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    finish = {"finishReason": reason} if reason else {}
    return {"candidates": [{"index": index, "content": {"role": "model", "parts": list(parts)}, **finish}], **more}


def text(piece: str, **more: Any) -> dict[str, Any]:
    return event({"text": piece}, **more)


def counts(**numbers: int) -> dict[str, Any]:
    names = {"n_in": "promptTokenCount", "n_out": "candidatesTokenCount", "thought": "thoughtsTokenCount"}
    names |= {"cached": "cachedContentTokenCount", "tools": "toolUsePromptTokenCount"}
    return {"usageMetadata": {names[name]: number for name, number in numbers.items()}}


END = event(reason="STOP")


def read(*events: Any) -> Answer:
    return raw(b"".join(b"data: %b\r\n\r\n" % json.dumps(e).encode() for e in events), api="gemini")


def array(*events: Any, close: bytes = b"]") -> Answer:
    return raw(b"[" + b",\r\n".join(json.dumps(e).encode() for e in events) + close, api="gemini")


@pytest.mark.parametrize(
    ("event_", "kind"),
    [
        (text("a"), "content"),
        (text(" ", reason="STOP"), "content"),
        (event({"text": "hm", "thought": True}), "reasoning"),
        (event({"text": "hm", "thought": True}, {"text": "a"}), "content"),
        (event({"text": "", "thoughtSignature": "x"}), "role"),
        (event({"functionCall": {"name": "f", "args": {}}}), "tool"),
        (event({"inlineData": {"mimeType": "image/png", "data": "x"}}), "content"),
        (event({"executableCode": {"code": "1"}}), "content"),
        (event({"codeExecutionResult": {"output": "1"}}), "role"),
        (END, "finish"),
        ({"candidates": [{"index": 0}]}, "empty"),
        (counts(n_in=5), "other"),
        (counts(n_in=5, n_out=3), "usage"),
        ({"responseId": "r"}, "other"),
    ],
)
def test_each_event_has_its_kind(event_: dict[str, Any], kind: str) -> None:
    assert read(event_).kinds == [kind]


def test_counts_are_cumulative_and_tell_the_tokens_of_each_event() -> None:
    answer = read(
        text("a", **counts(n_in=7, n_out=4, cached=3)),
        text("b", **counts(n_in=7, n_out=9, cached=3)),
        event(reason="STOP", **counts(n_in=7, n_out=9, cached=3, tools=2)),
    )
    assert answer.usage == Usage(n_in=9, n_out=9, n_cached=3)
    assert tokens_of(answer) == [4, 5]


def test_thinking_is_output_and_hidden_thinking_is_no_token_of_an_event() -> None:
    answer = read(
        text("a", **counts(n_in=7, n_out=4, thought=60)), text("b", **counts(n_in=7, n_out=6, thought=60)), END
    )
    assert answer.usage == Usage(n_in=7, n_out=66, n_reasoning=60)
    assert tokens_of(answer) == [4, 2]
    seen = read(
        event({"text": "hm", "thought": True}, **counts(n_in=7, thought=60)),
        text("a", **counts(n_in=7, n_out=4, thought=60)), END,
    )  # fmt: skip
    assert (seen.kinds, tokens_of(seen)) == (["reasoning", "content", "finish"], [60, 4])


def test_counts_that_come_only_at_the_end_tell_nothing_of_an_event() -> None:
    answer = read(text("a", **counts(n_in=7)), text("b"), event(reason="STOP", **counts(n_in=7, n_out=9)))
    assert answer.usage == Usage(7, 9)
    assert (answer.kinds, tokens_of(answer)) == (["content", "content", "finish"], [-1, -1])


def test_the_end_is_a_finish_reason_of_every_candidate() -> None:
    assert outcome(read(text("a"), END)) == "ok"
    assert outcome(read(text("a", **counts(n_out=1)))) == "truncated"
    assert outcome(read(text("a", reason="FINISH_REASON_UNSPECIFIED"))) == "truncated"
    two = (text("a"), text("b", index=1), END)
    assert outcome(read(*two)) == "truncated"
    whole = read(*two, event(reason="MAX_TOKENS", index=1))
    assert (outcome(whole), whole.text(0), whole.text(1)) == ("ok", "a", "b")
    assert whole.finish_reasons == {0: "STOP", 1: "MAX_TOKENS"}


@pytest.mark.parametrize(
    "reason", ["MAX_TOKENS", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"]
)
def test_limits_and_filters_are_successes_under_their_own_name(reason: str) -> None:
    answer = read(text("a"), event(reason=reason))
    assert (outcome(answer), answer.finish_reason) == ("ok", reason)


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "OTHER", "UNEXPECTED_TOOL_CALL"])
def test_a_reason_that_means_the_model_failed_is_an_error(reason: str) -> None:
    answer = read(text("a"), event(reason=reason))
    assert outcome(answer) == "in_band_error"
    assert answer.error is not None
    assert (answer.error.code, answer.error.message) == (reason, f"finish reason {reason}")


def test_a_blocked_prompt_is_an_error_that_says_why() -> None:
    feedback = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, **counts(n_in=7)}
    for answer in (read(feedback), array(feedback), document(feedback, api="gemini")):
        assert outcome(answer) == "in_band_error"
        assert answer.error is not None
        assert (answer.error.code, answer.error.message) == (
            "PROHIBITED_CONTENT",
            "the prompt was blocked: PROHIBITED_CONTENT",
        )
    rated = {"promptFeedback": {"safetyRatings": []}}
    assert outcome(read(rated, text("a"), END)) == "ok"


def test_an_error_asks_for_its_wait_in_the_body() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "21s"}]
    error = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": details}}
    for answer in (read(text("a"), error), array(error), document(error, api="gemini")):
        assert outcome(answer) == "in_band_error"
        assert answer.error is not None
        assert (answer.error.code, answer.error.type) == ("429", "RESOURCE_EXHAUSTED")
        assert answer.error.retry_after_s == 21


def test_function_calls_are_each_a_call_of_its_own() -> None:
    one = {"functionCall": {"name": "f", "args": {"q": 1}}}
    two = {"functionCall": {"id": "x", "name": "f", "args": {"q": 2}}}
    answer = read(event(one, two), event({"functionCall": {"name": "g"}}), END)
    assert answer.tool_calls == [
        {"id": None, "name": "f", "arguments": '{"q": 1}'},
        {"id": "x", "name": "f", "arguments": '{"q": 2}'},
        {"id": None, "name": "g", "arguments": ""},
    ]


def test_the_array_is_read_like_the_stream_and_its_bracket_is_not_the_end_mark() -> None:
    events = (text("a", **counts(n_in=7, n_out=1)), text('"]}', **counts(n_in=7, n_out=3)), END)
    streamed, grown = read(*events), array(*events)
    assert (grown.text(), grown.kinds, grown.tokens) == (streamed.text(), streamed.kinds, streamed.tokens)
    assert not grown.whole
    assert outcome(array(*events, close=b"")) == "ok"
    assert outcome(array(*events[:2])) == "truncated"
    assert outcome(array(*events, close=b',{"candidates":[{"con')) == "truncated"
    assert outcome(raw(b"[]", api="gemini")) == "empty"
    assert outcome(raw(b"[1, 2]", api="gemini")) == "malformed"


def test_a_whole_response_is_one_event_with_all_its_tokens() -> None:
    whole = event({"text": "hm", "thought": True}, {"text": "a"}, {"text": "b"}, reason="STOP", modelVersion="m")
    answer = document({**whole, "responseId": "r", **counts(n_in=7, n_out=4, thought=2)}, api="gemini")
    assert (answer.whole, answer.kinds, answer.tokens, answer.text()) == (True, ["content"], [6], "ab")
    assert (answer.response_id, answer.model, outcome(answer)) == ("r", "m", "ok")
