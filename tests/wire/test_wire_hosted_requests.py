"""Requests to hosted APIs, made from one chat of the OpenAI form: bodies and headers as documented."""

from __future__ import annotations

from typing import Any

import pytest

from locust_llm.errors import UsageError
from locust_llm.wire import registry
from locust_llm.wire.api import Call
from locust_llm.wire.azure_openai import AzureOpenAI

APIS = ("anthropic", "openai-responses", "azure-openai", "azure-openai-v1", "gemini", "cohere", "bedrock")
SYSTEM = {"role": "system", "content": "Be brief."}
HELLO = {"role": "user", "content": "hello"}
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}}
JPEG = {"type": "image_url", "image_url": {"url": "https://pictures.example/cat.jpg", "detail": "low"}}
WAV = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
PDF = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}}
WEATHER = {"name": "weather", "description": "Now", "parameters": {"type": "object", "properties": {"at": {}}}}
TOOL = {"type": "function", "function": WEATHER}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"at": "sea"}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "wind"}


def body(api: str, *messages: dict[str, Any], model: str = "m", **call: Any) -> dict[str, Any]:
    return registry.api(api).build_body(Call(model=model, messages=list(messages) or [HELLO], **call))


def path(api: str, model: str = "m", stream: bool = True) -> str:
    return registry.api(api).path(Call(model=model, messages=[HELLO], stream=stream))


FULL: dict[str, Any] = {
    "max_tokens": 9,
    "exact_length": True,
    "extra": {"temperature": 0.5, "top_p": 0.9, "stop": "\n", "metadata": {"user_id": "u"}},
}


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        (
            "anthropic",
            {
                "model": "m", "max_tokens": 9, "system": "Be brief.", "messages": [HELLO], "stream": True,
                "temperature": 0.5, "top_p": 0.9, "stop_sequences": ["\n"], "metadata": {"user_id": "u"},
            },
        ),
        (
            "openai-responses",
            {
                "model": "m", "input": [SYSTEM, HELLO], "max_output_tokens": 9, "ignore_eos": True, "min_tokens": 9,
                "stream": True, "temperature": 0.5, "top_p": 0.9, "stop": "\n", "metadata": {"user_id": "u"},
            },
        ),
        (
            "azure-openai",
            {
                "model": "m", "messages": [SYSTEM, HELLO], "max_tokens": 9, "stream": True,
                "stream_options": {"include_usage": True},
                "temperature": 0.5, "top_p": 0.9, "stop": "\n", "metadata": {"user_id": "u"},
            },
        ),
        (
            "gemini",
            {
                "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
                "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "generationConfig": {"maxOutputTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["\n"]},
                "metadata": {"user_id": "u"},
            },
        ),
        (
            "cohere",
            {
                "model": "m", "messages": [SYSTEM, HELLO], "max_tokens": 9, "stream": True,
                "temperature": 0.5, "p": 0.9, "stop_sequences": ["\n"], "metadata": {"user_id": "u"},
            },
        ),
        (
            "bedrock",
            {
                "messages": [{"role": "user", "content": [{"text": "hello"}]}],
                "system": [{"text": "Be brief."}],
                "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["\n"]},
                "metadata": {"user_id": "u"},
            },
        ),
    ],
)  # fmt: skip
def test_system_length_and_sampling_stand_where_the_api_wants_them(api: str, expected: dict[str, Any]) -> None:
    assert body(api, SYSTEM, HELLO, **FULL) == expected


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        ("openai-responses", {"model": "m", "input": [HELLO], "stream": True}),
        ("azure-openai", {"model": "m", "messages": [HELLO], "stream": True}),
        ("gemini", {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}),
        ("cohere", {"model": "m", "messages": [HELLO], "stream": True}),
        ("bedrock", {"messages": [{"role": "user", "content": [{"text": "hello"}]}]}),
    ],
)
def test_the_least_body_has_no_field_that_nobody_asked_for(api: str, expected: dict[str, Any]) -> None:
    assert body(api, usage="off") == expected
    if api != "openai-responses":
        prompt = registry.api(api).build_body(Call(model="m", prompt="hello", usage="off"))
        assert prompt == expected


def test_a_prompt_is_the_input_of_a_response_as_it_is() -> None:
    assert registry.api("openai-responses").build_body(Call(model="m", prompt="hello"))["input"] == "hello"


def test_anthropic_wants_a_longest_answer_and_says_how_to_give_it() -> None:
    for api in ("anthropic", "bedrock-invoke"):
        with pytest.raises(UsageError, match=f"--llm-api {api} .*--llm-max-tokens"):
            body(api, model="anthropic.claude")
        assert body(api, model="anthropic.claude", extra={"max_tokens": 7})["max_tokens"] == 7


@pytest.mark.parametrize("api", APIS)
def test_several_prompts_are_a_usage_error_with_the_remedy(api: str) -> None:
    with pytest.raises(UsageError, match="openai-completions"):
        registry.api(api).build_body(Call(model="m", prompt=["a", "b"], max_tokens=5))


