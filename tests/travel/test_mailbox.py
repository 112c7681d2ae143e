"""What a worker sends arrives once and in order, whatever the way does to it; what is no batch harms nothing."""

from __future__ import annotations

import os
import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.queue import Queue
from locust.rpc.protocol import Message

from locust_llm.eventlog import EventLog
from locust_llm.exchange import Exchange
from locust_llm.live import post
from locust_llm.live.mailbox import Mailbox
from locust_llm.live.post import Post

RUN = "r1"


def record(worker: str, seq: int, size: int = 600) -> Exchange:
    return Exchange(
        run=RUN, worker=worker, seq=seq, exchange=f"{worker}-{seq}", name="chat", user_class="Chat", api="openai-chat",
        model="m", outcome="ok", start_us=1, end_us=2, text="x" * size,
    )  # fmt: skip


class Way:
    """Messages between posts and a mailbox, through Locust's own encoding; it loses, repeats and delays some."""

    def __init__(self, mailbox_log: EventLog, seed: int = 0, lossy: bool = False) -> None:
        self.random = random.Random(seed)
        self.lossy = lossy
        self.open = True
        self.posts: dict[str, Post] = {}
        self.mailbox = Mailbox(self.to_worker)
        self.mailbox.open(RUN, mailbox_log)
        self.sent = 0
        self._arrived: Queue[Any] = Queue()
        gevent.spawn(self._receive)

    def _receive(self) -> None:
        while True:
            self._arrived.get()()

    def to_master(self, node: str, data: dict[str, Any]) -> None:
        self.sent += 1
        self._carry(lambda: self.mailbox.take(node, _through(data)))

    def to_worker(self, node: str, data: dict[str, Any]) -> None:
        if node in self.posts:
            self._carry(lambda: self.posts[node].answered(_through(data)))

    def _carry(self, deliver: Any) -> None:
        if not self.open:
            return
        chance = self.random.random() if self.lossy else 1.0
        if chance < 0.2:
            return
        for _ in range(2 if chance < 0.4 else 1):
            gevent.spawn_later(self.random.random() * 0.03 if self.lossy else 0, self._arrived.put, deliver)


def _through(data: dict[str, Any]) -> Any:
    return Message.unserialize(Message("llm_records", data, "n").serialize()).data


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "RESEND_S", 0.05)
    monkeypatch.setattr(post, "REFUSED_S", 0.05)
    monkeypatch.setattr(post, "LOOK_S", 0.02)


def make(tmp_path: Path, way: Way, worker: str) -> tuple[EventLog, Post]:
    log = EventLog(tmp_path / f"events-{worker}.jsonl")
    way.posts[worker] = Post(RUN, worker, log, lambda data: way.to_master(worker, data))
    return log, way.posts[worker]


@pytest.mark.parametrize("seed", range(3))
def test_each_record_arrives_once_and_in_order_over_a_way_that_loses_and_repeats(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "BATCH_BYTES", 5_000)
    monkeypatch.setattr(post, "WINDOW_BYTES", 20_000)
    masters = EventLog(tmp_path / "events.jsonl")
    way = Way(masters, seed, lossy=True)
    made = {worker: make(tmp_path, way, worker) for worker in ("w0", "w1", "w2")}
    for seq in range(40):
        for worker, (log, _) in made.items():
            log.write(record(worker, seq, size=way.random.randrange(10, 9_000)))
        gevent.sleep(0.005)
    for log, _ in made.values():
        log.close()
    gevent.joinall([gevent.spawn(sender.finish) for _, sender in made.values()])
    way.mailbox.close()
    masters.close()
    got = (tmp_path / "events.jsonl").read_bytes().splitlines(keepends=True)
    for worker in made:
        own = (tmp_path / f"events-{worker}.jsonl").read_bytes()
        assert b"".join(line for line in got if f'"worker":"{worker}"'.encode() in line) == own
        received = way.mailbox.received[worker]
        assert (received.records, received.at, received.undecodable) == (40, len(own), 0)
    assert way.sent > 40, "it went in many batches"


def test_a_long_silence_costs_no_memory_and_the_rest_comes_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "WINDOW_BYTES", 20_000)
    monkeypatch.setattr(post, "BATCH_BYTES", 5_000)
    masters = EventLog(tmp_path / "events.jsonl")
    way = Way(masters)
    way.open = False
    log, sender = make(tmp_path, way, "w0")
    for seq in range(300):
        log.write(record("w0", seq))
    log.flush()
    begun_s = time.monotonic()
    gevent.sleep(0.4)
    assert way.sent <= 5 + (time.monotonic() - begun_s) / 0.05, "a window, then one batch now and then"
    way.open = True
    sender.finish()
    way.mailbox.close()
    assert (tmp_path / "events.jsonl").read_bytes() == log.path.read_bytes()
    assert len(log.path.read_bytes().splitlines()) == 300


def test_what_no_answer_comes_for_stays_in_the_workers_file_and_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "PATIENCE_S", 0.2)
    way = Way(EventLog(tmp_path / "events.jsonl"))
    way.open = False
    log, sender = make(tmp_path, way, "w0")
    log.write(record("w0", 0))
    sender.finish()
    assert sender.acknowledged == 0 < log.end
    assert log.lost == 0


def until(condition: Callable[[], bool]) -> None:
    with gevent.Timeout(20):
        while not condition():
            gevent.sleep(0.01)


