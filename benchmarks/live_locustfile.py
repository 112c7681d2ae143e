"""Locustfile of live.py: plain chats, and a meter on the live statistics of this process.

``LIVE_BENCH`` is ``on`` (metered) or ``off`` (nothing is collected); figures of the load go to ``LIVE_BENCH_OUT``.
The meter counts thread CPU time inside what the statistics do; each entry costs about a microsecond, which is counted.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import Any

import gevent
import orjson
from locust import events, task

from locust_llm import ChatUser
from locust_llm.live import desk
from locust_llm.live.board import Board
from locust_llm.live.collector import Collector
from locust_llm.live.gaps import Spread
from locust_llm.live.provisional import Provisional
from locust_llm.live.tally import Tally
from locust_llm.plugin import node_of

PAGE_S = 1.0
_spent = {"records": 0, "streams": 0, "reports": 0, "page": 0}
_longest = dict.fromkeys(_spent, 0)
_depth = 0


class Chat(ChatUser):
    @task
    def ask(self) -> None:
        self.chat()


class Nothing:
    """In place of a collector."""

    def __init__(self, *_: Any) -> None: ...

    def take(self) -> Any: ...

    def reset(self, epoch: int) -> None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


def meter(cls: type, name: str, part: str) -> None:
    """Count what a method costs; what it calls of other metered methods is part of it."""
    method = getattr(cls, name)

    @functools.wraps(method)
    def metered(*args: Any, **kwargs: Any) -> Any:
        global _depth
        began = time.thread_time_ns()
        _depth += 1
        try:
            return method(*args, **kwargs)
        finally:
            _depth -= 1
            if not _depth:
                took = time.thread_time_ns() - began
                _spent[part] += took
                _longest[part] = max(_longest[part], took)

    setattr(cls, name, metered)


if os.environ["LIVE_BENCH"] == "on":
    meter(Collector, "_slice", "records")
    meter(Provisional, "look", "streams")
    meter(Spread, "flush", "streams")
    meter(Tally, "fold", "records")
    meter(Collector, "take", "reports")
    meter(Board, "merge", "reports")
    for _name in ("_head", "_errors", "_make_rows", "_series"):
        meter(Board, _name, "page")
else:
    desk.Collector = Nothing  # type: ignore[misc, assignment]
    desk.Board.merge = lambda *_: None  # type: ignore[method-assign]


def _over_the_load(environment: Any) -> None:
    """Write what the load cost from the moment when all users were there until it was told to stop."""
    node: Any = node_of(environment)
    while node.run is None or not any(e["event"] == "ramp_complete" for e in node.run.events):
        gevent.sleep(0.1)
    gevent.sleep(2.0)
    for kept in (_spent, _longest):
        kept.update(dict.fromkeys(kept, 0))
    began, cpu, version, looks = time.monotonic(), time.process_time(), 0, 0
    while not node.run.ending:
        if os.environ["LIVE_BENCH"] == "on" and time.monotonic() - began > looks * PAGE_S:
            looks += 1
            version = node.desk.snapshot(version)["version"]
        gevent.sleep(0.1)
        now = time.monotonic(), time.process_time()
    figures = {
        "seconds": now[0] - began, "cpu_s": now[1] - cpu, "finished": node.run.measured,
        **{f"{part}_s": ns / 1e9 for part, ns in _spent.items()},
        **{f"{part}_longest_ms": ns / 1e6 for part, ns in _longest.items()},
    }  # fmt: skip
    Path(os.environ["LIVE_BENCH_OUT"]).write_bytes(orjson.dumps(figures))


@events.init.add_listener
def _init(environment: Any, **_: Any) -> None:
    gevent.spawn(_over_the_load, environment)
