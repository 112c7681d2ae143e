"""An API registered from a locustfile: known to the options of plain Locust and of ``locust-llm run``, on all nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from run_processes import Plan, Runs

BY_PATHS = """
from locust import task
from locust_llm import CompletionUser, JsonPathApi, register_api

register_api(
    JsonPathApi(
        "mine", "/v9/write", text="out.words", finish="out.why", output_tokens="n.out", input_tokens="n.in",
        build={"ask": "{prompt}", "most": "{max_tokens}", "who": "{model}"}, key_header="X-Key",
    )
)

class Write(CompletionUser):
    @task
    def write(self):
        reply = self.complete("Say something.", max_tokens=3, mood="dry")
        assert reply.text == "one two three", reply.text
"""

BY_OBJECT = """
from locust import task
from locust_llm import ChatUser, register_api
from locust_llm.wire.custom import JsonPathApi

class Mine:
    name = "mine"
    request_type = "CHAT"
    root = ""
    models_path = None
    like = JsonPathApi("like", "/v9/write", text="out.words", finish="out.why", output_tokens="n.out")

    def path(self, call):
        return "/v9/write"

    def build_body(self, call):
        return {"ask": call.messages[0]["content"], "most": call.max_tokens, "who": call.model, "mood": "dry"}

    def headers(self, key):
        return []

    def decoder(self, stream):
        return self.like.decoder(stream)

register_api(Mine())

class Talk(ChatUser):
    api = "mine"

    @task
    def talk(self):
        self.chat("Say something.", max_tokens=3)
"""


class Handler(BaseHTTPRequestHandler):
    """A server that speaks no known API."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v9/write" or set(asked) - {"ask", "most", "who", "mood"} or asked["who"] != "poet":
            self.send_error(400, f"unknown: {self.path} {sorted(asked)}")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for n, word in enumerate(["one", " two", " three"], 1):
            self._event({"out": {"words": word, "why": None}, "n": {"out": n, "in": 4}})
        self._event({"out": {"why": "length"}, "n": {"out": 3, "in": 4}})
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _event(self, value: object) -> None:
        data = b"data: %b\n\n" % json.dumps(value).encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)  # as long as the tests
    http.daemon_threads = True
    Thread(target=http.serve_forever, daemon=True).start()
    server = f"http://127.0.0.1:{http.server_port}"
    load = ["-H", server, "-u", "2", "-r", "2", "--llm-requests", "8", "--llm-model", "poet"]
    own = [*load, "--llm-api", "mine"]
    wrapped = ["locust_llm.cli"]
    return {
        "paths": Plan(own, BY_PATHS),
        "locust-llm run": Plan(own, BY_PATHS, program=[*wrapped, "run"]),
        "object": Plan(load, BY_OBJECT),
        "two processes": Plan([*own, "--processes", "2"], BY_PATHS),
        "unknown": Plan([*load, "--llm-api", "theirs"], BY_PATHS),
        "unknown to run": Plan([*load, "--llm-api", "theirs"], BY_PATHS, program=[*wrapped, "run"]),
        "no model": Plan(["-H", server, "--llm-api", "mine"], BY_PATHS),
    }


@pytest.mark.parametrize("name", ["paths", "locust-llm run", "object", "two processes"])
def test_exchanges_with_an_api_of_ones_own_are_measured_like_any_other(runs: Runs, name: str) -> None:
    ended = runs[name]
    records = ended.run.records()
    assert ended.code == 0, ended.text
    assert len(records) == 8
    assert {(r["api"], r["outcome"], r["finish_reason"]) for r in records} == {("mine", "ok", "length")}
    assert {(r["n_out"], r["out_source"]) for r in records} == {(3, "usage")}
    assert all(r["kind_names"] == ["content", "finish"] and r["kind_runs"] == [3, 1] for r in records)
    assert ended.aggregated() == (8, 0)


@pytest.mark.parametrize("name", ["unknown", "unknown to run"])
def test_a_name_that_nobody_registered_is_one_clear_line(runs: Runs, name: str) -> None:
    ended = runs[name]
    assert ended.code != 0
    assert "Traceback" not in ended.text
    assert "--llm-api" in ended.text
    assert "mine" in ended.text  # what can be given instead


def test_a_server_that_lists_no_models_needs_a_name_for_the_records(runs: Runs) -> None:
    ended = runs["no model"]
    assert ended.code != 0
    assert "Traceback" not in ended.text
    assert "--llm-api mine lists no models; name one with --llm-model" in ended.text
