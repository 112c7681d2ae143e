"""JSON as servers really write it: orjson first, then a tolerant second try.

The second try reads NaN and Infinity, raw control characters, invalid UTF-8 (as U+FFFD) and halves of surrogate pairs.
Such halves must not leave this room, for no encoder takes them: ``well_formed`` and ``Mender`` see to that.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

_REPLACEMENT = "\ufffd"
# The second try takes 30 times as long, and all other streams wait.
_TOLERANT_BYTES = 4 * 1024 * 1024


def parse(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is none, or is nested too deeply, or is long and needs a second try.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        if len(data) > _TOLERANT_BYTES:
            raise
    try:
        return _TOLERANT.decode(data.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def well_formed(text: str) -> str:
    """Return ``text`` with surrogate pairs joined and lone halves replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def as_text(value: object) -> str | None:
    """Return a non-empty JSON string or a number as text, else None. The text "None" says no more than null."""
    if isinstance(value, str):
        return well_formed(value) if value and value not in ("None", "null") else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return None


class Mender:
    """Joins the halves of a surrogate pair that were sent in two pieces of one text."""

    __slots__ = ("_halves",)

    def __init__(self) -> None:
        self._halves: dict[object, str] = {}

    def mend(self, key: object, piece: str) -> str:
        """Return what a piece adds by now; an open first half waits for the next piece of the same ``key``."""
        piece = self._halves.pop(key, "") + piece
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            self._halves[key] = piece[-1]
            piece = piece[:-1]
        return well_formed(piece)

    def rest(self, key: object) -> str:
        """Return U+FFFD if the last piece of ``key`` left a half open, else nothing."""
        return _REPLACEMENT if self._halves.pop(key, "") else ""


_TOLERANT = json.JSONDecoder(strict=False)
