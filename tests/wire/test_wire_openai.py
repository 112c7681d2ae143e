"""Rules of the OpenAI reader that the cases do not show, or not alone: kinds, tool calls, ends, other bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from events import END, chunk, only_usage, outcome, raw, read, text, usage

# ---- kinds


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (chunk({"role": "assistant", "content": ""}), "role"),
        (chunk({"content": ""}), "empty"),
        (chunk({}), "empty"),
        (chunk(None), "empty"),
        (text(" "), "content"),
        (text("\n", finish="stop"), "content"),
        (chunk({"reasoning": "hm"}), "reasoning"),
        (chunk({"reasoning_content": "hm"}), "reasoning"),
        (chunk({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}), "reasoning"),
        (chunk({"refusal": "no"}), "refusal"),
        (chunk({"reasoning": "hm", "refusal": "no"}), "refusal"),
        (chunk({"content": "x", "tool_calls": [{"function": {"name": "f"}}]}), "content"),
        (chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}), "tool"),
        (chunk({"tool_calls": [{"index": 0, "id": "t", "function": {"name": None, "arguments": ""}}]}), "empty"),
        (chunk({"audio": {"id": "a", "transcript": "hi"}}), "content"),
        (chunk({"audio": {"id": "a"}}), "empty"),
        (chunk({}, finish="stop"), "finish"),
        (chunk({}, finish="stop", usage=usage(3)), "finish"),
        (chunk({}, usage=usage(3)), "usage"),
        (only_usage(3), "usage"),
        ({"choices": []}, "other"),
        ({"object": "metadata"}, "other"),
        (chunk({"role": "assistant", "content": None}, prompt_progress={"total": 9}), "other"),
        ({"choices": [{"index": 0, "finish_reason": None, "content_filter_results": {}}]}, "other"),
        ({"error": "x"}, "other"),
        ("null", "other"),
    ],
)
def test_an_event_has_the_first_kind_that_applies(event: Any, kind: str) -> None:
    event = b"data: null\n\n" if event == "null" else event
    assert read(text("a"), event).kinds[1] == kind
    assert read(event, text("a")).kinds[0] == kind


def test_heartbeats_are_pings_and_no_events() -> None:
    answer = read(
        b": a\n\n", b"data:\n\n", b"data: : still here\n\n", b'event: ping\ndata: {"type":"ping"}\n\n', text("a")
    )
    assert (answer.pings, answer.kinds) == (4, ["content", "done"])


def test_a_piece_sent_under_two_names_is_one_piece() -> None:
    assert read(chunk({"reasoning": "hm", "reasoning_content": "hm"})).reasoning == ["hm"]


def test_a_whole_message_in_a_stream_counts_only_if_no_delta_came_before() -> None:
    message = {"choices": [{"index": 0, "message": {"content": "all"}, "finish_reason": "stop"}]}
    assert read(message).text() == "all"
    assert read(text("al"), text("l"), message).text() == "all"


def test_chat_events_on_the_completions_endpoint_and_the_other_way_round_are_read() -> None:
    completion = {"choices": [{"index": 0, "text": "x"}]}
    assert read(text("a"), text("b"), END, api="openai-completions").text() == "ab"
    assert read(completion, completion, END).text() == "xx"


# ---- tool calls


def tool(**piece: Any) -> dict[str, Any]:
    function = {k: piece.pop(k) for k in ("name", "arguments") if k in piece}
    return chunk({"tool_calls": [{**piece, "function": function}]})


def test_tool_calls_are_put_together_by_index_or_id_or_order() -> None:
    by_index = read(
        tool(index=0, id="a", name="f", arguments=""), tool(index=1, id="b", name="g"), tool(index=0, arguments="{}")
    )
    assert by_index.tool_calls == [
        {"id": "a", "name": "f", "arguments": "{}"},
        {"id": "b", "name": "g", "arguments": ""},
    ]
    by_id = read(tool(id="a", name="f"), tool(id="b", name="g"), tool(id="a", arguments="1"), tool(arguments="2"))
    assert [call["arguments"] for call in by_id.tool_calls] == ["12", ""]
    all_zero = read(tool(index=0, id="a", name="f", arguments="1"), tool(index=0, id="b", name="g", arguments="2"))
    assert [call["name"] for call in all_zero.tool_calls] == ["f", "g"]
    as_object = read(tool(index=0, id="a", name="f", arguments={"q": 1}))
    assert json.loads(as_object.tool_calls[0]["arguments"]) == {"q": 1}
    legacy = read(chunk({"function_call": {"name": "f"}}), chunk({"function_call": {"arguments": "{}"}}))
    assert legacy.tool_calls == [{"id": None, "name": "f", "arguments": "{}"}]


def test_tool_calls_of_two_choices_stay_apart() -> None:
    piece = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}
    assert len(read(chunk(piece, index=0), chunk(piece, index=1)).tool_calls) == 2


# ---- ends


def test_the_end_mark_is_done_or_a_finish_reason_of_every_choice() -> None:
    assert outcome(read(text("a"), END, done=False)) == "ok"
    assert outcome(read(text("a"), done=False)) == "truncated"
    assert outcome(read(text("a"))) == "ok"
    one_of_two = (text("a"), text("b", index=1), END)
    assert outcome(read(*one_of_two, done=False)) == "truncated"
    assert outcome(read(*one_of_two)) == "ok"
    assert outcome(read(*one_of_two, chunk({}, index=1, finish="length"), done=False)) == "ok"


def test_finish_reasons_are_kept_by_choice_and_the_first_of_the_lowest_is_the_answers() -> None:
    answer = read(text("b", index=1, finish="length"), text("a"), END, chunk({}, finish="length"))
    assert answer.finish_reasons == {1: "length", 0: "stop"}
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource", "ABORT", {"type": "abort"}])
def test_a_finish_reason_that_means_the_server_gave_up_is_an_error(reason: Any) -> None:
    answer = read(text("a"), chunk({}, finish=reason))
    assert outcome(answer) == "in_band_error"
    assert answer.error is not None
    assert answer.error.type == answer.finish_reason


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls", "eos", "something_new"])
def test_any_other_finish_reason_is_a_success(reason: str) -> None:
    assert outcome(read(text("a"), chunk({}, finish=reason), done=False)) == "ok"


def test_an_error_in_a_choice_and_an_error_event_of_any_content_are_errors() -> None:
    in_choice = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "upstream"}}]
    }
    error = read(text("a"), in_choice).error
    assert error is not None
    assert (error.message, error.code) == ("upstream", "502")
    assert read(text("a"), b"event: error\ndata: engine died\n\n").error is not None
    assert outcome(read(b"event: error\ndata: {}\n\n")) == "in_band_error"


def test_an_error_after_a_hole_outranks_the_hole() -> None:
    answer = read(text("a"), b"data: {oops\n\n", text("b"), {"error": "it broke"})
    assert (answer.text(), outcome(answer)) == ("a", "in_band_error")


def test_a_body_cut_inside_its_last_event_is_truncated_even_after_a_finish() -> None:
    cut = b'data: {"choices":[],"usa'
    assert outcome(read(text("a"), cut, done=False)) == "truncated"
    assert outcome(read(text("a"), END, cut, done=False)) == "truncated"
    assert outcome(read(cut, done=False)) == "truncated"
    assert outcome(read(text("a"), b"data: oops", done=False)) == "malformed"


# ---- other bodies


@pytest.mark.parametrize("opening", ["", "\n\n", " \r\n\t", "\ufeff"])
def test_one_document_is_read_whatever_was_asked(opening: str) -> None:
    message = {
        "role": "assistant",
        "content": "hi",
        "reasoning": "hm",
        "tool_calls": [{"id": "t", "function": {"name": "f"}}],
    }
    document = {
        "id": "q",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage(9),
    }
    for stream in (True, False):
        answer = raw((opening + json.dumps(document)).encode(), stream=stream)
        assert (answer.whole, answer.ended, answer.kinds, answer.tokens) == (True, True, ["content"], [9])
        assert (answer.text(), answer.reasoning, answer.tool_calls[0]["name"]) == ("hi", ["hm"], "f")
        assert answer.times_ns == [1]
        assert outcome(answer) == "ok"


def test_a_completions_document_is_read() -> None:
    document = {
        "choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "b", "finish_reason": "length"}],
        "usage": usage(2),
    }
    answer = raw(json.dumps(document).encode(), api="openai-completions", stream=False)
    assert (answer.text(), answer.text(1), answer.finish_reason) == ("a", "b", "length")


def test_a_stream_is_read_though_a_document_was_asked() -> None:
    answer = raw(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n', stream=False)
    assert (answer.whole, outcome(answer)) == (False, "ok")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b": ping\n\n", "empty"),
        (b'{"choices":[]}', "empty"),
        (b"<html><body>Please sign in</body></html>", "malformed"),
        (b"upstream connect error: reset", "malformed"),
        (b'{"choices":[{"index":0', "malformed"),
        (b'{"hello":"world"}', "malformed"),
        (b"[1,2]", "malformed"),
        (b'data: "text"\n\n', "malformed"),
        (b"data: hello\n\n", "malformed"),
        (b'{"error":{"message":"limit","code":429}}', "in_band_error"),
        (b'{"detail":"Not allowed"}', "in_band_error"),
        (b'{"message":"no such key"}', "in_band_error"),
    ],
)
def test_a_200_that_is_no_answer_is_a_failure_of_its_kind(body: bytes, expected: str) -> None:
    answer = raw(body)
    assert outcome(answer) == expected
    assert (answer.malformed is not None) == (expected == "malformed")
    if answer.malformed and len(body) < 100:
        assert body.decode()[-10:] in answer.malformed or body.startswith(b"data")


def test_halves_of_a_character_are_joined_and_a_lone_half_is_replaced() -> None:
    halves = [
        b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % half
        for half in (b"a\\ud83d", b"\\ude00b", b"\\ud83d")
    ]
    answer = raw(b"".join(halves) + b"data: [DONE]\n\n")
    assert (answer.text(), answer.kinds.count("content")) == ("a\U0001f600b\ufffd", 3)


def test_nothing_after_done_counts() -> None:
    answer = read(text("a"), b"data: [DONE]\n\n", text("LATE"), {"error": "late"}, only_usage(9), done=False)
    assert (answer.text(), answer.usage, outcome(answer)) == ("a", None, "ok")
