"""What must hold of TGI, SGLang, llama.cpp, Ollama and Replicate for any events, sensible or not."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from soundness import check_sound, facts, run

from locust_llm.wire import registry
from locust_llm.wire.api import Decoder

TEXT = st.sampled_from(["", "a", "ab", "abc", " b", "é\n", "\ud83d", "\ude00", "x\ud83d", "stop", "abort", "starting"])
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(-2, 9), st.sampled_from([2.5, float("nan"), 10**30]), TEXT)
JSON = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)), max_leaves=8
)


def objects(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: st.one_of(value, JSON) for name, value in members.items()})


COUNT = st.integers(0, 9)
FLAG = st.booleans()
CALLS = st.lists(objects(id=TEXT, function=objects(name=TEXT, arguments=objects(q=TEXT))), max_size=2)
EVENTS: dict[str, st.SearchStrategy[Any]] = {
    "tgi": objects(
        token=objects(id=COUNT, text=TEXT, special=FLAG), generated_text=TEXT, error=TEXT, error_type=TEXT,
        details=objects(finish_reason=TEXT, generated_tokens=COUNT, input_length=COUNT, prefill=st.lists(COUNT)),
    ),
    "sglang": objects(
        text=TEXT, output_ids=st.lists(COUNT, max_size=4), index=st.integers(0, 2), error=TEXT,
        meta_info=objects(
            id=TEXT, finish_reason=objects(type=TEXT, message=TEXT, status_code=COUNT), prompt_tokens=COUNT,
            completion_tokens=COUNT, cached_tokens=COUNT,
        ),
    ),
    "llamacpp": objects(
        content=TEXT, tokens=st.lists(COUNT, max_size=3), index=st.integers(0, 2), stop=FLAG, stop_type=TEXT,
        tokens_predicted=COUNT, tokens_evaluated=COUNT, timings=objects(cache_n=COUNT), error=TEXT, stopped_eos=FLAG,
    ),
    "ollama": objects(
        model=TEXT, done=FLAG, done_reason=TEXT, eval_count=COUNT, prompt_eval_count=COUNT, response=TEXT,
        thinking=TEXT, error=TEXT, logprobs=st.lists(COUNT, max_size=2), eval_duration=COUNT,
        message=objects(role=TEXT, content=TEXT, thinking=TEXT, tool_calls=CALLS),
    ),
    "replicate": objects(
        id=TEXT, status=st.sampled_from(["starting", "succeeded", "failed"]), output=st.lists(TEXT, max_size=2),
        error=TEXT, urls=objects(stream=TEXT), metrics=objects(output_token_count=COUNT), chunk=TEXT, reason=TEXT,
    ),
}  # fmt: skip
NAMES = st.sampled_from(["", "event: output\n", "event: done\n", "event: start\n", "event: error\n", "event: logs\n"])


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    """An API and a body of its events, with odd things among them; sometimes one document."""
    api = draw(st.sampled_from(sorted(EVENTS)))
    events = draw(st.lists(st.one_of(EVENTS[api], EVENTS[api], JSON), max_size=6))
    if draw(st.integers(0, 5)) == 0:
        return api, json.dumps(events if draw(FLAG) else (events or [{}])[0]).encode()
    form = "{0}\n" if api == "ollama" else "{1}data: {0}\n\n"
    parts = [form.format(json.dumps(event), draw(NAMES)).encode() for event in events]
    if draw(FLAG):
        parts.append(draw(st.sampled_from([b"data: [DONE]\n\n", b"{", b"data: {", b"\xff\n\n", b": ping\n\n", b"\n"])))
    return api, b"".join(parts)


@given(bodies(), st.lists(st.integers(0, 2000), max_size=6))
@settings(max_examples=500)
def test_any_events_give_a_sound_answer_the_same_by_any_split(known: tuple[str, bytes], cuts: list[int]) -> None:
    api, data = known

    def make() -> Decoder:
        return registry.api(api).decoder(True)

    whole = run(make, [data])
    check_sound(whole)
    edges = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    assert facts(run(make, [data[a:b] for a, b in pairwise(edges)])) == facts(whole)


@given(st.lists(TEXT.filter(str.isascii), min_size=1, max_size=8))
def test_sglang_growing_texts_add_up_to_the_last(pieces: list[str]) -> None:
    said = ""
    events = []
    for n, piece in enumerate(pieces, 1):
        said += piece
        info = {"completion_tokens": n, "finish_reason": {"type": "length"} if n == len(pieces) else None}
        events.append({"text": said, "output_ids": list(range(n)), "meta_info": info})
    body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    answer = run(lambda: registry.api("sglang").decoder(True), [body])
    assert answer.text() == said
    assert answer.tokens == [1] * len(pieces)


@given(st.lists(st.sampled_from(["a", "ab", "b", " c", "a b", "\n"]), min_size=2, max_size=8))
def test_sglang_pieces_with_their_token_ids_add_up(pieces: list[str]) -> None:
    events = [
        {"text": piece, "output_ids": [n], "meta_info": {"completion_tokens": n + 1}} for n, piece in enumerate(pieces)
    ]
    if all(b.startswith(a) for a, b in pairwise(pieces)):
        return  # nothing tells these from whole texts
    body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    assert run(lambda: registry.api("sglang").decoder(True), [body]).text() == "".join(pieces)
