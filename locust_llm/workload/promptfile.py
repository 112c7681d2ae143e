"""Prompts of the user's own: ``--llm-prompts FILE.jsonl``, one JSON object a line.

A line has ``prompt`` or ``messages``, and may have ``max_tokens`` and ``name``. The whole file is checked at the start,
so a bad line stops the run before it begins and not an hour into it. Each worker keeps only its own share in memory.
"""

from __future__ import annotations

import logging
import random
from array import array
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from ..errors import UsageError
from ..tokens import messages_text
from .lengths import LONGEST
from .prompts import Prompt, user_message

logger = logging.getLogger(__name__)

_OPTION = "--llm-prompts"
_KEYS = ("prompt", "messages", "max_tokens", "name")
_BOM = b"\xef\xbb\xbf"


class PromptFile:
    """The prompts of a file, shuffled by seed and dealt out like cards; a ``Workload``.

    The constructor checks the whole file and reads this worker's share: about a second for 100,000 prompts, so call it
    in a thread.

    Args:
        path: the file.
        seed: the run's seed; the same seed gives the same order.
        worker: index of this worker, from 0, among ``workers``: each line goes to exactly one of them. With fewer lines
            than workers some share a line. Several User classes of a process that are not to send the same lines count
            as several workers.
        chat: the API takes messages, and a ``prompt`` becomes a user message; else only ``prompt`` lines will do.

    Attributes:
        lines: prompts in the file.
        share: prompts of this worker.
        wrapped: how often this worker has begun again at its first prompt; the first time is logged.

    Raises:
        UsageError: the file cannot be read, has no prompts, or has a bad line (named by its number).
    """

    def __init__(self, path: str, *, seed: int, worker: int = 0, workers: int = 1, chat: bool = True) -> None:
        if not 0 <= worker < workers:
            raise ValueError(f"worker {worker} of {workers}")
        self._path = path
        self._chat = chat
        self._next = 0
        self.wrapped = 0
        try:
            with open(path, "rb") as file:
                offsets = _checked(file, path, chat)
                order = list(range(len(offsets)))
                random.Random(f"{seed}/prompts").shuffle(order)
                mine = order[worker::workers] or [order[worker % len(order)]]
                # Still JSON, which takes a third of the memory of objects and is parsed in microseconds.
                self._lines = _read(file, offsets, mine)
        except OSError as e:
            raise UsageError(f"{_OPTION} {path}: cannot be read ({e.strerror}); name a JSON Lines file") from None
        self.lines = len(offsets)
        self.share = len(mine)

    def next(self) -> Prompt:
        """Return the next prompt; after the last one of this worker's share, the first again."""
        if self._next == self.share:
            self._next = 0
            self.wrapped += 1
            if self.wrapped == 1:
                logger.warning(
                    "%s %s: this worker has used all its prompts (%d) and begins again, so a cache may now answer;"
                    " give more prompts or a shorter run",
                    _OPTION,
                    self._path,
                    self.share,
                )
        data = orjson.loads(self._lines[self._next])
        self._next += 1
        text, messages = data.get("prompt"), data.get("messages")
        if text is None:
            text = messages_text(messages)
        elif self._chat:
            messages = user_message(text)
        return Prompt(text, messages, data.get("max_tokens"), data.get("name"))


def _checked(file: BinaryIO, path: str, chat: bool) -> array[int]:
    """Return where each prompt's line begins, having checked every line."""
    offsets = array("Q")
    for number, offset, line in _numbered(file):
        problem = _problem(line, chat)
        if problem:
            raise UsageError(f"{_OPTION} {path}, line {number}: {problem}")
        offsets.append(offset)
    if not offsets:
        raise UsageError(f'{_OPTION} {path}: no prompts in it; write one a line, such as {{"prompt": "Hello"}}')
    return offsets


def _numbered(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset and bytes of every line that is not blank; a byte order mark is no part of the first."""
    offset = 0
    for number, line in enumerate(file, 1):
        mark = len(_BOM) if number == 1 and line.startswith(_BOM) else 0
        if line[mark:].strip():
            yield number, offset + mark, line[mark:]
        offset += len(line)


def _read(file: BinaryIO, offsets: array[int], mine: list[int]) -> list[bytes]:
    """Return the lines ``mine`` in that order."""
    lines: dict[int, bytes] = {}
    for index in sorted(mine):
        file.seek(offsets[index])
        lines[index] = file.readline().strip()
    return [lines[index] for index in mine]


def _problem(line: bytes, chat: bool) -> str | None:
    """Return what is wrong with a line, or None."""
    try:
        data = orjson.loads(line.decode())
    except UnicodeDecodeError as e:
        return f"not UTF-8 (byte {e.start + 1}); save the file as UTF-8"
    except orjson.JSONDecodeError as e:
        return f"not JSON ({e.msg}, column {e.colno})"
    if not isinstance(data, dict):
        return "must be a JSON object with prompt or messages"
    # null is as if the key were absent, as in the bodies of the APIs.
    given = {key: value for key, value in data.items() if value is not None}
    unknown = [key for key in data if key not in _KEYS]
    if unknown:
        return f"unknown key {', '.join(unknown)}; known are {', '.join(_KEYS)}"
    if ("prompt" in given) == ("messages" in given):
        return "has both prompt and messages; keep one" if "prompt" in given else "has neither prompt nor messages"
    if "prompt" in given:
        if not isinstance(given["prompt"], str) or not given["prompt"]:
            return "prompt must be a string that is not empty"
    elif not chat:
        return "messages need a chat API; use prompt, or --llm-api openai-chat"
    else:
        problem = _messages_problem(given["messages"])
        if problem:
            return problem
    max_tokens = given.get("max_tokens", 1)
    if type(max_tokens) is not int or not 1 <= max_tokens <= LONGEST:
        return f"max_tokens must be a whole number from 1 to {LONGEST} (got {orjson.dumps(max_tokens).decode()})"
    name = given.get("name", "-")
    if not isinstance(name, str) or not name:
        return "name must be a string that is not empty"
    return None


def _messages_problem(messages: Any) -> str | None:
    if not isinstance(messages, list) or not messages:
        return "messages must be a list with at least one message"
    for i, message in enumerate(messages, 1):
        if not isinstance(message, dict):
            return f"message {i} must be an object with role and content"
        if not isinstance(message.get("role"), str) or not message["role"]:
            return f"message {i}: role must be a string such as user"
        content = message.get("content")
        if isinstance(content, list):
            if not content or not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
                return f"message {i}: content must be a string or a list of parts, each with a type"
        elif content is None:
            if not message.get("tool_calls"):
                return f"message {i}: content is missing"
        elif not isinstance(content, str):
            return f"message {i}: content must be a string or a list of parts, each with a type"
    return None
