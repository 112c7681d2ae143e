"""A killed user: its record keeps what had come, its connection is closed, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from exchanges import Consumer, ask, call, target_at, until
from gevent.pool import Pool as Greenlets
from loopback import DONE, FINISH, LAST_CHUNK, STREAM_HEAD, Peer, Server, chunk, event, sleep, wait_for, whole

from locust_llm.exchange import CANCELLED, OK, UNFINISHED, Exchange
from locust_llm.target import Attempt
from locust_llm.transport import stream as stream_module
from locust_llm.transport import transport as transport_module
from locust_llm.transport.dial import Dialed, DialError, Route


def wait_for_ever(peer: Peer) -> None:
    peer.request()
    peer.wait_for_end()


def stream_for_ever(peer: Peer) -> None:
    peer.request()
    peer.send(STREAM_HEAD)
    while True:
        peer.send(chunk(event("x")))
        sleep(0.01)


def never_read(peer: Peer) -> None:
    peer.sock.recv(10)
    sleep(0.5)


def killed(consumer: Consumer, when: Callable[[], object], **fields: Any) -> Exchange:
    """Start an exchange, kill its greenlet at some moment, return its record."""
    running = gevent.spawn(consumer.client.send, call(**fields), name="x")
    until(when)
    running.kill()
    assert running.dead
    (record,) = consumer.records
    assert consumer.fired == []
    assert consumer.run.in_flight == 0
    assert record.end_us > 0
    return record


def test_killed_while_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    dialling = []

    def slow_dial(route: Route, timeout_s: float) -> Dialed:
        dialling.append(route)
        gevent.sleep(100)
        raise DialError("", "too late")

    monkeypatch.setattr(transport_module, "dial", slow_dial)
    record = killed(Consumer(target_at(1)), lambda: dialling)
    assert record.outcome == CANCELLED
    assert (record.connected_us, record.sent_us, record.status) == (None, None, None)


def test_killed_while_sending() -> None:
    reached: list[int] = []
    over: list[int] = []

    def read_a_little(peer: Peer) -> None:
        peer.sock.recv(10)
        reached.append(peer.number)
        wait_for(lambda: over)

    with Server(read_a_little) as server:
        record = killed(Consumer(target_at(server.port)), lambda: reached, extra={"padding": "x" * 20_000_000})
        over.append(1)
    assert record.outcome == CANCELLED
    assert record.connected_us is not None
    assert record.sent_us is None


def test_killed_while_waiting() -> None:
    reached: list[int] = []

    def read_and_wait(peer: Peer) -> None:
        peer.request()
        reached.append(peer.number)
        peer.wait_for_end()

    with Server(read_and_wait) as server:
        record = killed(Consumer(target_at(server.port)), lambda: reached)
    assert record.outcome == CANCELLED
    assert record.sent_us is not None
    assert record.status is None


def test_killed_while_streaming_keeps_what_it_received() -> None:
    with Server(stream_for_ever) as server:
        consumer = Consumer(target_at(server.port))
        record = killed(consumer, lambda: consumer.events > 3)
    assert record.outcome == CANCELLED
    assert record.status == 200
    assert record.ttft is not None
    assert len(record.token_times_us()) > 2
    assert record.text
    assert set(record.text) == {"x"}


def test_killed_by_the_end_of_the_run_is_unfinished() -> None:
    with Server(stream_for_ever) as server:
        consumer = Consumer(target_at(server.port))
        running = gevent.spawn(consumer.client.send, call(), name="x")
        gevent.sleep(0.1)
        consumer.run.ending = True
        running.kill()
    assert [record.outcome for record in consumer.records] == [UNFINISHED]


def test_killed_after_the_end_mark_is_ok() -> None:
    def leave_open(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM_HEAD + chunk(event("Hi") + FINISH + DONE))
        peer.wait_for_end()

    with Server(leave_open) as server:
        consumer = Consumer(target_at(server.port))
        running = gevent.spawn(consumer.client.send, call(), name="x")
        until(lambda: consumer.events == 3)
        gevent.sleep(0.3)
        running.kill()
        killed_us = time.time_ns() / 1e3
    (record,) = consumer.records
    assert record.outcome == OK
    assert record.start_us + record.end_us < killed_us - 290_000  # at the mark


def test_the_server_sees_the_connection_of_a_killed_user_close() -> None:
    reached: list[int] = []
    gone: list[int] = []

    def notice(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM_HEAD)
        reached.append(peer.number)
        peer.wait_for_end()
        gone.append(peer.number)

    with Server(notice) as server:
        killed(Consumer(target_at(server.port)), lambda: reached)
        until(lambda: gone)
        assert gone == [0]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts files in /proc")
@pytest.mark.parametrize("script", [wait_for_ever, stream_for_ever, never_read])
def test_two_hundred_kills_leave_no_file_open(script: Callable[[Peer], None]) -> None:
    padding = "x" * 8_000_000 if script is never_read else ""
    with Server(script) as server:
        target = target_at(server.port)
        request = call(extra={"padding": padding})

        def one(number: int) -> Attempt:
            attempt = target.attempt(request)
            running = gevent.spawn(attempt.run)
            gevent.sleep(0.001 * (number % 20))
            running.kill()
            return attempt

        before = open_files()
        attempts = Greenlets(20).map(one, range(200 if script is not never_read else 40))
        assert {attempt.judge()[0] for attempt in attempts} == {UNFINISHED}
        assert all(attempt.transfer.end_ns >= attempt.transfer.start_ns for attempt in attempts)
        for _ in range(100):  # the server's ends are files of this process too
            gevent.sleep(0.05)
            if open_files() <= before:
                break
        assert open_files() <= before


def test_a_finished_exchange_leaves_nothing_to_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[object]] = []

    class Watched(stream_module.Stream):
        __slots__ = ("__weakref__",)

        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            made.extend((weakref.ref(self), weakref.ref(self._parser)))

    class WatchedParser(stream_module.ResponseParser):
        __slots__ = ("__weakref__",)

    monkeypatch.setattr(transport_module, "Stream", Watched)
    monkeypatch.setattr(stream_module, "ResponseParser", WatchedParser)

    def keep_or_close(peer: Peer) -> None:
        for number, _ in enumerate(peer.requests()):
            peer.send(whole() if number % 2 else STREAM_HEAD + chunk(event("Hi") + FINISH + DONE) + LAST_CHUNK)
            if number == 3:
                return

    gc.collect()
    gc.disable()
    try:
        with Server(keep_or_close) as server:
            target = target_at(server.port)
            for _ in range(8):
                ask(target)
        gevent.sleep(0)
        assert len(made) >= 16
        assert [ref() for ref in made] == [None] * len(made)
    finally:
        gc.enable()
