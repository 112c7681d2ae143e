"""Routes and errors of the simulator, on a real socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim_client import Client, chat_body, request

from locust_llm.sim.process import Simulator


@pytest.mark.parametrize("root", ["", "/v1"])
def test_every_route_answers_with_and_without_v1(client: Client, root: str) -> None:
    chat = client.post(f"{root}/chat/completions", chat_body(max_tokens=2)).json()
    assert chat["object"] == "chat.completion"
    completion = client.post(f"{root}/completions", {"prompt": "a b", "max_tokens": 2}).json()
    assert completion["object"] == "text_completion"
    models = client.get(f"{root}/models").json()["data"]
    assert [model["id"] for model in models] == ["sim"]
    assert models[0]["max_model_len"] > 0
    assert client.get(f"{root}/health").status == 200
    assert client.get(f"{root}/version").json()["simulated"] is True


def test_a_query_string_does_not_hide_the_route(client: Client) -> None:
    assert client.get("/v1/models?limit=1").status == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param"),
    [
        ("GET", "/nothing", None, 404, None),
        ("POST", "/v1/v1/chat/completions", chat_body(), 404, None),
        ("GET", "/v1/chat/completions", None, 405, None),
        ("POST", "/v1/models", {}, 405, None),
        ("POST", "/v1/chat/completions", b'{"messages": [', 400, None),
        ("POST", "/v1/chat/completions", b"[1]", 400, None),
        ("POST", "/v1/chat/completions", b'"\xff"', 400, None),
        ("POST", "/v1/chat/completions", {}, 400, "messages"),
        ("POST", "/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("POST", "/v1/chat/completions", {"messages": ["hi"]}, 400, "messages"),
        ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": 3}]}, 400, "messages"),
        ("POST", "/v1/completions", {}, 400, "prompt"),
        ("POST", "/v1/completions", {"prompt": [{}]}, 400, "prompt"),
        ("POST", "/v1/chat/completions", chat_body(max_tokens=0), 400, "max_tokens"),
        ("POST", "/v1/chat/completions", chat_body(max_tokens=-5), 400, "max_tokens"),
        ("POST", "/v1/chat/completions", chat_body(max_tokens="many"), 400, "max_tokens"),
        ("POST", "/v1/chat/completions", chat_body(max_tokens=True), 400, "max_tokens"),
        ("POST", "/v1/chat/completions", chat_body(max_completion_tokens=0), 400, "max_completion_tokens"),
        ("POST", "/v1/chat/completions", chat_body(max_tokens=10**9), 400, "max_tokens"),
        ("POST", "/v1/chat/completions", chat_body(max_tokens=3, min_tokens=4), 400, "min_tokens"),
        ("POST", "/v1/chat/completions", chat_body(n=0), 400, "n"),
        ("POST", "/v1/chat/completions", chat_body(stop=[1]), 400, "stop"),
        ("POST", "/v1/chat/completions", chat_body(stream="yes"), 400, "stream"),
        ("POST", "/v1/chat/completions", chat_body(stream_options={"include_usage": True}), 400, "stream_options"),
    ],
)
def test_a_bad_request_gets_an_error_object_and_the_connection_goes_on(
    client: Client, method: str, path: str, body: Any, status: int, param: str | None
) -> None:
    client.send(request(method, path, body))
    response = client.read()
    error = response.json()["error"]
    assert (response.status, error["code"], error["param"]) == (status, status, param)
    assert error["message"]
    assert client.get("/health").status == 200


def test_a_prompt_longer_than_the_context_is_refused(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(max_model_len=50).port) as client:
        refused = client.chat("word " * 60, max_tokens=1)
        assert (refused.status, refused.json()["error"]["param"]) == (400, "messages")
        assert "maximum context length is 50" in refused.json()["error"]["message"]
        assert client.chat("word " * 30, max_tokens=13).status == 400
        assert client.chat("word " * 30, max_tokens=12).status == 200
        assert client.chat("word " * 30).json()["usage"]["total_tokens"] == 50


def test_an_unknown_model_is_refused_only_if_the_server_is_strict(
    client: Client, simulate: Callable[..., Simulator]
) -> None:
    assert client.post("/v1/chat/completions", chat_body() | {"model": "other"}).json()["model"] == "sim"
    with Client(simulate(strict_model=True, model="mine").port) as strict:
        refused = strict.chat()
        assert (refused.status, refused.json()["error"]["param"]) == (404, "model")
        assert strict.post("/v1/chat/completions", chat_body() | {"model": "mine"}).json()["model"] == "mine"


def test_a_key_is_wanted_where_one_is_set(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(api_key="k-1").port) as client:
        assert client.chat().status == 401
        assert client.get("/v1/models", Authorization="Bearer k-2").status == 401
        assert client.get("/v1/models", Authorization="Bearer k-1").status == 200
        assert client.post("/v1/chat/completions", chat_body(), Authorization="Bearer k-1").status == 200
        assert client.get("/health").status == 200


def test_rejected_fields_are_named_one_after_the_other(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(reject=("ignore_eos", "min_tokens")).port) as client:
        first = client.chat(ignore_eos=True, min_tokens=1)
        assert (first.status, first.json()["error"]["param"]) == (400, "ignore_eos")
        assert "ignore_eos" in first.json()["error"]["message"]
        assert client.chat(min_tokens=1).json()["error"]["param"] == "min_tokens"
        assert client.chat().status == 200


def test_a_server_that_is_still_loading_answers_503_and_then_works(simulate: Callable[..., Simulator]) -> None:
    with Client(simulate(fail_first=1.0).port) as client:
        loading = client.get("/health")
        assert (loading.status, loading.headers["retry-after"]) == (503, "1")
        assert client.chat().status == 503
        statuses = [loading.status]
        while statuses[-1] == 503 and len(statuses) < 100_000:
            statuses.append(client.get("/health").status)
        assert statuses[-1] == 200
        assert client.chat().status == 200
