"""``--llm-max-bytes``: an answer without end is given up, in time and memory, and the others do not notice."""

from __future__ import annotations

import gc
import resource
import zlib

import gevent
import pytest
from exchanges import Consumer, ask, call, target_at, until
from loopback import STREAM_HEAD, Peer, Server, chunk, event, plain, sleep, whole

from locust_llm.exchange import MALFORMED, OK


def rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize(
    "piece", [event("abc"), event(""), b": ping\n\n", b"data: {}\n\n"], ids=["text", "empty", "ping", "bare"]
)
def test_a_stream_without_end_is_malformed_and_its_connection_closed(piece: bytes) -> None:
    gone = []

    def endless(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM_HEAD)
        try:
            while True:
                peer.send(chunk(piece * 500))
        except OSError:
            gone.append(True)

    with Server(endless) as server:
        attempt = ask(target_at(server.port, max_bytes=2_000_000))
        until(lambda: gone)
    outcome, error = attempt.judge()
    assert outcome == MALFORMED
    assert error is not None
    assert error.message == "a body of more than 2000000 bytes (--llm-max-bytes)"
    assert attempt.transfer.bytes_in < 2_200_000
    assert gone


def test_what_is_not_longer_is_read() -> None:
    body = b'{"choices":[{"index":0,"message":{"content":"%b"},"finish_reason":"stop"}]}'
    long = body % (b"x" * (100_000 - len(body) + 2))
    assert len(long) == 100_000
    with Server(lambda peer: [peer.send(plain(200, long)) for _ in peer.requests()]) as server:
        assert ask(target_at(server.port, max_bytes=100_000), stream=False).judge()[0] == OK
        assert ask(target_at(server.port, max_bytes=99_999), stream=False).judge()[0] == MALFORMED


def test_the_bound_is_of_what_a_compressed_body_holds() -> None:
    packed = zlib.compress(event("a") * 100_000)
    with Server(
        lambda peer: [peer.send(plain(200, packed, "Content-Encoding: deflate")) for _ in peer.requests()]
    ) as s:
        attempt = ask(target_at(s.port, max_bytes=1_000_000))
    assert attempt.judge()[0] == MALFORMED
    assert attempt.transfer.bytes_in < 1_000_000


def test_texts_that_repeat_what_was_said_do_not_count_against_it() -> None:
    texts = ["word " * n for n in range(1, 400)]
    events = [
        b'data: {"text":"%b","meta_info":{"completion_tokens":%d,"finish_reason":null}}\n\n' % (text.encode(), n)
        for n, text in enumerate(texts, 1)
    ]
    events.append(
        b'data: {"text":"%b","meta_info":{"completion_tokens":399,"finish_reason":{"type":"stop"}}}\n\n'
        % texts[-1].encode()
    )
    answer = STREAM_HEAD + b"".join(map(chunk, events)) + chunk(b"")
    with Server(lambda peer: [peer.send(answer) for _ in peer.requests()]) as server:
        attempt = ask(target_at(server.port, api="sglang", max_bytes=100_000), api="sglang")
    assert attempt.judge() == (OK, None)
    assert attempt.transfer.bytes_in > 400_000
    assert attempt.answer.text() == texts[-1]


def test_others_go_on_undisturbed_beside_hostile_ones() -> None:
    def play(peer: Peer) -> None:
        request = peer.request()
        peer.send(STREAM_HEAD)
        if b'"hostile"' in request:
            while True:
                peer.send(chunk(b"x" * (10 * 1024 * 1024)))
        for _ in range(20):
            peer.send(chunk(event("a")))
            sleep(0.01)
        peer.send(whole()[len(STREAM_HEAD) :])

    with Server(play) as server:
        gc.collect()
        before = rss_mib()
        consumer = Consumer(target_at(server.port))
        hostile = [gevent.spawn(consumer.client.send, call(model="hostile"), name="hostile") for _ in range(3)]
        good = [gevent.spawn(consumer.client.send, call(), name="good") for _ in range(5)]
        gevent.joinall([*hostile, *good], timeout=60)
    outcomes = {name: {r.outcome for r in consumer.records if r.name == name} for name in ("hostile", "good")}
    assert outcomes == {"hostile": {MALFORMED}, "good": {OK}}
    assert rss_mib() - before < 3 * 3 * 16 + 100
