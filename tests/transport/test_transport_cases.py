"""Every case of ``cases.jsonl`` over a real socket, up to the record: what real servers send is read right."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from cases import Case, differences, load
from exchanges import TIMES, Consumer, by_decoder, call_for, limits_of, outcome_of, target_at, without_times
from gevent.pool import Pool as Greenlets
from replay import in_crlf

from locust_llm.client import Reply
from locust_llm.exchange import FAILURES, OUTCOMES, Exchange
from locust_llm.target import Attempt
from locust_llm.wire import registry
from locust_llm.wire.answer import CONTENT, REASONING, REFUSAL, TOOL

CASES = load(*registry.names())
FIRM = [case for case in CASES if not case.arguable]
SMALL = [case for case in CASES if sum(len(write.data) for write in case.writes) < 20_000]
AT_ONCE = 50
KEY = (("Authorization", "Bearer of-nobody"),)  # so that nothing has to be signed
LATE_MS = 3000
"""How late a busy machine may be."""


def ids(case: Case) -> str:
    return case.id


def together(cases: Iterable[Any], play: Any) -> dict[str, Any]:
    """Play many cases at the same time; results by the case's id."""
    cases = list(cases)
    results = Greenlets(AT_ONCE).map(play, cases)
    names = [(case[0] if isinstance(case, tuple) else case).id for case in cases]
    return dict(zip(names, results, strict=True))


@pytest.fixture(scope="module")
def attempts(replay_port: int) -> dict[str, Attempt]:
    """Each case, once, each over a target of its own."""
    return together(CASES, lambda case: attempt_at(replay_port, case))


@pytest.fixture(scope="module")
def replies(replay_port: int) -> dict[str, tuple[Reply, Exchange, list[dict[str, Any]]]]:
    """Each case through the client: its reply, its record, and Locust's events."""

    def play(case: Case) -> tuple[Reply, Exchange, list[dict[str, Any]]]:
        consumer = Consumer(target_at(replay_port, api=case.api, headers=KEY, **limits_of(case)))
        reply = consumer.client.send(call_for(case), name=case.id)
        return reply, consumer.records[-1], consumer.fired

    return together(CASES, play)


@pytest.fixture(scope="module")
def one_byte_writes(replay_port: int) -> dict[str, Attempt]:
    """Each case that is not very long, in writes of one byte."""
    return together(SMALL, lambda case: attempt_at(replay_port, case, "bytes"))


@pytest.fixture(scope="module")
def crlf(replay_port: int) -> dict[str, Attempt]:
    """Each case that stays the same answer with CRLF."""
    return together([case for case in CASES if in_crlf(case)], lambda case: attempt_at(replay_port, case, "crlf"))


@pytest.fixture(scope="module")
def seconds(replay_port: int) -> dict[str, tuple[bool, Attempt]]:
    """Each case after the case before it, on one connection if that allows it: (was it reused, attempt)."""

    def play(pair: tuple[Case, Case]) -> tuple[bool, Attempt]:
        case, before = pair
        target = target_at(replay_port, api=case.api, headers=KEY, **limits_of(before), **limits_of(case))
        first = target.attempt(call_for(before))
        first.run()
        second = target.attempt(call_for(case))
        second.run()
        return second.transfer.reused, second

    return together(zip(CASES, [CASES[-1], *CASES], strict=False), play)


def attempt_at(port: int, case: Case, mode: str = "") -> Attempt:
    attempt = target_at(port, api=case.api, headers=KEY, **limits_of(case)).attempt(call_for(case, mode))
    attempt.run()
    return attempt


@pytest.mark.parametrize("case", FIRM, ids=ids)
def test_a_case_over_a_socket_gives_what_it_must(case: Case, attempts: dict[str, Attempt]) -> None:
    found = differences(case, outcome_of(attempts[case.id]))
    assert {name: both for name, both in found.items() if name not in TIMES} == {}


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_socket_adds_nothing_to_what_the_decoder_says(case: Case, attempts: dict[str, Attempt]) -> None:
    assert without_times(outcome_of(attempts[case.id])) == by_decoder(case)


def test_the_redirect_says_where_to(attempts: dict[str, Attempt]) -> None:
    _, error = attempts["http-16-307"].judge()
    assert error is not None
    assert "/v1/chat/completions" in error.message


@pytest.mark.parametrize("case", SMALL, ids=ids)
def test_one_byte_a_write_changes_nothing_but_times(case: Case, one_byte_writes: dict[str, Attempt]) -> None:
    assert without_times(outcome_of(one_byte_writes[case.id])) == by_decoder(case)


