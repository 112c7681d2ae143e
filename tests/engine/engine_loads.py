"""The server as a child process, load tests of it by the real command line, and a plain HTTP client beside them."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locust_llm.exchange import Exchange, decode

HERE = Path(__file__).parent
_NO_KEYS = {name: value for name, value in os.environ.items() if not name.startswith(("LOCUST", "OPENAI"))}


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request that is not streamed."""
        answer: dict[str, Any] = json.loads(self._request("POST", path, json.dumps(body)))
        return answer

    def counter(self, name: str) -> float:
        """Return one of the server's own counters."""
        for line in self._request("GET", "/metrics").splitlines():
            if line.startswith(f"llamacpp:{name} "):
                return float(line.split()[1])
        raise KeyError(name)

    def _request(self, method: str, path: str, body: str | None = None) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=100)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", "Connection": "close"})
            return connection.getresponse().read().decode()
        finally:
            connection.close()


@contextmanager
def serving(*api_keys: str) -> Iterator[Server]:
    """Start a server; end it with the block."""
    command = [sys.executable, str(HERE / "llama_server.py"), *api_keys]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            line = process.stdout.readline()
            assert line, f"the server did not start (exit code {process.wait(10)})"
            yield Server(json.loads(line)["port"], process)
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class Load:
    """A load test that is over.

    Attributes:
        records: of the exchanges that were measured, preflight left out; ``preflight`` has those.
        said: by exchange, what the server said of the answer (``usage``, ``timings``); only ``locust`` fills it.
    """

    code: int
    output: str
    folder: Path
    records: list[Exchange]
    preflight: list[Exchange]
    said: dict[str, dict[str, Any]]

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return summary


def locust(server: Server, work: Path, user_class: str, *options: str) -> Load:
    """Run ``engine_locustfile.py`` under plain ``locust``."""
    words = ["locust", "-f", str(HERE / "engine_locustfile.py"), "--headless", "-H", server.url, user_class, *options]
    return _load(words, work, {"ENGINE_SAID": str(work / "said.jsonl")})


def locust_llm(server: Server, work: Path, *options: str, **environment: str) -> Load:
    """Run ``locust-llm run`` with its built-in user."""
    return _load(["locust_llm.cli", "run", "-H", server.url, *options], work, environment)


def _load(words: list[str], work: Path, environment: dict[str, str]) -> Load:
    out = work / "runs"
    command = [sys.executable, "-m", *words, "--llm-out", str(out), "--only-summary"]
    done = subprocess.run(
        command,
        cwd=work,
        env=_NO_KEYS | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    folder = max(out.iterdir(), default=work) if out.is_dir() else work
    log, said = folder / "events.jsonl", work / "said.jsonl"
    records = [decode(line) for line in log.open("rb")] if log.exists() else []
    replies = [json.loads(line) for line in said.open()] if said.exists() else []
    return Load(
        done.returncode,
        done.stdout + done.stderr,
        folder,
        [record for record in records if record.phase == "measure"],
        [record for record in records if record.phase == "preflight"],
        {reply["exchange"]: reply for reply in replies},
    )
