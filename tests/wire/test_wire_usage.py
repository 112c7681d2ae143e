"""Which tokens an answer has, in all and in each event: usage, timings, token ids, log-probabilities."""

from __future__ import annotations

from typing import Any

import pytest
from events import END, chunk, only_usage, outcome, read, text, usage

from locust_llm.wire.answer import Answer, Usage


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