@pytest.mark.parametrize("case", [case for case in CASES if in_crlf(case)], ids=ids)
def test_crlf_changes_nothing(case: Case, crlf: dict[str, Attempt]) -> None:
    found, expected = without_times(outcome_of(crlf[case.id])), by_decoder(case)
    if case.status == 200:
        assert found == expected
    else:  # a message's own line ends are no framing
        assert found["error_kind"] == expected["error_kind"]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_second_answer_on_a_connection_holds_nothing_of_the_first(
    case: Case, seconds: dict[str, tuple[bool, Attempt]]
) -> None:
    _, attempt = seconds[case.id]
    assert without_times(outcome_of(attempt)) == by_decoder(case)


def test_a_connection_is_reused_exactly_after_an_answer_that_ended_as_its_framing_said(
    seconds: dict[str, tuple[bool, Attempt]],
) -> None:
    for case, before in zip(CASES, [CASES[-1], *CASES], strict=False):
        kept = before.close == "clean" and before.framing != "close" and not before.close_delay_ms
        assert seconds[case.id][0] is kept, (before.id, case.id)


@pytest.mark.parametrize("case", FIRM, ids=ids)
def test_the_record_says_what_the_case_expects(case: Case, replies: dict[str, Any]) -> None:
    reply, record, fired = replies[case.id]
    expect = case.expect
    assert record.outcome == ("ok" if expect["ok"] else expect["error_kind"])
    assert record.status == (case.status or None)
    assert record.finish_reason == expect.get("finish_reason", record.finish_reason)
    if expect["ok"] or "server_output_tokens" in expect:
        assert record.n_out == expect.get("server_output_tokens", expect["output_tokens"])
    for name in ("reasoning_tokens", "prompt_tokens", "cached_tokens"):
        mine = {"reasoning_tokens": "n_reasoning", "prompt_tokens": "n_in", "cached_tokens": "n_cached"}[name]
        assert getattr(record, mine) == expect.get(name, getattr(record, mine))
    if expect["text"] is not None:
        assert reply.text == record.text == expect["text"]
    if "texts" in expect:
        assert {str(choice): text for choice, text in reply.texts.items()} == expect["texts"]
    kinds = record.kinds()
    if "token_events" in expect:
        assert sum(kinds.count(kind) for kind in (CONTENT, REASONING, TOOL, REFUSAL)) == expect["token_events"]
    if not expect["ok"]:
        assert record.error is not None
        assert record.error.retry_after_s == expect.get("retry_after_s", record.error.retry_after_s)
        assert expect.get("error_message", "") in record.error.message
        if "error_code" in expect:
            assert record.error.code == str(expect["error_code"])
    (event,) = fired
    assert (event["exception"] is not None) is (record.outcome in FAILURES)
    assert event["context"]["llm"] is record


@pytest.mark.parametrize("case", [case for case in CASES if case.arguable], ids=ids)
def test_an_arguable_case_has_one_of_the_outcomes_and_is_counted(case: Case, replies: dict[str, Any]) -> None:
    _, record, fired = replies[case.id]
    assert record.outcome in OUTCOMES
    assert (record.error is not None) is (record.outcome in FAILURES)
    assert len(fired) == 1


@pytest.mark.parametrize("case", [case for case in FIRM if case.expect["ok"]], ids=ids)
def test_times_are_those_of_the_writes(case: Case, replies: dict[str, Any]) -> None:
    _, record, _ = replies[case.id]
    times = record.token_times_us()
    nominal = case.expect["ttft_ms_nominal"]
    if not record.streamed:
        assert record.ttft is None
        return
    assert (record.ttft is None) is (nominal is None)
    if nominal is not None and not case.expect.get("ttft_tolerance_chunks"):
        assert nominal - 1 < 1000 * record.ttft < nominal + LATE_MS
    assert record.end_us >= (times[-1] if times else 0)
    assert record.stamp in ("kernel", "user")


def test_gaps_are_those_between_the_writes_or_the_record_says_how_unsure_it_is(replies: dict[str, Any]) -> None:
    wrong = {}
    streams = [case for case in FIRM if case.expect["ok"] and case.expect["gaps_ms_nominal"]]
    for case in streams:
        record = replies[case.id][1]
        times, expected = record.token_times_us(), case.expect["gaps_ms_nominal"]
        gaps = [(b - a) / 1000 for a, b in pairwise(times)]
        unsure = record.uncertain_us_max / 1000 + 1
        if len(gaps) == len(expected) and any(g < e - unsure for g, e in zip(gaps, expected, strict=True)):
            wrong[case.id] = gaps, expected, unsure
    # Not none: a machine that wakes this process late lets events join unseen.
    assert len(wrong) <= len(streams) * 0.1, wrong


def test_no_case_is_left_out() -> None:
    assert len(CASES) == 192
