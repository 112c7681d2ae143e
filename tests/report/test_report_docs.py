"""docs/reports.md and comparing.md: commands are understood, the loop is the guide's, tables are those of the code."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from locust_llm.commands.translate import translate
from locust_llm.report import command, curve_command
from locust_llm.report.export import command as export_command
from locust_llm.report.export.command import FORMATS
from locust_llm.report.page.card import META, PRICES

PAGE = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
COMPARING = (Path(__file__).parents[2] / "docs" / "comparing.md").read_text(encoding="utf-8")
PARSERS = {"report": command, "leaderboard": curve_command, "export": export_command}


def commands(page=PAGE + COMPARING):
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).replace("\\\n", " ")
    lines = re.findall(r"locust-llm [^\n]*?(?=</dev/null|> |\n)", blocks + "\n")
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_of_the_page_is_understood(words):
    name, rest = words[0], words[1:]
    rest = [{"$users": "5", "$input,0": "200,0", "$output,0": "5,0"}.get(word, word) for word in rest]
    if name == "run":
        translate(rest)
        return
    parser = argparse.ArgumentParser()
    PARSERS[name].add_arguments(parser)
    parser.parse_args(rest)


def test_the_page_has_every_command():
    assert {words[0] for words in commands()} == {"run", *PARSERS}


def test_the_loop_is_that_of_the_guide():
    assert "for users in 1 2 5 10 50 100 250; do" in PAGE
    assert "translation 200 200\nclassification 200 5\nsummary 1000 200\n" in PAGE


def test_every_format_and_every_key_of_the_card_is_on_the_page():
    for word in (*FORMATS, *META, *PRICES):
        assert f"`{word}`" in PAGE, word
