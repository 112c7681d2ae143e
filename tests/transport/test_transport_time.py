"""Event times: the kernel's where it has them, checked against the clocks; the record knows how wrong they can be."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from fcntl import ioctl
from itertools import pairwise
from termios import FIONREAD
from typing import Any

import gevent
import pytest
from exchanges import Consumer, ask, call, target_at
from loopback import (
    DONE,
    FINISH,
    LAST_CHUNK,
    STREAM_HEAD,
    Peer,
    Server,
    chunk,
    event,
    plain,
    sleep,
    wait_for,
    whole,
)  # fmt: skip

from locust_llm.clock import REANCHOR_NS, STEP_NS, WallAnchor, event_time
from locust_llm.exchange import OK
from locust_llm.transport.gathering import Gathering
from locust_llm.transport.loop import PollClock

MS = 1_000_000
linux = pytest.mark.skipif(sys.platform != "linux", reason="kernel stamps are Linux's")


# ---- metrics.md 1


@pytest.mark.parametrize(
    ("kernel_ns", "expected"),
    [
        (5_000 * MS, 1_000 * MS),  # no lag
        (4_998 * MS, 998 * MS),  # 2 ms late
        (4_990 * MS, 990 * MS),  # as old as the last read
        (4_990 * MS - 1, None),  # older: the clock was stepped
        (5_000 * MS + 1, None),  # from the future: the clock was stepped
        (0, None),  # no stamp
    ],
)
def test_a_stamp_counts_if_it_lies_between_the_last_read_and_now(kernel_ns: int, expected: int | None) -> None:
    assert event_time(1_000 * MS, 5_000 * MS, kernel_ns, 990 * MS) == expected


def test_a_clock_stepped_between_two_reads_bends_no_gap() -> None:
    step = 3600 * 1000 * MS
    before = event_time(100 * MS, 7_000 * MS, 6_999 * MS, 0)
    after = event_time(110 * MS, 7_010 * MS + step, 7_009 * MS + step, 100 * MS)
    assert (before, after) == (99 * MS, 109 * MS)


def test_the_wall_anchor_is_steady_for_a_minute_and_notes_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    anchor = WallAnchor()
    now = time.monotonic_ns()
    base = anchor.wall_us(now)
    assert abs(base - time.time_ns() // 1000) < 50_000
    offset = time.time_ns() - time.monotonic_ns()
    monkeypatch.setattr(WallAnchor, "_read", staticmethod(lambda: offset + 5 * STEP_NS))
    assert anchor.wall_us(now + REANCHOR_NS // 2) == base + REANCHOR_NS // 2000
    assert anchor.steps == []
    later = anchor.wall_us(now + 2 * REANCHOR_NS)
    assert later - base == pytest.approx(2 * REANCHOR_NS / 1000 + 5 * STEP_NS / 1000, abs=50_000)
    (step,) = anchor.steps
    assert step.by_us == pytest.approx(5 * STEP_NS / 1000, abs=500)


# ---- stamps of real reads


def paced(peer: Peer) -> None:
    """Five tokens, 20 ms apart."""
    for _ in peer.requests():
        peer.send(STREAM_HEAD)
        for piece in "abcde":
            sleep(0.02)
            peer.send(chunk(event(piece)))
        peer.send(chunk(FINISH + DONE) + LAST_CHUNK)


@linux
def test_the_kernel_stamps_every_event_and_times_never_decrease() -> None:
    with Server(paced) as server:
        consumer = Consumer(target_at(server.port))
        for _ in range(3):
            reply = consumer.client.send(call(), name="x")
    # The first stamps after switching them on may be missing on a machine where nobody used any.
    assert [record.stamp for record in consumer.records[1:]] == ["kernel"] * 2
    record = reply.record
    assert all(gap >= 0 for gap in record.event_gaps_us)
    assert record.lag_us_max > 0
    assert record.sent_us is not None
    assert record.event_gaps_us[0] >= 20_000 - 1000


def test_without_kernel_stamps_all_works_and_the_record_says_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locust_llm.transport.dial.KERNEL_STAMPS", False)
    with Server(paced) as server:
        consumer = Consumer(target_at(server.port))
        for _ in range(2):
            consumer.client.send(call(), name="x")
    for record in consumer.records:
        assert (record.outcome, record.stamp, record.lag_us_max) == (OK, "user", 0)
        times = record.token_times_us()
        unsure = record.uncertain_us_max + 1000
        assert all(b - a > 20_000 - unsure for a, b in pairwise(times))


def test_a_whole_answer_without_kernel_stamps_says_user_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locust_llm.transport.dial.KERNEL_STAMPS", False)
    body = b'{"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}'

    def until_close(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + body)

    for script in (until_close, lambda peer: (peer.request(), peer.send(plain(200, body)))):
        with Server(script) as server:
            consumer = Consumer(target_at(server.port))
            consumer.client.send(call(stream=False), name="x")
        (record,) = consumer.records
        assert (record.outcome, record.streamed, record.stamp) == (OK, False, "user")


def test_a_socket_that_has_no_stamps_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locust_llm.transport.dial.SO_TIMESTAMPNS", 0x7FFF)  # as a sandbox refuses it
    with Server(paced) as server:
        consumer = Consumer(target_at(server.port))
        consumer.client.send(call(), name="x")
    (record,) = consumer.records
    assert (record.outcome, record.stamp) == (OK, "user")


@linux
def test_bytes_that_come_while_a_read_returns_keep_their_stamp() -> None:
    """As when another thread holds the interpreter after the system call: they came after that read, not before it."""
    with Server(paced) as server:
        consumer = Consumer(target_at(server.port))
        consumer.client.send(call(), name="warm")
        (connection,) = consumer.client.target.transport._pool._idle
        receive = connection.receive

        def slow_receive() -> tuple[bytes, Any, int, Any]:
            got = receive()
            sleep(0.03)
            return got

        connection.receive = slow_receive
        consumer.client.send(call(), name="x")
    assert consumer.records[-1].reused
    assert (consumer.records[-1].outcome, consumer.records[-1].stamp) == (OK, "kernel")


# ---- a late client


class StillLoop:
    """A loop whose polls a test plays itself."""

    MINPRI, MAXPRI = -2, 2

    def prepare(self, **options: object) -> StillLoop:
        return self

    def check(self, **options: object) -> StillLoop:
        return self

    def start(self, callback: object) -> None:
        pass


def test_a_poll_bounds_from_below_by_its_end_only_if_it_slept() -> None:
    polls = PollClock(StillLoop())
    polls.opened()

    def rest() -> bool:
        """Play a poll that sleeps; return whether it looks like one that was woken at its end."""
        polls._before_poll()
        sleep(0.005)
        polls._after_poll()
        return polls.not_before_ns >= polls.begun_ns + 4 * MS

    assert any(rest() for _ in range(50))  # not each: another process may have the processor when it is woken

    def work() -> bool:
        """Play a poll that is at work for a while; return whether it looks like one."""
        before = polls._polled_ns
        polls._before_poll()
        busy_until = time.thread_time_ns() + MS // 5
        while time.thread_time_ns() < busy_until:
            pass
        polls._after_poll()
        return polls.not_before_ns == polls.previous_ns == before

    assert any(work() for _ in range(100))  # not each: another process may take the processor meanwhile


class Waiting(Gathering):
    """Always waits 5 ms, or for as long as the machine makes of it, and meant to."""

    def wait(self, begun_ns: int, polled_ns: int) -> None:
        began_ns = time.monotonic_ns()
        sleep(0.005)
        self.waited_ns = time.monotonic_ns() - began_ns


def test_a_wait_that_was_meant_is_no_time_away() -> None:
    polls = PollClock(StillLoop())
    polls.gathering = Waiting()
    polls._before_poll()
    polls._after_poll()
    assert polls.begun_ns - polls.previous_ns >= 5 * MS
    assert polls.away.late_ns < 5 * MS
    sleep(0.005)
    polls._before_poll()
    assert polls.away.late_ns >= 5 * MS


def block_in_greenlet(native_wait: Callable[[], None]) -> None:
    gevent.spawn(native_wait)  # nothing else runs meanwhile


def block_in_timer(native_wait: Callable[[], None]) -> None:
    timer = gevent.get_hub().loop.timer(0.001)
    timer.start(native_wait)


@linux
@pytest.mark.parametrize("block", [block_in_greenlet, block_in_timer])
def test_a_stalled_client_knows_how_wrong_its_first_token_can_be(block: object) -> None:
    """Three tokens arrive in 30 ms while the loop is blocked: joined, they all look like the last."""
    blocked: list[bool] = []
    sent_us: list[float] = []
    sent: list[bool] = []

    def three(peer: Peer) -> None:
        for number, _ in enumerate(peer.requests()):
            peer.send(STREAM_HEAD)
            if number:
                wait_for(lambda: blocked)
            for piece in "abc":
                peer.send(chunk(event(piece)))
                sent_us.append(time.time_ns() / 1e3)
                sleep(0.015)
            if number:
                sent.append(True)
                wait_for(lambda: not blocked and consumer.events == 3)
            peer.send(chunk(FINISH + DONE) + LAST_CHUNK)

    def native_wait() -> None:
        blocked.append(True)
        wait_for(lambda: sent)
        sleep(0.03)
        blocked.clear()

    with Server(three) as server:
        consumer = Consumer(target_at(server.port))
        consumer.client.send(call(), name="warm")
        running = gevent.spawn(consumer.client.send, call(), name="x")
        gevent.sleep(0.02)
        block(native_wait)  # type: ignore[operator]
        running.get(timeout=20)
    record = consumer.records[-1]
    assert record.stamp == "kernel"
    assert record.ttft is not None
    error_us = record.start_us + record.ttft * 1e6 - sent_us[3]
    assert error_us > 20_000  # the kernel kept the stamp of the third only
    assert error_us < record.uncertain_us_max + 1000
    assert record.late_joined == 2
    assert record.lag_us_max > 10_000


def test_a_calm_client_is_sure_of_its_times() -> None:
    with Server(paced) as server:
        consumer = Consumer(target_at(server.port))
        for _ in range(5):
            consumer.client.send(call(), name="x")
    assert sorted(record.late_joined for record in consumer.records)[0] == 0
    assert sorted(record.uncertain_us_max for record in consumer.records)[0] < 5_000


class Fixed:
    """A poll clock that says what a test needs."""

    def __init__(self, bound_ns: int) -> None:
        self.not_before_ns = self.previous_ns = bound_ns
        self.begun_ns = self.open = 0
        self.gathering = Gathering()

    def opened(self) -> None:
        self.open += 1


# Long enough that the decoder no longer parses what looks the same (wire/alike.py).
KNOWN_BY_THEIR_BYTES = [chunk(event(letter)) for letter in "abcde"]


@linux
@pytest.mark.parametrize(
    ("writes", "uncertain"),
    [
        ([chunk(event("a"))], 0),
        ([chunk(event("a"))[:-2], b"\r\n"], 0),  # the end of the chunk belongs to it
        ([chunk(event("a") + event("b"))], 1),
        ([chunk(event("a")) + chunk(event("b"))], 1),
        (
            [chunk(event("a") + event("b")[:9]), chunk(event("b")[9:])],
            1,
        ),  # what begins after an event hides its arrival
        ([chunk(event("a")) + b"1a\r\n"[:2], b"\r\n" + (b": " + b"x" * 22 + b"\n\n") + b"\r\n"], 1),
        ([chunk(event("a") + b": ping\n\n")], 1),  # so does a comment
        ([chunk(event("a")) + chunk(b": ping\n\n")], 1),
        ([*KNOWN_BY_THEIR_BYTES, chunk(event("f"))], 0),
        ([*KNOWN_BY_THEIR_BYTES, chunk(event("f")) + chunk(event("g"))], 1),
        ([*KNOWN_BY_THEIR_BYTES, chunk(event("f")) + chunk(b": ping\n\n")], 1),
        ([*KNOWN_BY_THEIR_BYTES, chunk(event("f")) + chunk(event("g")[:9]), chunk(event("g")[9:])], 1),
    ],
    ids=[
        "one",
        "chunk end",
        "two",
        "two chunks",
        "cut event",
        "next chunk's size",
        "comment",
        "comment in a chunk",
        "known",
        "two known",
        "comment after a known one",
        "cut after a known one",
    ],
)
def test_only_the_event_that_ends_a_read_has_a_certain_time(writes: list[bytes], uncertain: int) -> None:
    reader: list[int] = []  # the client's end

    def unread() -> int:
        """Return how many bytes lie at the client's end."""
        return int.from_bytes(ioctl(reader[0], FIONREAD, bytes(4)), sys.byteorder)

    def play(peer: Peer) -> None:
        for _ in peer.requests():
            for data in (STREAM_HEAD, *writes, chunk(FINISH), chunk(DONE) + LAST_CHUNK):
                peer.send(data)
                sleep(0.005)
                if reader:
                    wait_for(lambda: not unread())

    with Server(play) as server:
        target = target_at(server.port)
        ask(target)
        (connection,) = target.transport._pool._idle
        reader.append(connection.sock.fileno())
        target.transport._polls = Fixed(0)  # type: ignore[assignment]  # any event that is not certain is late by much
        attempt = ask(target)
    assert attempt.judge()[0] == OK
    assert attempt.transfer.late_joined == uncertain
    assert (attempt.transfer.uncertain_ns_max > 0) is bool(uncertain)


