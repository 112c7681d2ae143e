"""How long a server's queue remembers, told by how closely a figure follows the number of exchanges in flight.

The one thing to know: a run that happened to be calm shows too short a memory in its blocks, but not here. Near
saturation a TTFT is mostly the wait for those before it, so its correlation with what is in flight nears 1 in calm runs
too; in a closed loop the number in flight stands still, and this says nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import Bools, Floats, Ints, Log

MEMORY_PER_IN_FLIGHT = 1.15
"""Memory over ``in flight / (1 - r)``: measured 0.9 to 1.35 in queues of 1, 8 and 32 slots at 50 to 90 % load with
answers of one length, gamma and exponential ones; much more where a few answers are 30 times as long as the others."""
_HIGHEST = 0.99
_LEAST = 0.2  # below: a ramp, or users that left; and no queue that keeps exchanges waiting long
_CHANCE = 2.0


def in_flight_at_start(log: Log, measured: Bools) -> Ints:
    """Return how many of the measured exchanges were in flight when each record started, itself left out."""
    start = np.sort(log.start_us[measured])
    end = np.sort((log.start_us + log.end_us)[measured])
    before = np.searchsorted(start, log.start_us, side="left") - np.searchsorted(end, log.start_us, side="right")
    return before.astype(np.int64)


def queue_memory(r: Floats | float, values: int, in_flight: float) -> Floats:
    """Return how many values are worth one independent value, by the queue; 1 where nothing tells of one.

    Parameters:
        r: correlation of a figure with what was in flight at the start. values: how many it was made of.
        in_flight: mean of the exchanges in flight.
    """
    true = np.clip(np.square(r) - _CHANCE / max(values, 1), 0.0, _HIGHEST**2)  # less what chance alone brings
    r = np.sqrt(true)
    memory: Floats = np.where(r < _LEAST, 1.0, np.maximum(MEMORY_PER_IN_FLIGHT * in_flight / (1 - r), 1.0))
    return memory


def correlation(values: Floats, in_flight: Ints) -> float:
    """Return the correlation of a figure with what was in flight; 0 where one of them stands still."""
    k, x = in_flight - in_flight.mean(), values - values.mean()
    both = math.sqrt(float(k @ k) * float(x @ x))
    return float(k @ x) / both if both > 0 else 0.0


def level_correlations(at: npt.NDArray[np.integer[Any]], levels: int, in_flight: Ints) -> Floats:
    """Return the correlation of what was in flight with whether a value lies at or below each level.

    Parameters:
        at: how many levels lie below each value.
    """
    n = max(len(at), 1)
    share = np.cumsum(np.bincount(at, minlength=levels + 1))[:-1] / n
    k = in_flight - in_flight.mean() if len(at) else in_flight.astype(np.float64)
    common = np.cumsum(np.bincount(at, k, minlength=levels + 1))[:-1] / n
    spread = np.sqrt(float(k @ k) / n * share * (1 - share))
    out = np.zeros(levels)
    np.divide(common, spread, out=out, where=spread > 0)
    return out
