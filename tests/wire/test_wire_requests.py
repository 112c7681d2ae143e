"""Request bodies hold what was meant and nothing else; ``--llm-api`` names are checked."""

from __future__ import annotations

from typing import Any

import pytest

from locust_llm.errors import UsageError
from locust_llm.wire import registry
from locust_llm.wire.api import Call

HELLO = [{"role": "user", "content": "hello"}]


def chat(**call: Any) -> dict[str, Any]:
    return registry.api("openai-chat").build_body(Call(model="m", messages=HELLO, **call))


def completion(**call: Any) -> dict[str, Any]:
    return registry.api("openai-completions").build_body(Call(model="m", prompt="hello", **call))


def test_the_least_body_has_no_field_that_nobody_asked_for() -> None:
    assert chat(usage="off") == {"model": "m", "messages": HELLO, "stream": True}
    assert completion(stream=False) == {"model": "m", "prompt": "hello", "stream": False}


@pytest.mark.parametrize(
    ("usage", "options"),
    [
        ("final", {"include_usage": True}),
        ("continuous", {"include_usage": True, "continuous_usage_stats": True}),
        ("off", None),
    ],
)
def test_usage_is_asked_for_by_its_mode_and_only_of_streams(usage: Any, options: Any) -> None:
    for build in (chat, completion):
        assert build(usage=usage).get("stream_options") == options
        assert "stream_options" not in build(usage=usage, stream=False)


def test_an_exact_length_asks_for_neither_more_nor_less() -> None:
    for build in (chat, completion):
        body = build(max_tokens=150, exact_length=True)
        assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (150, 150, True)
        assert {"ignore_eos", "min_tokens"}.isdisjoint(build(max_tokens=150))
        assert {"max_tokens", "ignore_eos", "min_tokens"}.isdisjoint(build(exact_length=True))


def test_extra_fields_are_merged_last_and_win() -> None:
    body = chat(max_tokens=10, extra={"max_tokens": 5, "temperature": 0, "stream_options": None})
    assert (body["max_tokens"], body["temperature"], body["stream_options"]) == (5, 0, None)


def test_a_prompt_becomes_a_message_and_several_prompts_a_batch() -> None:
    assert registry.api("openai-chat").build_body(Call(model="m", prompt="hello"))["messages"] == HELLO
    assert registry.api("openai-completions").build_body(Call(model="m", prompt=["a", "b"]))["prompt"] == ["a", "b"]


def test_a_call_that_does_not_fit_the_api_is_a_usage_error_with_the_remedy() -> None:
    with pytest.raises(UsageError, match="openai-completions"):
        registry.api("openai-chat").build_body(Call(model="m", prompt=["a", "b"]))
    with pytest.raises(UsageError, match="openai-chat"):
        registry.api("openai-completions").build_body(Call(model="m", messages=HELLO))


def test_an_unknown_api_names_the_option_and_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match=r'^--llm-api must be one of openai-chat, openai-completions, .* \(got "gpt"\)$'
    ):
        registry.api("gpt")


@pytest.mark.parametrize("name", registry.names())
def test_every_name_of_the_registry_is_an_api(name: str) -> None:
    api = registry.api(name)
    assert registry.api(api.name) is api
    assert api.request_type in ("CHAT", "COMPLETION")
    assert api.root == "" or (api.root.startswith("/") and not api.root.endswith("/"))
    for stream in (True, False):
        assert api.path(Call(model="m", stream=stream)).startswith("/")
        assert api.decoder(stream) is not api.decoder(stream)
    assert not any("secret" in value for _, value in api.headers(""))
    assert any("secret" in value for _, value in api.headers("secret"))


def test_the_openai_endpoints() -> None:
    kinds = {
        name: (registry.api(name).request_type, registry.api(name).path(Call(model="m")))
        for name in ("openai-chat", "openai-completions")
    }
    assert kinds == {
        "openai-chat": ("CHAT", "/chat/completions"),
        "openai-completions": ("COMPLETION", "/completions"),
    }
