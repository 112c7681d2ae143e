"""Streams that ended get their turns in portions."""

from __future__ import annotations

from typing import Any

import pytest

from locust_llm.transport.loop import Turns


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
    loop = OneTurn()
    turns = Turns(loop)
    bad, good, later = Waiting(raises=True), Waiting(), Waiting()
    turns.resume(bad)
    turns.resume(good)
    with pytest.raises(RuntimeError):
        loop.turn()
    loop.turn()
    turns.resume(later)
    loop.turn()
    assert (bad.resumed, good.resumed, later.resumed) == (1, 1, 1)
