"""What Prometheus is told: that its own parser reads it, that names are the documented ones, and that nothing falls."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask, redirect
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from snapshots import snapshot

from locust_llm.live import prometheus
from locust_llm.live.families import MOST_ROWS, TIMINGS
from locust_llm.live.prometheus import Scrape, attach, text_of
from locust_llm.live.tally import Tally

DOCS = (Path(__file__).parents[2] / "docs" / "live.md").read_text()
CHAT = ("chat", "openai-chat", "sim")


def tally(ttft_us: Iterable[float] = (50_000,), **numbers: float) -> Tally:
    own = Tally()
    for value in ttft_us:
        for figure in {timing.figure for timing in TIMINGS}:
            own.of(figure).add(value)
        own.of("output_tokens").add(150)
        own.of("input_tokens").add(500)
        own.add("ok")
    own.add("tokens_output", 150.0)
    own.add("knows_output")
    for name, number in numbers.items():
        own.add(name, number)
    return own


def desk(names: dict[Any, Tally] | None, **more: Any) -> Any:
    board = None if names is None else SimpleNamespace(names=names)
    before: dict[str, Any] = {"state": "ready", "version": 0, "verdict": {"state": "unknown", "reasons": []}}
    return SimpleNamespace(board=board, snapshot=lambda since: before if names is None else snapshot(**more))


def samples(scrape: Scrape) -> dict[tuple[Any, ...], float]:
    """Return what a scraper reads, by name and labels."""
    encode, _ = choose_encoder("")
    text = text_of(scrape.collect(), encode).decode()
    return {
        (s.name, *sorted(s.labels.items())): s.value for family in parse_text(text) for s in family.samples
    }  # fmt: skip


def of(scrape: Scrape, metric: str, **labels: str) -> float:
    found = [v for (n, *given), v in samples(scrape).items() if n == metric and labels.items() <= dict(given).items()]
    (value,) = found
    return value


def test_both_formats_are_read_by_the_parsers_of_the_client_library() -> None:
    names = {CHAT: tally(), ('a "b"\n\\', "tgi", ""): tally()}
    errors = [{"kind": 'x "y"\n', "count": 2}]
    scrape = Scrape(desk(names, errors=errors, workers=[{"state": "lost"}]))
    for accept, parse in (("", parse_text), ("application/openmetrics-text; version=1.0.0", parse_openmetrics)):
        encode, content_type = choose_encoder(accept)
        text = text_of(scrape.collect(), encode).decode()
        assert ("openmetrics" in content_type) == text.endswith("# EOF\n")
        found = {family.name: family for family in parse(text)}
        assert len(found) == text.count("# TYPE")
        labels = {sample.labels["name"] for sample in found["locust_llm_itl_seconds"].samples}
        assert labels == {"chat", 'a "b"\n\\'}


def test_before_the_first_run_there_are_names_and_no_figures() -> None:
    assert {key[0] for key in samples(Scrape(desk(None)))} == {"locust_llm_state", "locust_llm_client"}


def test_buckets_count_what_is_not_above_their_bound() -> None:
    scrape = Scrape(desk({CHAT: tally((9_000, 15_000, 30_000, 200_000_000))}))
    name = "gen_ai_client_operation_duration_seconds"
    assert of(scrape, f"{name}_bucket", le="0.01") == 1
    assert of(scrape, f"{name}_bucket", le="0.02") == 2
    assert of(scrape, f"{name}_bucket", le="0.04") == 3
    assert of(scrape, f"{name}_bucket", le="81.92") == 3
    assert of(scrape, f"{name}_bucket", le="+Inf") == of(scrape, f"{name}_count") == 4
    assert of(scrape, f"{name}_sum") == pytest.approx(200.054)
    assert of(scrape, "gen_ai_client_token_usage_bucket", gen_ai_token_type="output", le="256.0") == 4
    assert of(scrape, "gen_ai_client_token_usage_bucket", gen_ai_token_type="output", le="64.0") == 0


@pytest.mark.parametrize(
    ("api", "operation", "provider"),
    [
        ("openai-chat", "chat", "openai"),
        ("litellm", "chat", "openai"),
        ("openai-completions", "text_completion", "openai"),
        ("gemini", "generate_content", "gcp.gen_ai"),
        ("bedrock", "chat", "aws.bedrock"),
        ("tgi", "text_completion", "tgi"),
        ("my-own", "chat", "my-own"),
    ],
)
def test_labels_are_those_of_the_conventions(api: str, operation: str, provider: str) -> None:
    scrape = Scrape(desk({("chat", api, "sim"): tally()}))
    wanted = {"gen_ai_operation_name": operation, "gen_ai_provider_name": provider, "gen_ai_request_model": "sim"}
    assert of(scrape, "gen_ai_server_time_to_first_token_seconds_count", **wanted) == 1


def test_what_is_taken_back_from_a_stream_that_failed_makes_no_series_fall() -> None:
    names = {CHAT: tally((50_000, 60_000))}
    scrape = Scrape(desk(names))
    before = samples(scrape)
    names[CHAT].of("ttft").add_provisional(60_000, -1)
    after = samples(scrape)
    assert all(after[key] >= value for key, value in before.items())
    names[CHAT].of("ttft").add(70_000)
    names[CHAT].of("ttft").add(70_000)
    assert of(scrape, "gen_ai_server_time_to_first_token_seconds_count") == 3


def test_a_new_run_and_a_reset_begin_at_nought() -> None:
    state: dict[str, Any] = {"run": "a", "epoch": 0}
    one = SimpleNamespace(board=SimpleNamespace(names={CHAT: tally((1, 2, 3))}), snapshot=lambda since: state)
    scrape = Scrape(one)  # type: ignore[arg-type]
    assert of(scrape, "locust_llm_exchanges_total", outcome="ok") == 3
    one.board = SimpleNamespace(names={CHAT: tally((1,))})
    assert of(scrape, "locust_llm_exchanges_total", outcome="ok") == 3
    state["epoch"] = 1
    assert of(scrape, "locust_llm_exchanges_total", outcome="ok") == 1


def test_names_made_by_a_program_do_not_make_series_without_end() -> None:
    names = {(f"n{i}", "openai-chat", "sim"): tally() for i in range(MOST_ROWS + 20)}
    scrape = Scrape(desk(names))
    assert of(scrape, "locust_llm_exchanges_total", name="n0") == 1
    assert of(scrape, "locust_llm_exchanges_total", name="other", outcome="ok") == 20
    found = samples(scrape)
    assert len({dict(key[1:])["name"] for key in found if key[0] == "locust_llm_itl_seconds_count"}) == MOST_ROWS + 1
    assert sum(v for key, v in found.items() if key[0] == "locust_llm_itl_seconds_count") == MOST_ROWS + 20


def test_the_document_has_every_metric_and_no_other() -> None:
    scrape = Scrape(desk({CHAT: tally()}, errors=[{"kind": "x", "count": 1}], workers=[{"state": "running"}],
                         objectives=[{"text": "ttft:p95<=1s", "state": "pass"}]))  # fmt: skip
    found = {re.sub(r"_(bucket|sum|count)$", "", key[0]) for key in samples(scrape)}
    table = DOCS[DOCS.index("| metric |") :].splitlines()
    named = {name for line in table if line.startswith("| `") for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert found == named
    theirs = {name for name in found if name.startswith("gen_ai_")}
    assert theirs == {re.sub(r"\.", "_", name) + ("" if "usage" in name else "_seconds")
                      for name in re.findall(r"`(gen_ai\.[a-z_.]+)`", DOCS)}  # fmt: skip


class TestAccess:
    def app(self, web_login: bool, monkeypatch: pytest.MonkeyPatch, token: str = "") -> Any:
        monkeypatch.setenv(prometheus.TOKEN, token)
        app = Flask("test")
        closed = web_login

        def guard(view: Any) -> Any:
            return (lambda: redirect("/login")) if closed else view

        app.add_url_rule("/perf/", "locust.index", lambda: "")
        web_ui = SimpleNamespace(app=app, web_login=web_login, auth_required_if_enabled=guard)
        attach(web_ui, desk({CHAT: tally()}))
        return app.test_client()

    def test_it_is_open_below_the_base_path_as_locusts_pages_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client = self.app(False, monkeypatch)
        answer = client.get("/perf/llm/metrics")
        assert answer.status_code == 200
        assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
        assert client.get("/llm/metrics").status_code == 404
        assert client.post("/perf/llm/metrics").status_code == 405

    def test_with_a_login_a_scraper_needs_the_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client = self.app(True, monkeypatch, "sekret")
        refused = client.get("/perf/llm/metrics")
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert prometheus.TOKEN in refused.text
        for wrong in ("Bearer", "Bearer x", "Basic sekret", "sekret", "Bearer é"):
            assert client.get("/perf/llm/metrics", headers={"Authorization": wrong}).status_code == 401
        assert client.get("/perf/llm/metrics", headers={"Authorization": "bearer sekret"}).status_code == 200

    def test_scripts_of_other_sites_get_no_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answer = self.app(False, monkeypatch).get("/perf/llm/metrics", headers={"Origin": "http://evil.example"})
        assert answer.status_code == 403
        assert "locust_llm" not in answer.text

    def test_without_a_token_no_word_opens_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client = self.app(True, monkeypatch)
        for word in ("Bearer", "Bearer ", "Bearer x"):
            assert client.get("/perf/llm/metrics", headers={"Authorization": word}).status_code == 401


def test_the_loop_has_its_turn_while_a_long_answer_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []
    monkeypatch.setattr(prometheus.gevent, "sleep", turns.append)
    names = {(f"n{i}", "openai-chat", "sim"): tally() for i in range(20)}
    encode, _ = choose_encoder("")
    text = text_of(Scrape(desk(names)).collect(), encode)
    assert len(turns) > text.count(b"\n") / prometheus._PIECE
