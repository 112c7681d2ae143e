"""What it costs the master to take the records of many workers, and what it costs a worker to send them.

    python benchmarks/mailbox.py                           # about a minute
    python benchmarks/mailbox.py --workers 10 --seconds 5

A master (Locust's own ``MasterRunner``, our side of the messages, a log on disk) takes the replayed batches of
``--workers`` workers, each with the records of ``--tokens`` tokens/s in answers of 150; its processor time is measured
from inside. Then one worker's log at the same rate, read back and packed: processor time of the sending side.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gevent
import locust
import orjson
from common import Row, Table, leave, options, save, say, show
from locust.env import Environment
from locust.rpc import Message
from locust.rpc.zmqrpc import Client

from locust_llm.distributed import MasterLink
from locust_llm.exchange import Exchange
from locust_llm.live import post
from locust_llm.run import Run
from locust_llm.settings import settings_from

TOKENS = 150
BATCH_S = 0.5
RUN = "replayed"

MASTER = [
    ("workers", "workers", "d"),
    ("records_per_s", "records/s", ".0f"),
    ("mb_per_s", "MB/s", ".1f"),
    ("cpu", "CPU of the master, cores", ".3f"),
    ("memory_mb", "memory added, MB", ".1f"),
    ("complete", "all acknowledged", ""),
]
WORKER = [
    ("records_per_s", "records/s", ".0f"),
    ("mb_per_s", "MB/s", ".2f"),
    ("packed", "packed to", ".0%"),
    ("cpu", "CPU of packing, cores", ".4f"),
]
TEXT = f"""\
Records from workers to the master, replayed: batches every {BATCH_S:g} s, answers of {TOKENS} tokens. *CPU of
the master*: all of its process; the feeding workers are another. *CPU of packing*: reading back and compressing, in a
thread of the worker."""


def main() -> int:
    given = options(__doc__, workers=50, tokens=20_000, seconds=20, feed=0).parse_args()
    if given.feed:
        feed(given.feed, given.workers, given.tokens, given.seconds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        master = take(Path(folder), given.workers, given.tokens, given.seconds)
        say(show(master))
        worker = pack(Path(folder), given.tokens)
        say(show(worker))
    tables = [Table("The master", MASTER, [master]), Table("A worker", WORKER, [worker])]
    save(given.json, "Records on their way", TEXT, tables, vars(given))
    return 0 if master["complete"] == "yes" else 1


def take(folder: Path, workers: int, tokens: int, seconds: int) -> Row:
    """Run the master and feed it."""
    environment = Environment(events=locust.events, user_classes=[])
    runner = environment.create_master_runner("127.0.0.1", 0)
    link = MasterLink(runner, lambda: None, lambda reason: None)
    run = Run(RUN, "master", settings_from({}), 0)
    run.open_log(folder / "events.jsonl")
    link.new_run(run)
    before_mb, cpu_s, began_s = resident_mb(), time.process_time(), time.monotonic()
    feeder = subprocess.Popen(
        [sys.executable, __file__, "--feed", str(runner.server.port), "--workers", str(workers),
         "--tokens", str(tokens), "--seconds", str(seconds)],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    while not link.mailbox.received:
        gevent.sleep(0.05)
        cpu_s, began_s = time.process_time(), time.monotonic()
    while feeder.poll() is None:
        gevent.sleep(0.1)
    wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    sent = orjson.loads(feeder.communicate()[0])
    link.mailbox.close()
    records = sum(received.records for received in link.mailbox.received.values())
    size = (folder / "events.jsonl").stat().st_size
    return {
        "workers": workers, "records_per_s": records / wall_s, "mb_per_s": size / wall_s / 1e6, "cpu": cpu_s / wall_s,
        "memory_mb": resident_mb() - before_mb,
        "complete": "yes" if records == sent["records"] and size == sent["bytes"] else "no",
    }  # fmt: skip


def feed(port: int, workers: int, tokens: int, seconds: int) -> None:
    """Send what so many workers would; prints what the master has acknowledged."""
    lines = [record(seq) for seq in range(max(1, round(tokens / TOKENS * BATCH_S)))]
    data = b"".join(lines)
    size, count, body = post._pack(lambda: data)
    clients = [Client("127.0.0.1", port, f"w{i}") for i in range(workers)]
    acknowledged = [0] * workers
    rounds = round(seconds / BATCH_S)

    def work(i: int) -> None:
        begin_s = time.monotonic() + i / workers * BATCH_S
        for number in range(rounds):
            gevent.sleep(max(0.0, begin_s + number * BATCH_S - time.monotonic()))
            batch = {"run": RUN, "worker": f"w{i}", "at": number * size, "size": size, "lines": count, "skipped": 0}
            clients[i].send(Message("llm_records", batch | {"body": body}, f"w{i}"))
        while acknowledged[i] < rounds * size:
            gevent.sleep(0.02)

    def listen(i: int) -> None:
        while True:
            acknowledged[i] = int(clients[i].recv().data["at"])

    for i in range(workers):
        gevent.spawn(listen, i)
    gevent.joinall([gevent.spawn(work, i) for i in range(workers)], timeout=seconds + 30)
    done: dict[str, Any] = {"records": rounds * count * workers, "bytes": sum(acknowledged)}
    print(orjson.dumps(done).decode())


def pack(folder: Path, tokens: int) -> Row:
    """Read back and pack one worker's records of a minute."""
    lines = [record(seq) for seq in range(round(60 * tokens / TOKENS))]
    path = folder / "events-w0.jsonl"
    path.write_bytes(b"".join(lines))
    size, at, packed = path.stat().st_size, 0, 0
    step = max(1, round(size / 60 * BATCH_S))
    cpu_s = time.process_time()
    with open(path, "rb") as file:
        while at < size:
            file.seek(at)
            data = file.read(step)
            done, _, body = post._pack(lambda data=data: data[: data.rfind(b"\n") + 1])  # type: ignore[misc]
            at += done
            packed += len(body)
    cpu_s = time.process_time() - cpu_s
    return {"records_per_s": len(lines) / 60, "mb_per_s": size / 60e6, "packed": packed / size, "cpu": cpu_s / 60}


def record(seq: int) -> bytes:
    """Return a line like that of an answer of ``TOKENS`` tokens over a network that is not quite even."""
    draw = random.Random(seq)
    gaps = [draw.randrange(50_000, 60_000), *(draw.randrange(9_000, 11_000) for _ in range(TOKENS + 3))]
    return Exchange(
        run="20261129T201500Z-1a2b3c", worker="w0-123456", seq=seq, exchange=f"w0-123456-{seq}", name="chat",
        user_class="Chat", api="openai-chat", model="m", outcome="ok", status=200, finish_reason="length",
        start_us=1_800_000_000_000_000 + seq * 7_500, reused=True, connected_us=0, sent_us=90, headers_us=45_000,
        end_us=sum(gaps), event_gaps_us=gaps, kind_names=["role", "content", "finish", "usage", "done"],
        kind_runs=[1, TOKENS, 1, 1, 1], n_out=TOKENS, n_in=550, n_cached=0, out_source="usage", in_source="usage",
        asked_in=550, asked_out=TOKENS, bytes_in=30_000, bytes_out=3_000, stamp="kernel", tags={"user": "w0-1"},
    ).encode()  # fmt: skip


def resident_mb() -> float:
    import psutil

    return float(psutil.Process().memory_info().rss) / 1e6


if __name__ == "__main__":
    leave(main)
