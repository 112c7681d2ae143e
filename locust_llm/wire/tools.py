"""Tool calls of an answer, put together from their pieces.

Servers number the pieces by ``index``, by ``id``, or not at all; a piece that gives neither belongs to the call before.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .answer import Answer, ToolCall
from .jsontext import Mender, as_text


class Piece(NamedTuple):
    """A piece of a tool call; ``number`` or else ``id`` says of which."""

    number: int | None
    id: str | None
    name: str
    arguments: str


def as_arguments(value: object) -> str:
    """Return the arguments of a call as text: some servers give an object instead."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value) if value else ""
    except RecursionError:
        return "…"


class ToolCalls:
    """Writes ``tools`` of an answer."""

    __slots__ = ("_answer", "_calls", "_last")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._calls: dict[tuple[int, int | str], ToolCall] = {}  # by choice and index or id
        self._last: dict[int, ToolCall] = {}  # by choice

    def take(self, choice: int, delta: dict[str, Any], mender: Mender | None) -> bool:
        """Take in the tool calls of a delta or message; return whether they carry tokens (a name or arguments)."""
        carries = [self.put(choice, piece, mender) for piece in _pieces(delta)]
        return any(carries)

    def put(self, choice: int, piece: Piece, mender: Mender | None) -> bool:
        """Take in one piece; return whether it carries tokens."""
        call = self._call(choice, piece)
        call.id = call.id or piece.id
        call.name = call.name or piece.name or None
        if piece.arguments:
            call.arguments.append(mender.mend(id(call), piece.arguments) if mender else piece.arguments)
        return bool(piece.name or piece.arguments)

    def _call(self, choice: int, piece: Piece) -> ToolCall:
        number = piece.id if piece.number is None else piece.number
        call = self._last.get(choice) if number is None else self._calls.get((choice, number))
        # Some servers number every call 0: a new id beside a name is a new call.
        if call is None or (piece.name and piece.id and call.id and piece.id != call.id):
            call = ToolCall()
            self._answer.tools.append(call)
        if number is not None:
            self._calls[choice, number] = call
        self._last[choice] = call
        return call


def _pieces(delta: dict[str, Any]) -> list[Piece]:
    """Return the pieces of tool calls in a delta or message; the legacy ``function_call`` is one without index."""
    calls = delta.get("tool_calls")
    if isinstance(calls, dict):
        calls = [calls]
    pieces = []
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            index = call.get("index")
            name = as_text(call.get("id"))
            pieces.append(
                _piece(index if type(index) is int else None, name, call.get("function") or call.get("custom"))
            )
    legacy = delta.get("function_call")
    if legacy:
        pieces.append(_piece(None, None, legacy))
    return pieces


def _piece(index: int | None, call_id: str | None, function: object) -> Piece:
    if not isinstance(function, dict):
        return Piece(index, call_id, "", "")
    arguments = as_arguments(function.get("arguments") or function.get("input"))
    return Piece(index, call_id, as_text(function.get("name")) or "", arguments)
