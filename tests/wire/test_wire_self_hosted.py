"""Rules of the readers of TGI, SGLang, llama.cpp and Ollama that the cases do not show, or not alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from events import outcome, raw

from locust_llm.wire.answer import Answer, Usage


def stream(api: str, *events: Any, end: bytes = b"") -> Answer:
    """Read events as SSE (as JSON lines for Ollama)."""
    form = b"%b\n" if api.startswith("ollama") else b"data: %b\n\n"
    return raw(b"".join(form % json.dumps(event).encode() for event in events) + end, api=api)


def document(api: str, value: Any) -> Answer:
    return raw(json.dumps(value).encode(), api=api, stream=False)


# ---- TGI


def token(text: str, number: int = 5, special: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "index": 1, "token": {"id": number, "text": text, "logprob": -0.1, "special": special},
        "generated_text": None, "details": None, **more,
    }  # fmt: skip


DETAILS = {"finish_reason": "length", "generated_tokens": 3, "input_length": 7}


def test_tgi_each_token_is_an_event_of_one_also_one_without_text() -> None:
    answer = stream("tgi", token("a"), token(""), token("é", generated_text="aé", details=DETAILS))
    assert (answer.kinds, answer.tokens) == (["content"] * 3, [1, 1, 1])
    assert (answer.text(), answer.usage, answer.finish_reason) == ("aé", Usage(7, 3), "length")
    assert (outcome(answer), answer.done_ns) == ("ok", 1)


def test_tgi_the_end_token_is_a_token_event_without_text() -> None:
    answer = stream("tgi", token("a"), token("</s>", special=True, generated_text="a", details=DETAILS))
    assert (answer.text(), answer.kinds, answer.tokens) == ("a", ["content", "content"], [1, 1])


def test_tgi_without_details_has_no_counts_and_is_a_success() -> None:
    answer = stream("tgi", token("a"), token("b", generated_text="ab"))
    assert (answer.usage, answer.finish_reason, outcome(answer)) == (None, None, "ok")


def test_tgi_a_relay_that_gives_only_the_whole_text_gives_one_event() -> None:
    answer = stream("tgi", {"generated_text": "all", "token": None, "details": DETAILS})
    assert (answer.text(), answer.kinds, answer.tokens) == ("all", ["content"], [-1])


def test_tgi_nothing_counts_after_the_end() -> None:
    answer = stream("tgi", token("a", generated_text="a", details=DETAILS), token("b"), {"error": "late"})
    assert (answer.text(), answer.error, outcome(answer)) == ("a", None, "ok")


def test_tgi_an_error_event_is_an_error_of_its_type() -> None:
    answer = stream("tgi", token("a"), {"error": "Request failed during generation", "error_type": "generation"})
    assert answer.error is not None
    assert (answer.error.message, answer.error.type) == ("Request failed during generation", "generation")
    assert outcome(answer) == "in_band_error"


@pytest.mark.parametrize("wrap", [False, True])
def test_tgi_a_document_is_read_also_in_the_list_of_the_root_endpoint(wrap: bool) -> None:
    value = {"generated_text": "ab", "details": {**DETAILS, "prefill": [{"id": 1}, {"id": 2}], "input_length": None}}
    answer = document("tgi", [value] if wrap else value)
    assert (answer.text(), answer.whole, answer.kinds, answer.tokens) == ("ab", True, ["content"], [3])
    assert (answer.usage, answer.finish_reason, outcome(answer)) == (Usage(2, 3), "length", "ok")


# ---- SGLang


def state(text: Any, n_out: Any, finish: Any = None, ids: Any = None, **more: Any) -> dict[str, Any]:
    info = {"id": "r", "finish_reason": finish, "prompt_tokens": 7, "completion_tokens": n_out, "cached_tokens": 2}
    return {"text": text, "output_ids": ids, "meta_info": info, **more}


STOP = {"type": "stop", "matched": 2}


def test_sglang_counts_tell_the_tokens_of_each_event_also_of_one_without_text() -> None:
    answer = stream("sglang", state("a", 1), state("a", 2), state("a", 2), state("aéb", 4, STOP))
    assert (answer.kinds, answer.tokens) == (["content", "content", "empty", "content"], [1, 1, 0, 2])
    assert (answer.text(), answer.finish_reason) == ("aéb", "stop")
    assert answer.usage == Usage(7, 4, None, 2)
    assert answer.response_id == "r"


def test_sglang_hidden_states_of_reasoning_are_not_hidden_tokens() -> None:
    event = state("hm", 1)
    event["meta_info"]["reasoning_tokens"] = 1
    usage = stream("sglang", event, state("hm a", 2, STOP)).usage
    assert usage is not None
    assert usage.n_reasoning is None  # they are in the text


@pytest.mark.parametrize(
    "pieces",
    [
        ["Red", " blue", " green"],
        ["ha", "ha", "ha", "!"],
        ["a", "ab", "abc", " end"],
        ["no", "n", "o"],
    ],
)
def test_sglang_pieces_are_told_from_whole_texts(pieces: list[str]) -> None:
    events = [state(piece, n + 1, ids=[n]) for n, piece in enumerate(pieces)]
    answer = stream("sglang", *events, state("", len(pieces), STOP, ids=[]))
    assert answer.text() == "".join(pieces)
    assert answer.tokens == [1] * len(pieces) + [0]


def test_sglang_a_whole_text_that_lost_its_stop_word_replaces_what_was_said() -> None:
    answer = stream("sglang", state("a b", 2), state("a b c\n\nUs", 5), state("a b c", 6, STOP))
    assert answer.text() == "a b c"
    early = stream("sglang", state("a\n", 2), state("a", 3, STOP))
    assert early.text() == "a"


def test_sglang_a_long_text_whose_end_changes_is_still_a_whole_text() -> None:
    answer = stream("sglang", state("a long start \ufffd", 3), state("a long start é and", 5), state("x", 6, STOP))
    assert answer.text() == "x"
    assert answer.kinds == ["content"] * 3


def test_sglang_samples_and_prompts_stay_apart_by_index_and_end_when_each_has_ended() -> None:
    one = state("a", 1, index=0), state("b", 1, index=1), state("bc", 2, STOP, index=1)
    assert outcome(stream("sglang", *one)) == "truncated"
    answer = stream("sglang", *one, state("ad", 3, {"type": "length", "length": 3}, index=0))
    assert ("".join(answer.texts[0]), "".join(answer.texts[1])) == ("ad", "bc")
    assert answer.finish_reasons == {0: "length", 1: "stop"}
    assert answer.tokens == [1, 1, 1, 2]
    assert answer.usage == Usage(14, 5, None, 4)
    assert outcome(answer) == "ok"


def test_sglang_token_ids_without_text_are_token_events() -> None:
    events = [{"output_ids": [1], "meta_info": state("", 1)["meta_info"]}]
    events.append({"output_ids": [1, 2], "meta_info": state("", 2, STOP)["meta_info"]})
    answer = stream("sglang", *events)
    assert (answer.kinds, answer.tokens, outcome(answer)) == (["content", "content"], [1, 1], "ok")


@pytest.mark.parametrize("name", ["abort", "error"])
def test_sglang_a_reason_that_means_giving_up_is_an_error_with_its_status(name: str) -> None:
    answer = stream("sglang", state("", 0, {"type": name, "message": "no room", "status_code": 400, "err_type": "Bad"}))
    assert answer.error is not None
    assert (answer.error.message, answer.error.type, answer.error.code) == ("no room", "Bad", "400")
    assert outcome(answer) == "in_band_error"


def test_sglang_documents_one_or_a_batch() -> None:
    one = document("sglang", state("ab", 2, STOP))
    assert (one.text(), one.tokens, one.usage, outcome(one)) == ("ab", [2], Usage(7, 2, None, 2), "ok")
    batch = document("sglang", [state("ab", 2, STOP), state("c", 1, {"type": "length", "length": 1})])
    assert {index: "".join(pieces) for index, pieces in batch.texts.items()} == {0: "ab", 1: "c"}
    assert batch.usage is not None
    assert (batch.usage.n_out, batch.finish_reasons) == (3, {0: "stop", 1: "length"})
    assert document("sglang", {"error": {"message": "bad"}}).error is not None
    assert outcome(document("sglang", {"hello": 1})) == "malformed"


def test_sglang_what_only_repeats_is_known() -> None:
    events = [state("x" * n, n, ids=list(range(n))) for n in range(1, 200)]
    answer = stream("sglang", *events)
    assert answer.repeated > sum(range(1, 198))


# ---- llama.cpp


def piece(content: str, n_out: int, **more: Any) -> dict[str, Any]:
    return {"index": 0, "content": content, "tokens": [1], "stop": False, "tokens_predicted": n_out,
            "tokens_evaluated": 5, **more}  # fmt: skip


def test_llamacpp_events_bring_the_growth_of_the_count() -> None:
    answer = stream("llamacpp", piece("a", 1), piece("é", 4), piece("", 4, stop=True, stop_type="limit"))
    assert (answer.kinds, answer.tokens) == (["content", "content", "finish"], [1, 3, 0])
    assert (answer.text(), answer.usage, answer.finish_reason) == ("aé", Usage(5, 4), "limit")
    assert outcome(answer) == "ok"


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ({"stop_type": "eos"}, "eos"),
        ({"stop_type": "word", "stopping_word": "x"}, "word"),
        ({"stopped_eos": True, "stopped_limit": False}, "eos"),
        ({"stopped_word": True}, "word"),
        ({"stopped_limit": True, "truncated": True}, "limit"),
        ({}, "stop"),
    ],
)
def test_llamacpp_says_why_it_stopped_in_two_ways(last: dict[str, Any], reason: str) -> None:
    assert stream("llamacpp", piece("a", 1), piece("", 1, stop=True, **last)).finish_reason == reason


def test_llamacpp_progress_is_no_token_and_timings_are_kept() -> None:
    timings = {"cache_n": 3, "prompt_n": 2, "predicted_n": 1}
    answer = stream(
        "llamacpp", {"prompt_progress": {"total": 9}}, piece("a", 1), piece("", 1, stop=True, timings=timings)
    )
    assert answer.kinds == ["other", "content", "finish"]
    assert (answer.timings, answer.usage) == (timings, Usage(5, 1, None, 3))


def test_llamacpp_without_counts_token_ids_tell() -> None:
    answer = stream("llamacpp", {"content": "ab", "tokens": [1, 2]}, {"content": "c"}, {"content": "", "stop": True})
    assert (answer.tokens, answer.usage) == ([2, -1, 0], None)


def test_llamacpp_a_batch_ends_when_each_prompt_has_ended() -> None:
    events = [piece("a", 1), piece("b", 1, index=1), piece("", 1, stop=True, stop_type="eos")]
    assert outcome(stream("llamacpp", *events)) == "truncated"
    answer = stream("llamacpp", *events, piece("c", 2, index=1), piece("", 2, index=1, stop=True, stop_type="limit"))
    assert {index: "".join(pieces) for index, pieces in answer.texts.items()} == {0: "a", 1: "bc"}
    assert (answer.usage, outcome(answer)) == (Usage(10, 3), "ok")
    assert answer.finish_reasons == {0: "eos", 1: "limit"}


def test_llamacpp_documents_one_or_a_batch() -> None:
    one = document("llamacpp", piece("ab", 2, stop=True, stop_type="eos", model="m"))
    assert (one.text(), one.tokens, one.usage, one.model, outcome(one)) == ("ab", [2], Usage(5, 2), "m", "ok")
    batch = document("llamacpp", [piece("ab", 2, stop=True), {**piece("c", 1, stop=True), "index": 1}])
    assert {index: "".join(pieces) for index, pieces in batch.texts.items()} == {0: "ab", 1: "c"}


@pytest.mark.parametrize("field", ["error", "data"])
def test_llamacpp_errors_come_in_two_framings(field: str) -> None:
    error = {"code": 500, "message": "context full", "type": "server_error"}
    value = error if field == "error" else {"error": error}
    answer = stream("llamacpp", piece("a", 1), end=b"%b: %b\n\n" % (field.encode(), json.dumps(value).encode()))
    assert answer.error is not None
    assert (answer.error.message, answer.error.code, answer.error.type) == ("context full", "500", "server_error")


# ---- Ollama


def line(content: str = "", done: bool = False, **more: Any) -> dict[str, Any]:
    message = {k: more.pop(k) for k in ("thinking", "tool_calls") if k in more}
    return {"model": "m", "message": {"role": "assistant", "content": content, **message}, "done": done, **more}


END = line(done=True, done_reason="stop", eval_count=4, prompt_eval_count=7, load_duration=5, eval_duration=9)


def test_ollama_channels_and_the_done_line() -> None:
    answer = stream("ollama", line(), line(thinking="hm"), line("a"), line(), END)
    assert answer.kinds == ["role", "reasoning", "content", "empty", "finish"]
    assert answer.tokens == [0, -1, -1, 0, 0]
    assert (answer.text(), answer.reasoning, answer.usage) == ("a", ["hm"], Usage(7, 4))
    assert answer.timings == {"load_duration": 5, "eval_duration": 9}
    assert (answer.model, answer.finish_reason, outcome(answer)) == ("m", "stop", "ok")


def test_ollama_each_tool_call_is_one_of_its_own() -> None:
    call = {"function": {"name": "f", "arguments": {"q": "é"}}}
    answer = stream("ollama", line(tool_calls=[call, call]), line(tool_calls=[{**call, "id": "c3"}]), END)
    assert [c["id"] for c in answer.tool_calls] == [None, None, "c3"]
    assert [json.loads(c["arguments"]) for c in answer.tool_calls] == [{"q": "é"}] * 3
    assert answer.kinds[:2] == ["tool", "tool"]


def test_ollama_log_probabilities_tell_the_tokens_of_a_line() -> None:
    answer = stream("ollama", line("ab", logprobs=[{"token": "a"}, {"token": "b"}]), line("c"), END)
    assert answer.tokens == [2, -1, 0]


def test_ollama_a_whole_answer_in_one_line_was_not_streamed() -> None:
    whole = line("ab", done=True, done_reason="stop", eval_count=2)
    for answer in (stream("ollama", whole), document("ollama", whole)):
        assert (answer.whole, answer.kinds, answer.tokens, outcome(answer)) == (True, ["content"], [2], "ok")
    assert not stream("ollama", line("a"), END).whole


def test_ollama_a_document_over_several_lines_is_read() -> None:
    pretty = json.dumps({"model": "m", "response": "ab", "done": True, "eval_count": 2}, indent=2).encode()
    answer = raw(pretty, api="ollama-generate", stream=False)
    assert (answer.text(), answer.whole, answer.usage, outcome(answer)) == ("ab", True, Usage(None, 2), "ok")
    assert outcome(raw(b'{\n "error": "model not found"\n}\n', api="ollama")) == "in_band_error"
    assert outcome(raw(b"{\n oops\n}\n", api="ollama")) != "ok"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":"model is loading"}\n', "in_band_error"),
        (b'{"error":"no"}', "in_band_error"),
        (b'{"message":{"content":"a"},"done":false}\noops\n', "malformed"),
        (b'{"message":{"content":"a"},"done":false}\n{"message":{"co', "truncated"),
        (b'{"message":{"co', "truncated"),
        (b'{"message":{"content":"a"},"done":false}\n[1]\n', "malformed"),
        (b"[1,2]\n", "malformed"),
        (b"<html>sign in</html>", "malformed"),
        (b"", "empty"),
        (b'data: {"message":{"content":"a"},"done":false}\n\ndata: {"done":true}\n\n', "ok"),  # a relay's framing
        (b'\xef\xbb\xbf{"message":{"content":"a"}}\n{"done":true}\n', "ok"),
    ],
)
def test_ollama_other_bodies(body: bytes, expected: str) -> None:
    answer = raw(body, api="ollama")
    assert outcome(answer) == expected
