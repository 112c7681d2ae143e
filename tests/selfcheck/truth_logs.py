"""Records and truth logs made by hand: exchanges whose every error is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from locust_llm.exchange import OK, Exchange
from locust_llm.sim.truth import FIELDS

EPOCH_US = 1_795_000_000_000_000
TTFT_US, ITL_US = 50_000, 10_000


def record(number: int, times_us: Sequence[int], start_us: int = EPOCH_US, **changes: Any) -> Exchange:
    """A streamed success with token events at these offsets, and finish, usage and done after them."""
    gaps = np.diff([0, *times_us, times_us[-1], times_us[-1], times_us[-1]]).tolist() if times_us else []
    base = Exchange(
        run="r", worker="local", seq=number, exchange=f"local-{number}", name="chat", user_class="U",
        api="openai-chat", model="sim", outcome=OK, start_us=start_us, connected_us=0, sent_us=100,
        end_us=times_us[-1] if times_us else 0, event_gaps_us=gaps,
        kind_names=["content", "finish", "usage", "done"] if times_us else [],
        kind_runs=[len(times_us), 1, 1, 1] if times_us else [],
        response_id=f"sim-{number}",
    )  # fmt: skip
    return replace(base, **changes)


def served(number: int, times_us: Sequence[int], read_us: int = 100, start_us: int = EPOCH_US) -> list[Any]:
    """What the truth log holds of a request: read, then one event a token, at offsets from the client's start."""
    rows = [(number, 0, 0, (start_us + read_us) * 1000)]
    rows += [(number, index, 0, (start_us + at) * 1000) for index, at in enumerate(times_us, 1)]
    return rows


def truth(*requests: list[Any]) -> npt.NDArray[np.void]:
    rows: npt.NDArray[np.void] = np.array([row for request in requests for row in request], dtype=np.dtype(FIELDS))
    return rows


def steady(tokens: int) -> list[int]:
    """Offsets of events that keep the schedule."""
    return [TTFT_US + i * ITL_US for i in range(tokens)]
