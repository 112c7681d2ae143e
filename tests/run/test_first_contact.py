"""Before the load: what first contact says of a server, and that whatever cannot work is one line and exit code 2."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from run_processes import CHAT, SHORT, Ended, Plan, Runs, free_port

KEYED = "sk-right"
# name of a plan: what its line says
REFUSED = {
    "no host": "no server to test: give --host",
    "two servers": "--llm-simulate and --host are both given",
    "refused": "no server at http://127.0.0.1:9/v1",
    "unknown name": "no-such-host.invalid",
    "no key": "wants an API key: set LOCUST_LLM_API_KEY",
    "wrong key": "does not accept the API key",
    "wrong path": "answers 404",
    "unknown model": "--llm-model gpt-9: the server lists sim",
    "web site": "is this a",
    "no tokenizer": "--llm-tokenizer",
    "no folder": "--llm-out locustfile.py/reports: cannot write there",
    "no folder for the result": "--llm-junit no/such/folder/junit.xml: there is no folder no/such/folder",
    "no authorities": "--llm-ca-file no.pem: No such file or directory",
    "no users": "-u/--users must be at least 1 (got 0)",
    "fewer than no users": "-u/--users must be at least 1 (got -1)",
    "bad length": "--llm-input-tokens",
    "bad JSON": "--llm-extra must be a JSON object",
    "bad number": "--llm-drain must be at least 0",
    "no prompts": "--llm-prompts",
    "bad prompts": "line 2",
    "still loading": "answers 503",
    "key as header": "--llm-header Authorization",
    "refused, two processes": "no server at http://127.0.0.1:9/v1",
    "no key, two processes": "wants an API key: set LOCUST_LLM_API_KEY",
    "bad prompts, two processes": "line 2",
    "no folder, two processes": "--llm-out locustfile.py/reports: cannot write there",
    "unknown model, two processes": "--llm-model gpt-9: the server lists sim",
    "hopeless": "the first 10 exchanges all ended in the same error",
    "hopeless, two processes": "exchanges all ended in the same error",
    "worker cannot write": "LOCUST_LLM_WORKER_OUT locustfile.py/reports/",
}


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    host = ["-H", simulator()]
    keyed = ["-H", simulator(api_key=KEYED)]
    strict = ["-H", simulator(strict_model=True)]
    two = ["--processes", "2"]
    prompts = {"p.jsonl": '{"prompt": "Hello"}\n{"prompt": 7}\n'}
    hopeless = [*keyed, "-u", "4", "-r", "4", "-t", "60s", *SHORT, "--llm-no-preflight", "--llm-model", "sim"]
    run = ["-u", "2", "-r", "2", "--llm-requests", "6", *SHORT]
    return {
        "no host": Plan([]),
        "two servers": Plan([*host, "--llm-simulate"]),
        "refused": Plan(["-H", "http://127.0.0.1:9"]),
        "unknown name": Plan(["-H", "http://no-such-host.invalid"]),
        "no key": Plan(keyed),
        "wrong key": Plan(keyed, env={"LOCUST_LLM_API_KEY": "sk-wrong"}),
        "wrong path": Plan(["-H", simulator() + "/nothing"]),
        "unknown model": Plan([*strict, "--llm-model", "gpt-9"]),
        "web site": Plan(["-H", web_site(), "--llm-model", "x"]),
        "no tokenizer": Plan([*host, "--llm-tokenizer", "./no-tokenizer"]),
        "no folder": Plan([*host, "--llm-out", "locustfile.py/reports"]),
        "no folder for the result": Plan([*host, "--llm-junit", "no/such/folder/junit.xml"]),
        "no authorities": Plan([*host, "--llm-ca-file", "no.pem"]),
        "no users": Plan([*host, "-u", "0"]),
        "fewer than no users": Plan([*host, "-u", "-1"]),
        "bad length": Plan([*host, "--llm-input-tokens", "-5"]),
        "bad JSON": Plan([*host, "--llm-extra", "{"]),
        "bad number": Plan([*host, "--llm-drain", "-1"]),
        "no prompts": Plan([*host, "--llm-prompts", "no.jsonl"]),
        "bad prompts": Plan([*host, "--llm-prompts", "p.jsonl"], files=prompts),
        "still loading": Plan(["-H", simulator(fail_first=600.0)]),
        "key as header": Plan([*host, "--llm-header", "Authorization: Bearer sk-1"]),
        "refused, two processes": Plan(["-H", "http://127.0.0.1:9", *two]),
        "no key, two processes": Plan([*keyed, *two]),
        "bad prompts, two processes": Plan([*host, "--llm-prompts", "p.jsonl", *two], files=prompts),
        "no folder, two processes": Plan([*host, "--llm-out", "locustfile.py/reports", *two]),
        "unknown model, two processes": Plan([*strict, "--llm-model", "gpt-9", *two]),
        "hopeless": Plan(hopeless),
        "hopeless, two processes": Plan([*hopeless, *two]),
        "worker cannot write": Plan([*host, *run, *two], env={"LOCUST_LLM_WORKER_OUT": "locustfile.py/reports"}),
        "good": Plan([*host, *run]),
        "key": Plan([*keyed, *run], env={"LOCUST_LLM_API_KEY": KEYED}),
        "two processes": Plan([*host, *run, *two]),
        "waits": Plan(["--llm-simulate", "--llm-simulate-options", "fail_first=3s", "--llm-wait-ready", "60s", *run]),
        "waits, two processes": Plan(
            ["--llm-simulate", "--llm-simulate-options", "fail_first=3s", "--llm-wait-ready", "60s", *run, *two]
        ),
        "waits for a listener": Plan(["--llm-wait-ready", "5s", "-H", f"http://127.0.0.1:{free_port()}"]),
        "no preflight": Plan([*host, *run, "--llm-no-preflight"]),
        "refuses fields": Plan(["-H", simulator(reject=("ignore_eos", "min_tokens")), *run]),
        "refuses fields later": Plan(
            ["-H", simulator(reject=("ignore_eos", "min_tokens")), *run, "--llm-no-preflight", "--llm-model", "sim"]
        ),
        "lengths": Plan([*host, *run, "--llm-requests", "24", "--llm-input-tokens", "300,80"]),
        "no stream": Plan([*host, *run, "--llm-no-stream"]),
        "no usage": Plan(["-H", simulator(usage="off"), *run]),
        "two targets": Plan([*host, *run], TWO_TARGETS),
    }  # fmt: skip


TWO_TARGETS = (
    CHAT
    + """
