"""Counters of servers that answer oddly: a note each, in bounded time, and the key goes nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from loopback import Peer, Server, chunk, plain, sleep

from locust_llm import server_metrics
from locust_llm.run import Run
from locust_llm.server_metrics import ServerMetrics
from locust_llm.settings import Timeouts, settings_from
from locust_llm.users import ChatUser

GOOD = b"# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total 7\n"


class Load(ChatUser):
    abstract = False


def metrics(host: str, **values: Any) -> ServerMetrics:
    run = Run("r", "local", settings_from(values), 1)
    run.host = host
    return ServerMetrics(run, [Load])


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def read(host: str, **values: Any) -> dict[str, Any]:
    found = metrics(host, **values)
    found.read_before()
    found.read_after()
    (told,) = found.card()
    return told


def answering(data: bytes) -> Callable[[Peer], None]:
    def script(peer: Peer) -> None:
        while True:
            peer.request()
            peer.sock.sendall(data)

    return script


def hang(peer: Peer) -> None:
    peer.request()
    sleep(3)


def drip(peer: Peer) -> None:
    peer.request()
    peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(30):
        peer.sock.sendall(b"# drip\n")
        sleep(0.1)


def leave(peer: Peer) -> None:
    peer.request()
    peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + GOOD)


def endless(peer: Peer) -> None:
    peer.request()
    peer.sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        peer.sock.sendall(chunk(b"other_total 1\n" * 5000))


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_metrics, "LIMITS", Timeouts(connect=1, first_token=1.5, idle=1.5, total=1.5))
    monkeypatch.setattr(server_metrics, "MOST_BYTES", 1_000_000)


@pytest.mark.parametrize(
    ("script", "note"),
    [
        (answering(plain(404, b'{"detail":"Not Found"}')), "answers 404"),
        (answering(plain(500, b"oops")), "answers 500"),
        (answering(plain(200, b"<html>")), "not in Prometheus' text format"),
        (answering(plain(200, b"")), "not in Prometheus' text format"),
        (answering(plain(200, b"vllm:prompt_tokens_total {{{\n")), "cannot be read"),
        (answering(b"nonsense\r\n\r\n"), "not valid HTTP"),
        (answering(plain(307, b"", "Location: ftp://elsewhere/")), "not an address"),
        (answering(plain(307, b"", "Location: /metrics/")), "answers 307"),
        (hang, "no token within"),
        (drip, "no token within"),
        (leave, "broke off"),
        (endless, "a body of more than"),
    ],
)
def test_an_odd_answer_is_a_note_and_soon(script: Callable[[Peer], None], note: str) -> None:
    with Server(script) as server:
        began = time.monotonic()
        told = read(address(server))
        assert note in told["note"]
        assert "after" not in told
        assert time.monotonic() - began < 20


def test_a_server_that_has_gone_after_the_load_is_a_note_beside_the_first_reading() -> None:
    with Server(answering(plain(200, GOOD))) as server:
        found = metrics(address(server))
        found.read_before()
    found.read_after()
    (told,) = found.card()
    assert told["before"]["samples"] == {"vllm:prompt_tokens_total": 7}
    assert "after" not in told
    assert told["note"].startswith("after the load: ")


def test_one_redirect_is_followed_and_the_start_time_taken_from_the_header() -> None:
    def script(peer: Peer) -> None:
        while True:
            moved = b"GET /metrics " in peer.request()
            good = plain(200, GOOD, "Process-Start-Time-Unix: 461604744")
            peer.sock.sendall(plain(307, b"", "Location: /metrics/") if moved else good)

    with Server(script) as server:
        told = read(address(server))
    assert (told["before"]["started"], told["settled"]) == (461604744, True)


def test_counters_that_still_move_are_read_again_and_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_metrics, "SETTLE_S", 0.5)
    seen = []

    def script(peer: Peer) -> None:
        while True:
            peer.request()
            seen.append(1)
            peer.sock.sendall(plain(200, b"vllm:prompt_tokens_total %d\n" % len(seen)))

    with Server(script) as server:
        told = read(address(server))
    assert not told["settled"]
    assert told["after"]["samples"]["vllm:prompt_tokens_total"] == len(seen) > 3


def test_the_key_goes_to_the_servers_own_origin_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUST_LLM_API_KEY", "sk-secret")
    heads: list[bytes] = []

    def script(peer: Peer) -> None:
        while True:
            heads.append(peer.request())
            peer.sock.sendall(plain(200, GOOD))

    with Server(script) as server, Server(script) as other:
        read(f"{address(server)}/v1")
        assert b"sk-secret" in heads[0]
        assert heads[0].startswith(b"GET /metrics ")
        heads.clear()
        read(address(server), llm_server_metrics=f"{address(other)}/stats")
    assert heads[0].startswith(b"GET /stats ")
    assert all(b"sk-secret" not in head for head in heads)


def test_a_key_that_only_the_workers_have_is_a_note_and_no_error() -> None:
    told = read("http://127.0.0.1:9", llm_api_key_file="/nowhere/key")
    assert told["note"].startswith("not read from here: ")
    assert "before" not in told
