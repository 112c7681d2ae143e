"""Rules of the OpenAI reader that the cases do not show, or not alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from locust_llm.outcome import TransportEnd, judge
from locust_llm.wire import registry
from locust_llm.wire.answer import Answer, Usage

END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def chunk(delta: Any, index: Any = 0, finish: Any = None, **more: Any) -> dict[str, Any]:
    choice_level = {k: more.pop(k) for k in ("logprobs", "token_ids") if k in more}
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish, **choice_level}], **more}


def text(piece: str, **more: Any) -> dict[str, Any]:
    return chunk({"content": piece}, **more)


def usage(n_out: Any, n_in: Any = 5, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": n_in, "completion_tokens": n_out, **more}


def only_usage(n_out: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": usage(n_out, **more)}


def read(*events: Any, api: str = "openai-chat", done: bool = True) -> Answer:
    parts = [event if isinstance(event, bytes) else b"data: %b\n\n" % json.dumps(event).encode() for event in events]
    return raw(b"".join(parts) + b"data: [DONE]\n\n" * done, api=api)


def raw(body: bytes, api: str = "openai-chat", stream: bool = True) -> Answer:
    decoder = registry.api(api).decoder(stream)
    decoder.feed(body, 1)
    decoder.eof(2)
    return decoder.answer


def outcome(answer: Answer) -> str:
    return judge(answer, 200, TransportEnd("complete"), None)[0]


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


# ---- usage and tokens of events


def test_the_last_usage_wins_and_zeros_or_gaps_do_not_undo_it() -> None:
    answer = read(
        text("a"), only_usage(3), only_usage(0, n_in=0), {"choices": [], "usage": {}}, {"choices": [], "usage": None}
    )
    assert answer.usage == Usage(n_in=5, n_out=3)
    assert read(text("a"), only_usage(3), only_usage(7)).usage == Usage(n_in=5, n_out=7)
    early = {"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}}
    assert read(early, text("a"), {"choices": [], "usage": {"completion_tokens": 2}}).usage == Usage(9, 2, None, 4)


@pytest.mark.parametrize("value", [None, "", "many", -1, 2.5, True, [3], 10**30, "nan"])
def test_what_is_no_count_is_unknown_and_never_zero(value: Any) -> None:
    found = read(text("a"), only_usage(value)).usage
    assert found is not None
    assert found.n_out is None


def test_usage_is_found_where_servers_put_it() -> None:
    groq = chunk({}, finish="stop", x_groq={"id": "r", "usage": usage(4)})
    moonshot = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage(4, cached_tokens=2)}]}
    responses = {
        "choices": [],
        "usage": {"input_tokens": 5, "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 1}},
    }
    deepseek = only_usage(4, prompt_cache_hit_tokens=3)
    assert read(text("a"), groq).usage == Usage(5, 4)
    assert read(text("a"), moonshot).usage == Usage(5, 4, None, 2)
    assert read(text("a"), responses).usage == Usage(5, 4, 1)
    assert read(text("a"), deepseek).usage == Usage(5, 4, None, 3)


def test_timings_count_only_where_no_usage_came() -> None:
    timings = {"cache_n": 3, "prompt_n": 2, "predicted_n": 6}
    assert read(text("a"), chunk({}, finish="stop", timings=timings)).usage == Usage(5, 6, None, 3)
    both = {"choices": [], "usage": usage(7), "timings": timings}
    assert read(text("a"), both, chunk({}, timings={"predicted_n": 6})).usage == Usage(5, 7)


def test_zeros_for_something_are_no_count() -> None:
    answer = read(text("a"), text("b"), chunk({}, finish="stop", usage=usage(0, n_in=0)))
    assert answer.usage == Usage()
    assert outcome(answer) == "ok"


def test_a_running_usage_tells_the_tokens_of_each_event_also_of_those_without_text() -> None:
    answer = read(
        chunk({"role": "assistant", "content": ""}, usage=usage(0)),
        chunk({"content": ""}, usage=usage(1)),  # part of a character
        text("é", usage=usage(2)),
        chunk({"reasoning": "hm"}, usage=usage(5)),
        chunk({"content": ""}, usage=usage(6)),
        chunk({"content": ""}, usage=usage(6)),
        chunk({}, finish="stop", usage=usage(7)),  # the end token
        only_usage(7),
    )
    kinds = ["role", "content", "content", "reasoning", "reasoning", "usage", "reasoning", "usage", "done"]
    assert (answer.kinds, answer.tokens) == (kinds, [0, 1, 1, 3, 1, 0, 1, 0, 0])
    assert answer.usage == Usage(5, 7)


@pytest.mark.parametrize(
    "events",
    [
        (text("a"), text("b"), chunk({}, finish="stop", usage=usage(2))),
        (text("a", usage=usage(0)), text("b", usage=usage(0)), chunk({}, finish="stop", usage=usage(2))),
        (chunk({}, usage=usage(0)), text("a"), text("b"), chunk({}, finish="stop", usage=usage(2))),
        (text("a", usage=usage(9)), text("b", usage=usage(9)), chunk({}, finish="stop", usage=usage(9))),
    ],
)
def test_a_usage_that_does_not_run_with_the_text_makes_no_token_events(events: tuple[Any, ...]) -> None:
    answer = read(*events)
    assert [kind for kind in answer.kinds if kind == "content"] == ["content"] * 2
    assert answer.kinds[-2] == "finish"
    assert answer.tokens[answer.kinds.index("content") + 1] == -1


def test_a_usage_that_stops_running_tells_nothing_from_then_on() -> None:
    answer = read(text("a", usage=usage(1)), text("b"), text("c"), chunk({}, finish="stop", usage=usage(3)))
    assert answer.kinds == ["content", "content", "content", "finish", "done"]
    assert answer.tokens == [1, -1, -1, 0, 0]


def test_hidden_reasoning_is_no_token_of_the_first_visible_event() -> None:
    def hidden(n_out: int) -> dict[str, Any]:
        return usage(n_out, completion_tokens_details={"reasoning_tokens": 64})

    answer = read(text("a", usage=hidden(65)), text("b", usage=hidden(66)), chunk({}, finish="stop", usage=hidden(66)))
    assert answer.tokens[:3] == [1, 1, 0]


def test_token_ids_and_log_probabilities_tell_the_tokens_of_an_event() -> None:
    answer = read(
        text("ab", token_ids=[5, 6]),
        chunk({"content": ""}, token_ids=[7]),  # detokenised later
        text("c", logprobs={"content": [{"token": "c"}, {"token": "d"}, {"token": "e"}]}),
        chunk({"content": ""}, logprobs={"content": []}),
        text("f", logprobs={"content": []}),
        {"choices": [{"index": 0, "text": "g h", "logprobs": {"tokens": ["g", " h"]}}]},
        END,
    )
    assert answer.kinds[:6] == ["content", "content", "content", "empty", "content", "content"]
    assert answer.tokens[:6] == [2, 1, 3, 0, -1, 2]


def test_with_several_choices_only_token_ids_and_log_probabilities_tell() -> None:
    answer = read(
        chunk({"role": "assistant"}, index=0, usage=usage(0)),
        chunk({"role": "assistant"}, index=1, usage=usage(0)),
        text("a", index=0, usage=usage(1)),
        text("b", index=1, usage=usage(1)),
        text("c", index=1, usage=usage(2), token_ids=[1]),
    )
    assert answer.tokens[2:5] == [-1, -1, 1]


def test_choices_in_one_event_are_one_event() -> None:
    both = {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}
    answer = read(both, both)
    assert answer.kinds == ["content", "content", "done"]
    assert (answer.text(), answer.text(1)) == ("aa", "bb")


def test_usages_of_choices_are_added_only_if_each_choice_has_one_after_its_finish() -> None:
    def stream(*usages: dict[str, Any]) -> Answer:
        first, second = usages
        return read(
            text("a", index=0), text("b", index=1), text("c", index=1), chunk({}, index=1, finish="stop"), first,
            text("d", index=0), chunk({}, index=0, finish="stop"), second,
        )  # fmt: skip

    each = stream(only_usage(2), only_usage(2))
    assert each.usage == Usage(5, 4)
    running = stream(only_usage(3), only_usage(4))
    assert running.usage == Usage(5, 4)  # the last is the total already


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
