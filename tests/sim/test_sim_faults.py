"""Faults on demand: errors, cuts, stalls, closed connections; each as often as asked and the same for the same seed."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

import pytest
from sim_client import Client, chat_body, request

from locust_llm.sim.process import Simulator


def test_error_rate_gives_500s_in_about_that_share_and_the_same_ones_again(simulate: Callable[..., Simulator]) -> None:
    runs = []
    for _ in range(2):
        with Client(simulate(error_rate=0.3, seed=5).port) as client:
            answers = [client.chat(max_tokens=1) for _ in range(100)]
        runs.append([answer.status for answer in answers])
        assert {answer.status for answer in answers} == {200, 500}
        assert next(a for a in answers if a.status == 500).json()["error"]["code"] == 500
    assert runs[0] == runs[1]
    assert 15 <= runs[0].count(500) <= 45


def test_429_says_when_to_come_back(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(error_rate=1, error_kind="http_429").port) as client:
        answer = client.chat(stream=True)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert client.get("/v1/models").status == 200


def test_an_in_band_error_is_a_200_with_an_error_object_and_less_than_the_whole_answer(
    simulate: Callable[..., Simulator],
) -> None:
    with Client(simulate(error_rate=1, error_kind="in_band").port) as client:
        lengths = set()
        for _ in range(12):
            answer = client.chat(stream=True, max_tokens=5)
            assert (answer.status, answer.complete, answer.payloads()[-1]) == (200, True, "[DONE]")
            assert answer.events()[-1]["error"]["message"]
            assert answer.finish_reasons() == []
            lengths.add(len(answer.texts()))
        assert lengths <= set(range(5))
        assert len(lengths) > 1
        whole = client.chat(max_tokens=5)
        assert whole.status == 200
        assert whole.json()["error"]["message"]


@pytest.mark.parametrize("tokens", [1, 6])
def test_a_cut_stream_ends_without_end_mark_and_with_incomplete_framing(
    simulate: Callable[..., Simulator], tokens: int
) -> None:
    simulator = simulate(cut_rate=1)
    for _ in range(6):
        with Client(simulator.port) as client:
            answer = client.chat(stream=True, max_tokens=tokens)
            assert answer.status == 200
            assert not answer.complete
            assert b"[DONE]" not in answer.body
            assert answer.finish_reasons() == []
            assert 1 <= len(answer.texts()) <= tokens
    with Client(simulator.port) as client:
        assert client.chat(max_tokens=3).status == 200, "only streams are cut"


def test_a_stalled_stream_falls_silent_after_some_tokens_and_stays_open(simulate: Callable[..., Simulator]) -> None:
    simulator = simulate(stall_rate=1)
    with Client(simulator.port) as client:
        client.send(request("POST", "/v1/chat/completions", chat_body(stream=True, max_tokens=4)))
        client.read_until(b'"content":" ')
        client.socket.settimeout(0.5)
        with pytest.raises(socket.timeout):
            client.read_until(b"[DONE]")
    with Client(simulator.port) as other:
        assert other.chat(max_tokens=3).status == 200


def test_close_lets_the_connection_end_after_a_stream_though_the_head_says_keep_alive(
    simulate: Callable[..., Simulator],
) -> None:
    with Client(simulate(close=True).port) as client:
        assert client.chat(max_tokens=2).status == 200
        answer = client.chat(stream=True, max_tokens=2)
        assert answer.complete
        assert "keep-alive" in answer.headers
        assert answer.headers.get("connection") != "close"
        assert client.closed()


def test_slots_queue_the_others_in_order_of_arrival(simulate: Callable[..., Simulator]) -> None:
    simulator = simulate(slots=1, ttft=0.03)
    clients = [Client(simulator.port) for _ in range(4)]
    for client in clients:
        client.send(request("POST", "/v1/chat/completions", chat_body(stream=True, max_tokens=3)))
        client.read_head()  # so the next one is later
    assert _finishing_order(clients) == [0, 1, 2, 3]
    for client in clients:
        client.socket.close()


def test_a_slot_is_free_as_soon_as_its_client_has_gone(simulate: Callable[..., Simulator]) -> None:
    simulator = simulate(slots=1, stall_rate=1)
    stuck, queued, last = Client(simulator.port), Client(simulator.port), Client(simulator.port)
    body = request("POST", "/v1/chat/completions", chat_body(stream=True, max_tokens=3))
    for client in (stuck, queued):
        client.send(body)
        client.read_head()
    stuck.read_until(b"data: ")
    last.send(request("POST", "/v1/chat/completions", chat_body(max_tokens=3)))
    queued.socket.close()  # gives up its place in the queue
    stuck.socket.close()  # gives up its slot
    assert last.read().status == 200


def test_a_client_that_does_not_read_holds_up_nobody_and_loses_nothing(simulate: Callable[..., Simulator]) -> None:
    simulator = simulate(ttft=0, itl=0)
    tokens = 60_000  # 11 MB, more than the kernel's buffers hold
    with Client(simulator.port, timeout=60) as slow, Client(simulator.port) as other:
        slow.send(request("POST", "/v1/chat/completions", chat_body(stream=True, max_tokens=tokens)))
        slow.read_head()
        assert len(other.chat(stream=True, max_tokens=50).texts()) == 50
        body, complete = slow.read_chunks()
        assert complete
        assert body.count(b'"content":" ') == tokens


def _finishing_order(clients: list[Client]) -> list[int]:
    """Read from all sockets; return the order in which the streams end."""
    order: list[int] = []
    while len(order) < len(clients):
        ready, _, _ = select.select([c.socket for i, c in enumerate(clients) if i not in order], [], [], 10)
        assert ready, "nothing came for 10 s"
        for client in clients:
            if client.socket in ready:
                client.more()
                if client.buffer.endswith(b"0\r\n\r\n"):
                    order.append(clients.index(client))
    return order
