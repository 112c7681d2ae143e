"""The loop lets dense arrivals gather, and only where that bends no time."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import gevent
import pytest
from exchanges import Consumer, call, target_at, until
from locust import HttpUser
from locust.env import Environment
from loopback import DONE, FINISH, LAST_CHUNK, STREAM_HEAD, Peer, Server, chunk, event, sleep, wait_for

from locust_llm import ChatUser
from locust_llm.node import Node
from locust_llm.transport import dial, gathering, transport
from locust_llm.transport.gathering import DENSE_READS, GATHER_NS, Gathering
from locust_llm.transport.loop import poll_clock

linux = pytest.mark.skipif(sys.platform != "linux", reason="kernel stamps are Linux's")


class Loop:
    """Plays the turns of a loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gathering = Gathering()
        self.gathering.allowed = True
        self._waited: list[float] = []
        monkeypatch.setattr(gathering, "_sleep", self._waited.append)

    def waits_s(self, reads: int = 10, polled_for_ns: int = 0, away_ns: int = 0) -> float:
        """Play a poll, reads and work after it; return how long the loop then waits before the next poll."""
        self._waited.clear()
        self.gathering.reads += reads
        polled_ns = time.monotonic_ns() - away_ns
        self.gathering.wait(polled_ns - polled_for_ns, polled_ns)
        return sum(self._waited)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def test_polls_are_apart_while_arrivals_are_dense(loop: Loop) -> None:
    assert 0 < loop.waits_s() <= GATHER_NS / 1e9
    assert 0 < loop.waits_s(reads=DENSE_READS) <= GATHER_NS / 1e9
    assert loop.waits_s(away_ns=GATHER_NS // 2) <= GATHER_NS / 2e9


def test_nobody_waits_for_arrivals_that_are_far_apart(loop: Loop) -> None:
    assert loop.waits_s(reads=DENSE_READS - 1) == 0
    assert loop.waits_s(polled_for_ns=GATHER_NS) == 0


def test_a_busy_loop_does_not_wait(loop: Loop) -> None:
    assert loop.waits_s(away_ns=GATHER_NS) == 0


def test_nobody_waits_while_somebody_connects_or_other_users_are_there(loop: Loop) -> None:
    loop.gathering.urgent += 1
    assert loop.waits_s() == 0
    loop.gathering.urgent -= 1
    assert loop.waits_s() > 0
    loop.gathering.allowed = False
    assert loop.waits_s() == 0


def test_events_that_come_joined_end_it_for_a_while(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "PAUSE_NS", 50_000_000)
    loop.gathering.reads += 1_000_000  # however good it was for however long
    loop.gathering.bent(16)
    assert loop.waits_s() > 0
    loop.gathering.bent(1)
    assert loop.waits_s() == 0
    sleep(0.06)
    assert loop.waits_s() > 0


def test_one_joined_event_in_a_hundred_does_not_end_it(loop: Loop) -> None:
    for _ in range(1000):
        assert loop.waits_s(reads=100) > 0
        loop.gathering.bent(1)


def in_step(streams: int, events: int) -> Any:
    """Return a server's script: all streams get an event at a time, one right after the other, every 5 ms."""
    peers: list[Peer] = []
    lock = threading.Lock()

    def play(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM_HEAD)
        with lock:
            peers.append(peer)
        if len(peers) == streams and peer is peers[-1]:
            for _ in range(events):
                for each in peers:
                    each.send(chunk(event("a")))
                sleep(0.005)
            for each in peers:
                each.send(chunk(FINISH) + chunk(DONE) + LAST_CHUNK)
        peer.wait_for_end()

    return play


@linux
@pytest.mark.parametrize("allowed", [True, False])
def test_what_is_gathered_has_its_own_times(allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(gathering, "_sleep", wait)
    monkeypatch.setattr(poll_clock(gevent.get_hub().loop).gathering, "allowed", allowed)
    with Server(in_step(streams=30, events=40)) as server:
        consumer = Consumer(target_at(server.port))
        gevent.joinall([gevent.spawn(consumer.client.send, call(), name="x") for _ in range(30)], raise_error=True)
    assert bool(waited) is allowed
    assert len(consumer.records) == 30
    for record in consumer.records:
        assert len(record.event_gaps_us) > 40
        assert min(record.event_gaps_us[1:40]) > 2_000  # none was joined to another
    stamped = sum(record.stamp == "kernel" for record in consumer.records)
    assert stamped >= 29  # the first socket that asks can get its first bytes without


def test_a_connection_is_urgent_until_it_is_made_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    urgent = poll_clock(gevent.get_hub().loop).gathering
    seen: list[int] = []

    def watched(route: Any, limit_s: float | None) -> Any:
        seen.append(urgent.urgent)
        return dial.dial(route, limit_s)

    monkeypatch.setattr(transport, "dial", watched)
    with Server(lambda peer: seen.append(urgent.urgent) if peer.request() else None) as server:
        consumer = Consumer(target_at(server.port))
        consumer.client.send(call(), name="x")
    consumer.client.send(call(), name="x")  # nobody listens any more
    assert consumer.records[-1].outcome == "connection"
    assert seen == [1, 0, 1]
    assert urgent.urgent == 0


def test_a_request_that_the_kernel_does_not_take_at_once_is_urgent() -> None:
    urgent = poll_clock(gevent.get_hub().loop).gathering
    held: list[bool] = []

    def play(peer: Peer) -> None:
        wait_for(lambda: held)
        peer.wait_for_end()

    with Server(play) as server:
        consumer = Consumer(target_at(server.port))
        sending = gevent.spawn(consumer.client.send, call(extra={"pad": "x" * 50_000_000}), name="x")
        until(lambda: sending.started and consumer.run.attempts and urgent.urgent == 1)
        gevent.sleep(0.05)
        assert urgent.urgent == 1  # it is not the connection any more
        held.append(True)
        sending.kill()
    assert urgent.urgent == 0


class Chat(ChatUser):
    host = "http://127.0.0.1:1"


class Plain(HttpUser):
    host = "http://127.0.0.1:1"


@pytest.mark.parametrize(("classes", "allowed"), [([Chat], True), ([Chat, Plain], False)])
def test_it_is_for_runs_in_which_all_users_are_ours(classes: list[type], allowed: bool) -> None:
    node = Node(Environment(user_classes=classes))
    node._quieten()
    assert poll_clock(gevent.get_hub().loop).gathering.allowed is allowed
    poll_clock(gevent.get_hub().loop).gathering.allowed = False
