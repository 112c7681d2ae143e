"""The loop lets dense arrivals gather, and only where that bends no time."""

from __future__ import annotations

import sys
import threading
from typing import Any

import gevent
import pytest
from exchanges import Consumer, call, target_at, until
from locust import HttpUser
from locust.env import Environment
from loopback import DONE, FINISH, LAST_CHUNK, STREAM_HEAD, Peer, Server, chunk, event, sleep, wait_for

from locust_llm import ChatUser, node
from locust_llm.node import Node
from locust_llm.transport import dial, gathering, transport
from locust_llm.transport.gathering import BENT_NS, PAUSE_NS, SHORT_READS, Gathering
from locust_llm.transport.loop import poll_clock

linux = pytest.mark.skipif(sys.platform != "linux", reason="kernel stamps are Linux's")


class Loop:
    """Plays the turns of a loop on a clock of its own.

    Attributes:
        rate: reads a second.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = self._read_ns = 10**15
        self.rate = 20_000
        self.gathering = Gathering()
        self.gathering.allowed = True
        self._waited_s = 0.0
        monkeypatch.setattr(gathering, "time", self)
        monkeypatch.setattr(gathering, "_sleep", self._sleep)

    def monotonic_ns(self) -> int:
        return self.now_ns

    def waits_s(self, polled_for_ns: int = 10_000, away_ns: int = 100_000) -> float:
        """Play a poll, reads and work after it; return how long the loop then waits before the next poll."""
        self._waited_s = 0.0
        self.now_ns += polled_for_ns
        polled_ns = self.now_ns
        self.gathering.reads += round((polled_ns - self._read_ns) * self.rate / 1e9)
        self._read_ns = polled_ns
        self.now_ns += away_ns
        self.gathering.wait(polled_ns - polled_for_ns, polled_ns)
        assert self.gathering.waited_ns == round(self._waited_s * 1e9)
        return self._waited_s

    def run(self, rate: int) -> None:
        """Play turns for more than half a second."""
        self.rate = rate
        for _ in range(500):
            self.waits_s(away_ns=1_000_000)

    def _sleep(self, seconds: float) -> None:
        self._waited_s += seconds
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    """A loop with dense arrivals behind it: 25 in 1.25 ms."""
    loop = Loop(monkeypatch)
    loop.run(rate=20_000)
    return loop


@pytest.mark.parametrize(
    ("rate", "gap_ms"), [(1_000, 0.0), (2_200, 0.0), (2_600, 2.5), (5_000, 2.5), (20_000, 1.25), (100_000, 0.8)]
)
def test_polls_are_as_far_apart_as_arrivals_need_to_gather(loop: Loop, rate: int, gap_ms: float) -> None:
    loop.run(rate)
    for _ in range(100):
        assert loop.waits_s(away_ns=100_000) == pytest.approx(max(gap_ms - 0.1, 0.0) / 1e3, rel=0.05)
    assert loop.waits_s(away_ns=500_000) == pytest.approx(max(gap_ms - 0.5, 0.0) / 1e3, rel=0.1)


def test_nobody_waits_after_a_lull_nor_for_one_burst(loop: Loop) -> None:
    assert loop.waits_s(polled_for_ns=1_500_000) == 0
    assert loop.waits_s() > 0
    loop.run(rate=1_000)
    loop.rate = 50_000
    assert loop.waits_s() == 0


def test_a_busy_loop_does_not_wait(loop: Loop) -> None:
    assert loop.waits_s(away_ns=1_500_000) == 0


def test_nobody_waits_while_answers_are_short(loop: Loop) -> None:
    for _ in range(500):
        loop.waits_s(away_ns=1_000_000)
        loop.gathering.ended = loop.gathering.reads // (SHORT_READS - 5)
    assert loop.waits_s() == 0
    for _ in range(500):
        loop.waits_s(away_ns=1_000_000)
        loop.gathering.ended = loop.gathering.reads // (SHORT_READS + 5)
    assert loop.waits_s() > 0


def test_nobody_waits_while_somebody_connects_or_other_users_are_there(loop: Loop) -> None:
    loop.gathering.urgent += 1
    assert loop.waits_s() == 0
    loop.gathering.urgent -= 1
    assert loop.waits_s() > 0
    loop.gathering.allowed = False
    assert loop.waits_s() == 0


def test_what_is_due_is_not_slept_over(loop: Loop) -> None:
    loop.gathering.alarms |= {"late": loop.now_ns + 900_000, "arrival": loop.now_ns + 300_000}
    assert loop.waits_s(polled_for_ns=10_000, away_ns=100_000) == pytest.approx(190e-6)
    assert loop.waits_s() == 0  # it is over, and has not rung yet
    loop.gathering.alarms.clear()
    assert loop.waits_s() > 0


def test_events_that_come_joined_end_it_for_a_while(loop: Loop) -> None:
    loop.gathering.reads += 100_000_000  # however good it was for however long
    assert loop.waits_s() > 0
    five_seconds = round(5 * 20_000 * BENT_NS / 1_000_000)
    loop.gathering.bent(five_seconds - 200, by_ns=1_000_000, ttft=False)
    assert loop.waits_s() > 0
    loop.gathering.bent(400, by_ns=1_000_000, ttft=False)
    assert loop.waits_s() == 0
    loop.now_ns += PAUSE_NS
    loop.run(rate=20_000)
    assert loop.waits_s() > 0


def test_events_that_come_joined_without_a_wait_are_not_its_fault(loop: Loop) -> None:
    assert loop.waits_s(away_ns=1_500_000) == 0
    loop.gathering.bent(1_000_000, by_ns=1_000_000, ttft=True)
    assert loop.waits_s() > 0


@pytest.mark.parametrize(("by_ns", "goes_on"), [(200_000, True), (500_000, False)])
def test_what_counts_is_how_much_they_are_bent(loop: Loop, by_ns: int, goes_on: bool) -> None:
    """One event of 25, that is 4 %: by 0.2 ms is 8 us a read, by half a ms 20."""
    for _ in range(50_000):
        waited_s = loop.waits_s()
        if not waited_s:
            break
        loop.gathering.bent(1, by_ns, ttft=False)
    assert (waited_s > 0) is goes_on


def test_a_wait_answers_for_no_more_than_it_meant_to_wait(loop: Loop) -> None:
    """Half of the streams, once a second, read 50 ms late because the machine stood still."""
    for _ in range(10):
        loop.run(rate=20_000)
        assert loop.waits_s(away_ns=50_000) == pytest.approx(0.0012, rel=0.05)
        loop.gathering.bent(100, by_ns=50_000_000, ttft=False)
        assert loop.waits_s() > 0


@pytest.mark.parametrize(("every", "goes_on"), [(1_000, True), (200, False)])
def test_a_first_token_weighs_as_much_as_a_short_answer(loop: Loop, every: int, goes_on: bool) -> None:
    """One of so many reads is a TTFT that is bent by 0.15 ms."""
    bent_reads = 0
    for _ in range(50_000):
        waited_s = loop.waits_s()
        if not waited_s:
            break
        while bent_reads + every < loop.gathering.reads:
            bent_reads += every
            loop.gathering.bent(1, by_ns=150_000, ttft=True)
    assert (waited_s > 0) is goes_on


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
    monkeypatch.setattr(gathering, "DENSE_READS", 0.01)  # a crowded machine does not send as fast as it is told
    fresh = Gathering()
    fresh.allowed = allowed
    monkeypatch.setattr(poll_clock(gevent.get_hub().loop), "gathering", fresh)
    with Server(in_step(streams=30, events=40)) as server:
        consumer = Consumer(target_at(server.port))
        gevent.joinall([gevent.spawn(consumer.client.send, call(), name="x") for _ in range(30)], raise_error=True)
    assert bool(waited) is allowed
    assert fresh.ended == 30
    assert len(consumer.records) == 30
    for record in consumer.records:
        assert len(record.event_gaps_us) > 40
        unsure = {
            event
            for first, count in zip(record.uncertain_reads[::3], record.uncertain_reads[1::3], strict=True)
            for event in range(first, first + count)
        }
        # 5 ms lie between two events, at least: those that are closer were read together, and the record knows.
        close = {event for event in range(40) if record.event_gaps_us[event + 1] < 3_000}
        assert close <= unsure
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


@linux
@pytest.mark.parametrize(("classes", "allowed"), [([Chat], True), ([Chat, Plain], False)])
def test_it_is_for_runs_in_which_all_users_are_ours(classes: list[type], allowed: bool) -> None:
    assert allowed_in(classes) is allowed


def test_it_is_for_systems_that_stamp_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "KERNEL_STAMPS", False)
    assert allowed_in([Chat]) is False


def allowed_in(classes: list[type]) -> bool:
    """Return whether a run with these users lets arrivals gather."""
    of_the_loop = poll_clock(gevent.get_hub().loop).gathering
    Node(Environment(user_classes=classes))._quieten()
    allowed, of_the_loop.allowed = of_the_loop.allowed, False
    return allowed
