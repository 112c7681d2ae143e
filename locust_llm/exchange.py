"""The exchange record, schema 1: one JSON line per exchange (per attempt, if retried).

An *exchange* is one request to a model and everything that came back. The record keeps every decoded event's time, so
that every figure can be recomputed later under any tool's rules. Names and rules: docs/metrics.md. Times of the
record are integers in microseconds; ``start_us`` and ``scheduled_us`` are wall clock, all others are offsets from the
start (``dns_us``, ``tcp_us``, ``tls_us`` are durations).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any

import orjson

from .wire.answer import TOKEN_KINDS

SCHEMA = 1

# Outcomes (metrics.md 2), in the order in which they apply.
HTTP_STATUS = "http_status"
IN_BAND_ERROR = "in_band_error"
MALFORMED = "malformed"
CANCELLED = "cancelled"
UNFINISHED = "unfinished"
TIMEOUT = "timeout"
CONNECTION = "connection"
TRUNCATED = "truncated"
EMPTY = "empty"
REJECTED = "rejected"
OK = "ok"

OUTCOMES = (
    HTTP_STATUS, IN_BAND_ERROR, MALFORMED, CANCELLED, UNFINISHED, TIMEOUT, CONNECTION, TRUNCATED, EMPTY, REJECTED, OK,
)  # fmt: skip
FAILURES = frozenset(OUTCOMES) - {OK, CANCELLED, UNFINISHED}

PREFLIGHT, WARMUP, MEASURE = "preflight", "warmup", "measure"


@dataclass(frozen=True, slots=True)
class ExchangeError:
    """Why an exchange failed.

    ``kind`` refines the outcome: ``connect``, ``first_token``, ``idle``, ``total`` for a timeout; ``dns``, ``refused``,
    ``tls``, ``reset``, ``framing``, ``proxy`` for a connection; the server's error type for what the server said.
    """

    kind: str
    message: str
    code: str | None = None
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One record. Member order is the order in the log; see the module docstring for units."""

    schema: int = SCHEMA
    run: str
    worker: str
    seq: int
    exchange: str
    attempt: int = 1
    name: str
    user_class: str
    api: str
    model: str
    phase: str = MEASURE
    stage: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    outcome: str
    error: ExchangeError | None = None
    status: int | None = None
    finish_reason: str | None = None
    streamed: bool = True
    start_us: int
    scheduled_us: int | None = None
    dns_us: int | None = None
    tcp_us: int | None = None
    tls_us: int | None = None
    reused: bool = False
    connected_us: int | None = None
    sent_us: int | None = None
    headers_us: int | None = None
    end_us: int
    event_gaps_us: list[int] = field(default_factory=list)
    """First entry: the first event's offset from the start; then the gap before each further event."""
    kind_names: list[str] = field(default_factory=list)
    kind_runs: list[int] = field(default_factory=list)
    """Run lengths of ``kind_names``: ``["role", "content"]`` with ``[1, 150]`` is 151 events."""
    event_tokens: list[int] | None = None
    """Tokens of each event where the server made them known for every token event, else null."""
    pings: int = 0
    n_out: int | None = None
    n_reasoning: int | None = None
    n_in: int | None = None
    n_cached: int | None = None
    out_source: str | None = None
    in_source: str | None = None
    asked_in: int | None = None
    asked_out: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    stamp: str = "user"
    """``kernel`` if the kernel stamped every event of this record, else ``user``."""
    lag_us_max: int = 0
    uncertain_us_max: int = 0
    late_joined: int = 0
    uncertain_reads: list[int] = field(default_factory=list)
    """Flat triples (first event, number of events, us): stamps of these events may be too late by so much. Reads whose
    uncertainty is below 100 us are left out. A record of before this member has none, whatever ``late_joined`` says."""
    resent: int = 0
    """How often the request was sent again because a pooled connection died before any byte of the answer."""
    response_id: str | None = None
    prompt: str | None = None
    text: str | None = None

    def encode(self) -> bytes:
        """Return the record as one JSON line, LF included."""
        return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)

    def kinds(self) -> list[str]:
        """Return the kind of each event."""
        return [kind for kind, run in zip(self.kind_names, self.kind_runs, strict=True) for _ in range(run)]

    def token_times_us(self) -> list[int]:
        """Return the offsets of the token events from the start."""
        times, now = [], 0
        for gap, kind in zip(self.event_gaps_us, self.kinds(), strict=True):
            now += gap
            if kind in TOKEN_KINDS:
                times.append(now)
        return times

    @property
    def ttft(self) -> float | None:
        """Time to first token in seconds, any channel; None without one, and when the answer was not streamed."""
        before = 0
        for kind, run in zip(self.kind_names, self.kind_runs, strict=True) if self.streamed else ():
            if kind in TOKEN_KINDS:
                return sum(self.event_gaps_us[: before + 1]) / 1e6
            before += run
        return None

    @property
    def e2e_latency(self) -> float | None:
        """Start to last token in seconds (``stream_end`` when not streamed); None if no token came."""
        if not self.streamed:
            return self.end_us / 1e6
        seen = upto = 0
        for kind, run in zip(self.kind_names, self.kind_runs, strict=True):
            seen += run
            if kind in TOKEN_KINDS:
                upto = seen
        return sum(self.event_gaps_us[:upto]) / 1e6 if upto else None


_MEMBERS = frozenset(f.name for f in fields(Exchange))


def decode(line: bytes | str | dict[str, Any]) -> Exchange:
    """Read a record back; unknown members are ignored, missing ones take their defaults.

    Raises:
        ValueError: not a JSON object, or a member without default is missing.
    """
    data = line if isinstance(line, dict) else orjson.loads(line)
    if not isinstance(data, dict):
        raise ValueError("a record is a JSON object")
    known = {k: v for k, v in data.items() if k in _MEMBERS}
    if isinstance(known.get("error"), dict):
        known["error"] = ExchangeError(**{k: known["error"].get(k) for k in ExchangeError.__slots__})
    try:
        return Exchange(**known)
    except TypeError as e:
        raise ValueError(str(e)) from None


def run_lengths(kinds: Iterable[str]) -> tuple[list[str], list[int]]:
    """Return ``kind_names`` and ``kind_runs`` of a sequence of kinds."""
    names: list[str] = []
    runs: list[int] = []
    for kind, group in groupby(kinds):
        names.append(kind)
        runs.append(len(list(group)))
    return names, runs
