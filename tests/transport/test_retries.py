"""``--llm-retries``: what is sent again, what never, and that one exchange stays one for Locust and the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from exchanges import Consumer, call, target_at, until
from loopback import STREAM_HEAD, Peer, Server, chunk, event, native, plain, sleep, whole

from locust_llm import retrying
from locust_llm.exchange import (
    CONNECTION,
    HTTP_STATUS,
    IN_BAND_ERROR,
    MALFORMED,
    OK,
    TIMEOUT,
    TRUNCATED,
    Exchange,
    ExchangeError,
)

LIMIT = b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}'


def answers(*each: bytes) -> Callable[[Peer], None]:
    """Return a script that gives these answers in turn, whatever the connection; the last one for ever."""
    left = list(each)

    def play(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send(left.pop(0) if len(left) > 1 else left[0])

    return play


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "FIRST_WAIT_S", 0.02)


def send(server: Server, retries: int, **settings: Any) -> Consumer:
    consumer = Consumer(target_at(server.port, retries=retries, **settings))
    consumer.client.send(call(), name="x")
    return consumer


def test_off_by_default() -> None:
    with Server(answers(plain(429, LIMIT), whole())) as server:
        consumer = send(server, 0)
    assert [record.outcome for record in consumer.records] == [HTTP_STATUS]


@pytest.mark.parametrize("status", [429, 503, 529])
def test_attempts_are_records_of_one_exchange_with_one_event_and_the_last_outcome(status: int) -> None:
    with Server(answers(plain(status, LIMIT), plain(status, LIMIT), whole())) as server:
        consumer = send(server, 5)
    assert [(r.attempt, r.outcome) for r in consumer.records] == [(1, HTTP_STATUS), (2, HTTP_STATUS), (3, OK)]
    assert len({record.exchange for record in consumer.records}) == 1
    assert len({record.seq for record in consumer.records}) == 3
    (fired,) = consumer.fired
    assert fired["exception"] is None
    assert fired["context"]["llm"] is consumer.records[-1]
    assert consumer.run.finished == {OK: 1}


def test_after_n_retries_the_last_failure_is_the_outcome() -> None:
    with Server(answers(plain(503, LIMIT))) as server:
        consumer = send(server, 2)
    assert [record.attempt for record in consumer.records] == [1, 2, 3]
    (fired,) = consumer.fired
    assert "503" in str(fired["exception"])
    assert consumer.run.finished == {HTTP_STATUS: 1}


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500, 502, 504])
def test_other_statuses_are_not_sent_again(status: int) -> None:
    with Server(answers(plain(status, LIMIT), whole())) as server:
        assert [record.status for record in send(server, 3).records] == [status]


def test_a_server_that_is_not_there_yet_is_tried_again() -> None:
    listener = native["socket"]()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    consumer = Consumer(target_at(port, retries=2))
    consumer.client.send(call(), name="x")
    assert [(r.outcome, r.error.kind) for r in consumer.records if r.error] == [(CONNECTION, "refused")] * 3
    assert len(consumer.fired) == 1


def test_a_connection_that_gave_no_byte_is_tried_again_and_one_that_gave_a_head_is_not() -> None:
    def silent(peer: Peer) -> None:
        peer.request()
        if peer.number:
            peer.send(whole())

    with Server(silent) as server:
        consumer = send(server, 2)
        assert [record.outcome for record in consumer.records] == [CONNECTION, OK]

    def head_only(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM_HEAD)

    with Server(head_only) as server:
        assert [record.outcome for record in send(server, 2).records] == [CONNECTION]


def test_nothing_is_sent_again_after_a_token() -> None:
    def cut(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM_HEAD + chunk(event("a")))

    refused = b'data: {"error":{"message":"full","code":503}}\n\n'
    with Server(cut) as server:
        assert len(send(server, 3).records) == 1
    with Server(answers(STREAM_HEAD + chunk(event("a") + refused) + chunk(b""))) as server:
        assert [record.outcome for record in send(server, 3).records] == [IN_BAND_ERROR]
    with Server(answers(STREAM_HEAD + chunk(refused) + chunk(b""), whole())) as server:
        assert [record.outcome for record in send(server, 3).records] == [IN_BAND_ERROR, OK]


def test_the_wait_is_outside_of_all_times_and_as_long_as_the_server_asks() -> None:
    with Server(answers(plain(429, LIMIT, "Retry-After: 0.3"), whole())) as server:
        begun = time.monotonic()
        consumer = send(server, 1)
        took = time.monotonic() - begun
    first, second = consumer.records
    assert took >= 0.3
    assert second.start_us - (first.start_us + first.end_us) >= 290_000
    assert second.end_us <= took * 1e6 - 290_000
    assert consumer.fired[0]["response_time"] <= took * 1e3 - 290


def test_a_run_that_is_told_to_stop_waits_for_no_retry() -> None:
    with Server(answers(plain(429, LIMIT, "Retry-After: 30"))) as server:
        consumer = Consumer(target_at(server.port, retries=3))
        user = gevent.spawn(consumer.client.send, call(), name="x")
        until(lambda: consumer.has_ended)
        gevent.sleep(0.1)
        consumer.run.stop_starting()
        user.join(20)
        assert user.ready()
    assert [(record.attempt, record.outcome) for record in consumer.records] == [(1, HTTP_STATUS)]
    assert len(consumer.fired) == 1


def test_a_user_who_is_killed_while_waiting_leaves_the_outcome_of_the_attempt() -> None:
    with Server(answers(plain(429, LIMIT, "Retry-After: 30"))) as server:
        consumer = Consumer(target_at(server.port, retries=3))
        user = gevent.spawn(consumer.client.send, call(), name="x")
        until(lambda: consumer.has_ended)
        gevent.sleep(0.1)
        user.kill()
    assert [record.outcome for record in consumer.records] == [HTTP_STATUS]
    assert consumer.run.in_flight == 0


def test_learning_a_servers_fields_and_retrying_go_together() -> None:
    refusal = b'{"error":{"message":"Unknown field: stream_options","param":"stream_options"}}'
    with Server(answers(plain(503, LIMIT), plain(400, refusal), plain(429, LIMIT), whole())) as server:
        consumer = send(server, 2)
    assert [record.status for record in consumer.records] == [503, 400, 429, 200]
    assert [record.attempt for record in consumer.records] == [1, 2, 3, 4]


def record(outcome: str, kind: str = "", **members: Any) -> Exchange:
    error = ExchangeError(kind, "m", members.pop("code", None), members.pop("asked_s", None))
    return Exchange(
        run="r", worker="w", seq=0, exchange="e", name="n", user_class="u", api="a", model="m", start_us=0, end_us=1,
        outcome=outcome, error=error, **members,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ended", "again"),
    [
        (record(CONNECTION, "refused"), True),
        (record(CONNECTION, "reset"), True),
        (record(CONNECTION, "dns"), True),
        (record(CONNECTION, "tls"), False),
        (record(CONNECTION, "framing"), False),
        (record(CONNECTION, "reset", headers_us=5, status=200), False),
        (record(TIMEOUT, "connect"), True),
        (record(TIMEOUT, "first_token"), False),
        (record(TIMEOUT, "total"), False),
        (record(IN_BAND_ERROR, "overloaded_error"), True),
        (record(IN_BAND_ERROR, "overloaded"), True),
        (record(IN_BAND_ERROR, "x", code="529"), True),
        (record(IN_BAND_ERROR, "x", code="400"), False),
        (record(IN_BAND_ERROR, "x", code="503", kind_names=["role", "content"], kind_runs=[1, 1]), False),
        (record(MALFORMED, "malformed"), False),
        (record(TRUNCATED, "truncated"), False),
    ],
)
def test_which_failures_may_be_sent_again(ended: Exchange, again: bool) -> None:
    assert retrying.may_retry(ended) is again


def test_waits_double_up_to_a_bound_with_jitter_and_the_servers_own_has_a_bound_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    failed = record(HTTP_STATUS, status=429)
    assert [retrying.wait_s(failed, n, 0) for n in (1, 2, 3, 20)] == [0.5, 1.0, 2.0, 30.0]
    assert retrying.wait_s(failed, 1, 1) == 0.25
    assert retrying.wait_s(record(HTTP_STATUS, asked_s=7.0), 1, 1) == 7.0
    assert retrying.wait_s(record(HTTP_STATUS, asked_s=3600.0), 1, 1) == retrying.LONGEST_ASKED_S
    assert retrying.wait_s(record(HTTP_STATUS, asked_s=0.0), 1, 1) == 0.0


def test_a_slow_answer_to_a_retry_keeps_its_own_ttft() -> None:
    def slow(peer: Peer) -> None:
        for number, _ in enumerate(peer.requests()):
            if number == 0:
                peer.send(plain(503, LIMIT))
            else:
                sleep(0.1)
                peer.send(whole())

    with Server(slow) as server:
        consumer = send(server, 1)
    second = consumer.records[-1]
    assert second.ttft is not None
    assert 0.1 <= second.ttft <= second.end_us / 1e6
