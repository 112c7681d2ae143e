"""What one exchange says of itself: TTFT, TPOT and their kind for every record at once (metrics.md 2).

The one thing to know: ``values`` are seconds (or tokens, tokens/s) with NaN where the exchange does not have the
figure: a failure has no latency, a cut exchange no end, an answer that was not streamed no first token, one token no
TPOT.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ..exchange import CANCELLED, MEASURE, OK, UNFINISHED
from ..wire.answer import REASONING, TOKEN_KINDS, VISIBLE_KINDS
from .columns import Bools, Floats, Ints, Log, kind_table
from .events import span, walk

UNKNOWN, CONFIRMED, KNOWN = 0, 1, 2
"""What is known of the tokens ``m`` in each token event: nothing; all 1, because there are as many as tokens; said."""

_CHUNKS = "chunks"
_PART = 4_000_000


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of each record, parallel to the rows of the log.

    Attributes:
        measured: records of phase ``measure``; all figures are made of these.
        counted: those that are exchanges: ``measured`` without the earlier attempts of a retried exchange.
        ok, failed, cut: outcome of the attempt; ``cut`` is cancelled or unfinished.
        n, n_stream, hidden: output tokens, those that were streamed, reasoning tokens that were not; NaN = unknown.
        k: token events. ``m_state``: UNKNOWN, CONFIRMED or KNOWN. ``e1_us``, ``ek_us``: first and last token event.
        values: name of the figure → one value per record.
    """

    measured: Bools
    counted: Bools
    ok: Bools
    failed: Bools
    cut: Bools
    n: Floats
    n_stream: Floats
    hidden: Floats
    k: Ints
    m_state: npt.NDArray[np.uint8]
    e1_us: Floats
    ek_us: Floats
    values: dict[str, Floats]

    def of(self, rows: Ints) -> Figures:
        """Return the figures of some rows."""
        new = {f.name: getattr(self, f.name) for f in fields(self)}
        values = {name: column[rows] for name, column in new.pop("values").items()}
        return Figures(**{name: column[rows] for name, column in new.items()}, values=values)

    @property
    def gives_gaps(self) -> Bools:
        """Records whose gaps between token events count (``icl``)."""
        gives: Bools = ~np.isnan(self.values["ttft"]) & (self.k >= 2)
        return gives

    @property
    def gives_itl(self) -> Bools:
        """Those whose gaps can be split on tokens (``itl``)."""
        gives: Bools = self.gives_gaps & (self.m_state != UNKNOWN)
        return gives


def figures(log: Log) -> Figures:
    """Compute the figures of every record of a log (metrics.md 2)."""
    measured = log.phase.isin(MEASURE)
    counted = measured & last_attempts(log)
    ok = log.outcome.isin(OK)
    cut = log.outcome.isin(CANCELLED, UNFINISHED)
    failed = ~(ok | cut)  # an outcome that a later version has is none of ours, but a failure

    tokens = span(log, TOKEN_KINDS)
    visible = span(log, VISIBLE_KINDS) if _has_invisible(log) else tokens
    n = np.where(log.out_source.isin(_CHUNKS), np.nan, log.n_out)
    hidden = _hidden_reasoning(log)
    n_stream = np.maximum(n - hidden, 0.0)
    m_state, m1 = _m(log, tokens.count, n_stream)

    keeps_start = counted & (ok | cut) & log.streamed
    ends = counted & ok
    end_s = log.end_us / 1e6
    lag = np.where(counted, log.start_us - log.scheduled_us, np.nan) / 1e6
    ttft = np.where(keeps_start, tokens.first_us, np.nan) / 1e6
    e2e = np.where(ends, np.where(log.streamed, tokens.last_us / 1e6, end_s), np.nan)
    later = n_stream - m1
    decodes = ends & log.streamed & (tokens.count >= 2) & (n_stream >= 2) & (later > 0)
    tpot = divide(np.where(decodes, tokens.last_us - tokens.first_us, np.nan) / 1e6, later)
    values = {
        "ttft": ttft,
        "ttfvt": np.where(keeps_start, visible.first_us, np.nan) / 1e6,
        "ttst": np.where(keeps_start, tokens.second_us, np.nan) / 1e6,
        "tpot": tpot,
        "e2e_latency": e2e,
        "stream_end": np.where(ends, end_s, np.nan),
        "output_tps_per_user": divide(n, e2e),
        "decode_tps_per_user": divide(np.ones(len(log)), tpot),
        "prefill_tps": divide(log.n_in, ttft),
        "schedule_lag": lag,  # the client's own: failures have it too
        "scheduled_ttft": ttft + lag,
        "scheduled_latency": e2e + lag,
        "output_tokens": np.where(ends, n, np.nan),
        "input_tokens": np.where(ends, log.n_in, np.nan),
    }
    return Figures(
        measured=measured, counted=counted, ok=ok, failed=failed, cut=cut,
        n=n, n_stream=n_stream, hidden=hidden, k=tokens.count, m_state=m_state,
        e1_us=tokens.first_us, ek_us=tokens.last_us, values=values,
    )  # fmt: skip


def last_attempts(log: Log) -> Bools:
    """Which records are the last attempt of their exchange; the exchange has its outcome."""
    last = np.ones(len(log), dtype=bool)
    retried = {
        (int(log.run.codes[i]), log.exchange[i]) for i in np.flatnonzero(log.attempt > 1).tolist() if log.exchange[i]
    }
    if not retried:
        return last
    best: dict[tuple[int, str], int] = {}
    for i, key in enumerate(zip(log.run.codes.tolist(), log.exchange, strict=True)):
        if key not in retried:
            continue
        other = best.setdefault(key, i)
        if log.attempt[i] > log.attempt[other]:
            best[key], last[other] = i, False
        elif i != other:
            last[i] = False
    return last


def _has_invisible(log: Log) -> bool:
    """Whether the log has token events that are not visible; if not, one walk over the events is saved."""
    codes = np.flatnonzero(kind_table(TOKEN_KINDS - VISIBLE_KINDS)).astype(np.uint8)
    parts = (log.kinds[i : i + _PART] for i in range(0, len(log.kinds), _PART))
    return any((part == code).any() for part in parts for code in codes)


def _hidden_reasoning(log: Log) -> Floats:
    """Reasoning tokens of streamed answers that were reported but never streamed."""
    hidden = np.where(log.streamed, np.nan_to_num(log.n_reasoning, nan=0.0), 0.0)
    if hidden.any():
        hidden[span(log, frozenset({REASONING})).count > 0] = 0.0
    return hidden


def _m(log: Log, k: Ints, n_stream: Floats) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Return what is known of the tokens of each record's token events, and those of the first (1 where unknown)."""
    state = np.where((k > 0) & (n_stream == k), CONFIRMED, UNKNOWN).astype(np.uint8)
    m1 = np.ones(len(log))
    if log.tokens is not None:
        for events in walk(log, TOKEN_KINDS):
            tokens = events.tokens
            assert tokens is not None
            known = np.minimum.reduceat(tokens, events.starts) >= 0
            rows = events.rows[known]
            state[rows] = KNOWN
            m1[rows] = tokens[events.starts[known]]
    return state, m1


def divide(above: Floats, below: Floats) -> Floats:
    """Divide; NaN where the divisor is zero or either is unknown."""
    out = np.full(len(above), np.nan)
    np.divide(above, below, out=out, where=below > 0)
    return out
