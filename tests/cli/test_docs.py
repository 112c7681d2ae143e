"""The pages of docs/ that hold tables: these are those of the code, and their commands are understood.

Run this file to write the tables anew: ``python tests/cli/test_docs.py``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from locust_llm import options
from locust_llm.commands import names
from locust_llm.commands.help import run_help
from locust_llm.commands.translate import translate
from locust_llm.report import limits
from locust_llm.wire import registry

ROOT = Path(__file__).parents[2]
TABLES: dict[str, Callable[[], str]] = {
    "options.md": options.markdown_table,
    "coming-from.md": names.markdown_table,
    "metrics.md": limits.markdown_table,
}
_TABLE = re.compile(r"(<!-- made from .*? -->\n).*?(<!-- end -->)", re.DOTALL)


def read(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def with_table(text: str, table: str) -> str:
    new, count = _TABLE.subn(lambda match: match[1] + "\n" + table + "\n" + match[2], text)
    assert count == 1
    return new


def commands(name: str) -> list[list[str]]:
    """The ``locust-llm run`` commands of a page's sh blocks, as argument lists."""
    blocks = re.findall(r"```sh\n(.*?)```", read(name), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines]
    return [words[2:] for words in found if words[:2] == ["locust-llm", "run"]]


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_the_docs_are_those_of_the_code(name: str) -> None:
    assert read(name) == with_table(read(name), TABLES[name]()), f"{name} is stale: run python tests/cli/test_docs.py"


@pytest.mark.parametrize("name", ["options.md", "coming-from.md", "servers.md"])
def test_every_command_of_the_docs_is_understood(name: str) -> None:
    found = commands(name)
    assert len(found) >= 5
    for words in found:
        translate(words)


def test_every_api_is_in_the_docs_of_servers() -> None:
    page = read("servers.md")
    for name in registry.names():
        assert f"`{name}`" in page or f"--llm-api {name} " in page, name


def test_every_option_and_its_environment_name_is_in_the_docs() -> None:
    page = read("options.md")
    for option in options.OPTIONS:
        assert option.hidden or (f"`{option.flag}" in page and f"`{option.env}`" in page), option.flag
        assert not option.hidden or option.flag not in page


def test_run_help_shows_every_option_and_every_name_but_the_hidden_ones() -> None:
    text = run_help(width=100)
    for option in options.OPTIONS:
        assert (option.flag in text.replace("\n", " ")) is not option.hidden
    shown = set(text.split())
    for name in names.NAMES:
        if name.kind not in (names.Kind.LOCUST, names.Kind.OURS):
            assert set(name.flags) <= shown


def test_run_help_fits_the_terminal() -> None:
    assert max(map(len, run_help(width=110).splitlines())) <= 110


if __name__ == "__main__":
    for page, table in TABLES.items():
        (ROOT / "docs" / page).write_text(with_table(read(page), table()), encoding="utf-8")
