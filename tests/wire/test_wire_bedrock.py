"""Rules of the Bedrock reader that the cases do not show: Converse, what Invoke wraps, exceptions, documents."""

from __future__ import annotations

from typing import Any

import pytest
from events import document, outcome, raw
from frames import chunk, event, exception, frame

from locust_llm.wire import registry
from locust_llm.wire.answer import Answer, Usage
from locust_llm.wire.errors import server_error

START = event("messageStart", role="assistant")
STOP = event("messageStop", stopReason="end_turn")


def delta(index: int = 0, **content: Any) -> bytes:
    return event("contentBlockDelta", contentBlockIndex=index, delta=content)


def text(piece: str) -> bytes:
    return delta(text=piece)


def metadata(**usage: int) -> bytes:
    return event("metadata", usage=usage, metrics={"latencyMs": 120})


def read(*frames: bytes) -> Answer:
    return raw(b"".join(frames), api="bedrock")


def invoke(*events: dict[str, Any]) -> Answer:
    return raw(b"".join(chunk(**inner) for inner in events), api="bedrock-invoke")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (START, "role"),
        (event("contentBlockStart", start={"toolUse": {"toolUseId": "t", "name": "f"}}), "tool"),
        (text("a"), "content"),
        (text(""), "empty"),
        (delta(reasoningContent={"text": "hm"}), "reasoning"),
        (delta(reasoningContent={"signature": "x"}), "other"),
        (delta(reasoningContent={"redactedContent": "x"}), "other"),
        (delta(toolUse={"input": "{"}), "tool"),
        (delta(toolUse={"input": ""}), "empty"),
        (delta(citation={"title": "x"}), "other"),
        (delta(image={"source": {"bytes": "x"}}), "content"),
        (event("contentBlockStop", contentBlockIndex=0), "other"),
        (STOP, "finish"),
        (metadata(inputTokens=1, outputTokens=2), "usage"),
        (event("somethingNew", x=1), "other"),
        (exception("throttlingException", message="x"), "other"),
    ],
)
def test_each_frame_has_its_kind(data: bytes, kind: str) -> None:
    assert read(data).kinds == [kind]


def test_metadata_after_the_stop_ends_the_answer_with_its_counts() -> None:
    usage = {"inputTokens": 5, "cacheReadInputTokens": 30, "cacheWriteInputTokens": 7, "outputTokens": 4}
    answer = read(START, text("a"), STOP, metadata(**usage), text("LATE"))
    assert (answer.text(), answer.usage, answer.timings) == ("a", Usage(42, 4, None, 30), {"latencyMs": 120})
    assert (outcome(answer), answer.done_ns, answer.finish_reason) == ("ok", 1, "end_turn")
    assert outcome(read(START, text("a"), STOP)) == "ok"
    assert outcome(read(START, text("a"), metadata(outputTokens=4))) == "truncated"


def test_a_body_cut_inside_a_frame_is_truncated_and_a_damaged_one_malformed() -> None:
    assert outcome(read(START, text("a"), STOP[:-3])) == "truncated"
    assert outcome(read(START, text("a"), STOP, metadata()[:20])) == "truncated"
    damaged = read(START, text("a"), STOP[:-1] + b"?", metadata(outputTokens=4))
    assert (outcome(damaged), damaged.malformed) == ("malformed", "a frame with a wrong checksum")
    assert outcome(read(START, frame({":event-type": "contentBlockDelta"}, b"no JSON"))) == "malformed"


@pytest.mark.parametrize("reason", ["max_tokens", "tool_use", "guardrail_intervened", "content_filtered"])
def test_limits_and_filters_are_successes_under_their_own_name(reason: str) -> None:
    answer = read(text("a"), event("messageStop", stopReason=reason))
    assert (outcome(answer), answer.finish_reason) == ("ok", reason)


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_a_reason_that_means_the_model_failed_is_an_error(reason: str) -> None:
    answer = read(text("a"), event("messageStop", stopReason=reason))
    assert outcome(answer) == "in_band_error"
    assert answer.error is not None
    assert answer.error.code == reason


def test_exceptions_and_errors_are_named_by_their_frames() -> None:
    answer = read(text("a"), exception("modelTimeoutException", message="too slow"))
    unsaid = read(exception("internalServerException"))
    error = read(frame({":message-type": "error", ":error-code": "InternalError", ":error-message": "broke"}, b""))
    seen = [(a.error and a.error.message, a.error and a.error.code, outcome(a)) for a in (answer, unsaid, error)]
    assert seen == [
        ("too slow", "modelTimeoutException", "in_band_error"),
        ("an error without a message", "internalServerException", "in_band_error"),
        ("broke", "InternalError", "in_band_error"),
    ]


def test_tool_calls_are_put_together_by_block() -> None:
    start = event("contentBlockStart", contentBlockIndex=1, start={"toolUse": {"toolUseId": "t", "name": "f"}})
    answer = read(START, start, delta(1, toolUse={"input": '{"q"'}), delta(1, toolUse={"input": ":1}"}), STOP)
    assert answer.tool_calls == [{"id": "t", "name": "f", "arguments": '{"q":1}'}]


# ---- what Invoke wraps


