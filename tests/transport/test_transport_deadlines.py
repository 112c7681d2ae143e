"""Deadlines: each of connect, first token, idle and total ends an exchange as a timeout of its own name; 0 is none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gevent
import pytest
from exchanges import Consumer, ask, call, target_at
from loopback import DONE, FINISH, LAST_CHUNK, STREAM_HEAD, Peer, Server, chunk, event, native, plain, sleep, whole

from locust_llm.exchange import HTTP_STATUS, OK, TIMEOUT
from locust_llm.settings import Timeouts
from locust_llm.transport.deadlines import LOOK_AGAIN, connect_deadline, next_deadline

LONG_S = 20.0
"""Of a test that hangs instead of timing out."""


@pytest.fixture
def blackhole() -> Iterator[int]:
    """Port that answers no connection attempt: its queue is full and nobody accepts."""
    listener = native["socket"]()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    for _ in range(4):
        filler = native["socket"]()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    sleep(0.05)
    yield listener.getsockname()[1]
    for sock in (*fillers, listener):
        sock.close()


def silent(peer: Peer) -> None:
    peer.request()
    peer.wait_for_end()


def head_only(peer: Peer) -> None:
    peer.request()
    peer.send(STREAM_HEAD)
    peer.wait_for_end()


def role_and_pings(peer: Peer) -> None:
    peer.request()
    peer.send(STREAM_HEAD + chunk(event(delta={"role": "assistant", "content": ""})))
    while True:
        sleep(0.02)
        peer.send(chunk(b": ping\n\n"))


def one_token_then_nothing(peer: Peer) -> None:
    peer.request()
    peer.send(STREAM_HEAD + chunk(event("Hi")))
    peer.wait_for_end()


def tokens_for_ever(peer: Peer) -> None:
    peer.request()
    peer.send(STREAM_HEAD)
    while True:
        peer.send(chunk(event("x")))
        sleep(0.02)


def test_a_connection_that_nobody_accepts_is_a_connect_timeout(blackhole: int) -> None:
    begun = time.monotonic()
    attempt = ask(target_at(blackhole, connect=0.3))
    outcome, error = attempt.judge()
    assert (outcome, error and error.kind) == (TIMEOUT, "connect")
    assert 0.29 < time.monotonic() - begun < LONG_S
    assert attempt.transfer.connected_ns is None
    assert attempt.transfer.end_ns > attempt.transfer.start_ns


@pytest.mark.parametrize("name", ["first_token", "total"])
def test_without_a_connect_deadline_those_of_the_exchange_hold(blackhole: int, name: str) -> None:
    limits: dict[str, Any] = {"connect": 0, name: 0.2}
    outcome, error = ask(target_at(blackhole, **limits)).judge()
    assert (outcome, error and error.kind) == (TIMEOUT, name)


@pytest.mark.parametrize("script", [silent, head_only, role_and_pings])
def test_no_token_in_time_is_a_first_token_timeout(script: object) -> None:
    with Server(script) as server:  # type: ignore[arg-type]
        consumer = Consumer(target_at(server.port, first_token=0.3, idle=0.1))
        consumer.client.send(call(), name="x")
    (record,) = consumer.records
    assert (record.outcome, record.error and record.error.kind) == (TIMEOUT, "first_token")
    assert 0.29e6 < record.end_us < LONG_S * 1e6
    assert len(consumer.fired) == 1


def test_silence_after_the_first_token_is_an_idle_timeout_and_keeps_what_came() -> None:
    with Server(one_token_then_nothing) as server:
        consumer = Consumer(target_at(server.port, first_token=10, idle=0.2))
        reply = consumer.client.send(call(), name="x")
    (record,) = consumer.records
    assert (record.outcome, record.error and record.error.kind) == (TIMEOUT, "idle")
    assert (reply.text, record.ttft is not None) == ("Hi", True)
    assert 0.19e6 < record.end_us < LONG_S * 1e6


def test_bytes_that_are_no_tokens_keep_a_stream_from_being_idle() -> None:
    def ping_between(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM_HEAD + chunk(event("Hi")))
        for _ in range(6):
            sleep(0.25)
            peer.send(chunk(b":\n\n"))
        peer.send(chunk(FINISH + DONE) + LAST_CHUNK)

    with Server(ping_between) as server:
        assert ask(target_at(server.port, idle=1)).judge()[0] == OK


def test_a_stream_that_goes_on_is_ended_by_the_total_deadline() -> None:
    with Server(tokens_for_ever) as server:
        attempt = ask(target_at(server.port, total=0.4, idle=5, first_token=5))
    outcome, error = attempt.judge()
    assert (outcome, error and error.kind) == (TIMEOUT, "total")
    assert attempt.answer.text().startswith("xxx")


def test_zero_is_no_deadline() -> None:
    def slow(peer: Peer) -> None:
        peer.request()
        sleep(0.2)
        peer.send(STREAM_HEAD + chunk(event("Hi")))
        sleep(0.2)
        peer.send(chunk(FINISH + DONE) + LAST_CHUNK)

    with Server(slow) as server:
        assert ask(target_at(server.port, connect=0, first_token=0, idle=0, total=0)).judge()[0] == OK


def test_a_request_that_the_server_does_not_read_ends_by_a_deadline_too() -> None:
    def never_read(peer: Peer) -> None:
        peer.sock.recv(10)
        sleep(1.5)

    with Server(never_read) as server:
        attempt = target_at(server.port, first_token=0.3).attempt(call(extra={"padding": "x" * 20_000_000}))
        attempt.run()
    outcome, error = attempt.judge()
    assert (outcome, error and error.kind) == (TIMEOUT, "first_token")
    assert attempt.transfer.sent_ns is None


def test_an_error_status_wins_over_the_timeout_of_its_body() -> None:
    def stall_in_body(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 1000\r\n\r\n{")
        peer.wait_for_end()

    with Server(stall_in_body) as server:
        attempt = ask(target_at(server.port, first_token=1))
    assert (attempt.judge()[0], attempt.transfer.status) == (HTTP_STATUS, 503)


def test_a_body_left_open_after_the_end_mark_is_done_after_a_grace_and_ended_at_the_mark() -> None:
    def leave_open(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM_HEAD + chunk(event("Hi") + FINISH + DONE))
        peer.wait_for_end()

    with Server(leave_open) as server:
        consumer = Consumer(target_at(server.port))
        begun = time.monotonic()
        consumer.client.send(call(), name="x")
        took_s = time.monotonic() - begun
        assert len(consumer.client.target.transport._pool) == 0
    (record,) = consumer.records
    assert record.outcome == OK
    assert 0.9 < took_s < LONG_S
    assert record.end_us < took_s * 1e6 - 0.8e6  # the mark, not the grace


def test_a_non_streamed_answer_has_the_first_token_deadline_only() -> None:
    def in_two_parts(peer: Peer) -> None:
        peer.request()
        body = b'{"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}'
        answer = plain(200, body, "Content-Type: application/json")
        peer.send(answer[:-20])
        sleep(0.3)
        peer.send(answer[-20:])

    with Server(in_two_parts) as server:
        assert ask(target_at(server.port, idle=0.1), stream=False).judge()[0] == OK


def test_timeouts_of_some_streams_do_not_touch_others() -> None:
    def by_turns(peer: Peer) -> None:
        peer.request()
        if peer.number % 2:
            peer.wait_for_end()
        peer.send(whole())

    with Server(by_turns) as server:
        target = target_at(server.port, first_token=1.5)
        attempts = [greenlet.get() for greenlet in [gevent.spawn(ask, target) for _ in range(40)]]
    outcomes = [attempt.judge()[0] for attempt in attempts]
    assert outcomes.count(OK) == outcomes.count(TIMEOUT) == 20


LIMITS = Timeouts(connect=1, first_token=10, idle=5, total=60)


@pytest.mark.parametrize(
    ("elapsed_s", "quiet_s", "has_tokens", "expected"),
    [
        (0, 0, False, (5, LOOK_AGAIN)),  # a first token could come, and silence after it
        (7, 7, False, (3, "first_token")),
        (10, 10, False, (0, "first_token")),
        (10, 1, True, (4, "idle")),
        (10, 6, True, (-1, "idle")),
        (58, 0, True, (2, "total")),
        (61, 0, True, (-1, "total")),
    ],
)
def test_the_next_deadline(elapsed_s: float, quiet_s: float, has_tokens: bool, expected: tuple[float, str]) -> None:
    assert next_deadline(LIMITS, elapsed_s, quiet_s, has_tokens) == expected


def test_without_limits_there_is_always_a_later_look() -> None:
    left_s, which = next_deadline(Timeouts(0, 0, 0, 0), 1e6, 1e6, True)
    assert (left_s > 0, which) == (True, LOOK_AGAIN)
    assert connect_deadline(Timeouts(0, 0, 0, 0), 5) == (0, "connect")


def test_what_is_left_to_connect_is_the_least_of_three() -> None:
    assert connect_deadline(LIMITS, 0) == (1, "connect")
    assert connect_deadline(LIMITS, 9.5) == (0.5, "first_token")
    assert connect_deadline(Timeouts(0, 0, 0, 60), 58) == (2, "total")
    assert connect_deadline(LIMITS, 100)[0] > 0  # over, but 0 would be no limit
