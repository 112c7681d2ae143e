"""Intervals of shares, and how many of the values at hand count as independent (metrics.md 4).

The one thing to know: no numpy here, for the live figures use it too, and a process that holds streams is spared the
import: 0.15 s of CPU at each start.
"""

from __future__ import annotations

import math

from .student import NORMAL_95, t_95

MEMORIES = 8
"""A block is at least so many times as long as the series remembers."""
CONCURRENCIES = 2
"""And at least so many times as long as there were exchanges in flight."""


def wilson(share: float, size: float, blocks: int = 0) -> tuple[float, float]:
    """Return Wilson's interval of a share of ``size`` independent values; Student's t where ``blocks`` say how many."""
    z = t_95(blocks - 1) if blocks > 1 else NORMAL_95
    middle = share + z * z / (2 * size)
    half = z * math.sqrt(share * (1 - share) / size + z * z / (4 * size * size))
    low, high = (middle - half) / (1 + z * z / size), (middle + half) / (1 + z * z / size)
    return (0.0 if share == 0 else max(0.0, low)), (1.0 if share == 1 else min(1.0, high))


def needed(q: float) -> int:
    """Return how many values a percentile needs: ``1 / min(q, 1 - q)`` (p95: 20, p99: 100, p99.9: 1000)."""
    return math.ceil(round(1 / min(q, 1 - q), 6))
