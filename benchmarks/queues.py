"""Series as a server with slots makes them: what the intervals and the comparison are checked on (``judging.py``).

The one thing to know: an M/G/c queue first come, first served, simulated for many runs at once. A request takes a slot
for its prefill and its decode; TTFT is the wait for a slot plus the prefill. Closed loop: each user sends its next
request when the last has ended. Open loop: Poisson arrivals. The warm-up is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SLOTS = 8
PREFILL_MS, DECODE_MS, TOKENS = 100.0, 10.0, 150
HEAVY = 1.5

Lengths = Callable[[np.random.Generator, tuple[int, ...]], Floats]
"""Answer lengths in tokens, ``TOKENS`` on average."""


def chats(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.gamma(2, TOKENS / 2, shape)


def exponential(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.exponential(TOKENS, shape)


def fixed(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.full(shape, float(TOKENS))


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Log-normal: one answer in a thousand is 33 times as long as the mean; squared variation 8.5."""
    return rng.lognormal(np.log(TOKENS) - HEAVY**2 / 2, HEAVY, shape)


@dataclass(frozen=True, slots=True)
class Series:
    """Runs × exchanges, in order of start; seconds."""

    start_s: Floats
    ttft_s: Floats
    e2e_s: Floats
    tokens: Floats


def service(
    rng: np.random.Generator, shape: tuple[int, ...], lengths: Lengths = chats
) -> tuple[Floats, Floats, Floats]:
    """Return prefill (s), decode (s) and output tokens: gamma lengths in and out, as chats have."""
    prefill = rng.gamma(4, PREFILL_MS / 4e3, shape)
    tokens = np.ceil(lengths(rng, shape))
    return prefill, tokens * DECODE_MS / 1e3, tokens


def mean_service_s() -> float:
    return (PREFILL_MS + DECODE_MS * TOKENS) / 1e3


def closed(rng: np.random.Generator, runs: int, exchanges: int, users: int, warm: int = 400) -> Series:
    """Return a closed loop of ``users`` without think time on ``SLOTS`` slots."""
    n = exchanges + warm
    prefill, decode, tokens = service(rng, (n, runs))
    rows = np.arange(runs)
    free, next_start = np.zeros((runs, SLOTS)), rng.uniform(0, 1, (runs, users))
    start, first, end = (np.empty((n, runs)) for _ in range(3))
    for i in range(n):
        user, slot = next_start.argmin(1), free.argmin(1)
        start[i] = next_start[rows, user]
        first[i] = np.maximum(start[i], free[rows, slot]) + prefill[i]
        end[i] = first[i] + decode[i]
        free[rows, slot] = next_start[rows, user] = end[i]
    return _series(start, first, end, tokens, warm)


def opened(
    rng: np.random.Generator, runs: int, exchanges: int, load: float, warm: int = 4000,
    slots: int = SLOTS, lengths: Lengths = chats,
) -> Series:  # fmt: skip
    """Return an open loop with Poisson arrivals at ``load`` of the capacity."""
    n = exchanges + warm
    prefill, decode, tokens = service(rng, (n, runs), lengths)
    start = np.cumsum(rng.exponential(mean_service_s() / slots / load, (n, runs)), axis=0)
    rows = np.arange(runs)
    free = np.zeros((runs, slots))
    first, end = np.empty((n, runs)), np.empty((n, runs))
    for i in range(n):
        slot = free.argmin(1)
        first[i] = np.maximum(start[i], free[rows, slot]) + prefill[i]
        end[i] = free[rows, slot] = first[i] + decode[i]
    return _series(start, first, end, tokens, warm)


def _series(start: Floats, first: Floats, end: Floats, tokens: Floats, warm: int) -> Series:
    kept = (a[warm:].T.copy() for a in (start, first - start, end - start, tokens))
    return Series(*kept)