def test_several_system_messages_and_parts_of_them_are_all_kept() -> None:
    cached = {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}
    developer = {"role": "developer", "content": [cached]}
    texts = [{"type": "text", "text": "Be brief."}, cached]
    assert body("anthropic", SYSTEM, developer, HELLO, max_tokens=5)["system"] == texts
    assert body("anthropic", developer, HELLO, max_tokens=5)["system"] == [cached]
    assert body("gemini", SYSTEM, developer, HELLO)["systemInstruction"] == {
        "parts": [{"text": "Be brief."}, {"text": "Long."}]
    }
    assert body("bedrock", SYSTEM, developer, HELLO)["system"] == [{"text": "Be brief."}, {"text": "Long."}]


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "see"}, *parts]}


def test_media_go_in_the_form_of_the_api() -> None:
    assert body("anthropic", user(PNG, JPEG, PDF), max_tokens=5)["messages"][0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}},
        {"type": "image", "source": {"type": "url", "url": "https://pictures.example/cat.jpg"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
    ]
    assert body("openai-responses", user(PNG, JPEG, WAV, PDF))["input"][0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0="},
        {"type": "input_image", "image_url": "https://pictures.example/cat.jpg", "detail": "low"},
        WAV,
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
    ]
    assert body("gemini", user(PNG, JPEG, WAV))["contents"][0]["parts"] == [
        {"text": "see"},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}},
        {"fileData": {"fileUri": "https://pictures.example/cat.jpg"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
    ]
    assert body("bedrock", user(PNG, WAV, PDF))["messages"][0]["content"] == [
        {"text": "see"},
        {"image": {"format": "png", "source": {"bytes": "iVBORw0="}}},
        {"audio": {"format": "wav", "source": {"bytes": "UklGRg=="}}},
        {"document": {"name": "a.pdf", "format": "pdf", "source": {"bytes": "JVBERg=="}}},
    ]
    for api in ("azure-openai", "cohere"):
        assert body(api, user(PNG, JPEG, WAV))["messages"] == [user(PNG, JPEG, WAV)]


def test_what_has_the_form_of_the_api_already_passes_through() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "u"}}
    assert body("anthropic", user(image), max_tokens=5)["messages"] == [user(image)]
    own = {"role": "user", "parts": [{"text": "hello"}, {"fileData": {"fileUri": "u", "mimeType": "video/mp4"}}]}
    assert body("gemini", own)["contents"] == [own]
    point = {"role": "user", "content": [{"text": "hello"}, {"cachePoint": {"type": "default"}}]}
    assert body("bedrock", point)["messages"] == [point]
    item = {"type": "item_reference", "id": "i"}
    assert body("openai-responses", item, HELLO)["input"] == [item, HELLO]


def test_tools_and_their_turns_go_in_the_form_of_the_api() -> None:
    schema = WEATHER["parameters"]
    turns = (HELLO, CALLED, RESULT)
    extra = {"tools": [TOOL]}

    anthropic = body("anthropic", *turns, max_tokens=5, extra=extra)
    assert anthropic["tools"] == [{"name": "weather", "description": "Now", "input_schema": schema}]
    assert anthropic["messages"][1:] == [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"at": "sea"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "wind"}]},
    ]
    responses = body("openai-responses", *turns, extra=extra)
    assert responses["tools"] == [{"type": "function", **WEATHER}]
    assert responses["input"][1:] == [
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"at": "sea"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "wind"},
    ]
    gemini = body("gemini", *turns, extra=extra)
    assert gemini["tools"] == [{"functionDeclarations": [WEATHER]}]
    assert gemini["contents"][1:] == [
        {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"at": "sea"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"result": "wind"}}}]},
    ]
    bedrock = body("bedrock", *turns, extra=extra)
    assert bedrock["toolConfig"] == {
        "tools": [{"toolSpec": {"name": "weather", "description": "Now", "inputSchema": {"json": schema}}}]
    }
    assert "tools" not in bedrock
    assert bedrock["messages"][1:] == [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"at": "sea"}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "wind"}]}}]},
    ]
    for api in ("azure-openai", "cohere"):
        same = body(api, *turns, extra=extra)
        assert (same["messages"], same["tools"]) == (list(turns), [TOOL])


@pytest.mark.parametrize("api", ["anthropic", "openai-responses", "gemini", "bedrock"])
def test_tools_of_the_apis_own_form_pass_through(api: str) -> None:
    own: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search", "googleSearch": {}}
    built = body(api, max_tokens=5, extra={"tools": [own]})
    assert (built["toolConfig"] if api == "bedrock" else built)["tools"] == [own]


