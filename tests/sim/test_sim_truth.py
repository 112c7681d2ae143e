"""The truth log says what left the server: every request read, every token event, in order."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sim_client import Client, chat_body, request

from locust_llm.errors import UsageError
from locust_llm.sim.options import SimOptions
from locust_llm.sim.process import Simulator, start
from locust_llm.sim.truth import read_truth


def test_the_log_has_each_request_and_each_event_with_the_tokens_sent_so_far(
    simulate: Callable[..., Simulator], tmp_path: Path
) -> None:
    simulator = simulate(truth_log=str(tmp_path / "truth"), tokens_per_event=2)
    before = time.time_ns()
    with Client(simulator.port) as client:
        stream = client.chat(stream=True, max_tokens=5)
        whole = client.chat(max_tokens=4)
        bad = client.chat(max_tokens=0)
        two = client.chat(stream=True, max_tokens=1, n=2)
    after = time.time_ns()
    simulator.stop()
    truth = read_truth(tmp_path / "truth")
    got = {}
    for answer in (stream, whole, bad, two):
        number = int(answer.headers["x-request-id"].removeprefix("sim-"))
        got[number] = truth["index"][truth["request"] == number].tolist()
    assert got == {0: [0, 2, 4, 5], 1: [0, 4], 2: [0], 3: [0, 1, 2]}
    assert stream.events()[0]["id"] == "sim-0"
    assert (truth["time_ns"][1:] >= truth["time_ns"][:-1]).all()
    assert before <= truth["time_ns"][0]
    assert truth["time_ns"][-1] <= after


def test_the_log_of_many_streams_at_once_counts_every_token(simulate: Callable[..., Simulator], tmp_path: Path) -> None:
    simulator = simulate(truth_log=str(tmp_path / "truth"), itl=0.002, jitter=0.3)
    clients = [Client(simulator.port) for _ in range(40)]
    for client in clients:
        client.send(request("POST", "/v1/chat/completions", chat_body(stream=True, max_tokens=30)))
    received = {}
    for client in clients:
        answer = client.read()
        received[int(answer.events()[0]["id"].removeprefix("sim-"))] = len(answer.texts())
        client.socket.close()
    simulator.stop()
    truth = read_truth(tmp_path / "truth")
    assert received == dict.fromkeys(range(40), 30)
    for number in range(40):
        mine = truth[truth["request"] == number]
        assert mine["index"].tolist() == list(range(31))
        assert mine["time_ns"][1] - mine["time_ns"][0] > 0


def test_the_log_grows_while_the_server_runs_and_only_by_what_the_kernel_took(
    simulate: Callable[..., Simulator], tmp_path: Path
) -> None:
    tokens, path = 60_000, tmp_path / "truth"
    simulator = simulate(truth_log=str(path), ttft=0, itl=0)
    with Client(simulator.port, timeout=60) as client:
        client.send(request("POST", "/v1/chat/completions", chat_body(stream=True, max_tokens=tokens)))
        deadline = time.monotonic() + 20
        sizes = [0, -1]
        while sizes[-1] != sizes[-2] or not sizes[-1]:
            assert time.monotonic() < deadline
            time.sleep(0.6)
            sizes.append(path.stat().st_size)
        assert len(read_truth(path)) < tokens, "a client that does not read is not sent everything"
        assert client.read().complete
    simulator.stop()
    assert len(read_truth(path)) == tokens + 1


def test_a_log_cut_in_a_record_is_read_up_to_there_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import numpy as np

    path = tmp_path / "truth"
    whole = np.array([(7, 0, 0, 123), (7, 1, 0, 456)], dtype=read_truth(os.devnull).dtype).tobytes()
    path.write_bytes(whole[:-5])
    with caplog.at_level(logging.WARNING):
        truth = read_truth(path)
    assert truth["time_ns"].tolist() == [123]
    assert "cut" in caplog.text


def test_a_log_is_never_written_over_another_one(tmp_path: Path) -> None:
    path = tmp_path / "truth"
    path.write_bytes(b"x" * 24)
    with pytest.raises(UsageError, match=r"truth_log.*already holds data"):
        start(SimOptions(truth_log=str(path)))
    assert path.read_bytes() == b"x" * 24
    with pytest.raises(UsageError, match="cannot be written"):
        start(SimOptions(truth_log=str(tmp_path / "no" / "folder")))
