"""Users rest after a connection that failed: no busy loop, nothing uncounted, and the open loop keeps its schedule."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import gevent
import pytest
from exchanges import Consumer, call, target_at
from loopback import Peer, Server, native, whole

from locust_llm import client
from locust_llm.errors import UsageError
from locust_llm.exchange import CONNECTION, HTTP_STATUS, OK, TIMEOUT, TRUNCATED, Exchange
from locust_llm.load.open_loop import OpenLoop
from locust_llm.load.pacer import Constant
from locust_llm.load.resting import Rest
from locust_llm.load.schedule import Share
from locust_llm.load.warming import warm_up
from locust_llm.load.warmup import Warmup


def record(outcome: str = CONNECTION, headers_us: int | None = None) -> Exchange:
    return Exchange(
        run="r", worker="w", seq=0, exchange="e", name="n", user_class="U", api="a", model="m", outcome=outcome,
        start_us=0, end_us=1, headers_us=headers_us,
    )  # fmt: skip


def rests(*records: Exchange, jitter: float = 0.0) -> list[float]:
    """Return how long a user rests after each of these, one after the other."""
    rest = Rest()
    found = []
    for number, one in enumerate(records):
        rest.after(one, 100.0 * number, jitter)
        found.append(round(rest.left_s(100.0 * number), 3))
    return found


def test_a_rest_doubles_to_a_second_and_no_further() -> None:
    assert rests(*[record()] * 6) == [0.1, 0.2, 0.4, 0.8, 1, 1]
    assert rests(*[record()] * 2000)[-1] == 1


def test_jitter_takes_at_most_half_of_it_away() -> None:
    assert rests(*[record()] * 6, jitter=1.0) == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]


@pytest.mark.parametrize(
    "answer",
    [record(OK, 5), record(HTTP_STATUS, 5), record(TRUNCATED, 5), record(CONNECTION, 5), record(TIMEOUT)],
)
def test_after_an_answer_even_a_broken_one_there_is_no_rest_and_the_next_begins_small(answer: Exchange) -> None:
    assert rests(record(), record(), answer, record()) == [0.1, 0.2, 0, 0.1]


def test_time_that_a_user_spends_otherwise_counts_as_rest() -> None:
    rest = Rest()
    rest.after(record(), 10.0, 0.0)
    assert rest.left_s(10.04) == pytest.approx(0.06)
    assert rest.left_s(11.0) == 0


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """What the client has slept; it does not really."""
    times: list[float] = []
    monkeypatch.setattr(client, "gevent", SimpleNamespace(sleep=times.append, get_hub=gevent.get_hub))
    monkeypatch.setattr(client, "random", SimpleNamespace(random=lambda: 0.0))
    return times


def nobody() -> int:
    """Return a port on which nobody listens."""
    with native["socket"]() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_a_user_of_a_closed_loop_rests_before_the_next_exchange_and_each_failure_is_told(slept: list[float]) -> None:
    consumer = Consumer(target_at(nobody()))
    for _ in range(4):
        consumer.client.send(call(), name="x")
    assert len(slept) == 3
    assert all(0 < got <= most for got, most in zip(slept, (0.1, 0.2, 0.4), strict=True))
    assert slept == sorted(slept)
    assert [one.outcome for one in consumer.records] == [CONNECTION] * 4
    assert len(consumer.fired) == 4


def test_a_user_that_is_answered_never_rests(slept: list[float]) -> None:
    def answer(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send(whole())

    with Server(answer) as server:
        consumer = Consumer(target_at(server.port))
        for _ in range(3):
            consumer.client.send(call(), name="x")
    assert slept == []


def test_arrivals_are_not_held_back(slept: list[float]) -> None:
    consumer = Consumer(target_at(nobody()))
    arrivals = consumer.run.open_loop = OpenLoop({"": Constant(1000.0)}, seed=1)
    arrivals.begin(0, time.time_ns() // 1000, {"": (1000.0, Share(0, 1))})
    for _ in range(3):
        consumer.client.send(call(), name="x")
    arrivals.stop()
    assert slept == []
    assert all(one.scheduled_us is not None for one in consumer.records)


def test_a_warm_up_by_time_rests_too() -> None:
    """Each of two at once waits at least 50 ms after a failure, so half a second has room for eleven, not thousands."""
    run = Consumer(target := target_at(nobody(), warmup=Warmup(seconds=0.5))).run
    with pytest.raises(UsageError, match="--llm-warmup: none of"):
        warm_up(run, [(target, call)], None, 2, Share(0, 1), print)
    assert 2 <= len(run.held) <= 22