def test_fields_of_the_user_win_inside_the_inner_object_too() -> None:
    inner = {"generationConfig": {"maxOutputTokens": 3, "thinkingConfig": {"thinkingBudget": 0}}}
    assert body("gemini", max_tokens=9, extra=inner)["generationConfig"] == inner["generationConfig"]
    assert body("bedrock", max_tokens=9, extra={"inferenceConfig": {"maxTokens": 3}})["inferenceConfig"] == {
        "maxTokens": 3
    }
    assert body("openai-responses", max_tokens=9, extra={"max_tokens": 3})["max_output_tokens"] == 3


def test_invoke_speaks_the_form_of_the_models_family() -> None:
    claude = body("bedrock-invoke", SYSTEM, HELLO, model="us.anthropic.claude-x-v1:0", max_tokens=9)
    assert claude == {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [HELLO],
    }
    nova = body("bedrock-invoke", model="amazon.nova-lite-v1:0", max_tokens=9)
    assert nova == {
        "schemaVersion": "messages-v1",
        "messages": [{"role": "user", "content": [{"text": "hello"}]}],
        "inferenceConfig": {"maxTokens": 9},
    }
    assert body("bedrock-invoke", model="openai.gpt-oss-20b-1:0", max_tokens=9, extra={"temperature": 0}) == {
        "messages": [HELLO],
        "max_tokens": 9,
        "temperature": 0,
    }
    with pytest.raises(UsageError, match="--llm-api bedrock takes all"):
        body("bedrock-invoke", model="meta.llama3-8b-instruct-v1:0", max_tokens=9)


@pytest.mark.parametrize(
    ("api", "model", "streamed", "whole"),
    [
        ("anthropic", "m", "/v1/messages", "/v1/messages"),
        ("openai-responses", "m", "/v1/responses", "/v1/responses"),
        ("azure-openai-v1", "gpt 4o", "/openai/v1/chat/completions", "/openai/v1/chat/completions"),
        ("cohere", "m", "/v2/chat", "/v2/chat"),
        (
            "azure-openai",
            "gpt 4o",
            "/openai/deployments/gpt%204o/chat/completions?api-version=2024-10-21",
            "/openai/deployments/gpt%204o/chat/completions?api-version=2024-10-21",
        ),
        (
            "gemini",
            "gemini-x",
            "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
            "/v1beta/models/gemini-x:generateContent",
        ),
        (
            "gemini",
            "tunedModels/mine",
            "/v1beta/tunedModels/mine:streamGenerateContent?alt=sse",
            "/v1beta/tunedModels/mine:generateContent",
        ),
        ("bedrock", "us.anthropic.c-v1:0", "/model/us.anthropic.c-v1%3A0/converse-stream", "/model/us.anthropic.c-v1%3A0/converse"),  # noqa: E501
        (
            "bedrock-invoke",
            "arn:aws:bedrock:x:1:inference-profile/p",
            "/model/arn%3Aaws%3Abedrock%3Ax%3A1%3Ainference-profile%2Fp/invoke-with-response-stream",
            "/model/arn%3Aaws%3Abedrock%3Ax%3A1%3Ainference-profile%2Fp/invoke",
        ),
    ],
)  # fmt: skip
def test_endpoints(api: str, model: str, streamed: str, whole: str) -> None:
    root = registry.api(api).root
    assert root + path(api, model) == streamed
    assert root + path(api, model, stream=False) == whole


def test_another_version_of_azure_is_an_api_of_ones_own() -> None:
    preview = AzureOpenAI("2025-04-01-preview", name="azure-preview")
    assert preview.name == "azure-preview"
    assert preview.path(Call(model="m")).endswith("?api-version=2025-04-01-preview")


@pytest.mark.parametrize(
    ("api", "key", "expected"),
    [
        ("anthropic", "k", [("x-api-key", "k"), ("anthropic-version", "2023-06-01")]),
        ("anthropic", "", [("anthropic-version", "2023-06-01")]),
        ("openai-responses", "k", [("Authorization", "Bearer k")]),
        ("azure-openai", "k", [("api-key", "k")]),
        ("azure-openai-v1", "k", [("api-key", "k")]),
        ("gemini", "AIzaK", [("x-goog-api-key", "AIzaK")]),
        ("gemini", "ya29.token", [("Authorization", "Bearer ya29.token")]),
        ("cohere", "k", [("Authorization", "Bearer k")]),
        ("bedrock", "k", [("Authorization", "Bearer k")]),
        ("bedrock", "", []),
        ("gemini", "", []),
        ("azure-openai", "", []),
    ],
)
def test_the_key_stands_in_the_header_of_the_api(api: str, key: str, expected: list[tuple[str, str]]) -> None:
    assert registry.api(api).headers(key) == expected


@pytest.mark.parametrize(("name", "same"), [("nim", "openai-chat"), ("litellm", "openai-chat"), ("vertex", "gemini")])
def test_servers_that_speak_an_api_of_another_name_are_found_by_their_own(name: str, same: str) -> None:
    assert registry.api(name) is registry.api(same)
    assert name in registry.names()
