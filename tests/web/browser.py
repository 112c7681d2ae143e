"""Headless Chromium for the tests of the page, and the processes that it looks at."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None,
    reason="no browser: apt-get install chromium, pip install playwright",
)
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync")
PATIENCE_S = 40.0


@contextmanager
def chromium() -> Iterator[Any]:
    """Give a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page of the browser.

    Attributes: ``page`` is Playwright's; ``faults`` are errors of scripts and what the browser could not load.
    """

    def __init__(self, browser: Any, width: int = 1400, scheme: str = "light", **context: Any) -> None:
        viewport = {"width": width, "height": 900}
        self._context = browser.new_context(viewport=viewport, color_scheme=scheme, accept_downloads=True, **context)
        self.page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)

    def close(self) -> None:
        self._context.close()

    def start(self, **fields: object) -> None:
        """Fill in Locust's start form and press Start."""
        self.open_form()
        if any(name.startswith("llm") for name in fields):
            self.page.get_by_text("Custom parameters").click()
        for name, value in fields.items():
            self.page.locator(f"[name={name}]").fill(str(value))
        self.page.get_by_role("button", name="Start").click()

    def open_form(self) -> None:
        """Wait for Locust's start form; after a first test it is a dialog, to be opened."""
        form = self.page.locator("[name=userCount]")
        form.or_(self.page.get_by_role("button", name="New", exact=True)).wait_for()
        if not form.count():
            self.page.get_by_role("button", name="New", exact=True).click()
            form.wait_for()

    def open_llm(self) -> None:
        self.page.get_by_role("tab", name="LLM").click()
        self.page.locator("#locust-llm .tiles").wait_for()

    def tile(self, key: str) -> str:
        """Return the big number of a tile; "–" if there is none."""
        return str(self.page.locator(f"[data-tile={key}] .value span").inner_text())

    def line(self, chart: str, series: str) -> str:
        """Return the path of a line in a chart."""
        return self.page.locator(f"[data-chart={chart}] .lines [data-series='{series}']").get_attribute("d") or ""

    def until(self, true: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
            self.page.wait_for_timeout(100)

    def until_text(self, selector: str, text: str) -> None:
        self.page.locator(selector, has_text=text).first.wait_for()


@contextmanager
def serving(folder: Path, arguments: Sequence[str], path: str = "/") -> Iterator[str]:
    """Run ``python ARGUMENTS`` with ``PORT`` filled in until the page answers; give its address."""
    port = free_port()
    command = [sys.executable, *(word.replace("PORT", str(port)) for word in arguments)]
    log = folder / "server.log"
    with (
        log.open("w") as out,
        subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}{path}"
            assert _answers(url, PATIENCE_S), log.read_text()
            yield url
        finally:
            process.terminate()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def get(url: str) -> Any:
    """Return the JSON under an address."""
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def post(url: str, body: object) -> Any:
    """Send JSON, return the answer's."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def _answers(url: str, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False
