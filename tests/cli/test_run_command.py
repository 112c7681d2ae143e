"""``locust-llm run``: what it sets when nobody said it, and that it runs as a real process."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from locust_llm import ChatUser
from locust_llm.commands.run import DEFAULT_LOCUSTFILE, apply_manners

ROOT = Path(__file__).parents[2]
ENV = {key: value for key, value in os.environ.items() if not key.startswith("LOCUST")} | {"PYTHONPATH": str(ROOT)}
FAST = ["--llm-simulate", "--llm-simulate-options", "ttft=5ms,itl=1ms", "--llm-output-tokens", "20"]


def manners(
    shape: object = None, host: str | None = None, classes: tuple[type, ...] = (ChatUser,), **given: Any
) -> SimpleNamespace:
    """Options as they are after Locust's ``init`` event."""
    nothing = {"worker": False, "headless": True, "num_users": None, "spawn_rate": None, "run_time": None, "host": host}
    options = SimpleNamespace(**{**nothing, "llm_requests": 0, "llm_run_time": 0.0, "llm_rate": 0.0, **given})
    environment = SimpleNamespace(parsed_options=options, shape_class=shape, host=host, user_classes=classes)
    apply_manners(environment)
    assert environment.host == options.host
    return options


class TestManners:
    def test_all_users_start_at_once_unless_a_rate_is_given(self) -> None:
        assert manners(num_users=32).spawn_rate == 32
        assert manners(num_users=32, spawn_rate=2.0).spawn_rate == 2
        assert manners().spawn_rate is None
        assert manners(num_users=32, headless=False).spawn_rate == 32

    def test_locust_does_not_warn_of_a_spawn_rate_that_nobody_chose(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runners = logging.getLogger("locust.runners")
        monkeypatch.setattr(runners, "filters", [])
        for given in ({"spawn_rate": 200.0}, {}):
            manners(num_users=200, **given)
            runners.warning("Your selected spawn rate is very high (>100), and this is known to …")
        runners.warning("something else")
        assert [record.getMessage()[:13] for record in caplog.records] == ["Your selected", "something els"]

    def test_run_time_counts_from_the_end_of_the_ramp_when_headless(self) -> None:
        options = manners(run_time=90)
        assert (options.run_time, options.llm_run_time) == (None, 90)

    def test_without_a_stop_rule_it_is_a_minute(self) -> None:
        assert manners().llm_run_time == 60

    def test_a_number_of_requests_is_a_stop_rule_and_may_stand_beside_a_time(self) -> None:
        assert manners(llm_requests=20).llm_run_time == 0
        assert manners(llm_requests=20, run_time=5).llm_run_time == 5

    def test_a_run_time_of_nought_is_without_end(self) -> None:
        options = manners(run_time=0)
        assert (options.run_time, options.llm_run_time) == (None, 0)

    def test_with_the_page_or_a_shape_time_is_locusts(self) -> None:
        for options in (manners(headless=False, run_time=90), manners(shape=object(), run_time=90)):
            assert (options.run_time, options.llm_run_time) == (90, 0)
        assert manners(shape=object()).llm_run_time == 0

    def test_without_a_class_that_talks_to_a_model_time_is_locusts_for_nobody_else_would_stop(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = manners(classes=(), run_time=90)
        assert (options.run_time, options.llm_run_time) == (90, 0)
        assert "no class here talks to a model" in capsys.readouterr().err

    def test_a_worker_decides_nothing(self) -> None:
        options = manners(worker=True, num_users=3, run_time=9, host="h:1")
        assert (options.spawn_rate, options.run_time, options.llm_run_time, options.host) == (None, 9, 0, "h:1")

    def test_a_host_without_a_scheme_gets_http_for_users_of_locust_insist(self) -> None:
        assert manners(host="h:1").host == "http://h:1"
        assert manners(host="https://h").host == "https://h"
        assert manners().host is None


COMPLETE = """
import json, os, sys
import locust
import locust_llm.plugin
from locust_llm import ChatUser
from locust_llm.commands.run import _complete
from locust_llm.errors import UsageError

home = dict(os.environ)
results = []
for case in json.load(sys.stdin):
    os.chdir(case["cwd"])
    os.environ.clear()
    os.environ.update(home | case["env"])
    try:
        results.append(_complete(case["argv"], case["web"]))
    except UsageError as e:
        results.append(str(e))
print(json.dumps(results))
"""
CASES: dict[str, tuple[dict[str, str], dict[str, str], list[str], bool]] = {
    "nothing": ({}, {}, [], False),
    "a locustfile in the folder": ({"locustfile.py": ""}, {}, [], False),
    "-f": ({}, {}, ["-f", "my.py", "--an-option-of-it", "1"], False),
    "locustfile in environment": ({}, {"LOCUST_LOCUSTFILE": "my.py"}, [], False),
    "locustfile in conf": ({"locust.conf": "locustfile = my.py\nan-option-of-it = 1\n"}, {}, [], False),
    "--web": ({"locust.conf": "headless = true\n"}, {}, [], True),
    "--web --headless": ({}, {}, ["--headless"], True),
    "--headless": ({}, {}, ["--headless"], False),
    "--autostart": ({}, {}, ["--autostart"], False),
    "--worker": ({}, {}, ["--worker", "-f", "-"], False),
}


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    cases = []
    for files, env, argv, web in CASES.values():
        folder = tmp_path_factory.mktemp("run")
        for name, text in files.items():
            (folder / name).write_text(text)
        cases.append({"cwd": str(folder), "env": env, "argv": argv, "web": web})
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE], input=json.dumps(cases), capture_output=True, text=True,
        env=ENV | {"HOME": str(folder)}, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("./locustfile.py is not used") == 1
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


class TestWhatIsAdded:
    def test_headless_and_the_built_in_user(self, completed: dict[str, Any]) -> None:
        expected = {"LOCUST_HEADLESS": "true", "LOCUST_LOCUSTFILE": str(DEFAULT_LOCUSTFILE)}
        assert completed["nothing"] == completed["a locustfile in the folder"] == expected
        assert DEFAULT_LOCUSTFILE.is_file()

    @pytest.mark.parametrize("case", ["-f", "locustfile in environment", "locustfile in conf"])
    def test_a_locustfile_of_ones_own_from_anywhere_stays(self, completed: dict[str, Any], case: str) -> None:
        assert completed[case] == {"LOCUST_HEADLESS": "true"}

    def test_the_page_if_it_is_asked_for(self, completed: dict[str, Any]) -> None:
        assert completed["--web"] == {"LOCUST_HEADFUL": "true", "LOCUST_LOCUSTFILE": str(DEFAULT_LOCUSTFILE)}
        assert "contradict" in completed["--web --headless"]

    @pytest.mark.parametrize("case", ["--headless", "--autostart"])
    def test_what_says_it_already_needs_nothing(self, completed: dict[str, Any], case: str) -> None:
        assert completed[case] == {"LOCUST_LOCUSTFILE": str(DEFAULT_LOCUSTFILE)}

    def test_a_worker_needs_nothing(self, completed: dict[str, Any]) -> None:
        assert completed["--worker"] == {}


def run(folder: Path, *argv: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "locust_llm.cli", "run", *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=ENV, timeout=timeout_s, check=False)


def card(folder: Path) -> dict[str, Any]:
    [path] = (folder / "reports").glob("*/run.json")
    return dict(json.loads(path.read_bytes()))


def summary(folder: Path) -> dict[str, Any]:
    [path] = (folder / "reports").glob("*/summary.json")
    return dict(json.loads(path.read_bytes()))


class TestAsAProcess:
    def test_a_number_of_requests_on_the_simulated_server(self, tmp_path: Path) -> None:
        done = run(tmp_path, *FAST, "-u", "5", "--llm-requests", "20")
        assert done.returncode == 0, done.stderr
        assert "load: 5 users" in done.stderr
        assert "No run time limit" not in done.stderr
        assert card(tmp_path)["load"] == {
            "users": 5, "spawn_rate": 5.0, "run_time_s": None, "requests": 20, "user_classes": ["Load"],
        }  # fmt: skip
        assert summary(tmp_path)["total_all"]["outcomes"]["ok"] == 20
        assert [name["name"] for name in summary(tmp_path)["names"]][:1] == ["chat"]

    def test_words_of_another_tool_and_the_completions_api(self, tmp_path: Path) -> None:
        done = run(
            tmp_path, "--llm-simulate", "--llm-simulate-options", "ttft=5ms,itl=1ms", "--backend", "vllm",
            "--dataset-name", "random", "--random-input-len", "64", "--random-output-len", "10", "--num-prompts", "6",
            "--max-concurrency", "3", "--seed", "7", "--result-dir", "out", "--metadata", "gpu=none", "--save-result",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "note: --save-result changes nothing" in done.stderr
        [path] = (tmp_path / "out").glob("*/run.json")
        facts = json.loads(path.read_bytes())
        assert (facts["seed"], facts["meta"]) == (7, {"gpu": "none"})
        assert facts["load"]["users"] == 3
        assert facts["lengths"]["input_tokens"] == "64"
        total = json.loads((path.parent / "summary.json").read_bytes())
        assert [(name["name"], name["api"]) for name in total["names"]][:1] == [("completion", "openai-completions")]
        assert total["total_all"]["outcomes"]["ok"] == 6

    def test_run_time_counts_from_the_end_of_the_ramp(self, tmp_path: Path) -> None:
        done = run(tmp_path, *FAST, "-u", "3", "-r", "1", "-t", "1s")
        assert done.returncode == 0, done.stderr
        times = {event["event"]: event["t"] for event in card(tmp_path)["events"]}
        assert times["ramp_complete"] - times["test_start"] > 1.5
        assert 0.9 < times["stop"] - times["ramp_complete"] < 5

    def test_the_mixed_locustfile_runs_as_it_is(self, tmp_path: Path) -> None:
        done = run(tmp_path, *FAST, "-f", str(ROOT / "locustfiles" / "mixed.py"), "-u", "10", "-t", "2s")
        assert done.returncode == 0, done.stdout + done.stderr
        names = {name["name"] for name in summary(tmp_path)["names"]}
        assert {"ask", "complete_line"} <= names
        assert "/health" not in names
        assert "/health" in done.stdout + done.stderr

    def test_an_option_cut_short_is_refused_for_it_would_get_past_the_look_for_contradictions(
        self, tmp_path: Path
    ) -> None:
        for words, in_full in ((["--llm-req", "5"], "--llm-requests"), (["--user", "5"], "--users")):
            done = run(tmp_path, *FAST, "--num-prompts", "6", "--concurrency", "2", *words)
            assert done.returncode == 2
            assert words[0] in done.stderr
            assert in_full in done.stderr
            assert not (tmp_path / "reports").exists()

    def test_locusts_exit_code_passes_through(self, tmp_path: Path) -> None:
        failing = ["--llm-simulate", "--llm-simulate-options", "ttft=1ms,error_rate=1", "--llm-no-preflight"]
        done = run(tmp_path, *failing, "--model", "sim", "-u", "1", "--llm-requests", "3", "--exit-code-on-error", "7")
        assert done.returncode == 7, done.stderr

    @pytest.mark.parametrize(
        ("words", "line"),
        [
            (
                ["--llm-rate", "fast"],
                "--llm-rate must be a number of exchanges per second, such as 5 (got 'fast')",
            ),
            (["--llm-arrivals", "often"], "--llm-arrivals must be one of constant, poisson (got 'often')"),
            (["-u", "many"], "-u/--users must be a whole number (got 'many')"),
        ],
    )
    def test_a_bad_value_is_one_line_first_and_alone_and_exit_code_2(
        self, tmp_path: Path, words: list[str], line: str
    ) -> None:
        done = run(tmp_path, *FAST, *words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"locust-llm: error: {line}\n")

    def test_no_server_is_one_line_and_exit_code_2(self, tmp_path: Path) -> None:
        done = run(tmp_path, "-u", "1")
        assert done.returncode == 2
        assert "locust-llm: error: no server to test" in done.stderr
        assert "load: " not in done.stderr
        assert "Traceback" not in done.stderr
