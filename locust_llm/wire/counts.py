"""The token counts of one OpenAI-shaped answer while it comes: the total, and what each event added.

Rules:

- The last usage that counts something wins, wherever it stands; without any, llama.cpp's ``timings`` are the count.
- A usage is a *running* one if every event with text came with a count that grew. Only then does the growth of an event
  tell its tokens, and an event without text whose count grew is a token event. With several choices it never does: some
  servers count per choice there (vLLM), some in all.
- llama.cpp with n > 1 or several prompts reports each choice by itself, after that choice's finish. A usage is taken
  for that of one choice only if every choice has one and the last is smaller than the number of token events; only then
  are they added up.
"""

from __future__ import annotations

from typing import Any

from .answer import TOKEN_KINDS, Answer, Usage
from .usage import find_usage, merge, read_timings, read_usage


class Counts:
    """Writes ``usage``, ``usage_raw`` and ``timings`` of an answer."""

    __slots__ = ("_answer", "_by_choice", "_finished", "_last", "_reported", "_runs")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._reported = False  # a usage came, so timings are not asked
        self._runs = True  # nothing speaks against a running usage so far
        self._last: int | None = None  # the last count of an event with choices
        self._finished: int | None = None  # the choice that finished last, with no text since
        self._by_choice: dict[int, Usage] = {}

    def text_without_count(self) -> None:
        """One or more events with text and no usage have come."""
        self._runs = False
        self._finished = None

    def text(self) -> None:
        """A choice of the event at hand has text."""
        self._finished = None

    def finish(self, choice: int) -> None:
        """A choice of the event at hand has a finish reason."""
        self._finished = choice

    def take(self, chunk: dict[str, Any]) -> Usage | None:
        """Take in and return the counts of an event; None if it has none."""
        answer = self._answer
        timings = chunk.get("timings")
        if isinstance(timings, dict):
            answer.timings = timings
        raw = find_usage(chunk)
        if raw is not None:
            self._reported = True
            answer.usage_raw = raw
            usage = read_usage(raw)
        elif isinstance(timings, dict) and not self._reported:
            usage = read_timings(timings)
        else:
            return None
        if usage.n_out is None and usage.n_in is None:
            return None
        answer.usage = merge(answer.usage, usage)
        if self._finished is not None:
            self._by_choice[self._finished] = usage
        return usage

    def growth(self, usage: Usage | None, has_text: bool, choices: int) -> int:
        """Return by how many tokens a running usage grew with an event that has choices; 0 where that is not known.

        Args:
            usage: of this event, as ``take`` returned it.
            has_text: the event carries text of any channel.
            choices: how many choices have been seen.
        """
        if choices > 1:
            self._runs = False
        if usage is None or usage.n_out is None:
            self._runs = self._runs and not has_text
            return 0
        # Reasoning that is counted but never streamed is no token of any event.
        count = usage.n_out - (0 if self._answer.reasoning else usage.n_reasoning or 0)
        # A first count on an event without text may as well be the final one.
        before = self._last if self._last is not None else 0 if has_text else count
        self._last = count
        grown = max(count - before, 0)
        if has_text and not grown:
            self._runs = False
        return grown if self._runs else 0

    def close(self, choices: set[int]) -> None:
        """No more events: settle the total. ``choices``: all that were seen."""
        usage = self._answer.usage
        if len(choices) < 2 or usage is None or usage.n_out is None:
            return
        events = sum(map(self._answer.kinds.count, TOKEN_KINDS))
        if self._by_choice.keys() == choices and usage.n_out < events:
            usage.n_out = sum(each.n_out or 0 for each in self._by_choice.values())
            if usage.n_reasoning is not None:
                usage.n_reasoning = sum(each.n_reasoning or 0 for each in self._by_choice.values())
