"""Kept-alive connections: reused when they are good, never a reason for a failure, never carrying bytes over."""

from __future__ import annotations

from typing import Any

import gevent
import pytest
from exchanges import Consumer, ask, call, target_at, until
from gevent.pool import Pool as Greenlets
from loopback import DONE, FINISH, LAST_CHUNK, STREAM_HEAD, Peer, Server, chunk, event, plain, sleep, wait_for, whole

from locust_llm.exchange import CONNECTION, EMPTY, HTTP_STATUS, OK
from locust_llm.transport.connection import Connection
from locust_llm.transport.dial import dial


def keep(peer: Peer) -> None:
    for _ in peer.requests():
        peer.send(whole())


def test_one_connection_carries_many_exchanges() -> None:
    with Server(keep) as server:
        target = target_at(server.port)
        attempts = [ask(target) for _ in range(20)]
    assert [attempt.judge()[0] for attempt in attempts] == [OK] * 20
    assert [attempt.transfer.reused for attempt in attempts] == [False] + [True] * 19
    assert server.accepted == 1


def test_a_reused_connection_has_no_connecting_in_its_record() -> None:
    with Server(keep) as server:
        consumer = Consumer(target_at(server.port))
        for _ in range(2):
            consumer.client.send(call(), name="x")
    first, second = consumer.records
    assert (first.reused, second.reused) == (False, True)
    assert first.tcp_us is not None
    assert first.connected_us is not None
    assert first.dns_us is not None
    assert (second.tcp_us, second.dns_us, second.connected_us) == (None, None, 0)


def test_a_server_that_closes_after_each_stream_though_it_promised_not_to_causes_no_failure() -> None:
    def close_at_once(peer: Peer) -> None:  # as llama.cpp does
        peer.request()
        peer.send(whole().replace(b"200 OK\r\n", b"200 OK\r\nKeep-Alive: timeout=5, max=100\r\n", 1))

    with Server(close_at_once) as server:
        consumer = Consumer(target_at(server.port))

        def user(_: int) -> None:
            for _ in range(50):
                consumer.client.send(call(), name="x")

        Greenlets(10).map(user, range(10))
    assert [record.outcome for record in consumer.records] == [OK] * 500
    assert all(event["exception"] is None for event in consumer.fired)
    assert len(consumer.fired) == 500


def test_a_reused_connection_that_dies_before_any_byte_is_resent_once_and_recorded() -> None:
    def die_on_second(peer: Peer) -> None:
        peer.request()
        peer.send(whole())
        if peer.number == 0:
            peer.request()  # taken, never answered
            return
        keep(peer)

    with Server(die_on_second) as server:
        consumer = Consumer(target_at(server.port))
        for _ in range(2):
            consumer.client.send(call(), name="x")
    first, second = consumer.records
    assert (first.outcome, first.resent) == (OK, 0)
    assert (second.outcome, second.resent, second.reused) == (OK, 1, False)
    assert server.accepted == 2
    assert len(consumer.fired) == 2


def test_a_request_is_resent_no_more_than_once() -> None:
    def die(peer: Peer) -> None:
        peer.request()
        if peer.number == 0:
            peer.send(whole())
            peer.request()

    with Server(die) as server:
        target = target_at(server.port)
        ask(target)
        attempt = ask(target)
        gevent.sleep(0.05)
        assert server.accepted == 2
    assert attempt.judge()[0] == CONNECTION
    assert attempt.transfer.resent == 1


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 O"], ids=["nothing", "some"])
def test_a_fresh_connection_that_dies_is_a_failure_and_not_resent(said: bytes) -> None:
    def die(peer: Peer) -> None:
        peer.request()
        peer.send(said)

    with Server(die) as server:
        attempt = ask(target_at(server.port))
        gevent.sleep(0.05)
        assert server.accepted == 1
    assert attempt.judge()[0] == CONNECTION
    assert attempt.transfer.resent == 0


