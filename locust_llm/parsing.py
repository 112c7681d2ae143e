"""Command lines that cannot be read, said as all our errors are: one line, the option, the remedy.

argparse prints the usage of the whole command, then its own words. The one thing to know: what raises here is caught in
``cli.main``, which prints ``locust-llm: error: …`` and ends with exit code 2.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import NoReturn

from .errors import UsageError


class Parser(argparse.ArgumentParser):
    """A parser of one of our commands."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(in_our_words(message, self.prog, self._option_string_actions))


def in_our_words(message: str, command: str, flags: Iterable[str] = ()) -> str:
    """Return an error of argparse as a line that names the option and the remedy.

    Args:
        message: what argparse says.
        command: whose ``--help`` tells more.
        flags: all options of the command, for the one that was meant.
    """
    for pattern, line in _LINES:
        if found := re.fullmatch(pattern, message, re.DOTALL):
            parts = {key: _unquoted(text) for key, text in found.groupdict().items()}
            return line.format(**parts, more=f"{command} --help says more")
    if found := re.fullmatch(r"unrecognized arguments: (.+)", message, re.DOTALL):
        return _unknown(found[1].split(), command, flags)
    return f"{message}; {command} --help says more"


# ---- helpers

_LINES = (
    (r"argument (?P<flag>.+?): invalid choice: (?P<got>.+?) \(choose from (?P<choices>.+)\)",
     "{flag} must be one of {choices} (got {got})"),
    (r"argument (?P<flag>.+?): invalid int value: (?P<got>.+)", "{flag} must be a whole number (got {got})"),
    (r"argument (?P<flag>.+?): invalid float value: (?P<got>.+)", "{flag} must be a number (got {got})"),
    (r"argument (?P<flag>.+?): expected (one|at least one) argument", "{flag} needs a value; {more}"),
    (r"argument (?P<flag>.+?): ignored explicit argument .+", "{flag} takes no value"),
    (r"argument (?P<flag>.+?): not allowed with argument (?P<other>.+)",
     "{flag} and {other} contradict each other; give one of them"),
    (r"argument (?P<flag>.+?): (?P<what>.+)", "{flag}: {what}"),
    (r"the following arguments are required: (?P<what>.+)", "{what} is missing; {more}"),
)  # fmt: skip


def _unquoted(text: str) -> str:
    """Return a list of choices as it is elsewhere in our lines: without quotes (newer Pythons write none)."""
    return re.sub(r"'([^',]*)'(?=, |$)", r"\1", text) if ", " in text else text


def _unknown(words: list[str], command: str, flags: Iterable[str]) -> str:
    wrong = next((word for word in words if word.startswith("-")), words[0]).partition("=")[0]
    if not wrong.startswith("-"):
        return f"{wrong!r} belongs to no option; {command} --help lists them"
    near = difflib.get_close_matches(wrong, list(flags), n=1, cutoff=0.75)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"there is no option {wrong}{meant} ({command} --help lists them)"
