"""The LLM tab in a browser, from the start form to the downloads: real Locust processes, the simulated server."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser import PATIENCE_S, Tab, free_port, get, needs_browser, serving

from locust_llm.options import OPTIONS

pytestmark = needs_browser

CHAT = """
from locust import task
from locust_llm import ChatUser

class Chat(ChatUser):
    @task(3)
    def ask(self):
        self.chat()

    @task
    def hostile(self):
        self.chat(name=\"\"\"<img src=x onerror="document.title='pwned'">\"\"\")
"""
LOGIN = """
import os
from flask import Blueprint, redirect
from flask_login import UserMixin, login_user
from locust import events

class Somebody(UserMixin):
    def get_id(self):
        return "somebody"

@events.init.add_listener
def log_in(environment, web_ui=None, **_):
    if web_ui is None:
        return
    web_ui.login_manager.user_loader(lambda name: Somebody())
    web_ui.app.secret_key = "test"
    web_ui.auth_args = {"username_password_callback": "/perf/login_submit"}
    @web_ui.app.route("/perf/login_submit", methods=["GET", "POST"])
    def login_submit():
        login_user(Somebody())
        return redirect("/perf/")
"""
SHORT = ["--llm-simulate", "--llm-input-tokens", "40,0", "--llm-output-tokens", "20,0", "--web-host", "127.0.0.1"]
LOCUST = ["-m", "locust", "-f", "locustfile.py", "--web-port", "PORT", *SHORT]


def locust(folder: Path, *arguments: str, code: str = CHAT, path: str = "/") -> Any:
    """Run plain Locust with a page in a folder."""
    (folder / "locustfile.py").write_text(code)
    return serving(folder, [*LOCUST, *arguments], path)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with locust(tmp_path_factory.mktemp("local")) as url:
        yield url


@pytest.fixture
def tab(browser: Any, request: pytest.FixtureRequest) -> Iterator[Tab]:
    tab = Tab(browser)
    yield tab
    stop = tab.page.get_by_role("button", name="Stop", exact=True)
    if stop.count():
        stop.click()
        tab.page.get_by_role("button", name="New", exact=True).wait_for()
    tab.close()


@pytest.fixture(scope="module")
def going(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Locust whose test goes on all the time."""
    with locust(tmp_path_factory.mktemp("going"), "--autostart", "-u", "4", "-r", "4") as url:
        deadline = time.monotonic() + PATIENCE_S
        while get(f"{url}llm/data")["state"] != "running":
            assert time.monotonic() < deadline, "the test does not start"
            time.sleep(0.1)
        yield url


@pytest.fixture
def onlooker(browser: Any, going: str) -> Iterator[Tab]:
    """The tab of somebody who did not start that test."""
    tab = Tab(browser)
    tab.page.goto(going)
    tab.open_llm()
    yield tab
    tab.close()


def start(tab: Tab, url: str, **fields: object) -> None:
    tab.page.goto(url)
    tab.start(**({"userCount": 4, "spawnRate": 4} | fields))
    tab.page.get_by_role("button", name="Edit").wait_for()
    tab.open_llm()


def lines_move(tab: Tab) -> None:
    """The lines of the charts that matter get longer."""
    for chart, series in (("output", "output_tps"), ("ttft", "p95"), ("itl", "p50"), ("streams", "in_flight")):
        tab.until(lambda c=chart, s=series: tab.line(c, s).count("L") > 1, f"a line {chart} {series}")
    before = tab.line("output", "output_tps")
    tab.until(lambda: tab.line("output", "output_tps") != before, "a longer line")


def number(text: str) -> float:
    return float(text.replace("\u202f", ""))


def test_a_run_from_the_form_to_its_end(local: str, tab: Tab) -> None:
    start(tab, local)
    tab.until_text(".state", "running")
    lines_move(tab)
    tab.until(lambda: tab.tile("flight") == "4", "four streams in flight")
    assert 40 < number(tab.tile("ttft")) < 20_000
    assert number(tab.tile("output")) > 0
    tab.page.get_by_role("button", name="Edit").click()
    tab.page.locator("[name=userCount]").fill("7")
    tab.page.get_by_role("button", name="Update").click()
    tab.until(lambda: tab.tile("flight") == "7", "seven streams in flight")
    tab.until_text(".marks", "7 users")
    tab.page.get_by_role("button", name="Stop", exact=True).click()
    tab.until_text(".state", "stopped")
    assert "whole run" in tab.page.locator(".line").inner_text()
    first, length = tab.page.locator(".progress").inner_text(), len(tab.line("output", "output_tps"))
    tab.start(userCount=2, spawnRate=2)
    tab.until_text(".state", "running")
    assert tab.page.locator(".progress").inner_text().split()[-1] not in first, "a run of its own"
    tab.until(lambda: 0 < len(tab.line("output", "output_tps")) < length, "lines of the new run alone")
    assert tab.faults == []


def test_names_of_users_are_text(onlooker: Tab) -> None:
    tab = onlooker
    tab.page.locator("td", has_text="<img src=x").first.wait_for()
    assert tab.page.locator("#locust-llm img").count() == 0
    assert tab.page.title() == "Locust"


def test_reset_begins_anew_while_the_test_goes_on(local: str, tab: Tab) -> None:
    start(tab, local)
    tab.until(lambda: tab.line("ttft", "p50").count("L") > 2, "some seconds")
    before = tab.line("ttft", "p50").count("L")
    tab.page.get_by_role("button", name="Reset").click()
    tab.until(lambda: tab.line("ttft", "p50").count("L") < before, "a shorter line")
    tab.until(lambda: tab.line("ttft", "p50"), "a new line")


def test_the_rate_of_an_open_loop_is_changed_from_the_tab(local: str, tab: Tab) -> None:
    start(tab, local, userCount=10, spawnRate=10, llmRate="4")
    tab.until_text(".rates", "now 4/s")
    field = tab.page.get_by_label("Requests started per second")
    field.fill("0")
    field.press("Enter")
    tab.until_text(".said.bad", "above 0")
    field.fill("12")
    field.press("Enter")
    tab.until_text(".rates", "now 12/s")
    tab.until_text(".marks", "12/s")
    tab.until(lambda: tab.line("requests", "rate_asked").count("L") > 2, "the rate asked for")
    tab.until(lambda: number(tab.tile("requests")) > 6, "more requests a second")


def test_a_bad_value_is_refused_and_the_form_says_why(local: str, tab: Tab) -> None:
    tab.page.goto(local)
    tab.start(userCount=4, spawnRate=4, llmInputTokens="abc")
    tab.page.get_by_role("alert").filter(has_text="--llm-input-tokens: give MEAN or MEAN,STD").wait_for()
    assert not tab.page.get_by_role("button", name="Edit").count()
    tab.page.locator("[name=llmInputTokens]").fill("40,0")
    tab.page.get_by_role("button", name="Start").click()
    tab.page.get_by_role("button", name="Edit").wait_for()


def test_what_cannot_change_while_a_test_runs_is_said_though_the_dialog_is_gone(onlooker: Tab) -> None:
    tab = onlooker
    tab.page.get_by_role("button", name="Edit").click()
    tab.page.get_by_text("Custom parameters").click()
    tab.page.locator("[name=llmOutputTokens]").fill("99")
    tab.page.get_by_role("button", name="Update").click()
    tab.page.get_by_role("alert").filter(has_text="--llm-output-tokens: stop the test first").wait_for()


def test_the_form_has_the_llm_fields_with_words_and_help(local: str, tab: Tab) -> None:
    tab.page.goto(local)
    assert tab.page.get_by_role("status").inner_text().startswith("Simulated server: timings are made up")
    tab.open_form()
    names = {_camel(option.dest) for option in OPTIONS if option.web}
    shown = set(tab.page.locator("[name^=llm]").evaluate_all("all => all.map(e => e.name)"))
    assert shown == names
    tab.page.get_by_text("Custom parameters").click()
    assert tab.page.get_by_label("Output tokens").get_attribute("name") == "llmOutputTokens"
    assert tab.page.get_by_text("length of answers in tokens: MEAN[,STD]").is_visible()


def _camel(dest: str) -> str:
    """Return the name that Locust's page gives to an option's field."""
    first, *rest = dest.split("_")
    return first + "".join(word.capitalize() for word in rest)


def test_downloads_of_the_state_so_far(onlooker: Tab, going: str) -> None:
    tab = onlooker
    tab.until(lambda: tab.page.locator(".files a[aria-disabled=false]").count() == 4, "links")
    got = {}
    for name in ("events.jsonl", "summary.json", "summary.csv", "report.html"):
        with tab.page.expect_download() as download:
            tab.page.get_by_role("link", name=name).click()
        assert re.fullmatch(rf"\d+T\d+Z-\w+-{name}", download.value.suggested_filename)
        got[name] = Path(download.value.path()).read_text()
    records = [json.loads(line) for line in got["events.jsonl"].splitlines()]
    assert got["events.jsonl"].endswith("\n")
    assert records
    assert json.loads(got["summary.json"])["total"]["metrics"]["ttft"]
    assert "ttft" in got["summary.csv"]
    assert "<html" in got["report.html"]
    assert tab.page.locator(".files .said").inner_text() == ""
    assert get(f"{going}llm/data")["state"] == "running", "a download has stopped the test"


def test_the_page_alone_shows_the_same(onlooker: Tab, going: str) -> None:
    tab = onlooker
    tab.page.goto(f"{going}llm/")
    tab.until(lambda: tab.tile("ttft") != "–", "a TTFT")
    lines_move(tab)
    assert tab.faults == []


def test_locusts_report_has_the_section(onlooker: Tab, going: str) -> None:
    tab = onlooker
    tab.until(lambda: tab.line("ttft", "p50").count("L") > 2, "a line")
    tab.page.goto(f"{going}stats/report")
    section = tab.page.locator("section#locust-llm")
    assert section.locator("figure svg path").count() > 5
    assert "ask" in section.inner_text()


def test_two_workers(browser: Any, tmp_path: Path) -> None:
    port = str(free_port())
    ports = ["--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--master-port", port]
    with locust(tmp_path, "--processes", "2", *ports) as url:
        tab = Tab(browser)
        tab.until(lambda: _workers(url) == 2, "two workers")
        start(tab, url, userCount=6, spawnRate=6)
        tab.until(lambda: tab.line("output", "output_tps").count("L") > 1, "a line")
        tab.until(lambda: tab.tile("flight") == "6", "six streams in flight")
        workers = tab.page.get_by_role("region", name="Workers").locator("tbody tr")
        assert workers.count() == 2
        tab.page.get_by_role("button", name="Stop", exact=True).click()
        tab.until_text(".state", "stopped")
        ended = get(f"{url}llm/data")["total"]["counts"]["exchanges"]
        with urllib.request.urlopen(f"{url}llm/events.jsonl", timeout=20) as log:
            phases = [json.loads(line)["phase"] for line in log]
        assert phases.count("measure") == ended
        assert tab.faults == []
        tab.close()


def test_under_a_base_path_and_behind_a_login(browser: Any, tmp_path: Path) -> None:
    with locust(tmp_path, "--web-base-path", "/perf", "--web-login", code=CHAT + LOGIN, path="/perf/login") as login:
        url = login.removesuffix("login")
        tab = Tab(browser, scheme="dark")
        tab.page.goto(f"{url}llm/")
        assert urlsplit(tab.page.url).path == "/perf/login"
        tab.page.goto(f"{url}login_submit")
        start(tab, url)
        tab.until(lambda: tab.line("output", "output_tps").count("L") > 1, "a line")
        assert tab.page.locator(".llm").get_attribute("data-theme") == "dark"
        assert tab.faults == []
        tab.close()


def _workers(url: str) -> int:
    return int(get(f"{url}worker-count")["worker_count"])
