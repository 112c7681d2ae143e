"""Request bodies of TGI, SGLang, llama.cpp, Ollama and Replicate: exactly what the server's own documentation names."""

from __future__ import annotations

from typing import Any

import pytest

from locust_llm.errors import UsageError
from locust_llm.wire import registry
from locust_llm.wire.api import Call


def body(api: str, model: str = "m", **call: Any) -> dict[str, Any]:
    return registry.api(api).build_body(Call(model=model, **{"prompt": "hello", **call}))


def path(api: str, model: str = "m", **call: Any) -> str:
    return registry.api(api).path(Call(model=model, prompt="x", **call))


FULL: dict[str, Any] = {"max_tokens": 9, "exact_length": True, "extra": {"temperature": 0.5, "stop": "\n", "seed": 1}}


@pytest.mark.parametrize(
    ("api", "least", "full"),
    [
        (
            "tgi",
            {"inputs": "hello", "parameters": {"details": True}, "stream": True},
            {
                "inputs": "hello",
                "parameters": {"details": True, "max_new_tokens": 9, "temperature": 0.5, "stop": ["\n"], "seed": 1},
                "stream": True,
            },
        ),
        (
            "sglang",
            {"text": "hello", "sampling_params": {}, "stream": True},
            {
                "text": "hello",
                "sampling_params": {
                    "max_new_tokens": 9, "ignore_eos": True, "temperature": 0.5, "stop": ["\n"], "sampling_seed": 1,
                },
                "stream": True,
            },
        ),
        (
            "llamacpp",
            {"model": "m", "prompt": "hello", "stream": True},
            {
                "model": "m", "prompt": "hello", "n_predict": 9, "ignore_eos": True, "stream": True,
                "temperature": 0.5, "stop": ["\n"], "seed": 1,
            },
        ),
        (
            "ollama",
            {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True},
            {
                "model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True,
                "options": {"num_predict": 9, "temperature": 0.5, "stop": ["\n"], "seed": 1},
            },
        ),
        (
            "ollama-generate",
            {"model": "m", "prompt": "hello", "stream": True},
            {
                "model": "m", "prompt": "hello", "stream": True,
                "options": {"num_predict": 9, "temperature": 0.5, "stop": ["\n"], "seed": 1},
            },
        ),
        (
            "replicate",
            {"version": "m", "input": {"prompt": "hello"}, "stream": True},
            {
                "version": "m",
                "input": {
                    "prompt": "hello", "max_tokens": 9, "min_tokens": 9, "temperature": 0.5, "stop": "\n", "seed": 1,
                },
                "stream": True,
            },
        ),
    ],
)  # fmt: skip
def test_the_least_body_and_one_with_everything(api: str, least: dict[str, Any], full: dict[str, Any]) -> None:
    assert body(api) == least
    assert body(api, **FULL) == full
    assert body(api, stream=False)["stream"] is False


@pytest.mark.parametrize(
    ("api", "stream", "whole"),
    [
        ("tgi", "/generate_stream", "/generate"),
        ("sglang", "/generate", "/generate"),
        ("llamacpp", "/completion", "/completion"),
        ("ollama", "/api/chat", "/api/chat"),
        ("ollama-generate", "/api/generate", "/api/generate"),
        ("replicate", "/predictions", "/predictions"),
    ],
)
def test_endpoints(api: str, stream: str, whole: str) -> None:
    assert (path(api), path(api, stream=False)) == (stream, whole)
    assert registry.api(api).root == ("/v1" if api == "replicate" else "")


@pytest.mark.parametrize(
    ("api", "inner"),
    [("tgi", "parameters"), ("sglang", "sampling_params"), ("ollama", "options"), ("replicate", "input")],
)
def test_the_servers_own_object_is_merged_last_and_other_fields_stay_outside(api: str, inner: str) -> None:
    extra = {"top_p": 0.1, inner: {"top_p": 0.9, "new": 1}}
    made = body(api, max_tokens=4, extra=extra)[inner]
    assert (made["top_p"], made["new"]) == (0.9, 1)
    assert 4 in made.values()


