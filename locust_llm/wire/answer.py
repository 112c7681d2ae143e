"""What one answer of a server has said so far.

An ``Answer`` is the meeting point of the wire: a decoder writes it, the client reads it. It holds plain
lists and ints because it is filled once per token while other streams wait; nothing here does I/O
or looks at a clock (times come in with the bytes).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# Kinds of decoded protocol events (metrics.md 1). Token events are CONTENT, REASONING, REFUSAL and TOOL.
ROLE = "role"
EMPTY = "empty"
CONTENT = "content"
REASONING = "reasoning"
REFUSAL = "refusal"
TOOL = "tool"
FINISH = "finish"
USAGE = "usage"
DONE = "done"
OTHER = "other"

TOKEN_KINDS = frozenset({CONTENT, REASONING, REFUSAL, TOOL})
VISIBLE_KINDS = frozenset({CONTENT, TOOL})
# An event that carries several things has the first of these that applies.
KIND_ORDER = (CONTENT, TOOL, REFUSAL, REASONING, FINISH, USAGE, ROLE, EMPTY, OTHER)


@dataclass(slots=True)
class Usage:
    """Token counts as the server reported them; ``None`` where it reported none."""

    n_in: int | None = None
    n_out: int | None = None
    n_reasoning: int | None = None
    n_cached: int | None = None


@dataclass(slots=True)
class ServerError:
    """An error the server put into its answer (in-band, or the body of a non-2xx status).

    ``param`` is the request field that the server names as the cause, ``retry_after_s`` the wait that it asks for.
    """

    message: str
    type: str | None = None
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None


@dataclass(slots=True)
class ToolCall:
    """One tool call as it grows; ``arguments`` in pieces, so that a long one costs no more than its length."""

    id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list)


def first_kind(kinds: Iterable[str], otherwise: str) -> str:
    """Return the kind of an event that carries all of these."""
    return min((*kinds, otherwise), key=KIND_ORDER.index)


class Answer:
    """Everything decoded from one answer.

    Attributes:
        times_ns: arrival of each decoded event, monotonic ns, never decreasing.
        kinds: kind of each event, parallel to ``times_ns``; see ``KIND_ORDER``.
        tokens: tokens in each event, parallel to ``times_ns``: 0 for events that carry none, -1 where unknown.
        pings: comments and heartbeats, which are no events.
        texts: pieces of answer text by choice index. ``reasoning`` and ``refusal``: pieces, all choices.
        tools: tool calls in order of appearance; ``tool_calls`` gives them with their arguments joined.
        finish_reason: first non-empty finish reason of the lowest choice; ``finish_reasons`` by choice.
        usage: the last non-null usage; ``usage_raw`` the server's own object.
        error: the error the server reported inside the body, if any.
        malformed: why the bytes could not be read as the protocol, if so.
        ended: the protocol's end mark (or what counts as one) was seen.
        done_ns: when the terminal end mark (``[DONE]``, ``message_stop``) arrived, if one did.
        response_id, model: as the server names them.
        timings: the server's own timings object (llama.cpp), if any.
        whole: the body was one JSON document, not a stream, whatever was asked.
        repeated: bytes that only said again what had been said (cumulative answers); they are not held.
        follow: where the answer itself is to be had, if this one only says where (Replicate).
    """

    __slots__ = (
        "done_ns",
        "ended",
        "error",
        "finish_reason",
        "finish_reasons",
        "follow",
        "kinds",
        "malformed",
        "model",
        "pings",
        "reasoning",
        "refusal",
        "repeated",
        "response_id",
        "texts",
        "times_ns",
        "timings",
        "tokens",
        "tools",
        "usage",
        "usage_raw",
        "whole",
    )

    def __init__(self) -> None:
        self.times_ns: list[int] = []
        self.kinds: list[str] = []
        self.tokens: list[int] = []
        self.pings = 0
        self.texts: dict[int, list[str]] = {}
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.tools: list[ToolCall] = []
        self.finish_reason: str | None = None
        self.finish_reasons: dict[int, str] = {}
        self.usage: Usage | None = None
        self.usage_raw: dict[str, Any] | None = None
        self.error: ServerError | None = None
        self.malformed: str | None = None
        self.ended = False
        self.done_ns: int | None = None
        self.response_id: str | None = None
        self.model: str | None = None
        self.timings: dict[str, Any] | None = None
        self.whole = False
        self.repeated = 0
        self.follow: str | None = None

    def text(self, choice: int | None = None) -> str:
        """Return the answer text of one choice (default: the lowest index that has any)."""
        if choice is None:
            choice = min((index for index, pieces in self.texts.items() if pieces), default=0)
        return "".join(self.texts.get(choice, ()))

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tool calls so far, each ``{"id", "name", "arguments"}``."""
        return [{"id": t.id, "name": t.name, "arguments": "".join(t.arguments)} for t in self.tools]

    def add(self, at_ns: int, kind: str, tokens: int = 0) -> None:
        """Append an event."""
        self.times_ns.append(at_ns)
        self.kinds.append(kind)
        self.tokens.append(tokens)

    def has_tokens(self) -> bool:
        """Whether any event carried a generated token."""
        return not TOKEN_KINDS.isdisjoint(self.kinds)
