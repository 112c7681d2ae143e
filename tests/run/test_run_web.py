"""Runs from Locust's page: one after the other in a process, each with its folder; bad input is a line of text."""

from __future__ import annotations

import contextlib
import json
import re
import time
import urllib.request
from collections.abc import Callable

from run_cluster import keys
from run_pages import Page, page
from run_processes import SHORT, SPAWNED, Plan, Runs

LONG = ["--llm-input-tokens", "40,0", "--llm-output-tokens", "300,0"]
"""Exchanges of three seconds."""
ENDLESS = ["--llm-input-tokens", "40,0", "--llm-output-tokens", "3000,0"]
"""Exchanges of half a minute, to be cut."""


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    host = ["-H", simulator()]
    return {
        "two runs": page([*host, *LONG], two_runs),
        "bad input": page([*host, *SHORT], bad_input),
        "stop twice": page([*host, *ENDLESS], stop_twice),
        "ctrl-c": page([*host, *LONG], ctrl_c),
        "while it runs": page([*host, *SHORT], while_it_runs),
        "simulated": page(["--llm-simulate", *SHORT], simulated),
        "requests": page([*host, *SHORT, "--llm-requests", "5"], exactly_five),
        "picked classes": page([*host, *SHORT, "--class-picker"], pick, TWO_CLASSES),
        "two processes": page([*host, *SHORT, "--processes", "2"], two_runs),
    }  # fmt: skip


TWO_CLASSES = """
from locust import HttpUser, task
from locust_llm import ChatUser

class Chat(ChatUser):
    @task
    def ask(self):
        self.chat()

class Other(ChatUser):
    @task
    def other(self):
        self.chat()

class Plain(HttpUser):
    @task
    def models(self):
        self.client.get("/v1/models")
"""


def note(page: Page, name: str, said: object) -> None:
    (page.live.folder / f"{name}.json").write_text(json.dumps(said))


def noted(runs: Runs, run: str, name: str) -> list[object]:
    said: list[object] = json.loads((runs[run].folder / f"{name}.json").read_text())
    return said


# ---- what is done to them


def two_runs(page: Page) -> None:
    if "--processes" in page.live.argv:
        page.live.wait_for("reported as ready", 2)
    for i in (1, 2):
        page.swarm()
        page.live.wait_for(SPAWNED, i)
        time.sleep(0.7)
        note(page, "stop", page.post("/stop"))
        page.live.wait_for("run folder:", i)


def bad_input(page: Page) -> None:
    answers = {
        "length": page.swarm(llm_input_tokens="abc"),
        "number": page.swarm(llm_requests="many"),
        "nothing": page.swarm(llm_requests=" "),
        "host": page.swarm(host="http://127.0.0.1:9"),
        "name": page.swarm(host="http://no-such-host.invalid"),
        "model": page.swarm(llm_api="no-such-api"),
    }
    note(page, "answers", answers)
    note(page, "state", [page.state()])
    note(page, "good", page.swarm())
    page.run_until(3)
    page.post("/stop")


def stop_twice(page: Page) -> None:
    page.swarm()
    page.live.wait_for(SPAWNED)
    time.sleep(0.7)
    with contextlib.suppress(TimeoutError):
        urllib.request.urlopen(urllib.request.Request(page.url + "/stop", b"", method="POST"), timeout=0.5)
    page.live.wait_for("letting 3 streams")
    note(page, "start", page.swarm())
    note(page, "stop", page.post("/stop"))
    page.live.until(lambda: page.state() == "stopped", "the end")


def ctrl_c(page: Page) -> None:
    page.swarm()
    page.live.wait_for(SPAWNED)
    time.sleep(0.7)


def while_it_runs(page: Page) -> None:
    page.swarm(llm_output_tokens="20,0")
    page.run_until(3)
    note(page, "edit", page.swarm(user_count=5, llm_output_tokens="20,0"))
    note(page, "other length", page.swarm(user_count=5, llm_output_tokens="30,0"))
    page.live.until(lambda: json.loads(page.get("/stats/requests")[1])["user_count"] == 5, "five users")
    page.post("/stop")


def simulated(page: Page) -> None:
    (page.live.folder / "page.html").write_text(page.get("/")[1])
    note(page, "other host", page.swarm(host="http://127.0.0.1:9"))
    note(page, "start", page.swarm())
    page.run_until(3)
    page.post("/stop")


def exactly_five(page: Page) -> None:
    for i in (1, 2):
        page.swarm()
        page.live.wait_for("run folder:", i)


def pick(page: Page) -> None:
    for i, name in enumerate(("Other", "Plain"), 1):
        note(page, name, page.swarm(user_classes=name))
        page.live.wait_for(SPAWNED, i)
        page.run_until(3)
        page.post("/stop")


# ---- what comes of it


