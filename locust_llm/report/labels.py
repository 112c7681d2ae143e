"""Strings as numbers while a log is read: one code per label, the same in all blocks and files.

The one thing to know: codes are given in the order in which labels come, and labels that only lines at fault had are
taken out at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .columns import Labels

if TYPE_CHECKING:
    from .arrow_blocks import Coded


class Interner(dict[str | None, int]):
    """Label → code, grown by looking up; a class because ``map(interner.__getitem__, …)`` is C for known labels."""

    def __init__(self) -> None:
        super().__init__({None: -1})

    def __missing__(self, label: object) -> int:
        if not isinstance(label, str):
            raise TypeError(f"{label!r} is no string")
        code = self[label] = len(self) - 1
        return code

    def recoded(self, of: Coded) -> Any:
        """Return the codes of a block's labels."""
        return np.array([*(self[name] for name in of.names), -1], dtype=np.int32)[of.codes]  # -1 is the last entry

    def labels(self, codes: Any) -> Labels:
        """Return the column, without labels that only lines at fault had."""
        names = [name for name in self if name is not None]
        used = np.bincount(codes[codes >= 0], minlength=len(names)) > 0
        new = np.append(np.cumsum(used) - 1, -1).astype(np.int32)  # code -1 stays -1: it is the last entry
        return Labels(new[codes], tuple(name for name, keep in zip(names, used, strict=True) if keep))
