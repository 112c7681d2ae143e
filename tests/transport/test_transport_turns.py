"""Streams that ended, and users that start, get their turns in portions."""

from __future__ import annotations

import time
from typing import Any

import gevent
import pytest
from gevent.socket import socketpair

from locust_llm.transport.gathering import Gathering
from locust_llm.transport.loop import PORTION_NS, Turns


class OneTurn:
    """A loop that runs what it was given when a test says so."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def timer(self, seconds: float) -> OneTurn:
        return self

    def run_callback(self, callback: Any) -> None:
        self.given.append(callback)

    start = run_callback

    def turn(self) -> None:
        given, self.given = self.given, []
        for callback in given:
            callback()


class Waiting:
    """A greenlet that waits for its turn."""

    def __init__(self, raises: bool = False) -> None:
        self.resumed = 0
        self._raises = raises

    def switch(self, value: object) -> None:
        self.resumed += 1
        if self._raises:
            raise RuntimeError


def test_what_one_greenlet_raises_does_not_take_the_turns_of_others() -> None:
    loop, gathering = OneTurn(), Gathering()
    turns = Turns(loop, gathering)
    bad, good, later = Waiting(raises=True), Waiting(), Waiting()
    turns.resume(bad)
    turns.resume(good)
    with pytest.raises(RuntimeError):
        loop.turn()
    assert gathering.urgent == 1  # who waits for a turn must not wait for arrivals, too
    loop.turn()
    assert gathering.urgent == 0
    turns.resume(later)
    loop.turn()
    assert (bad.resumed, good.resumed, later.resumed) == (1, 1, 1)


def test_greenlets_that_all_start_at_once_go_on_in_turn_and_the_loop_reads_in_between() -> None:
    loop = gevent.get_hub().loop
    turns, order = Turns(loop, Gathering()), []
    ours, theirs = socketpair()
    watcher = loop.io(ours.fileno(), 1)

    def readable() -> None:
        ours.recv(1)
        order.append("read")

    def start(number: int) -> None:
        turns.wait()
        order.append(f"start {number}")
        theirs.send(b"x")
        until = time.monotonic() + PORTION_NS / 1e9
        while time.monotonic() < until:
            pass

    watcher.start(readable)
    gevent.joinall([gevent.spawn(start, i) for i in range(20)])
    watcher.close()
    ours.close()
    theirs.close()
    assert [word for word in order if word != "read"] == [f"start {i}" for i in range(20)]
    assert all(order.index(f"start {i + 2}") > order.index("read") + i for i in range(18))
    assert order.count("read") >= 18
