"""``--html``: Locust's report with our section, complete however the run ends."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

from run_processes import SHORT, SPAWNED, Live, Plan, Runs

LOAD = ["-u", "3", "-r", "3", *SHORT, "--html", "out/report-{u}.html"]


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    load = ["-H", simulator(), *LOAD]
    return {
        "run time": Plan([*load, "-t", "2s"]),
        "two processes, ctrl-c": Plan([*load, "--processes", "2"], act=press(signal.SIGINT)),
        "sigterm": Plan(load, act=press(signal.SIGTERM)),
        "not writable": Plan(
            ["-H", simulator(), *SHORT, "-u", "2", "--llm-requests", "4", "--html", "/proc/no/report.html"]
        ),
        "no run": Plan(["-H", "http://127.0.0.1:9", *LOAD]),
    }


def press(number: int) -> Callable[[Live], None]:
    def act(live: Live) -> None:
        live.wait_for(SPAWNED)
        live.until(lambda: _records(live) > 5, "some records")
        live.signal(number)

    return act


def _records(live: Live) -> int:
    return sum(path.read_text().count("\n") for run in live.run_folders() for path in run.glob("events*.jsonl"))


def shown(html: str) -> tuple[int, int]:
    """Return how many exchanges our section and Locust's own table say."""
    (ours,) = re.findall(r"· (\d+) exchanges ·", html)
    (template,) = re.findall(r"window\.templateArgs = ({.*?})\s*\n", html)
    rows = json.loads(template)["requests_statistics"]
    return int(ours), int(next(row["num_requests"] for row in rows if row["name"] == "Aggregated"))


def report(runs: Runs, name: str) -> str:
    return (Path(runs[name].folder) / "out" / "report-3.html").read_text()


def test_every_exchange_is_in_both_parts_however_the_run_ends(runs: Runs) -> None:
    for name in ("run time", "two processes, ctrl-c", "sigterm"):
        ended = runs[name]
        measured = len(ended.run.records())
        assert shown(report(runs, name)) == (measured, measured), name
        assert ended.code == 0, name
        assert "Traceback" not in ended.text


def test_the_section_has_the_table_and_charts(runs: Runs) -> None:
    html = report(runs, "run time")
    assert html.count('<section id="locust-llm">') == 1
    section = html[html.index('<section id="locust-llm">') :]
    assert '<td class="t">ask</td>' in section
    assert "Time to first token (TTFT)" in section
    assert "<script" not in section[: section.index("</section>")]


def test_without_a_run_there_is_no_section(runs: Runs) -> None:
    assert runs["no run"].code == 2
    page = runs["no run"].folder / "out" / "report-3.html"
    assert not page.exists() or "locust-llm" not in page.read_text()


def test_a_page_that_cannot_be_written_costs_no_run(runs: Runs) -> None:
    assert runs["not writable"].run.outcomes().keys() == {"ok"}