def test_a_second_run_in_the_same_process_has_its_own_folder_and_all_its_records(runs: Runs) -> None:
    ended = runs["two runs"]
    first, second = ended.runs
    for run in (first, second):
        assert set(run.outcomes()) == {"ok"}
        assert run.card["records"] == len(run.records()) + len(run.records("preflight"))
        assert {record["run"] for record in run.records()} == {run.path.name}
        assert (run.path / "summary.json").exists()
    assert first.card["seed"] != second.card["seed"]
    assert ended.code == 0
    assert "Traceback" not in ended.text


def test_stop_returns_when_all_streams_have_finished(runs: Runs) -> None:
    assert noted(runs, "two runs", "stop")[0] == 200
    for run in runs["two runs"].runs:
        (stop,), (over,) = run.events("stop"), run.events("test_stop")
        assert stop["in_flight"] == 3
        assert over["t"] > stop["t"]


def test_two_runs_with_two_processes(runs: Runs) -> None:
    ended = runs["two processes"]
    first, second = ended.runs
    for run in (first, second):
        assert set(run.outcomes()) == {"ok"}
        assert len(run.card["workers"]) == 2
        assert run.card["workers_missing"] == []
        assert run.card["records"] == len(run.records()) + len(run.records("preflight"))
        assert run.card["finished"] == {"ok": len(run.records())}
        assert keys(run.log()) == keys(run.records()), "the master's log has all of both workers, once"
        assert {record["run"] for record in run.records()} == {run.path.name}
    assert ended.code == 0
    assert "Traceback" not in ended.text


def test_bad_input_in_the_form_is_a_400_with_one_line_that_names_it(runs: Runs) -> None:
    (answers,) = [noted(runs, "bad input", "answers")]
    for name, said in {
        "length": "--llm-input-tokens",
        "number": "--llm-requests must be a whole number",
        "nothing": "--llm-requests is empty",
        "host": "no server at http://127.0.0.1:9",
        "name": "no-such-host.invalid",
        "model": "--llm-api",
    }.items():
        status, text = answers[name]  # type: ignore[call-overload]
        assert status == 400, name
        assert said in text
        assert text.count("\n") == 1
        assert text.endswith("\n")


def test_after_bad_input_no_test_has_started_and_a_good_one_starts(runs: Runs) -> None:
    assert noted(runs, "bad input", "state") == ["ready"]
    assert noted(runs, "bad input", "good")[0] == 200
    assert set(runs["bad input"].run.outcomes()) == {"ok"}
    assert runs["bad input"].run.card["options"]["--llm-input-tokens"] == "40,0"


def test_a_second_stop_cuts(runs: Runs) -> None:
    assert noted(runs, "stop twice", "stop")[0] == 200
    run = runs["stop twice"].run
    assert run.outcomes() == {"unfinished": 3}
    assert run.events("cut")[0]["exchanges"] == 3


def test_a_test_cannot_start_while_the_last_one_drains(runs: Runs) -> None:
    status, text = noted(runs, "stop twice", "start")
    assert status == 400
    assert "streams finish" in str(text)


def test_ctrl_c_with_a_page_lets_streams_finish(runs: Runs) -> None:
    assert runs["ctrl-c"].run.outcomes() == {"ok": 3}
    assert runs["ctrl-c"].code == 0


def test_the_load_of_a_running_test_can_change_its_options_cannot(runs: Runs) -> None:
    assert noted(runs, "while it runs", "edit")[0] == 200
    status, text = noted(runs, "while it runs", "other length")
    assert (status, "--llm-output-tokens" in str(text)) == (400, True)
    run = runs["while it runs"].run
    assert {record["asked_out"] for record in run.records()} == {20}
    assert len(run.events("load_changed")) == 1


def test_the_page_says_that_the_server_is_simulated(runs: Runs) -> None:
    html = (runs["simulated"].folder / "page.html").read_text()
    assert re.search(r'role="status"[^>]*>Simulated server', html)
    assert runs["simulated"].run.card["simulated"] is True


def test_a_simulated_run_cannot_go_to_another_host(runs: Runs) -> None:
    status, text = noted(runs, "simulated", "other host")
    assert (status, "--llm-simulate" in str(text)) == (400, True)


def test_a_run_of_n_requests_ends_and_the_page_stays(runs: Runs) -> None:
    for run in runs["requests"].runs:
        assert run.outcomes() == {"ok": 5}
    assert len(runs["requests"].runs) == 2


def test_only_picked_classes_run_and_a_run_of_plain_users_has_no_folder(runs: Runs) -> None:
    ended = runs["picked classes"]
    assert {record["user_class"] for record in ended.run.records()} == {"Other"}
    assert noted(runs, "picked classes", "Plain")[0] == 200
    assert "Traceback" not in ended.text
