"""HTTP/1.1 as clients use it: keep-alive, pipelining, split and big requests, old clients, broken ones."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_client import Client, chat_body, request

from locust_llm.sim.http import HttpError, RequestReader
from locust_llm.sim.process import Simulator


def test_a_connection_serves_streams_and_whole_answers_one_after_the_other(client: Client) -> None:
    ids = [client.chat(stream=bool(i % 2), max_tokens=2).headers["x-request-id"] for i in range(20)]
    assert len(set(ids)) == 20


def test_a_pipelined_request_is_answered_after_the_stream_before_it(client: Client) -> None:
    first = request("POST", "/v1/chat/completions", chat_body(stream=True, max_tokens=5))
    second = request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2})
    client.send(first + second + request("GET", "/v1/models"))
    stream = client.read()
    assert stream.complete
    assert len(stream.texts()) == 5
    assert client.read().json()["object"] == "text_completion"
    assert client.read().json()["object"] == "list"


def test_a_big_request_body_arrives_whole(client: Client) -> None:
    words = 300_000
    refused = client.chat("word " * words, max_tokens=1)
    assert refused.status == 400
    assert str(words + 8) in refused.json()["error"]["message"]
    fits = client.post("/v1/chat/completions", chat_body("word " * 100_000, max_tokens=1, padding="x" * 5_000_000))
    assert fits.json()["usage"]["prompt_tokens"] == 100_008


def test_a_request_may_come_byte_by_byte_or_in_chunks(client: Client) -> None:
    for byte in request("GET", "/v1/models"):
        client.send(bytes([byte]))
    assert client.read().status == 200
    data = json.dumps(chat_body(max_tokens=2)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    client.send(
        head + b"%x;note=1\r\n%b\r\n" % (10, data[:10]) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(data) - 10, data[10:])
    )
    assert client.read().status == 200
    assert client.get("/health").status == 200


def test_a_client_that_waits_for_100_continue_gets_it(client: Client) -> None:
    data = json.dumps(chat_body(max_tokens=2)).encode()
    head = f"POST /chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len(data)}\r\n\r\n"
    client.send(head.encode())
    assert client.read_head()[0] == 100
    client.send(data)
    assert client.read().status == 200


def test_connection_close_is_honoured(client: Client) -> None:
    answer = client.post("/v1/chat/completions", chat_body(stream=True, max_tokens=2), Connection="close")
    assert answer.complete
    assert answer.headers["connection"] == "close"
    assert client.closed()


def test_an_http_1_0_client_gets_a_stream_that_ends_with_the_connection(client: Client) -> None:
    data = json.dumps(chat_body(stream=True, max_tokens=3)).encode()
    client.send(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data))
    answer = client.read()
    assert "transfer-encoding" not in answer.headers
    assert answer.payloads()[-1] == "[DONE]"
    assert len(answer.texts()) == 3


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nno colon here\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: -3\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
        (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /" + b"a" * 70_000, 431),
    ],
)
def test_bytes_that_are_no_request_are_answered_and_the_connection_closed(
    plain: Simulator, data: bytes, status: int
) -> None:
    with Client(plain.port) as client:
        client.send(data)
        answer = client.read()
        assert (answer.status, answer.json()["error"]["code"]) == (status, status)
        assert client.closed()
    with Client(plain.port) as client:
        assert client.get("/health").status == 200


_PIPELINE = (
    request("POST", "/v1/chat/completions", b"a" * 40)
    + b"POST /x?y HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"3\r\nabc\r\n10;e\r\n0123456789abcdef\r\n0\r\nTrailer: 1\r\n\r\n"
    + b"\r\nGET /z HTTP/1.0\r\nA: b\r\n\r\n"
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, len(_PIPELINE)), max_size=12))
def test_requests_are_the_same_however_their_bytes_are_split(cuts: list[int]) -> None:
    reader, got = RequestReader(), []
    places = [0, *sorted(cuts), len(_PIPELINE)]
    for start, end in pairwise(places):
        reader.feed(_PIPELINE[start:end])
        while (found := reader.next()) is not None:
            got.append((found.method, found.path, found.body, found.keep_alive))
    assert got == [
        ("POST", "/v1/chat/completions", b"a" * 40, True),
        ("POST", "/x", b"abc0123456789abcdef", True),
        ("GET", "/z", b"", False),
    ]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    reader = RequestReader()
    reader.feed(data + b"\r\n\r\n")
    with suppress(HttpError):
        while reader.next() is not None:
            pass
