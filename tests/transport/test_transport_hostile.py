"""Servers that mean harm, or are broken beyond use: the right failure, bounded memory, and no other stream suffers."""

from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import brotli
import gevent
import pytest
from exchanges import Consumer, ask, call, target_at
from loopback import DONE, FINISH, LAST_CHUNK, STREAM_HEAD, Peer, Server, chunk, event, plain, sleep, whole

from locust_llm.exchange import CONNECTION, HTTP_STATUS, MALFORMED, OK, TIMEOUT, TRUNCATED
from locust_llm.target import Attempt
from locust_llm.transport import stream
from locust_llm.transport.http1 import MAX_HEAD_BYTES, MAX_INFLATED_BYTES, decompressor

MIB = 1 << 20


def answer(*pieces: bytes) -> Callable[[Peer], None]:
    """Return a script that sends the same bytes to every request."""

    def script(peer: Peer) -> None:
        for _ in peer.requests():
            for piece in pieces:
                peer.send(piece)
            if not pieces[-1].endswith(LAST_CHUNK):
                return

    return script


def flood(head: bytes, block: bytes) -> Callable[[Peer], None]:
    """Return a script that sends a head and then a block again and again until the client leaves."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head)
        with suppress(OSError):
            while True:
                peer.send(block)

    return script


def ended(script: Callable[[Peer], None], **settings: Any) -> Attempt:
    with Server(script) as server:
        return ask(target_at(server.port, **settings))


def kind(attempt: Attempt) -> tuple[str, str | None]:
    outcome, error = attempt.judge()
    assert error is None or "\n" not in error.message
    return outcome, error.kind if error else None


# ---- no HTTP


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00\xff" * 100,
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n\x00\x00\x00",
        b'{"choices": []}',
    ],
)
def test_what_is_not_http_is_a_framing_failure(said: bytes) -> None:
    assert kind(ended(answer(said))) == (CONNECTION, "framing")


@pytest.mark.parametrize("size", [b"xyz", b"-5", b"", b"ffffffffffffffffff", b"5;" + b"x" * 10 + b"\x00"])
def test_a_chunk_size_that_is_none_is_a_framing_failure_that_keeps_what_came(size: bytes) -> None:
    attempt = ended(answer(STREAM_HEAD + chunk(event("Hi")) + size + b"\r\nhello\r\n"))
    assert kind(attempt) == (CONNECTION, "framing")
    assert attempt.answer.text() == "Hi"


def test_a_chunk_longer_than_it_said_is_a_framing_failure() -> None:
    assert kind(ended(answer(STREAM_HEAD + b"5\r\nmore than five\r\n"))) == (CONNECTION, "framing")


def test_latin_1_and_odd_bytes_in_a_head_do_no_harm() -> None:
    head = b"HTTP/1.1 200 \xe9t\xe9\r\nX-Name: caf\xe9 \xff\xfe\r\nTransfer-Encoding: chunked\r\n\r\n"
    attempt = ended(answer(head[:30], head[30:], chunk(event("Hi") + FINISH + DONE) + LAST_CHUNK))
    assert kind(attempt) == (OK, None)


# ---- without end


@pytest.mark.parametrize(
    ("head", "block"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 4096),
        (b"HTTP/1.1 200 OK\r\n", b"X-Header: some value\r\n" * 100),
        (b"HTTP/1.1 200 ", b"O" * 4096),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        (b"", b"HTTP/1.1 103\r\n\r\n" * 100),
        (STREAM_HEAD + b"0\r\n", b"Trailer: more\r\n" * 100),
    ],
    ids=["header", "headers", "status line", "100", "103", "trailers"],
)
def test_a_head_without_end_is_a_framing_failure_soon(head: bytes, block: bytes) -> None:
    attempt = ended(flood(head, block))
    assert kind(attempt) == (CONNECTION, "framing")
    _, error = attempt.judge()
    assert error is not None
    assert str(MAX_HEAD_BYTES) in error.message


def test_a_status_line_of_100_kb_is_a_framing_failure() -> None:
    assert kind(ended(answer(b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n"))) == (CONNECTION, "framing")


@pytest.mark.parametrize(
    "block",
    [chunk(event("x") * 200), chunk(b"data: " + b"x" * 60_000), chunk(b"x" * 60_000), chunk(b"\n" * 60_000)],
    ids=["events", "line", "garbage", "blank"],
)
def test_a_body_without_end_is_malformed_when_it_passes_the_bound(block: bytes) -> None:
    attempt = ended(flood(STREAM_HEAD, block), first_token=60, max_bytes=3 * MIB)
    assert kind(attempt)[0] == MALFORMED
    assert 3 * MIB <= attempt.transfer.bytes_in < 5 * MIB


def test_an_error_body_without_end_is_cut_and_not_waited_for() -> None:
    head = b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n"
    attempt = ended(flood(head, chunk(b"<p>no</p>" * 1000)))
    assert (kind(attempt)[0], attempt.transfer.status) == (HTTP_STATUS, 500)
    assert len(attempt.transfer.error_body) == stream.ERROR_BODY_BYTES


# ---- compressed


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_a_bomb_is_malformed_before_it_fills_the_memory(encoding: str) -> None:
    raw = bytes(64 * MIB)
    bomb = {"gzip": gzip.compress, "deflate": zlib.compress, "br": lambda data: brotli.compress(data, quality=1)}[
        encoding
    ](raw)
    body = plain(200, bomb, f"Content-Encoding: {encoding}")
    with Server(answer(body)) as server:
        target = target_at(server.port)
        ask(target)
        tracemalloc.start()
        attempt = ask(target)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    outcome, error = attempt.judge()
    assert outcome == MALFORMED
    assert error is not None
    assert "expands" in error.message
    assert peak < 6 * MAX_INFLATED_BYTES


@pytest.mark.parametrize("encoding", ["zstd", "gzip, br", "nonsense"])
def test_an_unknown_encoding_is_malformed_and_named(encoding: str) -> None:
    outcome, error = ended(answer(plain(200, b"\x00" * 100, f"Content-Encoding: {encoding}"))).judge()
    assert outcome == MALFORMED
    assert error is not None
    assert encoding in error.message


def test_bytes_that_are_not_compressed_as_said_are_malformed() -> None:
    for encoding in ("gzip", "br"):
        body = plain(200, event("Hi") + FINISH + DONE, f"Content-Encoding: {encoding}")
        assert kind(ended(answer(body)))[0] == MALFORMED


def test_an_error_body_may_be_compressed() -> None:
    body = gzip.compress(b'{"error": {"message": "slow down", "code": "busy"}}')
    attempt = ended(answer(plain(429, body, "Content-Encoding: gzip", "Retry-After: 3")))
    outcome, error = attempt.judge()
    assert outcome == HTTP_STATUS
    assert error is not None
    assert (error.code, error.retry_after_s, "slow down" in error.message) == ("busy", 3, True)


def test_every_form_of_deflate_and_gzip_is_read_in_any_split() -> None:
    text = b"".join(event(f"piece {n}") for n in range(200))
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    half = len(text) // 2
    forms = {
        "gzip": gzip.compress(text),
        "x-gzip": gzip.compress(text[:half]) + gzip.compress(text[half:]),
        "deflate": zlib.compress(text),
        "Deflate": bare.compress(text) + bare.flush(),
        "br": brotli.compress(text),
    }
    for encoding, data in forms.items():
        for size in (1, 7, len(data)):
            read = decompressor(encoding)
            assert read is not None
            assert b"".join(read(data[at : at + size]) for at in range(0, len(data), size)) == text, (encoding, size)
    assert decompressor("") is decompressor("Identity") is None


# ---- slow, and beside others


def test_a_head_that_comes_a_byte_at_a_time_ends_by_the_first_token_deadline() -> None:
    def drip(peer: Peer) -> None:
        peer.request()
        with suppress(OSError):
            for byte in STREAM_HEAD * 100:
                peer.send(bytes([byte]))
                sleep(0.02)

    assert kind(ended(drip, first_token=0.3)) == (TIMEOUT, "first_token")


def test_hostile_servers_do_not_hold_up_other_streams() -> None:
    def paced(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send(STREAM_HEAD)
            for _ in range(20):
                sleep(0.01)
                peer.send(chunk(event("x")))
            peer.send(chunk(FINISH + DONE) + LAST_CHUNK)

    zeros = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    bomb = zeros.compress(bytes(3 * MIB)) + zeros.flush(zlib.Z_SYNC_FLUSH)
    hostile = (
        flood(STREAM_HEAD, chunk(b"x" * 60_000)),
        flood(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 4096),
        flood(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", bomb),
        answer(b"\x00\xff" * 1000),
    )

    def nuisance(peer: Peer) -> None:
        hostile[peer.number % len(hostile)](peer)

    with Server(paced) as good, Server(nuisance) as bad:
        consumer = Consumer(target_at(good.port))
        enemies = target_at(bad.port, first_token=5, max_bytes=64 * MIB)
        consumer.client.send(call(), name="warm")
        users = [gevent.spawn(consumer.client.send, call(), name="x") for _ in range(10)]
        attackers = [gevent.spawn(ask, enemies) for _ in range(8)]
        gevent.joinall(users, timeout=20, raise_error=True)
        outcomes = [record.outcome for record in consumer.records]
        worst_ms = max(max(record.event_gaps_us[1:]) / 1000 for record in consumer.records)
        gevent.joinall(attackers, timeout=30, raise_error=True)
    assert outcomes == [OK] * 11
    assert worst_ms < 3000
    assert {attacker.get().judge()[0] for attacker in attackers} == {MALFORMED, CONNECTION}


def test_a_server_that_writes_faster_than_it_can_be_read_does_not_own_the_loop() -> None:
    with Server(flood(STREAM_HEAD, chunk(b": " + b"x" * 60_000 + b"\n\n"))) as server:
        running = gevent.spawn(ask, target_at(server.port))
        ticks = 0
        until = time.monotonic() + 10
        while ticks <= 10 and time.monotonic() < until and not running.dead:
            gevent.sleep(0.001)
            ticks += 1
        running.kill()
    assert ticks > 10


def test_a_good_server_after_a_bad_answer_is_spoken_to_again() -> None:
    def bad_then_good(peer: Peer) -> None:
        peer.request()
        if peer.number == 0:
            peer.send(b"garbage")
            return
        peer.send(whole())

    with Server(bad_then_good) as server:
        target = target_at(server.port)
        assert [ask(target).judge()[0] for _ in range(2)] == [CONNECTION, OK]


def test_a_cut_stream_is_truncated_only_if_http_was_complete() -> None:
    complete = STREAM_HEAD + chunk(event("Hi")) + LAST_CHUNK
    assert kind(ended(answer(complete)))[0] == TRUNCATED
    assert kind(ended(answer(complete[: -len(LAST_CHUNK)])))[0] == CONNECTION
