"""The panel of the LLM tab in a browser, with a desk behind it that shows whatever a test wants to see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Tab, needs_browser, post, serving

pytestmark = needs_browser

FAKE = str(Path(__file__).with_name("fake_page.py"))
HOSTILE = "<img src=x onerror=\"document.title='pwned'\">"
AGAIN = {"t": 60.0, "state": "running", "names": ["chat", "summarise"], "rates": [], "more": {}}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("fake"), [FAKE, "PORT"]) as url:
        yield url


@pytest.fixture
def show(url: str, browser: Any) -> Iterator[Any]:
    """Open the panel alone with attributes of the desk set; close it at the end."""
    tabs: list[Tab] = []
    epoch = iter(range(1, 100))

    def show(width: int = 1400, scheme: str = "light", path: str = "llm/", **attributes: Any) -> Tab:
        post(f"{url}fake", AGAIN | {"epoch": next(epoch)} | attributes)
        tab = Tab(browser, width, scheme)
        tabs.append(tab)
        tab.page.goto(url + path)
        if path == "llm/":
            tab.page.locator(".llm[data-version]").wait_for()
        return tab

    yield show
    for tab in tabs:
        tab.close()


def test_before_a_run_it_says_what_to_do(show: Any) -> None:
    tab = show(t=None, state="ready")
    assert "press Start" in tab.page.locator(".verdict").inner_text()
    assert {tab.tile(key) for key in ("output", "ttft", "itl", "flight", "errors")} == {"–"}
    assert tab.page.locator(".files a[aria-disabled=true]").count() == 4
    assert tab.faults == []


def test_the_head_says_how_the_run_is(show: Any) -> None:
    tab = show()
    line = tab.page.locator(".line").inner_text()
    assert re.search(r"running\n.*60 s · 480 of 500 requests · about 2 s left", line, re.I)
    assert "The measurement is sound" in tab.page.locator(".verdict strong").inner_text()
    assert re.fullmatch(r"\d+(\.\d+)?", tab.tile("ttft"))
    assert tab.tile("errors") == "1.2"
    assert tab.faults == []


def test_a_verdict_has_its_reasons(show: Any) -> None:
    reasons = [{"code": "lag", "effect": "lag p99 is 40 ms", "level": "overloaded"}]
    tab = show(more={"verdict": {"state": "overloaded", "reasons": reasons}})
    text = tab.page.locator(".verdict.bad").inner_text()
    assert "do not trust the latencies" in text
    assert "lag p99 is 40 ms" in text


def test_what_is_incomplete_is_said(show: Any) -> None:
    tab = show(more={"incomplete": ["worker w1 was lost at 12:03:11"]})
    assert tab.page.locator(".incomplete").inner_text() == "worker w1 was lost at 12:03:11"


def test_every_chart_has_lines_a_unit_and_the_marks(show: Any) -> None:
    tab = show()
    for chart, series in [("output", "output_tps"), ("ttft", "p50"), ("ttft", "p99"), ("itl", "p95"),
                          ("streams", "decoding"), ("requests", "requests_per_s"), ("e2e", "p95"),
                          ("errors", "status 503")]:  # fmt: skip
        assert tab.line(chart, series).count("L") > 20, (chart, series)
    assert tab.page.locator("[data-chart=ttft] figcaption").inner_text().endswith("ms")
    assert tab.page.locator("[data-chart=ttft] .flags g").count() == 2
    assert "0:40 load changed, 96 users" in tab.page.locator(".marks").inner_text()


def test_charts_of_what_is_not_there_are_not_shown(show: Any) -> None:
    tab = show(t=10.0)
    for chart in ("lag", "server", "kv"):
        assert tab.page.locator(f"[data-chart={chart}]").is_hidden()
    assert tab.page.locator("[data-chart=errors] .nothing").inner_text() == "no errors"


def test_an_absent_latency_says_why(show: Any) -> None:
    series = {"step_s": 1, "started": 1.0, "layout": 1, "points": [{"i": i, "output_tps": 5.0} for i in range(9)]}
    total = {"counts": {"exchanges": 9}, "failed": 0, "absent": {"itl": "tokens per chunk are unknown"}}
    tab = show(more={"series": series, "started": 1.0, "total": total, "now": 20.0})
    assert tab.page.locator("[data-chart=itl] .nothing").inner_text() == "tokens per chunk are unknown"


def test_the_cursor_reads_all_charts_at_one_time(show: Any) -> None:
    tab = show()
    box = tab.page.locator("[data-chart=ttft] .plot svg").bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    assert re.match(r"at 0:\d\d \(", tab.page.locator(".when").inner_text())
    assert tab.page.locator(".cursor[visibility=visible]").count() >= 6
    first = tab.page.locator("[data-chart=output] .keys b").first.inner_text()
    tab.page.mouse.move(box["x"] + box["width"] / 5, box["y"] + 60)
    assert tab.page.locator("[data-chart=output] .keys b").first.inner_text() != first


def test_a_line_can_be_hidden_and_the_axis_follows(show: Any) -> None:
    tab = show()
    top = tab.page.locator("[data-chart=ttft] .grid text").all_text_contents()
    tab.page.locator("[data-chart=ttft] .keys button", has_text="p99").click()
    assert tab.line("ttft", "p99") == ""
    assert tab.page.locator("[data-chart=ttft] .grid text").all_text_contents() != top


def test_latencies_on_a_logarithmic_axis(show: Any) -> None:
    tab = show()
    before = tab.line("ttft", "p50"), tab.line("output", "output_tps")
    tab.page.get_by_role("button", name="log", exact=True).click()
    after = tab.line("ttft", "p50"), tab.line("output", "output_tps")
    assert before[0] != after[0]
    assert before[1] == after[1], "rates stay linear"
    labels = tab.page.locator("[data-chart=ttft] .grid text").all_text_contents()
    assert labels[:4] == ["20", "50", "100", "200"]


def test_the_last_minute_alone(show: Any) -> None:
    tab = show(t=300.0)
    before = tab.line("ttft", "p50")
    tab.page.get_by_role("button", name="1 min").click()
    assert tab.line("ttft", "p50") != before
    assert "4:00" in tab.page.locator("[data-chart=ttft] .grid text").all_text_contents()


def test_hours_are_drawn_with_few_points_and_their_peaks(show: Any) -> None:
    tab = show(t=7000.0)
    path = tab.line("ttft", "p99")
    width = tab.page.locator("[data-chart=ttft] .plot").bounding_box()["width"]
    assert len(re.findall(r"[ML]", path)) < 2 * width
    assert path.count("M") == 1, "the line is in pieces"


def test_names_are_text_everywhere(show: Any) -> None:
    errors = [{"kind": HOSTILE, "count": 1, "name": HOSTILE, "example": HOSTILE}]
    objectives = [{"text": HOSTILE, "state": "fail", "value": HOSTILE, "scope": HOSTILE}]
    workers = [{"name": HOSTILE, "state": HOSTILE, "records": 1}]
    more = {
        "errors": errors, "objectives": objectives, "workers": workers, "incomplete": [HOSTILE], "run": HOSTILE,
        "marks": [{"t": 1_764_441_240.0, "text": HOSTILE}],
        "verdict": {"state": "doubtful", "reasons": [{"code": "x", "effect": HOSTILE, "level": "doubtful"}]},
    }  # fmt: skip
    tab = show(names=[HOSTILE, "chat"], rates=[{"stream": HOSTILE, "label": HOSTILE, "rate": 2.0}], more=more)
    tab.page.wait_for_timeout(500)
    assert tab.page.locator("#locust-llm img").count() == 0
    assert tab.page.title() == "LLM · Locust"
    assert tab.page.locator(".llm", has_text=HOSTILE).count() == 1
    assert tab.faults == []


def test_the_table_has_the_total_on_top_and_sorts_the_rest(show: Any) -> None:
    tab = show()
    table = tab.page.get_by_role("region", name="figures by name")
    rows = table.locator("tbody tr td:first-child")
    assert [text.split("\n")[0] for text in rows.all_inner_texts()] == ["All names", "chat", "summarise"]
    table.get_by_role("button", name="Ended").click()
    assert [text.split("\n")[0] for text in rows.all_inner_texts()] == ["All names", "summarise", "chat"]


def test_figures_of_one_name_and_why_some_are_absent(show: Any) -> None:
    tab = show()
    tab.page.get_by_label("of", exact=True).select_option("chat · openai-chat · Qwen3-8B")
    table = tab.page.get_by_role("region", name="every figure")
    assert table.locator("tr", has_text="TTFT, ms").locator("td").last.inner_text() == "160"
    assert "No ICL per chunk: every chunk held one token." in tab.page.locator(".llm").inner_text()


def test_objectives_have_a_word_and_a_mark(show: Any) -> None:
    states = show().page.locator(".objectives b").all_inner_texts()
    assert states == ["✓ pass", "✗ fail", "? undecided"]


def test_a_rate_is_changed_and_a_bad_one_refused_with_text(show: Any, url: str) -> None:
    tab = show(rates=[{"stream": "", "label": "all users", "rate": 20.0}])
    field = tab.page.get_by_label("Requests started per second, all users")
    field.fill("fast")
    field.press("Enter")
    tab.until_text(".said.bad", "must be a number")
    field.fill("35")
    tab.page.get_by_role("button", name="Change").click()
    tab.until_text(".said.good", "changed to 35/s")
    assert post(f"{url}fake", {})["asked"][-1] == [35.0, ""]
    tab.until_text(".rates", "now 35/s")


def test_in_closed_loop_there_is_no_rate(show: Any) -> None:
    assert show().page.locator(".rates").is_hidden()


def test_after_a_reset_the_old_lines_are_gone(show: Any, url: str) -> None:
    tab = show(t=100.0)
    assert tab.line("ttft", "p50").count("L") > 80
    post(f"{url}fake", {"epoch": 999, "t": 8.0})
    tab.until(lambda: 0 < tab.line("ttft", "p50").count("L") < 8, "the lines of the new epoch alone")


def test_stopped_it_shows_the_whole_run_and_asks_rarely(show: Any, url: str) -> None:
    tab = show(state="stopped")
    assert "whole run" in tab.page.locator(".line").inner_text()
    before = len(post(f"{url}fake", {})["sinces"])
    tab.page.wait_for_timeout(2000)
    assert len(post(f"{url}fake", {})["sinces"]) - before <= 1


def test_it_asks_only_for_what_is_new(show: Any, url: str) -> None:
    tab = show(t=200.0)
    tab.until(lambda: post(f"{url}fake", {})["sinces"][-1] == 200, "a question for what came since")


def test_another_tab_of_locusts_costs_nothing(show: Any, url: str) -> None:
    tab = show(path="")
    tab.start(userCount=1)
    tab.open_llm()
    tab.until(lambda: tab.line("ttft", "p50"), "lines")
    tab.page.get_by_role("tab", name="Statistics").click()
    assert tab.page.locator("#locust-llm").is_hidden()
    tab.page.wait_for_timeout(300)
    before = len(post(f"{url}fake", {})["sinces"])
    tab.page.wait_for_timeout(1800)
    assert len(post(f"{url}fake", {})["sinces"]) == before
    tab.open_llm()
    tab.until(lambda: len(post(f"{url}fake", {})["sinces"]) > before, "a question")
    tab.page.get_by_role("button", name="Stop").click()
    assert tab.faults == []


def test_it_says_when_locust_is_gone_and_comes_back(show: Any) -> None:
    tab = show()
    tab.page.route("**/llm/data*", lambda route: route.abort())
    tab.until_text(".trouble", "Locust does not answer")
    tab.page.unroute("**/llm/data*")
    tab.page.locator(".trouble").wait_for(state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_follow_the_theme(show: Any, scheme: str) -> None:
    assert show(scheme=scheme).page.locator(".llm").get_attribute("data-theme") == scheme


def test_locusts_switch_of_the_theme_is_followed_at_once(show: Any) -> None:
    tab = show(path="")
    tab.start(userCount=1)
    tab.open_llm()
    panel = tab.page.locator(".llm")
    assert panel.get_attribute("data-theme") == "light"
    tab.page.locator("header button:has(svg)").last.click()
    tab.until(lambda: panel.get_attribute("data-theme") == "dark", "the dark theme")
    tab.page.get_by_role("button", name="Stop").click()


@pytest.mark.parametrize("width", [360, 400, 800, 1400])
def test_it_fits_the_width(show: Any, width: int) -> None:
    tab = show(width, names=["x" * 300, "chat"], rates=[{"stream": "", "label": "all users", "rate": 20.0}])
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


def test_figures_that_come_do_not_move_what_is_there(show: Any, url: str) -> None:
    tab = show(t=None, state="ready", more={"objectives": []})
    places = ".top, .verdict, .tiles, .charts, [data-chart=streams]"
    before = tab.page.locator(places).evaluate_all("all => all.map(e => e.getBoundingClientRect().top)")
    post(f"{url}fake", AGAIN | {"more": {"objectives": []}})
    tab.until(lambda: tab.line("ttft", "p50"), "lines")
    after = tab.page.locator(places).evaluate_all("all => all.map(e => e.getBoundingClientRect().top)")
    assert before == after


def test_a_download_that_is_refused_shows_the_text(show: Any) -> None:
    tab = show()
    tab.page.get_by_role("link", name="summary.json").click()
    tab.until_text(".files .said.bad", "there is no run yet")
