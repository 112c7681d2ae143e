"""The routes of the LLM tab: what they answer, to whom, and what they refuse. The desk behind them is made up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_desk import FakeDesk
from flask import Flask
from locust import User, task
from locust.env import Environment

from locust_llm.live import html_section, svg
from locust_llm.live.downloads import whole_lines
from locust_llm.live.web import attach

HOSTILE = "<img src=x onerror=alert(1)></script>"


class Idle(User):
    @task
    def nothing(self) -> None:
        pass


class Site:
    """Locust's page with a made-up desk, without a socket."""

    def __init__(self, desk: FakeDesk, **options: Any) -> None:
        self.desk = desk
        self.environment = Environment(user_classes=[Idle])
        self.environment.create_local_runner()
        self.web_ui = self.environment.create_web_ui("127.0.0.1", 0, delayed_start=True, **options)
        attach(self.web_ui, desk)
        app: Flask | None = self.web_ui.app
        assert app is not None
        self.client = app.test_client()

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        answer = self.client.get(path, headers=headers)
        return answer.status_code, answer.get_data(as_text=True)

    def rate(self, body: object, **headers: str) -> tuple[int, str]:
        data = body if isinstance(body, str) else json.dumps(body)
        answer = self.client.post("/llm/rate", data=data, headers=headers)
        return answer.status_code, answer.get_data(as_text=True)


