"""A killed user: its record keeps what had come, its connection is closed, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from exchanges import Consumer, ask, call, target_at
from gevent.pool import Pool as Greenlets
from loopback import DONE, FINISH, LAST_CHUNK, STREAM_HEAD, Peer, Server, chunk, event, sleep, whole

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


def killed(consumer: Consumer, after_s: float, **fields: Any) -> Exchange:
    """Start an exchange, kill its greenlet, return its record."""
    running = gevent.spawn(consumer.client.send, call(**fields), name="x")
    gevent.sleep(after_s)
    running.kill()
    assert running.dead
    (record,) = consumer.records
    assert consumer.fired == []
    assert consumer.run.in_flight == 0
    assert record.end_us > 0
    return record


def slow_dial(route: Route, timeout_s: float) -> Dialed:
    gevent.sleep(10)
    raise DialError("", "too late")


def test_killed_while_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "dial", slow_dial)
    record = killed(Consumer(target_at(1)), 0.05)
    assert record.outcome == CANCELLED
    assert (record.connected_us, record.sent_us, record.status) == (None, None, None)


def test_killed_while_sending() -> None:
    with Server(never_read) as server:
        record = killed(Consumer(target_at(server.port)), 0.1, extra={"padding": "x" * 20_000_000})
    assert record.outcome == CANCELLED
    assert record.connected_us is not None
    assert record.sent_us is None


def test_killed_while_waiting() -> None:
    with Server(wait_for_ever) as server:
        record = killed(Consumer(target_at(server.port)), 0.1)
    assert record.outcome == CANCELLED
    assert record.sent_us is not None
    assert record.status is None


def test_killed_while_streaming_keeps_what_it_received() -> None:
    with Server(stream_for_ever) as server:
        record = killed(Consumer(target_at(server.port)), 0.3)
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
        gevent.sleep(0.3)
        running.kill()
    (record,) = consumer.records
    assert record.outcome == OK
    assert record.end_us < 250_000  # at the mark


def test_the_server_sees_the_connection_of_a_killed_user_close() -> None:
    gone = []

    def notice(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM_HEAD)
        peer.wait_for_end()
        gone.append(peer.number)

    with Server(notice) as server:
        killed(Consumer(target_at(server.port)), 0.1)
        gevent.sleep(0.1)
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

    monkeypatch.setattr(transport_module, "Stream", Watched)

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
