"""Prompts of the user's own: ``--llm-prompts FILE.jsonl``, one JSON object a line.

A line has ``prompt`` or ``messages``, and may have ``max_tokens`` and ``name``. The whole file is checked at the start,
so a bad line stops the run before it begins and not an hour into it. Each worker keeps only its own share in memory.
"""

from __future__ import annotations

import logging
import os
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
    """A prompt file that has been checked from its first line to its last; made by ``read``.

    Attributes:
        path: the file.
        lines: how many prompts are in it.
    """

    def __init__(self, path: str, offsets: array[int], first_messages: int | None, stamp: tuple[int, int]) -> None:
        self.path = path
        self.lines = len(offsets)
        self._offsets = offsets
        self._first_messages = first_messages
        self._stamp = stamp
        self._decks: dict[tuple[int, int, int], Deck] = {}

    @classmethod
    def read(cls, path: str) -> PromptFile:
        """Check the whole file; about a second for 100,000 prompts, so call it in a thread.

        Raises:
            UsageError: the file cannot be read, has no prompts, or has a bad line (named by its number).
        """
        offsets = array("Q")
        first_messages = None
        try:
            with open(path, "rb") as file:
                stamp = _stamp(file)
                for number, offset, line in _numbered(file):
                    data, problem = _parsed(line)
                    if problem:
                        raise UsageError(f"{_OPTION} {path}, line {number}: {problem}")
                    if first_messages is None and data.get("prompt") is None:
                        first_messages = number
                    offsets.append(offset)
        except OSError as e:
            raise _unreadable(path, e) from None
        if not offsets:
            raise UsageError(f'{_OPTION} {path}: no prompts in it; write one a line, such as {{"prompt": "Hello"}}')
        return cls(path, offsets, first_messages, stamp)

    def workload(self, *, seed: int, worker: int = 0, workers: int = 1, chat: bool = True) -> FileWorkload:
        """Return the prompts of one worker; reads its share of the file.

        Workloads of one worker draw from one deck, so two User classes never send the same line either.

        Args:
            seed: the run's seed; the same seed gives the same order.
            worker: index of this worker, from 0, and ``workers``, how many there are: each line goes to exactly one.
                With fewer lines than workers some workers share a line.
            chat: the API takes messages, and a ``prompt`` becomes a user message; else only ``prompt`` lines will do.

        Raises:
            UsageError: ``messages`` for an API that takes none, or the file has changed since it was checked.
        """
        if not 0 <= worker < workers:
            raise ValueError(f"worker {worker} of {workers}")
        if not chat and self._first_messages is not None:
            raise UsageError(
                f"{_OPTION} {self.path}, line {self._first_messages}: messages need a chat API; "
                "use prompt, or --llm-api openai-chat"
            )
        deck = self._decks.get((seed, worker, workers))
        if deck is None:
            order = list(range(self.lines))
            random.Random(f"{seed}/prompts").shuffle(order)
            mine = order[worker::workers] or [order[worker % self.lines]]
            deck = self._decks[seed, worker, workers] = Deck(self.path, self._read(mine))
        return FileWorkload(deck, chat)

    def _read(self, mine: list[int]) -> list[bytes]:
        """Return the lines ``mine`` in that order."""
        lines: dict[int, bytes] = {}
        try:
            with open(self.path, "rb") as file:
                if _stamp(file) != self._stamp:
                    raise UsageError(f"{_OPTION} {self.path}: has been changed since it was checked; start again")
                for index in sorted(mine):
                    file.seek(self._offsets[index])
                    lines[index] = file.readline().strip()
        except OSError as e:
            raise _unreadable(self.path, e) from None
        return [lines[index] for index in mine]


class Deck:
    """One worker's lines in their order, dealt one after another, round and round.

    Attributes:
        wrapped: how often the deck has begun again; the first time is logged.
    """

    def __init__(self, path: str, lines: list[bytes]) -> None:
        self.wrapped = 0
        self._path = path
        self._lines = lines  # still JSON, which takes a third of the memory of objects and is parsed in microseconds
        self._next = 0

    def __len__(self) -> int:
        return len(self._lines)

    def deal(self) -> dict[str, Any]:
        """Return the next line's object."""
        if self._next == len(self._lines):
            self._next = 0
            self.wrapped += 1
            if self.wrapped == 1:
                logger.warning(
                    "%s %s: this worker has used all its prompts (%d) and begins again, so a cache may now answer;"
                    " give more prompts or a shorter run",
                    _OPTION,
                    self._path,
                    len(self._lines),
                )
        line = self._lines[self._next]
        self._next += 1
        data: dict[str, Any] = orjson.loads(line)
        return data


class FileWorkload:
    """Prompts from a file, as chats or as completions.

    Attributes:
        deck: where they come from: its length is this worker's share, ``deck.wrapped`` says whether lines came twice.
    """

    __slots__ = ("_chat", "deck")

    def __init__(self, deck: Deck, chat: bool) -> None:
        self.deck = deck
        self._chat = chat

    def next(self) -> Prompt:
        """Return the next prompt; after the last one of this worker's share, the first again."""
        data = self.deck.deal()
        text, messages = data.get("prompt"), data.get("messages")
        if text is None:
            text = messages_text(messages or [])
        elif self._chat:
            messages = user_message(text)
        return Prompt(text, messages, data.get("max_tokens"), data.get("name"))


def _unreadable(path: str, error: OSError) -> UsageError:
    return UsageError(f"{_OPTION} {path}: cannot be read ({error.strerror}); name a JSON Lines file")


def _stamp(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _numbered(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset and bytes of every line that is not blank; a byte order mark is no part of the first."""
    offset = 0
    for number, line in enumerate(file, 1):
        mark = len(_BOM) if number == 1 and line.startswith(_BOM) else 0
        if line[mark:].strip():
            yield number, offset + mark, line[mark:]
        offset += len(line)


def _parsed(line: bytes) -> tuple[dict[str, Any], str | None]:
    """Return a line's object, and what is wrong with it, if anything."""
    try:
        data = orjson.loads(line.decode())
    except UnicodeDecodeError as e:
        return {}, f"not UTF-8 (byte {e.start + 1}); save the file as UTF-8"
    except orjson.JSONDecodeError as e:
        return {}, f"not JSON ({e.msg}, column {e.colno})"
    if not isinstance(data, dict):
        return {}, "must be a JSON object with prompt or messages"
    return data, _problem(data)


def _problem(data: dict[str, Any]) -> str | None:
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
