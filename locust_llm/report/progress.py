"""A bar on stderr while a large log is read; nothing where nobody watches.

The one thing to know: it appears only on a terminal, for logs above ``LEAST_BYTES``, and is gone when reading ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from .reading import Told

LEAST_BYTES = 100_000_000
_EVERY_S = 0.1
_WIDTH = 30


@contextmanager
def bar(stream: TextIO | None = None) -> Iterator[Told | None]:
    """Give what ``reading.read`` shall call, None if nobody would see it."""
    out = sys.stderr if stream is None else stream
    if not out.isatty():
        yield None
        return
    drawn = 0.0

    def told(done: int, total: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if total >= LEAST_BYTES and now - drawn >= _EVERY_S:
            drawn = now
            filled = min(_WIDTH, _WIDTH * done // total)
            out.write(f"\rreading the log [{'#' * filled}{'.' * (_WIDTH - filled)}] {min(1.0, done / total):.0%}")
            out.flush()

    try:
        yield told
    finally:
        if drawn:
            out.write("\r\x1b[K")
            out.flush()
