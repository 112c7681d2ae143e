"""The prompt a workload hands out, and the one method that makes a workload.

A prompt is finished when it is handed out: ``next()`` does no I/O and no tokenizing, because the clock of the
exchange starts right after it and other streams wait meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request's input.

    Attributes:
        text: the prompt as text: the body of a completion; for a chat the text of its messages.
        messages: chat messages, or None for a completion.
        max_tokens: longest answer in tokens; None leaves it to ``--llm-max-tokens``.
        name: name under which the exchange is reported; None leaves it to the user's code.
        asked_in: input tokens that were aimed at, chat template included; None where nothing was.
    """

    text: str
    messages: list[dict[str, Any]] | None = None
    max_tokens: int | None = None
    name: str | None = None
    asked_in: int | None = None


class Workload(Protocol):
    """A source of prompts. One object serves all users of one class in one worker process."""

    def next(self) -> Prompt:
        """Return the next prompt, ready to send: some microseconds of work, no I/O, no tokenizing."""


def user_message(text: str) -> list[dict[str, Any]]:
    """Return ``text`` as a chat of one user message."""
    return [{"role": "user", "content": text}]
