"""The schedule of a run: when each arrival is due, and which worker sends it. Pure arithmetic, the same on every node.

Every worker makes the whole system's schedule from the run's seed and sends each ``of``-th arrival of it, so that
what all send together is exactly the process that was asked for, whatever the number of workers. When workers come or
go, or the rate changes, a new segment begins at a time in the near future that all of them know.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from .pacer import Pacer


@dataclass(frozen=True, slots=True)
class Share:
    """The arrivals ``index``, ``index + of``, … of a segment."""

    index: int = 0
    of: int = 1


ALL_OF_IT = Share()


def due_ns(pacer: Pacer, seed: int, stream: str, segment: int, share: Share = ALL_OF_IT) -> Iterator[int]:
    """Yield when the arrivals of a share are due, in ns after the start of their segment, without end.

    Args:
        pacer: the process of the whole system.
        seed: the run's.
        stream: name of the arrival process.
        segment: its number in the run; each has random numbers of its own.
        share: which of the arrivals.
    """
    return islice(_all_ns(pacer, random.Random(f"{seed}/arrivals/{stream}/{segment}")), share.index, None, share.of)


def count_until(due: Iterator[int], end_ns: int) -> int:
    """Return how many are due before ``end_ns``."""
    number = 0
    for at_ns in due:
        if at_ns >= end_ns:
            break
        number += 1
    return number


def _all_ns(pacer: Pacer, draw: random.Random) -> Iterator[int]:
    # Times are summed up, not gaps: a client that is late catches up, and no rounding adds up.
    at_s = 0.0
    while True:
        at_s += pacer.gap_s(draw)
        yield int(at_s * 1e9)