BAD = {
    "nothing": None,
    "no members": {},
    "a number": 7,
    "of no run": {"run": RUN},
    "no bytes": {"run": RUN, "worker": "w9", "at": 0, "size": 5, "lines": 1, "skipped": 0, "body": "text"},
    "not packed": {"run": RUN, "worker": "w9", "at": 0, "size": 5, "lines": 1, "skipped": 0, "body": b"12345"},
    "another size": {
        "run": RUN, "worker": "w9", "at": 0, "size": 5, "lines": 1, "skipped": 0, "body": zlib.compress(b"123456\n")
    },
    "a bomb": {
        "run": RUN, "worker": "w9", "at": 0, "size": 5, "lines": 1, "skipped": 0, "body": zlib.compress(b"\n" * 10**7)
    },
    "half a line": {
        "run": RUN, "worker": "w9", "at": 0, "size": 5, "lines": 1, "skipped": 0, "body": zlib.compress(b"1\n345")
    },
    "before the start": {
        "run": RUN, "worker": "w9", "at": -5, "size": 5, "lines": 1, "skipped": 0, "body": zlib.compress(b"1234\n")
    },
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_batch_is_counted_said_and_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    masters = EventLog(tmp_path / "events.jsonl")
    way = Way(masters)
    log, sender = make(tmp_path, way, "w0")
    for times in (1, 2, 3):
        way.mailbox.take("w9", BAD[what])
        until(lambda times=times: way.mailbox.received["w9"].undecodable == times)
    assert len([r for r in caplog.records if "cannot be decoded" in r.getMessage()]) == 1
    log.write(record("w0", 0))
    sender.finish()
    way.mailbox.close()
    assert (tmp_path / "events.jsonl").read_bytes() == log.path.read_bytes() != b""


def test_batches_of_another_run_are_not_mixed_in(tmp_path: Path) -> None:
    masters = EventLog(tmp_path / "events.jsonl")
    way = Way(masters)
    old = {"worker": "w0", "at": 0, "size": 2, "lines": 1, "skipped": 0, "body": zlib.compress(b"1\n")}
    way.mailbox.take("w0", old | {"run": "r0"})
    way.mailbox.close()
    way.mailbox.take("w0", old | {"run": RUN})
    gevent.sleep(0.05)
    assert masters.path.read_bytes() == b""
    assert not way.mailbox.received


def test_a_full_disk_of_the_master_is_said_once_and_what_follows_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "BATCH_BYTES", 5_000)
    masters = EventLog(tmp_path / "events.jsonl")
    way = Way(masters)
    made = {worker: make(tmp_path, way, worker) for worker in ("w0", "w1")}
    disk = Disk(monkeypatch, masters, room=20_000)
    for seq in range(20):
        for worker, (log, _) in made.items():
            log.write(record(worker, seq))
        gevent.sleep(0.02)
    for log, _ in made.values():
        log.flush()
    until(lambda: any(sender.refused for _, sender in made.values()))
    assert way.mailbox.error == "No space left on device"
    assert len([r for r in caplog.records if "keep their records in their own files" in r.getMessage()]) == 1
    assert masters.path.read_bytes().endswith(b"\n")
    arrived = sum(received.records for received in way.mailbox.received.values())
    assert 0 < arrived == len(masters.path.read_bytes().splitlines()) < 40
    disk.room = 10**9
    for log, sender in made.values():
        log.close()
        sender.finish()
    way.mailbox.close()
    assert len(set(masters.path.read_bytes().splitlines())) == 40 == len(masters.path.read_bytes().splitlines())


def test_records_that_a_workers_own_disk_refuses_travel_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("locust_llm.eventlog.KEPT_BYTES", 60_000)
    monkeypatch.setattr(post, "BATCH_BYTES", 3_000)
    masters = EventLog(tmp_path / "events.jsonl")
    way = Way(masters)
    log, sender = make(tmp_path, way, "w0")
    disk = Disk(monkeypatch, log, room=0)
    for seq in range(100):
        log.write(record("w0", seq))
        if seq % 10 == 9:
            log.flush()
            while sender.acknowledged < log.end:
                gevent.sleep(0.01)
    disk.room = 10**9
    for seq in range(100, 110):
        log.write(record("w0", seq))
    log.close()
    sender.finish()
    way.mailbox.close()
    lines = masters.path.read_bytes().splitlines(keepends=True)
    assert [f'"seq":{seq},'.encode() in line for seq, line in enumerate(lines)] == [True] * 110
    assert log.lost == 0
    received = way.mailbox.received["w0"]
    assert received.skipped > 0, "the memory was too small for all of them"
    assert received.file_bytes == len(log.path.read_bytes())


def test_what_neither_the_own_disk_nor_the_master_takes_is_counted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "PATIENCE_S", 0.1)
    way = Way(EventLog(tmp_path / "events.jsonl"))
    way.open = False
    log, sender = make(tmp_path, way, "w0")
    Disk(monkeypatch, log, room=2_000)
    for seq in range(5):
        log.write(record("w0", seq))
    log.close()
    sender.finish()
    assert (log.taken, log.written, log.lost) == (5, 1, 4)


class Disk:
    """Lets one log's file grow by ``room`` bytes; then it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: EventLog, room: int) -> None:
        self.room = room
        really = os.write

        def write(file: int, data: Any) -> int:
            if file != log._file:
                return really(file, data)
            if not self.room:
                raise OSError(28, "No space left on device")
            written = really(file, data[: self.room])
            self.room -= written
            return written

        monkeypatch.setattr(os, "write", write)