from locust_llm import CompletionUser

class Complete(CompletionUser):
    @task
    def complete_it(self):
        self.complete()
"""
)


def web_site() -> str:
    """Start a web server that is no model server; it lives as long as the tests."""

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<!doctype html><html><body>Welcome</body></html>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def errors(ended: Ended) -> list[str]:
    return [line for line in ended.err.splitlines() if line.startswith("locust-llm: error: ")]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_one_line_and_exit_code_2(runs: Runs, name: str) -> None:
    ended = runs[name]
    (line,) = errors(ended)
    assert REFUSED[name] in line
    assert ended.code == 2
    assert "Traceback" not in ended.text
    assert "sk-" not in ended.text


@pytest.mark.parametrize("name", [name for name in REFUSED if "hopeless" not in name and "worker" not in name])
def test_nothing_is_left_behind_by_a_test_that_did_not_start(runs: Runs, name: str) -> None:
    assert runs[name].runs == []


def test_a_run_that_cannot_succeed_stops_soon(runs: Runs) -> None:
    for name in ("hopeless", "hopeless, two processes"):
        run = runs[name].run
        assert set(run.outcomes()) == {"http_status"}
        (start,), (over,) = run.events("test_start"), run.events("test_stop")
        assert over["t"] - start["t"] < 30


def test_first_contact_says_where_what_and_how(runs: Runs) -> None:
    for name in ("good", "two processes"):
        (line,) = re.findall(r"preflight: (.*)", runs[name].text)
        assert re.match(r"http://127\.0\.0\.1:\d+/v1 \(openai-chat\), model sim", line)
        for fact in ("streamed", "tokens from usage", "connect "):
            assert fact in line
        assert runs[name].code == 0


def test_first_contact_is_in_the_log_but_not_in_the_figures(runs: Runs) -> None:
    run = runs["good"].run
    assert len(run.records("preflight")) == 2
    assert runs["good"].aggregated()[0] == len(run.records())
    assert run.card["finished"] == {"ok": len(run.records())}


def test_the_key_of_the_environment_opens_the_door(runs: Runs) -> None:
    assert runs["key"].code == 0
    assert set(runs["key"].run.outcomes()) == {"ok"}


def test_it_waits_until_the_server_can_generate(runs: Runs) -> None:
    for name in ("waits", "waits, two processes"):
        assert "waiting up to 60 s" in runs[name].text
        assert set(runs[name].run.outcomes()) == {"ok"}
        assert runs[name].code == 0


def test_a_server_that_never_comes_up_is_one_line(runs: Runs) -> None:
    (line,) = errors(runs["waits for a listener"])
    assert "waited 5 s" in line
    assert runs["waits for a listener"].code == 2


def test_without_preflight_nothing_is_sent_before_the_load(runs: Runs) -> None:
    run = runs["no preflight"].run
    assert run.records("preflight") == []
    assert set(run.outcomes()) == {"ok"}


def test_refused_fields_are_left_out_before_the_load(runs: Runs) -> None:
    run = runs["refuses fields"].run
    (facts,) = run.card["targets"].values()
    assert set(facts["dropped"]) == {"ignore_eos", "min_tokens"}
    assert set(run.outcomes()) == {"ok"}
    assert "http_status" in {record["outcome"] for record in run.records("preflight")}
    assert runs["refuses fields"].code == 0


def test_fields_refused_during_the_load_fail_no_exchange(runs: Runs) -> None:
    ended = runs["refuses fields later"]
    last = {record["exchange"]: record["outcome"] for record in ended.run.records()}
    assert set(last.values()) == {"ok"}
    assert ended.aggregated() == (len(last), 0)
    assert ended.code == 0


def test_prompts_have_the_length_asked_for_as_the_server_counts(runs: Runs) -> None:
    records = runs["lengths"].run.records()
    assert {record["in_source"] for record in records} == {"usage"}
    asked, got = (sum(record[key] for record in records) for key in ("asked_in", "n_in"))
    assert got == pytest.approx(asked, rel=0.03)
    for record in records:
        assert record["n_in"] == pytest.approx(record["asked_in"], rel=0.06, abs=3)


def test_what_is_not_streamed_or_not_counted_is_said(runs: Runs) -> None:
    assert ", not streamed" in runs["no stream"].text
    assert "no usage: tokens unknown without --llm-tokenizer" in runs["no usage"].text
    assert runs["no stream"].code == runs["no usage"].code == 0


def test_each_target_is_contacted(runs: Runs) -> None:
    ended = runs["two targets"]
    assert len(re.findall("preflight: ", ended.text)) == 2
    assert set(ended.run.card["targets"]) == {
        f"{runs['two targets'].run.card['host']}/v1 openai-{api}" for api in ("chat", "completions")
    }
    assert {record["name"] for record in ended.run.records()} == {"ask", "complete_it"}
