"""Locust's page with the extension, as a browser shows it. Locust draws it by script, so only a browser can tell."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from locust_llm.options import OPTIONS

LOCUSTFILE = Path(__file__).parents[2] / "locustfiles" / "chat.py"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of plain ``locust`` before any test has started, with the simulated server."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    work = tmp_path_factory.mktemp("web")
    command = [
        sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--llm-simulate",
        "--web-host", "127.0.0.1", "--web-port", str(port),
    ]  # fmt: skip
    with (
        (work / "locust.log").open("w") as log,
        subprocess.Popen(command, cwd=work, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}/"
            assert _answers(url, within_s=30), (work / "locust.log").read_text()
            yield url
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def page(url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page's document after its scripts have run."""
    profile = tmp_path_factory.mktemp("profile")
    command = [str(CHROMIUM), *QUIET, f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom", url]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_start_form_has_the_llm_fields(page: str) -> None:
    shown = {option.dest for option in OPTIONS if f'name="{_camel(option.dest)}"' in page}
    assert shown == {option.dest for option in OPTIONS if option.web}
    assert 'name="userCount"' in page, "Locust's own fields are gone"


def test_the_page_says_that_the_server_is_simulated(page: str) -> None:
    assert "Simulated server: timings are made up" in page


# ---- helpers


def _camel(dest: str) -> str:
    """Return the name that Locust's page gives to an option's field."""
    first, *rest = dest.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _answers(url: str, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False