@pytest.fixture(autouse=True)
def _command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locust reads it at each view of its page."""
    monkeypatch.setattr("sys.argv", ["locust"])


@pytest.fixture
def site() -> Site:
    return Site(FakeDesk(30.0))


@pytest.fixture
def open_loop(site: Site) -> Site:
    site.desk.rates = [{"stream": "", "label": "all users", "rate": 20.0}]
    return site


def lines(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "events.jsonl").write_text(text)
    return folder


# ---- data


def test_data_is_the_snapshot_since_a_version(site: Site) -> None:
    status, text = site.get("/llm/data?since=28")
    assert status == 200
    assert json.loads(text)["version"] == 30
    assert site.desk.sinces == [28]


def test_data_says_what_it_cost_the_process(site: Site) -> None:
    assert re.fullmatch(r"made;dur=\d+\.\d+", site.client.get("/llm/data").headers["Server-Timing"])


@pytest.mark.parametrize("since", ["abc", "-1", "1.5", "9" * 30, "²"])
def test_a_bad_version_is_a_400_with_text(site: Site, since: str) -> None:
    status, text = site.get(f"/llm/data?since={since}")
    assert (status, "since must be a version" in text) == (400, True)


# ---- the page


def test_the_index_page_gets_the_script_and_the_tab(site: Site) -> None:
    _, html = site.get("/")
    (script,) = re.findall(r'<script type="module" src="(\./llm/ui/\w+/main\.js)">', html)
    assert site.get(script.removeprefix("."))[0] == 200
    assert '"extended_tabs": [{"key": "llm", "title": "LLM"}]' in html


def test_attaching_twice_changes_nothing(site: Site) -> None:
    attach(site.web_ui, site.desk)
    assert site.get("/")[1].count("/main.js") == 1


def test_tabs_of_others_stay(site: Site) -> None:
    environment = Environment(user_classes=[Idle])
    environment.create_local_runner()
    web_ui = environment.create_web_ui("127.0.0.1", 0, delayed_start=True)
    web_ui.template_args["extended_tabs"] = [{"title": "Other", "key": "other"}]
    attach(web_ui, site.desk)
    assert [tab["key"] for tab in web_ui.template_args["extended_tabs"]] == ["other", "llm"]


def test_scripts_may_be_kept_by_the_browser_under_their_version_only(site: Site) -> None:
    (script,) = re.findall(r'src="\.(/llm/ui/\w+/)main\.js', site.get("/")[1])
    assert "immutable" in site.client.get(f"{script}chart.js").headers["Cache-Control"]
    assert "immutable" not in site.client.get("/llm/ui/other/chart.js").headers["Cache-Control"]
    assert site.get(f"{script}..%2fweb.py")[0] == 404
    assert site.get(f"{script}nothing.js")[0] == 404


def test_every_module_that_a_script_names_is_there(site: Site) -> None:
    (folder,) = re.findall(r'src="\.(/llm/ui/\w+/)main\.js', site.get("/")[1])
    seen, todo = set(), {"main.js"}
    while todo:
        name = todo.pop()
        status, text = site.get(folder + name)
        assert status == 200, name
        seen.add(name)
        todo |= set(re.findall(r'from "\./(\w+\.js)"', text)) - seen
    assert {"chart.js", "words.js", "form.js"} <= seen


def test_nothing_comes_from_another_host(site: Site) -> None:
    pages = [site.get("/llm/")[1]]
    (folder,) = re.findall(r'src="\.(/llm/ui/\w+/)main\.js', site.get("/")[1])
    pages += [site.get(folder + name)[1] for name in ("main.js", "panel.js", "feed.js", "style.css", "chart.js")]
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", "".join(pages))


def test_a_base_path_holds_for_all_routes() -> None:
    site = Site(FakeDesk(30.0), web_base_path="/perf")
    assert "./llm/ui/" in site.get("/perf/")[1]
    for path in ("/perf/llm/", "/perf/llm/data"):
        assert site.get(path)[0] == 200
    assert site.get("/llm/data")[0] == 404


# ---- who may ask


ROUTES = ["/llm/", "/llm/data", "/llm/summary.json", "/llm/summary.csv", "/llm/events.jsonl", "/llm/report.html"]


@pytest.mark.parametrize("path", ROUTES)
def test_with_login_nobody_gets_in_without_it(path: str, tmp_path: Path) -> None:
    site = Site(FakeDesk(30.0, folder=lines(tmp_path, "{}\n")), web_login=True)
    site.web_ui.app.secret_key = "secret"
    site.web_ui.login_manager.user_loader(lambda _: None)
    answer = site.client.get(path)
    assert (answer.status_code, "/login" in answer.headers.get("Location", "")) == (302, True)
    assert site.client.post("/llm/rate", data="{}").status_code == 302


@pytest.mark.parametrize("path", ROUTES)
def test_scripts_of_other_sites_get_nothing(path: str, tmp_path: Path) -> None:
    site = Site(FakeDesk(30.0, folder=lines(tmp_path, "{}\n")))
    assert site.get(path, Origin="http://evil.example")[0] == 403
    assert site.get(path, Origin="null")[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost:81", "Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example", "X-Forwarded-Host": "evil.example"},
    ],
)
def test_another_site_cannot_change_the_rate(open_loop: Site, headers: dict[str, str]) -> None:
    status, text = open_loop.rate({"rate": 5}, **headers)
    assert (status, "another site" in text) == (403, True)
    assert open_loop.desk.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://localhost"},
        {"Origin": "https://perf.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_the_own_page_can_behind_a_proxy_too(open_loop: Site, headers: dict[str, str]) -> None:
    assert open_loop.rate({"rate": 5}, **headers)[0] == 200


# ---- the rate


def test_the_rate_goes_to_the_desk(open_loop: Site) -> None:
    assert json.loads(open_loop.rate({"rate": "40"})[1]) == {"stream": "", "rate": 40.0}
    open_loop.rate({"rate": 7.5, "stream": "Chat"})
    assert open_loop.desk.asked == [(40.0, ""), (7.5, "Chat")]


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", "20", {"stream": ""}, {"rate": ""}, {"rate": "fast"}, {"rate": 0}, {"rate": "-1"}, {"rate": None},
     {"rate": True}, {"rate": [1]}, {"rate": 1e12}, {"rate": "nan"}, {"rate": 5, "stream": 3}, {"rate": 1e-9}],
)  # fmt: skip
def test_a_rate_that_is_none_is_a_400_with_one_line(open_loop: Site, body: object) -> None:
    status, text = open_loop.rate(body)
    assert (status, text.count("\n")) == (400, 1)
    assert "rate" in text
    assert open_loop.desk.asked == []


def test_without_arrivals_there_is_no_rate_to_change(site: Site) -> None:
    status, text = site.rate({"rate": 5})
    assert (status, "--llm-rate" in text) == (400, True)


# ---- downloads


@pytest.mark.parametrize("name", ["summary.json", "summary.csv", "events.jsonl", "report.html"])
def test_a_download_before_any_data_says_what_to_wait_for(name: str, tmp_path: Path) -> None:
    status, text = Site(FakeDesk(None)).get(f"/llm/{name}")
    assert (status, "press Start" in text) == (404, True)
    for folder in (tmp_path, lines(tmp_path / "run", "")):
        status, text = Site(FakeDesk(3.0, folder=folder)).get(f"/llm/{name}")
        assert (status, "no exchange has ended" in text) == (409, True)


def test_the_log_so_far_has_whole_lines_only(tmp_path: Path) -> None:
    folder = lines(tmp_path / "20261129T201500Z-x", '{"a":1}\n{"a":2}\n{"a":')
    answer = Site(FakeDesk(3.0, folder=folder)).client.get("/llm/events.jsonl")
    assert answer.get_data() == b'{"a":1}\n{"a":2}\n'
    assert 'filename="20261129T201500Z-x-events.jsonl"' in answer.headers["Content-Disposition"]


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000, 600_000])
def test_whole_lines_of_any_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "events.jsonl"
    whole = b"x" * size + b"\n" + b"second\n"
    path.write_bytes(whole + b"y" * size)
    assert b"".join(whole_lines(path)) == whole
    path.write_bytes(b"z" * size)
    assert b"".join(whole_lines(path)) == b""


def test_a_log_that_no_report_can_be_made_of_is_no_500(tmp_path: Path) -> None:
    status, text = Site(FakeDesk(3.0, folder=lines(tmp_path, "no json\n"))).get("/llm/summary.json")
    assert (status, text.count("\n")) == (409, 1)
    assert str(tmp_path) not in text


def test_files_of_a_finished_run_are_given_as_they_are(tmp_path: Path) -> None:
    folder = lines(tmp_path, "{}\n")
    (folder / "summary.csv").write_text("done\n")
    assert Site(FakeDesk(3.0, "stopped", folder)).get("/llm/summary.csv") == (200, "done\n")


# ---- the section in Locust's report


@pytest.fixture
def report(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    monkeypatch.setattr(html_section._locust_html, "render_template_from", html_section._render)
    monkeypatch.setattr(html_section, "_desk", None)
    html_section.attach(site.desk)
    return lambda path: site.get(path)[1]


def test_the_report_of_locust_has_a_section_that_needs_no_script(report: Callable[[str], str], site: Site) -> None:
    for path in ("/stats/report", "/stats/report?download=1&theme=dark"):
        (section,) = re.findall(r'<section id="locust-llm">.*</section>', report(path), re.S)
        assert "<script" not in section
        assert section.count("<svg viewBox") == 7
        assert "summarise" in section


def test_names_are_text_in_the_section(report: Callable[[str], str], site: Site) -> None:
    site.desk.names = [HOSTILE]
    site.desk.more = {"marks": [{"t": 1764441236.0, "text": HOSTILE}], "incomplete": [HOSTILE]}
    html = report("/stats/report")
    assert "&lt;img src=x" in html
    assert "<img src=x" not in html


def test_without_a_run_locusts_report_is_as_ever(report: Callable[[str], str], site: Site) -> None:
    site.desk.t = None
    assert "locust-llm" not in report("/stats/report")


def test_a_fault_of_ours_does_not_cost_the_report(report: Callable[[str], str], site: Site) -> None:
    site.desk.more = {"total": None}
    html = report("/stats/report")
    assert "</html>" in html
    assert "locust-llm" not in html


def test_a_long_line_keeps_its_peaks() -> None:
    values: list[float | None] = [1.0] * 1800
    values[777], values[778:790] = 9.0, [None] * 12
    kept = svg.thinned(values)
    assert len(kept) <= 450
    assert (777, 9.0) in kept
    assert kept == sorted(kept)


@pytest.mark.parametrize("value", [0.0, 0.001, 1.0, 99.0, 1234.0, 5e9])
def test_the_axis_is_above_every_value(value: float) -> None:
    assert value < svg.ceiling(value) <= max(1.0, 2 * value)
