"""The uncertain reads of records as columns: ``unsure`` and ``unsure_offsets`` of a log.

The one thing to know: a record of before the member ``uncertain_reads`` says only the worst of its events
(``uncertain_us_max``), so any of them may be it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from .columns import Ints


def of_records(records: Sequence[dict[str, Any]], block: dict[str, Any]) -> dict[str, Ints]:
    """Return ``unsure`` (flat triples) and ``unsure_counts`` of records; ``block``: their other columns.

    Raises:
        ValueError: they are not of these records' events.
    """
    late, worst, counts = block["late_joined"].tolist(), block["uncertain_us_max"].tolist(), block["event_counts"]
    reads = [
        kept if (kept := r.get("uncertain_reads")) is not None else [0, n, w] if joined else []
        for r, joined, w, n in zip(records, late, worst, counts.tolist(), strict=True)
    ]
    lengths = np.array([len(r) for r in reads], dtype=np.int64)
    flat = np.fromiter(chain.from_iterable(reads), dtype=np.int64, count=int(lengths.sum()))
    if not fit(flat, lengths, counts):
        raise ValueError("uncertain_reads and event_gaps_us do not fit each other")
    return {"unsure": flat, "unsure_counts": lengths // 3}


def fit(flat: Ints, lengths: Ints, event_counts: Ints) -> bool:
    """Return whether uncertain reads (joined, and how many numbers each record has) are triples of events there are."""
    if (lengths % 3).any() or (flat < 0).any():
        return False
    return bool((flat[::3] + flat[1::3] <= np.repeat(event_counts, lengths // 3)).all())
