"""The columns of events while a log is read: most of its memory, so no part of them is ever held twice.

The one thing to know: a long array is lengthened in place (the system moves its pages, nothing is copied), and a block
that was appended can be freed at once, so that the next one is made in memory that is already there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_FIRST = 1 << 20
_GROWTH = 1.25


class Growing:
    """A column that blocks are appended to; a class because it owns more memory than it has values."""

    def __init__(self, kind: npt.DTypeLike) -> None:
        self._room: npt.NDArray[Any] = np.empty(0, dtype=kind)
        self._size = 0

    def append(self, part: npt.NDArray[Any]) -> None:
        """Append values; a wider type than that of the column widens it."""
        size = self._size + len(part)
        if part.dtype.itemsize > self._room.dtype.itemsize:
            self._room = self._room.astype(part.dtype)
        if size > len(self._room):
            self._room.resize(max(size, int(len(self._room) * _GROWTH), _FIRST), refcheck=False)
        self._room[self._size : size] = part
        self._size = size

    def column(self) -> npt.NDArray[Any]:
        """Return all values; nothing may be appended any more."""
        self._room.resize(self._size, refcheck=False)
        return self._room
