"""Makes records with known timings and logs of them, for the tests of the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from locust_llm.exchange import Exchange, run_lengths
from locust_llm.report.columns import Log
from locust_llm.report.reading import read

T0_S = 1_800_000_000
"""Wall clock of second 0 in all tests."""


def ms(value: float) -> int:
    return round(value * 1000)


def record(
    seq: int = 0,
    at_s: float = 0.0,
    events: Sequence[tuple[float, str]] = (),
    end_ms: float | None = None,
    **members: Any,
) -> Exchange:
    """Make a record. ``events``: (ms after the start, kind), in order. ``at_s``: seconds after ``T0_S``."""
    times = [ms(t) for t, _ in events]
    names, runs = run_lengths(kind for _, kind in events)
    given = {
        "run": "r1", "worker": "w1", "name": "chat", "user_class": "ChatUser", "api": "openai-chat", "model": "m",
        "exchange": f"w1-{seq}", "outcome": "ok", "stamp": "kernel", "tags": {"user": "w1-0"}, "reused": True,
        "connected_us": 0, "end_us": ms(end_ms) if end_ms is not None else (times[-1] if times else 0),
    } | members  # fmt: skip
    return Exchange(
        seq=seq,
        start_us=round((T0_S + at_s) * 1e6),
        event_gaps_us=[b - a for a, b in zip([0, *times], times, strict=False)],
        kind_names=names,
        kind_runs=runs,
        **given,
    )


def stream(
    seq: int = 0, at_s: float = 0.0, ttft_ms: float = 50.0, itl_ms: float = 10.0, tokens: int = 5, **members: Any
) -> Exchange:
    """Make an answer of ``tokens`` evenly spaced one-token events after a role event, usage and ``[DONE]`` after it."""
    times = [(ttft_ms + i * itl_ms, "content") for i in range(tokens)]
    last = times[-1][0] if times else ttft_ms
    events = [(ttft_ms - 1, "role"), *times, (last + 1, "finish"), (last + 2, "usage"), (last + 3, "done")]
    given = {"n_out": tokens, "out_source": "usage", "finish_reason": "length", "n_in": 100, "in_source": "usage"}
    return record(seq, at_s, events, **(given | members))


def write_log(path: Path, records: Sequence[Exchange]) -> Path:
    path.write_bytes(b"".join(r.encode() for r in records))
    return path


def log_of(folder: Path, *records: Exchange) -> Log:
    """Write records to a file and read them back as columns."""
    return read([write_log(folder / "events.jsonl", records)])