def test_fields_that_are_no_sampling_parameters_stay_where_the_server_wants_them() -> None:
    assert body("sglang", extra={"lora_path": "a", "return_logprob": True})["lora_path"] == "a"
    assert body("ollama", extra={"keep_alive": "5m", "think": False})["think"] is False
    assert body("replicate", extra={"webhook": "https://h.example"})["webhook"] == "https://h.example"
    assert body("tgi", extra={"adapter_id": "a"})["parameters"]["adapter_id"] == "a"
    assert body("llamacpp", extra={"cache_prompt": False, "max_tokens": 3, "repetition_penalty": 1.1}) == {
        "model": "m", "prompt": "hello", "stream": True, "cache_prompt": False, "n_predict": 3, "repeat_penalty": 1.1,
    }  # fmt: skip


def test_tgi_takes_no_temperature_0_so_it_is_asked_for_greedy_decoding() -> None:
    parameters = body("tgi", extra={"temperature": 0})["parameters"]
    assert parameters == {"details": True, "do_sample": False}


def test_several_prompts_are_a_batch_where_the_server_takes_one() -> None:
    assert body("sglang", prompt=["a", "b"])["text"] == ["a", "b"]
    assert body("llamacpp", prompt=["a", "b"])["prompt"] == ["a", "b"]
    for api in ("tgi", "ollama", "ollama-generate", "replicate"):
        with pytest.raises(UsageError, match="openai-completions"):
            body(api, prompt=["a", "b"])


def test_messages_go_to_ollama_and_no_other() -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert body("ollama", prompt=None, messages=messages)["messages"] == messages
    for api in ("tgi", "sglang", "llamacpp", "ollama-generate", "replicate"):
        with pytest.raises(UsageError, match="openai-chat"):
            body(api, prompt=None, messages=messages)


def test_ollama_gets_images_tools_and_tool_results_in_its_own_form() -> None:
    messages = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is "},
                {"type": "text", "text": "this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            ],
        },
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"q": 1}'}}],
        },
        {"role": "tool", "content": "4", "tool_name": "f"},
    ]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    made = body("ollama", prompt=None, messages=messages, extra={"tools": tools})
    assert made["tools"] == tools
    assert made["messages"] == [
        {"role": "user", "content": "what is this?", "images": ["QUJD"]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"q": 1}}}],
        },
        {"role": "tool", "content": "4", "tool_name": "f"},
    ]
    by_address = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://h.example/a.png"}}]}]
    with pytest.raises(UsageError, match="base64"):
        body("ollama", prompt=None, messages=by_address)


def test_a_container_of_replicate_takes_the_input_alone_and_streams_by_the_accept_header() -> None:
    assert body("cog", max_tokens=3, extra={"top_k": 1}) == {"input": {"prompt": "hello", "max_tokens": 3, "top_k": 1}}
    assert path("cog") == "/predictions"
    assert registry.api("cog").root == ""
    assert registry.api("cog").headers("k") == [("Authorization", "Bearer k"), ("Accept", "text/event-stream")]


def test_a_deployment_of_replicate_has_a_path_of_its_own_and_no_version() -> None:
    assert path("replicate", model="deployments/me/llama") == "/deployments/me/llama/predictions"
    assert "version" not in body("replicate", model="deployments/me/llama")


def test_the_other_kind_of_a_server_is_its_own_where_it_has_one() -> None:
    def other(name: str, kind: str) -> str:
        return registry.of_kind(registry.api(name), kind).name

    assert other("ollama", "COMPLETION") == "ollama-generate"
    assert other("ollama-generate", "CHAT") == "ollama"
    assert other("tgi", "CHAT") == other("openai-completions", "CHAT") == "openai-chat"
    assert other("openai-chat", "COMPLETION") == "openai-completions"
    assert other("tgi", "") == other("tgi", "COMPLETION") == "tgi"
