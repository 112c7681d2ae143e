"""Every case of ``cases.jsonl``, at the level of the decoder: what it must find, however the bytes are cut."""

from __future__ import annotations

from typing import Any

import pytest
from cases import Case, Outcome, body, decode, differences, load

from locust_llm.wire import registry
from locust_llm.wire.answer import Answer
from locust_llm.wire.openai import OpenAIDecoder

CASES = load(*registry.names())
STREAMS = [case for case in CASES if 200 <= case.status < 300]
OPENAI = [case for case in STREAMS if case.api in ("openai-chat", "openai-completions")]
# Binary frames have no lines, and a line end inside a document or a line of JSON is another matter.
LINES = [case for case in STREAMS if case.api not in ("bedrock", "ollama")]

# Arguable cases in which we take another of the defensible ways.
OUR_WAY: dict[str, dict[str, Any]] = {
    # OpenAI's own text says that deltas are joined; guessing that they are cumulative would spoil real repetitions.
    "chat-23-cumulative-content": {"text": "RedRed blueRed blue green"},
    # metrics.md: a token event carries a generated token, and token ids tell so even without text.
    "cmp-08-text-null": {
        "token_events": 2,
        "ttft_chunk_index": 0,
        "ttft_ms_nominal": 30,
        "gaps_ms_nominal": [15],
        "token_weights": [1, 1],
    },
    # metrics.md: the end token was generated and its event says so, though it is no text.
    "tgi-03-special-last": {"token_events": 3, "gaps_ms_nominal": [15, 15]},
    # metrics.md: the name of a tool is generated, so the event that brings it is a token event.
    "ant-05-tool-use": {
        "tool_chunks": 3,
        "token_events": 3,
        "ttft_chunk_index": 1,
        "ttft_ms_nominal": 45,
        "gaps_ms_nominal": [30, 15],
    },
    "rsp-07-function-call": {
        "tool_chunks": 3,
        "token_events": 3,
        "ttft_chunk_index": 1,
        "ttft_ms_nominal": 45,
        "gaps_ms_nominal": [15, 15],
    },
}


def ids(case: Case) -> str:
    return case.id


def state(answer: Answer, times: bool = False) -> dict[str, Any]:
    """Return all that an answer says, by default without its times."""
    skip = () if times else ("times_ns", "done_ns")
    found = {name: getattr(answer, name) for name in Answer.__slots__ if name not in skip}
    found["texts"] = {index: pieces for index, pieces in answer.texts.items() if pieces}
    return found


def cut(case: Case, size: int, line_end: bytes = b"\n") -> Outcome:
    """Decode a case with its body cut into pieces of ``size`` bytes."""
    whole = b"".join(data for _, _, data in body(case)).replace(b"\n", line_end)
    return decode(case, [(at, at, whole[at : at + size]) for at in range(0, len(whole), size)])


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_a_case_gives_what_it_must(case: Case) -> None:
    if case.id in OUR_WAY:
        assert case.arguable
        case.expect.update(OUR_WAY[case.id])
    assert differences(case, decode(case)) == {}


@pytest.mark.parametrize("case", STREAMS, ids=ids)
def test_one_byte_at_a_time_changes_nothing_but_times(case: Case) -> None:
    if sum(len(write.data) for write in case.writes) > 100_000:
        pytest.skip("long lines have their own test")
    assert state(cut(case, 1).answer) == state(decode(case).answer)


@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"], ids=["crlf", "cr"])
@pytest.mark.parametrize("case", LINES, ids=ids)
def test_line_ends_change_nothing(case: Case, line_end: bytes) -> None:
    if b"\r" in b"".join(data for _, _, data in body(case)):
        pytest.skip("has its own mixture of line ends")
    found = decode(case)
    for size in (7, 1 << 20):
        again = cut(case, size, line_end)
        assert state(again.answer) == state(found.answer)
        assert again.outcome == found.outcome


@pytest.mark.parametrize("case", OPENAI, ids=ids)
def test_the_fast_way_and_the_careful_way_agree(case: Case) -> None:
    careful = OpenAIDecoder(lambda chunk, index: None)
    assert state(decode(case, decoder=careful).answer, times=True) == state(decode(case).answer, times=True)


def test_event_times_are_those_of_the_bytes_that_complete_them_and_never_decrease() -> None:
    case = next(case for case in CASES if case.id == "tr-04-split-blank-line")
    decoder = decode(case).answer
    assert decoder.times_ns == sorted(decoder.times_ns)
    late_first = [(0, 100, case.writes[0].data), (1, 50, case.writes[1].data + b"\n")]
    assert decode(case, late_first).answer.times_ns == [100, 100]


def test_no_case_of_the_file_is_left_out() -> None:
    assert len(load()) == 192
    assert {case.id for case in load() if case.id in OUR_WAY} == set(OUR_WAY)
