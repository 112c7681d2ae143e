"""A client that the system wakes late knows it, and how late."""

from __future__ import annotations

import subprocess
import sys
import time

import gevent
import pytest
from gevent.threadpool import ThreadPool

from locust_llm.transport.loop import PollClock, Waits

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts how long a thread waits for a processor")

CROWDED = """
import os, signal, sys, time
from locust_llm.transport.loop import Waits

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
child = os.fork()
if not child:
    while os.getppid() != 1:
        pass
    os._exit(0)
try:
    waits = Waits()
    assert waits.seen
    for _ in range(40):
        until = time.monotonic() + 0.005
        while time.monotonic() < until:
            pass
    print(waits.since_last()[0], waits.since_last()[0])
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@linux
def test_the_scheduler_tells_how_long_a_thread_waited_for_a_processor():
    done = subprocess.run([sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=60, check=False)
    waited_ns, since_ns = map(int, done.stdout.split())
    assert waited_ns > 10_000_000, done.stderr  # two on one processor for 200 ms
    assert since_ns < waited_ns


class Told(Waits):
    """Waits that a test makes up."""

    def __init__(self, ns: int, times: int = 1) -> None:
        self.told = ns, times

    def since_last(self) -> tuple[int, int]:
        return self.told


def slept(waits: Waits, streams: int = 1) -> PollClock:
    """Return the clock of a loop that slept 50 ms, on a thread of its own: what other tests left cannot wake it."""

    def sleep() -> PollClock:
        polls = PollClock(gevent.get_hub().loop)
        polls.waits = waits
        for _ in range(streams):
            polls.opened()
        gevent.sleep(0.05)
        return polls

    pool = ThreadPool(1)
    try:
        return pool.apply(sleep)
    finally:
        pool.kill()


def test_what_came_while_a_woken_thread_waited_for_its_turn_is_bounded_by_the_waking():
    polls = slept(Told(12_000_000))
    assert polls.begun_ns <= polls.not_before_ns <= time.monotonic_ns() - 12_000_000


def test_a_thread_that_was_ready_and_kept_waiting_did_not_sleep():
    polls = slept(Told(10_000_000_000))
    assert polls.not_before_ns == polls.previous_ns


def test_a_thread_that_was_woken_and_slept_again_for_pythons_lock_knows_nothing_since_the_poll_began():
    polls = slept(Told(0, times=2))
    assert polls.not_before_ns == polls.begun_ns


def test_a_thread_that_slept_and_was_woken_at_once_is_sure():
    polls = slept(Told(0))
    assert polls.not_before_ns > polls.begun_ns


def test_while_no_stream_is_open_nobody_is_asked():
    polls = slept(Told(0), streams=0)
    assert polls.not_before_ns == polls.previous_ns < polls.begun_ns
