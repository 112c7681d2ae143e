"""An answer that only says where the answer is (Replicate): both requests are one exchange, secrets stay at home."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from exchanges import Consumer, target_at
from loopback import LAST_CHUNK, STREAM_HEAD, Peer, Server, chunk, plain, sleep

from locust_llm.exchange import CONNECTION, HTTP_STATUS, IN_BAND_ERROR, MALFORMED, OK, TRUNCATED
from locust_llm.wire.api import Call


def output(text: str) -> bytes:
    return chunk(b"event: output\nid: 1:0\ndata: %b\n\n" % text.encode())


DONE = chunk(b"event: done\nid: 9:0\ndata: {}\n\n") + LAST_CHUNK
STREAM = STREAM_HEAD + output("Hello") + output(" world") + DONE
CALL = Call(model="owner/name", prompt="Say something.", max_tokens=8)


def created(url: str, **more: Any) -> bytes:
    value = {"id": "p", "status": "starting", "urls": {"get": url + "/get", "stream": url}, **more}
    return plain(201, json.dumps(value).encode(), "Content-Type: application/json")


class Replicate:
    """A server of predictions whose streams may be at another one."""

    def __init__(self, stream: bytes = STREAM, pause_s: float = 0) -> None:
        self.seen: list[bytes] = []
        self.url = ""
        self._stream = stream
        self._pause_s = pause_s

    def __call__(self, peer: Peer) -> None:
        for request in peer.requests():
            self.seen.append(request)
            sleep(self._pause_s)
            peer.send(created(self.url) if request.startswith(b"POST") else self._stream)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUST_LLM_API_KEY", "secret")


def send(server: Server, times: int = 1) -> Consumer:
    consumer = Consumer(target_at(server.port, api="replicate"))
    for _ in range(times):
        consumer.client.send(CALL, name="x")
    return consumer


def test_creation_and_stream_are_one_exchange_and_one_record() -> None:
    script = Replicate(pause_s=0.1)
    with Server(script) as server:
        script.url = f"http://127.0.0.1:{server.port}/stream/p?id=1"
        begun = time.monotonic()
        consumer = send(server)
        took = time.monotonic() - begun
    (record,) = consumer.records
    assert (record.outcome, record.text, record.response_id, record.status) == (OK, "Hello world", "p", 200)
    assert record.kinds() == ["other", "content", "content", "done"]
    assert record.ttft is not None
    assert 0.2 <= record.ttft <= took  # both requests are in it
    assert record.headers_us is not None
    assert record.headers_us >= 200_000  # those of the stream
    assert record.bytes_out == sum(map(len, script.seen))
    post, get = script.seen
    assert post.startswith(b"POST /v1/predictions HTTP/1.1\r\n")
    assert json.loads(post.partition(b"\r\n\r\n")[2])["version"] == "owner/name"
    assert get.startswith(b"GET /stream/p?id=1 HTTP/1.1\r\n")
    assert b"Accept: text/event-stream" in get
    assert len(consumer.fired) == 1


def test_the_key_goes_to_its_own_server_only_and_connections_are_kept_at_both() -> None:
    home, elsewhere = Replicate(), Replicate()
    with Server(home) as server, Server(elsewhere) as other:
        home.url = f"http://127.0.0.1:{other.port}/stream"
        consumer = send(server, times=5)
        assert (server.accepted, other.accepted) == (1, 1)
        home.url = f"http://127.0.0.1:{server.port}/stream"
        consumer.client.send(CALL, name="x")
        consumer.client.target.close()
    assert [record.outcome for record in consumer.records] == [OK] * 6
    assert all(b"Authorization: Bearer secret" in request for request in home.seen)
    assert len(elsewhere.seen) == 5
    assert not any(b"secret" in request for request in elsewhere.seen)


@pytest.mark.parametrize(
    ("stream", "outcome"),
    [
        (STREAM_HEAD + output("Hello") + LAST_CHUNK, TRUNCATED),
        (STREAM_HEAD + chunk(b'event: error\ndata: {"detail":"boom"}\n\n') + LAST_CHUNK, IN_BAND_ERROR),
        (plain(404, b'{"detail":"gone"}'), HTTP_STATUS),
        (created("http://127.0.0.1:1/again"), TRUNCATED),
    ],
)
def test_a_stream_that_fails_is_a_failure_of_its_kind(stream: bytes, outcome: str) -> None:
    script = Replicate(stream)
    with Server(script) as server:
        script.url = f"http://127.0.0.1:{server.port}/stream"
        (record,) = send(server).records
    assert record.outcome == outcome


@pytest.mark.parametrize(
    ("url", "outcome"),
    [
        ("http://127.0.0.1:1/stream", CONNECTION),
        ("gopher://h.example/x", MALFORMED),
        ("http://user:pw@127.0.0.1/x", MALFORMED),
        ("/relative", MALFORMED),
        ("http://[", MALFORMED),
    ],
)
def test_an_address_that_leads_nowhere_is_a_failure(url: str, outcome: str) -> None:
    script = Replicate()
    script.url = url
    with Server(script) as server:
        (record,) = send(server).records
    assert record.outcome == outcome
    assert record.error is not None
    assert "pw" not in record.error.message


def test_line_breaks_in_an_address_do_not_reach_the_request() -> None:
    script = Replicate()
    with Server(script) as server:
        script.url = f"http://127.0.0.1:{server.port}/stream?a=b\r\nX-Evil: 1"
        send(server)
    assert not any(b"\nX-Evil" in request for request in script.seen)


def test_a_server_cannot_send_us_all_over_the_world() -> None:
    script = Replicate()
    with Server(script) as server:
        consumer = Consumer(target_at(server.port, api="replicate"))
        for number in range(12):
            script.url = f"http://127.0.0.{number + 2}:1/x"
            consumer.client.send(CALL, name="x")
    assert [record.outcome for record in consumer.records] == [CONNECTION] * 8 + [MALFORMED] * 4
