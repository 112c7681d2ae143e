"""``locust-llm``: commands are found, errors are one line, nothing heavy is loaded before it is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from locust_llm import __version__, cli
from locust_llm.errors import UsageError

ROOT = Path(__file__).parents[2]
ENV = {key: value for key, value in os.environ.items() if not key.startswith("LOCUST")} | {"PYTHONPATH": str(ROOT)}


def locust_llm(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "locust_llm.cli", *argv]
    return subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=60, check=False)


def test_help_names_every_command_and_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["-h"], ["help"]):
        assert cli.main(words) == 0
        text = capsys.readouterr().out
        assert re.findall(r"^  (\w+)  ", text, re.MULTILINE) == [
            "run", "init", "report", "compare", "leaderboard", "export", "simulate", "selfcheck"
        ]  # fmt: skip
        assert text.count("  locust-llm ") >= 5


def test_no_command_is_the_help_and_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "Usage: locust-llm COMMAND" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"locust-llm {__version__}\n"


@pytest.mark.parametrize("words", [["frobnicate"], ["Run"], ["merge", "a", "b"], ["-u", "5"], ["--host=h"], [""]])
def test_an_unknown_command_is_one_line_and_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("locust-llm: error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--request-rate", "0"],
        ["run", "--concurrency", "0"],
        ["run", "-u", "http://localhost:8000"],
        ["run", "--concurrency", "1", "-u", "2"],
        ["init", "chat", "not_python.txt"],
    ],
)
def test_a_usage_error_of_a_command_is_one_line_and_exit_code_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("locust-llm: error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_arguments_that_a_command_does_not_know_are_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", "frobnicate"]) == 2
    assert cli.main(["report"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("code", [(None, 0), (3, 3), (-1, -1), ("said why", 1)])
def test_an_exit_code_passes_through(
    code: tuple[object, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(argv: list[str]) -> int:
        raise SystemExit(code[0])

    monkeypatch.setattr(cli, "_dispatch", leave)
    assert cli.main(["run"]) == code[1]
    assert capsys.readouterr().err == ("said why\n" if isinstance(code[0], str) else "")


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_dispatch", interrupted)
    assert cli.main(["report", "x"]) == 130


def test_a_usage_error_anywhere_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(argv: list[str]) -> int:
        raise UsageError("--x must be y")

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert cli.main(["run"]) == 2
    assert capsys.readouterr().err == "locust-llm: error: --x must be y\n"


def test_a_reader_that_has_left_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "locust_llm.cli", "run", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=ENV, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["init", "--help"],
        ["report", "--help"],
        ["compare", "--help"],
        ["simulate", "--help"],
        ["selfcheck", "--help"],
        ["run", "--x=http://h", "--goodput", "y"],
    ],
)
def test_what_runs_no_load_loads_neither_locust_nor_gevent(words: list[str]) -> None:
    code = (
        "import sys; from locust_llm.cli import main; code = main(sys.argv[1:]);"
        "print(sorted({'locust', 'gevent', 'pandas', 'transformers', 'plotly'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=ENV, timeout=60, check=False
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_module_is_a_command_too() -> None:
    done = locust_llm("frobnicate")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("locust-llm: error: unknown command")


def test_an_option_that_locusts_parser_does_not_know_is_an_error_of_locust_llm_run() -> None:
    done = locust_llm("run", "--frobnicate")
    assert done.returncode == 2
    assert done.stderr == "locust-llm: error: there is no option --frobnicate (locust-llm run --help lists them)\n"


def test_help_all_is_locusts_help_with_our_options_in_it() -> None:
    done = locust_llm("run", "--help-all")
    assert done.returncode == 0
    assert "--exit-code-on-error" in done.stdout
    assert "--llm-input-tokens" in done.stdout
    assert "--llm-run-state" not in done.stdout
