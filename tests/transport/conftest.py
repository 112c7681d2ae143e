"""Transport tests run the client side in this process, patched by gevent as under Locust, against servers that are not.

Locust is imported here, before anything else of the tests, as its users do; servers are another process (``replay``)
or native threads (``loopback``).
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import locust  # noqa: F401  (first: it patches the standard library)
import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "wire")]


@pytest.fixture(scope="session")
def replay_port() -> Iterator[int]:
    """Port of a replay server of this session's own."""
    server = subprocess.Popen(
        [sys.executable, str(TESTS / "replay.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    yield int(server.stdout.readline())
    server.stdin.close()
    server.wait(10)


@pytest.fixture(autouse=True)
def _no_proxies_or_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment of the developer says is not part of a test."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("LOCUST_LLM_API_KEY", raising=False)


@pytest.fixture
def every_name_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host name resolves to 127.0.0.1, so that names that are not loopback's can be tested."""

    def here(host: str, port: int, *rest: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]

    monkeypatch.setattr("locust_llm.transport.dial.getaddrinfo", here)