def test_anthropics_own_counts_stand_before_those_of_the_gateway() -> None:
    metrics = {"inputTokenCount": 5, "outputTokenCount": 4, "firstByteLatency": 100}
    stop = {"type": "message_stop", "amazon-bedrock-invocationMetrics": metrics}
    said = {"input_tokens": 5, "cache_read_input_tokens": 30, "output_tokens": 1}
    events = (
        {"type": "message_start", "message": {"usage": said}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    )
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}
    answer = invoke(*events, end, stop)
    assert (answer.usage, answer.timings, outcome(answer)) == (Usage(35, 4, None, 30), metrics, "ok")
    silent = invoke(*events, {**end, "usage": None}, stop)
    assert silent.usage is not None
    assert silent.usage.n_out == 4


@pytest.mark.parametrize(
    ("events", "usage", "reason"),
    [
        (
            [
                {"generation": "a", "prompt_token_count": 7, "generation_token_count": 1, "stop_reason": None},
                {"generation": "b", "generation_token_count": 2, "stop_reason": "length"},
            ],
            Usage(7, 2),
            "length",
        ),
        (
            [
                {"outputText": "a", "inputTextTokenCount": 7, "completionReason": None},
                {"outputText": "b", "totalOutputTextTokenCount": 2, "completionReason": "FINISH"},
            ],
            Usage(7, 2),
            "FINISH",
        ),
        (
            [
                {"outputs": [{"text": "a", "stop_reason": None}]},
                {
                    "outputs": [{"text": "b", "stop_reason": "stop"}],
                    "amazon-bedrock-invocationMetrics": {"inputTokenCount": 7, "outputTokenCount": 2},
                },
            ],
            Usage(7, 2),
            "stop",
        ),
        (
            [
                {"choices": [{"index": 0, "delta": {"content": "a"}}]},
                {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}]},
                {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
            ],
            Usage(7, 2),
            "stop",
        ),
        (
            [
                {"messageStart": {"role": "assistant"}},
                {"contentBlockDelta": {"delta": {"text": "a"}, "contentBlockIndex": 0}},
                {"contentBlockDelta": {"delta": {"text": "b"}, "contentBlockIndex": 0}},
                {"messageStop": {"stopReason": "end_turn"}},
                {"metadata": {"usage": {"inputTokens": 7, "outputTokens": 2}}},
            ],
            Usage(7, 2),
            "end_turn",
        ),
    ],
    ids=["llama", "titan", "mistral", "openai", "nova"],
)
def test_the_events_of_each_family_are_read(events: list[dict[str, Any]], usage: Usage, reason: str) -> None:
    answer = invoke(*events)
    assert (answer.text(), answer.kinds.count("content"), answer.finish_reason) == ("ab", 2, reason)
    assert (answer.usage, outcome(answer)) == (usage, "ok")
    assert outcome(invoke(*events[:-2])) != "ok"


def test_a_chunk_that_holds_no_object_is_malformed() -> None:
    for data in ("", "!!", "W10="):
        assert outcome(read(event("chunk", bytes=data))) == "malformed"
    assert outcome(read(event("chunk"))) == "malformed"


# ---- documents and refusals


def test_a_whole_answer_of_converse_and_of_invoke_is_one_event() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "x"}}},
        {"text": "a"},
        {"toolUse": {"toolUseId": "t", "name": "f", "input": {"q": 1}}},
    ]
    converse = document(
        {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": "tool_use",
            "usage": {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10},
            "metrics": {"latencyMs": 9},
        },
        api="bedrock",
    )
    assert (converse.whole, converse.kinds, converse.tokens, converse.text()) == (True, ["content"], [3], "a")
    assert converse.reasoning == ["hm"]
    assert converse.tool_calls == [{"id": "t", "name": "f", "arguments": '{"q": 1}'}]
    assert (converse.finish_reason, outcome(converse)) == ("tool_use", "ok")

    claude = {"type": "message", "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn"}
    llama = {"generation": "a", "stop_reason": "stop", "prompt_token_count": 7, "generation_token_count": 3}
    titan = {"inputTextTokenCount": 7, "results": [{"outputText": "a", "tokenCount": 3, "completionReason": "FINISH"}]}
    for body in ({**claude, "usage": {"input_tokens": 7, "output_tokens": 3}}, llama, titan):
        whole = document(body, api="bedrock-invoke")
        assert (whole.text(), whole.usage, whole.tokens, outcome(whole)) == ("a", Usage(7, 3), [3], "ok")


def test_a_document_that_refuses_is_an_error() -> None:
    assert outcome(document({"message": "not authorised"}, api="bedrock")) == "in_band_error"
    assert outcome(raw(b"<html>", api="bedrock")) == "malformed"


def test_the_name_of_a_refusal_stands_in_a_header() -> None:
    name = "ValidationException:http://internal.amazon.com/coral/com.amazon.bedrock/"
    error = server_error(b'{"message":"bad model"}', "application/json", name)
    assert (error.message, error.code, error.type) == ("bad model", "ValidationException", "ValidationException")
    assert server_error(b'{"Message":"expired"}', None).message == "expired"
    named = server_error(b'{"error":{"message":"x","code":"c"}}', None, name)
    assert named.code == "c"


def test_both_operations_share_one_reader() -> None:
    assert type(registry.api("bedrock").decoder(True)) is type(registry.api("bedrock-invoke").decoder(True))
