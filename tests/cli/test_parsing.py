"""A command line that cannot be read: one line in our words, whatever parser of ours found it out."""

from __future__ import annotations

import argparse

import pytest

from locust_llm import cli
from locust_llm.errors import UsageError
from locust_llm.parsing import Parser, in_our_words


def positive(text: str) -> float:
    if float(text) <= 0:
        raise argparse.ArgumentTypeError("must be > 0")
    return float(text)


def parser() -> Parser:
    made = Parser(prog="locust-llm report")
    made.add_argument("-k", "--kind", choices=("page", "table"))
    made.add_argument("--count", type=int)
    made.add_argument("--share", type=float)
    made.add_argument("--rate", type=positive)
    either = made.add_mutually_exclusive_group()
    either.add_argument("--loud", action="store_true")
    either.add_argument("--quiet", action="store_true")
    made.add_argument("run")
    return made


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["r", "--kind", "x"], "-k/--kind must be one of page, table (got 'x')"),
        (["r", "--kind", "a, b"], "-k/--kind must be one of page, table (got 'a, b')"),
        (["r", "--count", "1.5"], "--count must be a whole number (got '1.5')"),
        (["r", "--share", "half"], "--share must be a number (got 'half')"),
        (["r", "--count"], "--count needs a value; locust-llm report --help says more"),
        (["r", "--loud=1"], "--loud takes no value"),
        (["r", "--loud", "--quiet"], "--quiet and --loud contradict each other; give one of them"),
        (["r", "--rate", "0"], "--rate: must be > 0"),
        ([], "run is missing; locust-llm report --help says more"),
        (
            ["r", "--shore", "1"],
            "there is no option --shore; did you mean --share? (locust-llm report --help lists them)",
        ),
        (["r", "--frobnicate=7"], "there is no option --frobnicate (locust-llm report --help lists them)"),
        (["r", "s"], "'s' belongs to no option; locust-llm report --help lists them"),
    ],
)  # fmt: skip
def test_the_line_names_the_option_and_the_remedy(words: list[str], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parser().parse_args(words)
    assert str(caught.value) == line


def test_choices_without_quotes_as_newer_pythons_write_them_are_the_same() -> None:
    assert in_our_words("argument --to: invalid choice: 'x' (choose from a, b)", "c") == (
        "--to must be one of a, b (got 'x')"
    )


def test_words_of_argparse_that_we_do_not_know_are_kept() -> None:
    assert in_our_words("what a day", "locust-llm run") == "what a day; locust-llm run --help says more"


@pytest.mark.parametrize("command", cli.PARSED)
def test_all_commands_speak_so(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "a", "b", "--frobnicate"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("locust-llm: error: ")
    assert err.count("\n") == 1


def test_it_is_a_parser_like_any_other() -> None:
    assert parser().parse_args(["r", "--count", "3"]) == argparse.Namespace(
        run="r", count=3, kind=None, share=None, rate=None, loud=False, quiet=False
    )
