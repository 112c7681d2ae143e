"""APIs of the user's own: by JSON paths, by an object; what is no API is refused with the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from events import outcome

from locust_llm.errors import UsageError
from locust_llm.wire import registry
from locust_llm.wire.answer import Answer, Usage
from locust_llm.wire.api import Call
from locust_llm.wire.custom import JsonPathApi


@pytest.fixture(autouse=True)
def _only_the_built_in_ones_remain() -> Iterator[None]:
    names = set(registry.names())
    yield
    for name in set(registry.names()) - names:
        del registry._BY_NAME[name]


def read(api: JsonPathApi, body: bytes) -> Answer:
    decoder = api.decoder(True)
    decoder.feed(body, 1)
    decoder.eof(2)
    return decoder.answer


def sse(*events: Any, end: bytes = b"") -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + end


MINE = JsonPathApi(
    "mine", "/write", text="out.0.words", reasoning="out.0.thought", finish="why", output_tokens="n.out",
    input_tokens="n.in", error="oops",
)  # fmt: skip


def test_text_reasoning_counts_and_finish_stand_where_the_paths_say() -> None:
    answer = read(
        MINE,
        sse(
            {"id": "r", "model": "m", "status": "queued"},
            {"out": [{"words": ""}]},
            {"out": [{"thought": "hm"}]},
            {"out": [{"words": "a"}], "n": {"out": 1}},
            {"out": [{"words": " b"}], "n": {"out": 2, "in": 7}},
            {"why": "length", "n": {"out": 2}},
        ),
    )
    assert answer.kinds == ["other", "empty", "reasoning", "content", "content", "finish"]
    assert (answer.text(), answer.reasoning, answer.finish_reason) == ("a b", ["hm"], "length")
    assert (answer.usage, answer.response_id, outcome(answer)) == (Usage(7, 2), "r", "ok")


def test_without_its_end_mark_an_answer_is_truncated_and_done_is_one() -> None:
    assert outcome(read(MINE, sse({"out": [{"words": "a"}]}))) == "truncated"
    assert outcome(read(MINE, sse({"out": [{"words": "a"}]}, end=b"data: [DONE]\n\n"))) == "ok"
    by_flag = JsonPathApi("flag", "/x", text="t", done="over")
    assert outcome(read(by_flag, sse({"t": "a", "over": False}))) == "truncated"
    assert outcome(read(by_flag, sse({"t": "a"}, {"over": True}))) == "ok"
    assert outcome(read(JsonPathApi("none", "/x", text="t"), sse({"t": "a"}))) == "ok"


@pytest.mark.parametrize(
    ("event", "message"),
    [({"oops": "bad"}, "bad"), ({"oops": {"message": "worse"}}, "worse"), ({"error": {"message": "usual"}}, "usual")],
)
def test_errors_are_found_where_the_path_says_and_in_the_usual_places(event: Any, message: str) -> None:
    answer = read(MINE, sse({"out": [{"words": "a"}]}, event))
    assert answer.error is not None
    assert (answer.error.message, outcome(answer)) == (message, "in_band_error")


def test_a_finish_reason_that_gives_up_is_an_error() -> None:
    assert outcome(read(MINE, sse({"out": [{"words": "a"}], "why": "abort"}))) == "in_band_error"


def test_lines_documents_and_growing_texts() -> None:
    lines = JsonPathApi("lines", "/x", text="t", done="over", framing="ndjson")
    answer = read(lines, b'{"t":"a"}\n{"t":"b"}\n{"over":true}\n')
    assert (answer.text(), answer.kinds, outcome(answer)) == ("ab", ["content", "content", "finish"], "ok")
    whole = JsonPathApi("doc", "/x", text="choices.-1.text", output_tokens="n", framing="document")
    answer = read(whole, b'{"choices":[{"text":"no"},{"text":"yes"}],"n":2}')
    assert (answer.text(), answer.whole, answer.tokens, outcome(answer)) == ("yes", True, [2], "ok")
    assert outcome(read(whole, b'{"detail":"no such model"}')) == "in_band_error"
    assert outcome(read(whole, b'{"hello":1}')) == "malformed"
    growing = JsonPathApi("growing", "/x", text="t", cumulative=True)
    assert read(growing, sse({"t": "a"}, {"t": "ab"}, {"t": "ab"}, {"t": "abc"})).kinds == [
        "content", "content", "empty", "content",
    ]  # fmt: skip


CALL = Call(model="m", prompt="hi", max_tokens=5, extra={"top_p": 1})


def test_the_body_comes_from_a_template_or_a_function() -> None:
    assert MINE.build_body(CALL) == {"prompt": "hi", "max_tokens": 5, "stream": True, "top_p": 1}
    template = {
        "in": [{"role": "user", "text": "Q: {prompt}"}],
        "for": "{model}",
        "limits": {"n": "{max_tokens}", "x": 3},
        "nothing": None,
    }
    templated = JsonPathApi("t", "/x", text="t", build=template)
    assert templated.build_body(CALL) == {
        "in": [{"role": "user", "text": "Q: hi"}], "for": "m", "limits": {"n": 5, "x": 3}, "nothing": None, "top_p": 1,
    }  # fmt: skip
    assert templated.build_body(Call(model="m", prompt="hi"))["limits"] == {"x": 3}
    by_function = JsonPathApi("f", "/x", text="t", build=lambda call: {"q": call.prompt, **call.extra})
    assert by_function.build_body(CALL) == {"q": "hi", "top_p": 1}
    chat = JsonPathApi("c", "/x", text="t", request_type="CHAT")
    assert chat.build_body(CALL)["messages"] == [{"role": "user", "content": "hi"}]


def test_the_key_goes_where_it_is_wanted() -> None:
    assert MINE.headers("k") == [("Authorization", "Bearer k")]
    own = JsonPathApi("k", "/x", text="t", key_header="X-Key")
    assert (own.headers("k"), own.headers("")) == ([("X-Key", "k")], [])


def test_a_registered_api_is_a_name_of_the_option() -> None:
    registry.register_api(MINE)
    assert registry.api("mine") is MINE
    assert "mine" in registry.names()
    again = JsonPathApi("mine", "/other", text="t")
    registry.register_api(again)  # a locustfile that is read again
    assert registry.api("mine") is again


class Own:
    name = "own"
    request_type = "CHAT"
    root = ""
    models_path: str | None = None

    def path(self, call: Call) -> str:
        return "/own"

    def build_body(self, call: Call) -> dict[str, Any]:
        return {}

    def headers(self, key: str) -> list[tuple[str, str]]:
        return []

    def decoder(self, stream: bool) -> Any:
        return MINE.decoder(stream)


def test_an_object_of_ones_own_is_taken_and_what_is_none_is_refused_with_the_reason() -> None:
    registry.register_api(Own())
    assert registry.api("own").path(CALL) == "/own"

    def refusal(**members: Any) -> str:
        with pytest.raises(UsageError) as caught:
            registry.register_api(type("Mine", (Own,), members)())
        return str(caught.value)

    with pytest.raises(UsageError, match=r"an object, not a class: register_api\(Own\("):
        registry.register_api(Own)  # type: ignore[arg-type]
    assert "Mine has no decoder" in refusal(decoder=None)
    assert "built-in" in refusal(name="openai-chat")
    assert "small letters" in refusal(name="My API")
    assert "CHAT or COMPLETION" in refusal(request_type="GET")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"framing": "xml"}, "framing"), ({"path": "write"}, "slash"), ({"text": ""}, "choices.0.text")],
)
def test_a_description_that_describes_nothing_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        JsonPathApi(**{"name": "x", "path": "/x", "text": "t", **wrong})
