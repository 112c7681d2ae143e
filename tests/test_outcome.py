"""The outcome is the first that applies, in the order of metrics.md 2."""

from __future__ import annotations

import pytest

from locust_llm.exchange import FAILURES, ExchangeError
from locust_llm.outcome import TransportEnd, judge
from locust_llm.wire.answer import CONTENT, DONE, FINISH, ROLE, Answer, ServerError, Usage

COMPLETE = TransportEnd("complete")
RESET = TransportEnd("connection", "reset", "connection reset by peer")
IDLE = TransportEnd("timeout", "idle", "no byte for 120 s")


def answer(*kinds: str, ended: bool = False, n_out: int | None = None) -> Answer:
    made = Answer()
    for at_ns, kind in enumerate(kinds):
        made.add(at_ns, kind, -1 if kind == CONTENT else 0)
        if kind == DONE:
            made.done_ns = at_ns
    made.ended = ended or DONE in kinds or FINISH in kinds
    made.usage = None if n_out is None else Usage(n_out=n_out)
    return made


GOOD = (ROLE, CONTENT, FINISH, DONE)


def test_a_whole_good_answer_is_ok_and_has_no_error() -> None:
    assert judge(answer(*GOOD), 200, COMPLETE, None) == ("ok", None)
    assert judge(answer(ROLE, CONTENT, FINISH), 200, COMPLETE, None) == ("ok", None)
    assert judge(answer(FINISH, n_out=1), 200, COMPLETE, None) == ("ok", None)  # only a token without text


@pytest.mark.parametrize(
    ("made", "end", "outcome", "kind"),
    [
        (answer(), COMPLETE, "empty", "empty"),
        (answer(DONE), COMPLETE, "empty", "empty"),
        (answer(ROLE, DONE), COMPLETE, "empty", "empty"),
        (answer(ROLE, FINISH, DONE, n_out=0), COMPLETE, "empty", "empty"),
        (answer(ROLE), COMPLETE, "truncated", "truncated"),
        (answer(ROLE, CONTENT), COMPLETE, "truncated", "truncated"),
        (answer(ROLE, CONTENT, n_out=9), COMPLETE, "truncated", "truncated"),
        (answer(ROLE, CONTENT), RESET, "connection", "reset"),
        (answer(ROLE, CONTENT, FINISH), RESET, "connection", "reset"),
        (answer(ROLE, DONE), RESET, "connection", "reset"),
        (answer(ROLE, CONTENT), IDLE, "timeout", "idle"),
        (answer(), TransportEnd("timeout", "connect"), "timeout", "connect"),
        (answer(), TransportEnd("connection", "refused", "refused"), "connection", "refused"),
    ],
)
def test_an_empty_or_cut_answer_is_never_a_success(made: Answer, end: TransportEnd, outcome: str, kind: str) -> None:
    found, error = judge(made, 200, end, None)
    assert found == outcome
    assert found in FAILURES
    assert error is not None
    assert (error.kind, bool(error.message)) == (kind, True)


@pytest.mark.parametrize("end", [RESET, IDLE, TransportEnd("unfinished"), TransportEnd("cancelled")])
def test_what_comes_after_the_terminal_mark_of_a_good_answer_is_no_failure(end: TransportEnd) -> None:
    assert judge(answer(*GOOD), 200, end, None) == ("ok", None)


def test_cancelled_and_unfinished_are_no_failures_and_carry_no_error() -> None:
    for kind in ("cancelled", "unfinished"):
        assert judge(answer(ROLE, CONTENT), 200, TransportEnd(kind), None) == (kind, None)
        assert judge(answer(), None, TransportEnd(kind), None) == (kind, None)


def test_the_order_when_several_apply() -> None:
    made = answer(ROLE, CONTENT)
    unfinished = TransportEnd("unfinished")
    assert judge(made, 200, unfinished, None)[0] == "unfinished"
    made.malformed = "an event that is not JSON"
    assert judge(made, 200, unfinished, None)[0] == "malformed"
    made.error = ServerError("busy", "overloaded", "503")
    assert judge(made, 200, unfinished, None) == ("in_band_error", ExchangeError("overloaded", "busy", "503"))
    assert judge(made, 503, unfinished, None)[0] == "http_status"


def test_an_error_inside_a_good_looking_answer_is_a_failure() -> None:
    made = answer(*GOOD, n_out=3)
    made.error = ServerError("finish reason abort", "abort")
    assert judge(made, 200, COMPLETE, None)[0] == "in_band_error"


def test_a_refusal_tells_status_message_code_and_when_to_come_back() -> None:
    made = Answer()
    made.error = ServerError("too many calls", "requests", "rate_limit_exceeded")
    assert judge(made, 429, COMPLETE, "7") == (
        "http_status",
        ExchangeError("requests", "too many calls", "rate_limit_exceeded", 7.0),
    )
    assert judge(Answer(), 502, RESET, None) == (
        "http_status",
        ExchangeError("http_502", "the answer has no body"),
    )
    late = judge(made, 429, COMPLETE, "Wed, 21 Oct 2015 07:28:00 GMT", now=1_445_412_470.0)[1]
    assert late is not None
    assert late.retry_after_s == 10.0


@pytest.mark.parametrize("status", [301, 304, 307, 199, 600])
def test_only_2xx_is_good(status: int) -> None:
    assert judge(answer(*GOOD), status, COMPLETE, None)[0] == "http_status"
    assert judge(answer(*GOOD), 206, COMPLETE, None)[0] == "ok"