@linux
def test_what_came_joined_is_told_with_whether_it_bends_the_ttft() -> None:
    writes = [STREAM_HEAD, chunk(event("a") + event("b")), chunk(event("c") + event("d") + event("e")), chunk(FINISH)]

    def play(peer: Peer) -> None:
        for _ in peer.requests():
            for data in (*writes, chunk(DONE) + LAST_CHUNK):
                peer.send(data)
                sleep(0.02)

    told: list[tuple[int, bool]] = []

    class Told(Gathering):
        def bent(self, events: int, by_ns: int, ttft: bool) -> None:
            told.append((events, ttft))

    polls = Fixed(0)
    polls.gathering = Told()
    polls.gathering.waited_ns = 1
    with Server(play) as server:
        target = target_at(server.port)
        ask(target)  # the first socket that asks can get its first bytes without a stamp
        target.transport._polls = polls  # type: ignore[assignment]
        for _ in range(20):
            told.clear()
            ask(target)
            if told == [(1, True), (2, False)]:
                return  # not each time: on a busy machine two writes are one read
    pytest.fail(f"{told}")


def keep(peer: Peer) -> None:
    for _ in peer.requests():
        peer.send(whole())


def test_connecting_has_its_phases_and_they_fit_into_each_other() -> None:
    with Server(keep) as server:
        consumer = Consumer(target_at(server.port, host="localhost"))
        consumer.client.send(call(), name="x")
    (record,) = consumer.records
    assert record.dns_us is not None
    assert record.tcp_us is not None
    assert record.connected_us is not None
    assert record.sent_us is not None
    assert record.headers_us is not None
    assert record.dns_us + record.tcp_us <= record.connected_us <= record.sent_us
    assert record.connected_us <= record.headers_us <= record.end_us
    assert record.bytes_in > 0
    assert record.bytes_out > 100
    assert abs(record.start_us / 1e6 - time.time()) < 5
