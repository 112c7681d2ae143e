"""A key is in no output, no file, no page and no process list, whoever repeats it."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from run_pages import Page, page
from run_processes import CHAT, SHORT, SPAWNED, Live, Plan, Runs

KEY = "sk-SECRET-0123456789"
TENANT = "tenant-SECRET-9876"
ENV = {"LOCUST_LLM_API_KEY": KEY, "TENANT": TENANT}
LITERAL = (
    CHAT
    + f"""
    headers = {{"Authorization": "Bearer {KEY}"}}
"""
)

TOLD = """
import os
from locust import task
from locust_llm import ChatUser

class Chat(ChatUser):
    @task
    def ask(self):
        with self.chat(catch_response=True) as reply:
            reply.failure("refused: " + os.environ["LOCUST_LLM_API_KEY"])
"""


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    keyed = ["-H", simulator(api_key=KEY), *SHORT, "--llm-header", "X-Tenant: env:TENANT"]
    load = ["-u", "2", "-r", "2", "--llm-requests", "6"]
    telltale = ["-H", telltale_server(), *load, "--llm-model", "x"]
    return {
        "page": page([*keyed, "--processes", "2"], look_everywhere, env=ENV),
        "headless": Plan([*keyed, "-u", "2", "-r", "2"], env=ENV, act=look_and_stop),
        "header option": Plan([*keyed[:-1], f"Authorization: Bearer {KEY}"]),
        "repeated by first contact": Plan(telltale, env=ENV),
        "repeated by each answer": Plan([*telltale, "--llm-no-preflight"], env=ENV),
        "class attribute": Plan([*telltale, "--llm-no-preflight"], LITERAL),
        "repeated by a task": Plan([*keyed, *load, "--csv", "out", "--html", "out.html"], TOLD, env=ENV),
    }  # fmt: skip


NAMES = ["page", "headless", "header option", "repeated by first contact", "repeated by each answer", "class attribute",
         "repeated by a task"]  # fmt: skip


def telltale_server() -> str:
    """Start a server that refuses each request and repeats the key in its error."""

    class Telltale(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.refuse()

        do_GET = lambda self: self.refuse()  # noqa: E731

        def refuse(self) -> None:
            key = self.headers.get("Authorization", "")
            said = {"error": {"message": f"Incorrect API key provided: {key}. Try another.", "type": "auth"}}
            body = json.dumps(said).encode()
            self.send_response(400)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Telltale)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def look_everywhere(web: Page) -> None:
    web.live.wait_for("reported as ready", 2)
    web.swarm()
    web.live.wait_for(SPAWNED)
    web.run_until(3)
    look_at_processes(web.live)
    web.post("/stop")
    web.live.wait_for("run folder:")
    for path in ("/", "/stats/requests", "/stats/report", "/logs", "/tasks", "/exceptions", "/stats/failures/csv",
                 "/llm/data", "/llm/metrics", "/llm/events.jsonl", "/llm/report.html"):  # fmt: skip
        status, text = web.get(path)
        (web.live.folder / f"page{path.replace('/', '-')}").write_text(f"{status} {text}")


def look_and_stop(live: Live) -> None:
    look_at_processes(live)
    live.signal(signal.SIGINT)


def look_at_processes(live: Live) -> None:
    live.wait_for(SPAWNED)
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in (live.process.pid, *live.children())]
    (live.folder / "commands").write_text("\n".join(commands))


@pytest.mark.parametrize("name", NAMES)
def test_the_key_is_nowhere(runs: Runs, name: str) -> None:
    files = [path for path in runs[name].folder.rglob("*") if path.is_file() and "locustfile" not in path.name]
    assert {path.name for path in files} >= {"stdout", "stderr"}
    for path in files:
        assert "SECRET" not in path.read_text(errors="replace"), path


def test_what_was_looked_at_was_there(runs: Runs) -> None:
    ended = runs["page"]
    assert set(ended.run.outcomes()) == {"ok"}
    for name in ("page-", "page-stats-requests", "page-stats-report", "page-logs"):
        assert (ended.folder / name).read_text().startswith("200 "), name
    assert (ended.folder / "commands").read_text().count("locustfile.py") == 3
    assert "X-Tenant: env:TENANT" in json.dumps(ended.run.card)


def test_a_key_as_an_option_is_refused_with_the_remedy(runs: Runs) -> None:
    assert runs["header option"].code == 2
    assert "env:VARIABLE" in runs["header option"].err


def test_what_a_server_says_is_kept_without_the_key(runs: Runs) -> None:
    said = "Incorrect API key provided: ***. Try another."
    assert said in runs["repeated by first contact"].err
    for name in ("repeated by each answer", "class attribute"):
        assert {record["error"]["message"] for record in runs[name].run.records()} == {said}
