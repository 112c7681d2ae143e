"""What one record says of itself, at once: the rules of metrics.md 2, as ``report/figures.py`` applies them to a log.

The one thing to know: it is plain Python for one record and agrees with the report value by value (a test compares
them); times are microseconds, a figure that the exchange does not have is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..exchange import CANCELLED, OK, UNFINISHED, Exchange
from ..wire.answer import REASONING, TOKEN_KINDS, VISIBLE_KINDS

UNKNOWN, CONFIRMED, KNOWN = 0, 1, 2
"""What is known of the tokens in each token event: nothing; one each, for there are as many as tokens; said."""


@dataclass(slots=True)
class Figures:
    """One exchange.

    Attributes:
        ok, failed: neither for one that was cut.
        runs: (from, to) of the token events among all events.
        k: number of token events. state: what is known of their tokens.
        n, n_stream: output tokens, and those that were streamed; None if unknown. hidden: reasoning never streamed.
        values: figures by name (``report.metrics``), but for ``itl`` and ``icl``.
        gives_gaps, gives_itl: its gaps count; and can be split on tokens.
    """

    ok: bool
    failed: bool
    runs: list[tuple[int, int]]
    k: int
    state: int
    n: int | None
    n_stream: int | None
    hidden: int
    values: dict[str, float]
    gives_gaps: bool
    gives_itl: bool


def figures_of(record: Exchange) -> Figures:
    """Return the figures of a record that is the last attempt of its exchange."""
    ok = record.outcome == OK
    cut = record.outcome in (CANCELLED, UNFINISHED)
    gaps = record.event_gaps_us
    runs: list[tuple[int, int]] = []
    k, visible = 0, -1
    reasoning = False
    at = 0
    for kind, length in zip(record.kind_names, record.kind_runs, strict=True):
        if kind in TOKEN_KINDS:
            if runs and runs[-1][1] == at:
                runs[-1] = (runs[-1][0], at + length)
            else:
                runs.append((at, at + length))
            k += length
            reasoning = reasoning or kind == REASONING
            if visible < 0 and kind in VISIBLE_KINDS:
                visible = at
        at += length

    n = None if record.out_source == "chunks" else record.n_out
    hidden = 0 if reasoning or not record.streamed else record.n_reasoning or 0
    n_stream = None if n is None else max(n - hidden, 0)
    state, m1 = UNKNOWN, 1
    tokens = record.event_tokens
    if k and tokens is not None and all(min(tokens[a:b]) >= 0 for a, b in runs):
        state, m1 = KNOWN, tokens[runs[0][0]]
    elif k and n_stream == k:
        state = CONFIRMED

    values: dict[str, float] = {}
    first_us = sum(gaps[: runs[0][0] + 1]) if k else 0
    last_us = first_us + sum(gaps[runs[0][0] + 1 : runs[-1][1]]) if k else 0
    lag = None if record.scheduled_us is None else record.start_us - record.scheduled_us
    if lag is not None:
        values["schedule_lag"] = lag
    if record.streamed and k and (ok or cut):
        values["ttft"] = first_us
        if visible >= 0:
            values["ttfvt"] = first_us + sum(gaps[runs[0][0] + 1 : visible + 1])
        if k >= 2:
            second = runs[0][0] + 1 if runs[0][1] - runs[0][0] > 1 else runs[1][0]
            values["ttst"] = first_us + sum(gaps[runs[0][0] + 1 : second + 1])
        if record.n_in is not None and first_us > 0:
            values["prefill_tps"] = record.n_in / (first_us / 1e6)
        if lag is not None:
            values["scheduled_ttft"] = first_us + lag
    if ok:
        values["stream_end"] = record.end_us
        if n is not None:
            values["output_tokens"] = n
        if record.n_in is not None:
            values["input_tokens"] = record.n_in
        e2e = record.end_us if not record.streamed else last_us if k else None
        if e2e is not None:
            values["e2e_latency"] = e2e
            if lag is not None:
                values["scheduled_latency"] = e2e + lag
            if n is not None and e2e > 0:
                values["output_tps_per_user"] = n / (e2e / 1e6)
        if record.streamed and k >= 2 and n_stream is not None and n_stream >= 2 and n_stream > m1:
            values["tpot"] = (last_us - first_us) / (n_stream - m1)
            if values["tpot"] > 0:
                values["decode_tps_per_user"] = 1e6 / values["tpot"]
    gives = k >= 2 and "ttft" in values
    return Figures(
        ok, not ok and not cut, runs, k, state, n, n_stream, hidden, values, gives, gives and state != UNKNOWN
    )