@pytest.mark.parametrize("said", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", STREAM_HEAD], ids=["byte", "interim", "head"])
def test_a_reused_connection_that_dies_after_a_byte_is_a_failure_and_not_resent(said: bytes) -> None:
    def die(peer: Peer) -> None:
        peer.request()
        peer.send(whole())
        peer.request()
        peer.send(said)

    with Server(die) as server:
        target = target_at(server.port)
        ask(target)
        attempt = ask(target)
        gevent.sleep(0.05)
        assert server.accepted == 1
    outcome, error = attempt.judge()
    assert (outcome, error and error.kind) == (CONNECTION, "framing")
    assert attempt.transfer.resent == 0


@pytest.mark.parametrize(
    "left_over",
    [b"x", b"\r\n", plain(200, b"{}"), b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"],
    ids=["byte", "blank line", "answer", "408"],
)
@pytest.mark.parametrize("pause_s", [0.0, 0.05])
def test_bytes_after_a_message_never_reach_the_next_answer(left_over: bytes, pause_s: float) -> None:
    said: list[int] = []

    def say_more(peer: Peer) -> None:
        for number, _ in enumerate(peer.requests()):
            answer = whole(f"answer {peer.number}.{number}")
            if pause_s:
                peer.send(answer)
                sleep(pause_s)
                peer.send(left_over)
            else:
                peer.send(answer + left_over)
            said.append(number)

    with Server(say_more) as server:
        target = target_at(server.port)
        attempts = []
        for number in range(3):
            attempts.append(ask(target))
            until(lambda number=number: len(said) > number)
            gevent.sleep(pause_s)
    assert [attempt.judge()[0] for attempt in attempts] == [OK] * 3
    assert all(attempt.answer.text().startswith("answer ") for attempt in attempts)
    assert all(attempt.transfer.resent == 0 for attempt in attempts)


def test_a_connection_that_the_server_closes_while_idle_leaves_the_pool_at_once() -> None:
    seen: list[int] = []

    def close_later(peer: Peer) -> None:
        peer.request()
        peer.send(whole())
        wait_for(lambda: seen)

    with Server(close_later) as server:
        target = target_at(server.port)
        ask(target)
        assert len(target.transport._pool) == 1
        seen.append(1)
        until(lambda: len(target.transport._pool) == 0)
        assert ask(target).judge()[0] == OK
    assert server.accepted == 2


def test_a_connection_that_was_closed_while_the_loop_was_busy_is_noticed_before_sending() -> None:
    def close_at_once(peer: Peer) -> None:
        peer.request()
        peer.send(whole())

    with Server(close_at_once) as server:
        target = target_at(server.port)
        ask(target)
        assert len(target.transport._pool) == 1
        sleep(0.05)  # natively: the loop has not seen the end of file
        attempt = ask(target)
    assert (attempt.judge()[0], attempt.transfer.reused, attempt.transfer.resent) == (OK, False, 0)


def test_connection_close_is_obeyed() -> None:
    def say_close(peer: Peer) -> None:
        peer.request()
        peer.send(whole().replace(b"200 OK\r\n", b"200 OK\r\nConnection: close\r\n", 1))
        peer.wait_for_end()

    with Server(say_close) as server:
        target = target_at(server.port)
        assert [ask(target).judge()[0] for _ in range(3)] == [OK] * 3
        assert len(target.transport._pool) == 0
    assert server.accepted == 3


def test_an_answer_that_came_before_the_request_was_sent_leaves_no_reusable_connection() -> None:
    def refuse_early(peer: Peer) -> None:
        peer.sock.recv(100)
        peer.send(plain(413, b'{"error": {"message": "too large"}}'))
        sleep(0.2)
        peer.wait_for_end()

    with Server(refuse_early) as server:
        target = target_at(server.port)
        attempt = target.attempt(call(extra={"padding": "x" * 20_000_000}))
        attempt.run()
        outcome, error = attempt.judge()
        assert (outcome, attempt.transfer.status) == (HTTP_STATUS, 413)
        assert error is not None
        assert "too large" in error.message
        assert attempt.transfer.sent_ns is None
        assert len(target.transport._pool) == 0


class Broken:
    """A socket that can be read, but whose other end takes nothing any more."""

    def __init__(self, sock: Any, asked: list[int], answered: list[int]) -> None:
        self._sock = sock
        self._asked = asked
        self._answered = answered

    def send(self, data: bytes) -> int:
        self._asked.append(1)
        wait_for(lambda: self._answered)  # natively: the answer is there, the loop has not seen it
        raise BrokenPipeError(32, "Broken pipe")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def test_an_answer_is_read_though_the_server_hung_up_on_the_request() -> None:
    asked: list[int] = []
    answered: list[int] = []

    def refuse_unasked(peer: Peer) -> None:
        wait_for(lambda: asked)
        peer.send(plain(401, b'{"error": {"message": "no key"}}', "Connection: close"))
        answered.append(1)

    with Server(refuse_unasked) as server:
        target = target_at(server.port)
        connection = Connection(dial(target.transport.route, 5))
        connection.sock = Broken(connection.sock, asked, answered)
        target.transport._pool.give(connection)
        attempt = ask(target)
    outcome, error = attempt.judge()
    assert (outcome, attempt.transfer.status, attempt.transfer.resent) == (HTTP_STATUS, 401, 0)
    assert error is not None
    assert "no key" in error.message


def test_interim_answers_are_passed_over() -> None:
    def hint(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
            peer.send(whole())

    with Server(hint) as server:
        target = target_at(server.port)
        attempts = [ask(target), ask(target)]
    assert [(a.judge()[0], a.transfer.status) for a in attempts] == [(OK, 200)] * 2
    assert "link" not in attempts[0].transfer.headers
    assert server.accepted == 1


def test_an_answer_without_content_is_empty_and_its_connection_good() -> None:
    def nothing(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    with Server(nothing) as server:
        target = target_at(server.port)
        assert [ask(target).judge()[0] for _ in range(2)] == [EMPTY] * 2
    assert server.accepted == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_and_says_where_to(status: int) -> None:
    def redirect(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send(plain(status, b"", "Location: https://u:p@other.example/v1?key=secret"))

    with Server(redirect) as server:
        attempt = ask(target_at(server.port))
    outcome, error = attempt.judge()
    assert outcome == HTTP_STATUS
    assert error is not None
    assert "https://***@other.example/v1" in error.message
    assert "secret" not in error.message
    assert server.accepted == 1


def test_trailers_change_no_header() -> None:
    def trail(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send(STREAM_HEAD + chunk(event("Hi") + FINISH + DONE) + b"0\r\nRetry-After: 9\r\nX-Sum: 1\r\n\r\n")

    with Server(trail) as server:
        attempts = [ask(target) for target in [target_at(server.port)] for _ in range(2)]
    assert [attempt.judge()[0] for attempt in attempts] == [OK] * 2
    assert "retry-after" not in attempts[0].transfer.headers
    assert server.accepted == 1


def test_the_end_of_a_run_closes_idle_connections_and_those_given_back_later() -> None:
    def slow(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send(STREAM_HEAD + chunk(event("Hi")))
            sleep(0.1)
            peer.send(chunk(FINISH + DONE) + LAST_CHUNK)

    with Server(slow) as server:
        target = target_at(server.port)
        running = gevent.spawn(ask, target)
        gevent.sleep(0.05)
        target.transport.close()
        assert running.get(timeout=5).judge()[0] == OK
        assert len(target.transport._pool) == 0
