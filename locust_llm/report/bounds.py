"""How wrong can the figures be? Bounds of the client's own error, percentile by percentile (metrics.md 5).

The one thing to know: an event may have come before its stamp, by at most its uncertainty, never after it; and a
request may have left late after ``t_start``. So each value has a lowest and a highest possible true value, and so has
each percentile: the percentile of the lowest values, and that of the highest. The true one lies between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..wire.answer import TOKEN_KINDS
from .arrivals import add_up
from .client_health import Reason
from .columns import Bools, Floats, Ints, Log
from .events import Events, walk
from .figures import KNOWN
from .limits import DOUBTFUL, OVERLOADED, Limits
from .scope import Measured, pooled
from .stats import Sample, quantile, sample

JUDGED = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
_GAP_BITS = 38  # 76 hours of us; the rest of an int64 is the number of tokens
_PENDING = 64


@dataclass(frozen=True, slots=True)
class Bound:
    """A percentile in ms: as measured, and between what the true one lies."""

    metric: str
    statistic: str
    measured: float
    low: float
    high: float

    def off(self, limits: Limits) -> bool:
        """Whether the measured value may be further from the true one than the limits allow."""
        tail = "_p99" if self.statistic == "p99" else ""
        share, floor = limits[f"error{tail}"], limits[f"error{tail}_floor"]
        too_long, too_short = self.measured - self.low, self.high - self.measured
        return too_long > max(share * self.low, floor) or too_short > max(share * self.high, floor)

    def __str__(self) -> str:
        label = f"{self.metric} {self.statistic} of {self.measured:.1f} ms"
        return f"{label} is {self.low:.1f} to {self.high:.1f}"


def bounds(of: Measured) -> list[Bound]:
    """Return the bounds of each figure's percentiles that may be off at all, in the window."""
    log, figures = of.log, of.figures
    started = figures.counted & of.window.inside(log.start_us)
    late = np.diff(log.unsure_offsets) > 0
    sent_us = np.where(started, send_lag_us(log), 0.0)
    first_us, last_us = _ends(log, started & late & log.streamed)
    later = np.maximum(figures.n_stream - 1, 1)
    lowest = {
        "ttft": (first_us + sent_us, 0.0),
        "e2e_latency": (last_us + sent_us, 0.0),
        "tpot": (last_us / later, first_us / later),
    }
    found: list[Bound] = []
    for name, (early_us, late_us) in lowest.items():
        if not (np.any(early_us) or np.any(late_us)):
            continue
        values = np.where(started, figures.values[name], np.nan)
        low, high = np.maximum(values - early_us / 1e6, 0.0), values + late_us / 1e6
        found += _bounds(name, sample(values), sample(low), sample(high))
    for name in ("itl", "icl"):
        measured, why = pooled(of, name, started)
        gives = figures.gives_itl if name == "itl" else figures.gives_gaps
        if not why and measured.size and (started & gives & late).any():
            found += _bounds(name, measured, *_gaps(of, started & gives, name == "itl", started & gives & late))
            break  # icl stands in for itl
    return found


def judge_bounds(found: list[Bound], limits: Limits) -> Iterator[Reason]:
    """Yield a reason for the figures whose tails may be off, and a graver one for those whose median may be."""
    off = [bound for bound in found if bound.off(limits)]
    grave = {bound.metric for bound in off if bound.statistic == "p50"}
    for code, level, these in (
        ("error_median", OVERLOADED, [bound for bound in off if bound.metric in grave]),
        ("error", DOUBTFUL, [bound for bound in off if bound.metric not in grave]),
    ):
        if these:
            name = "error" if code == "error_median" else "error_p99"
            worst = max(these, key=lambda b: max(b.measured - b.low, b.high - b.measured))
            effect = (
                "the client read or sent too late to know better than this: "
                f"{', '.join(map(str, these))}: fewer streams a process, more processes (--processes), or a quieter "
                "machine"
            )
            touched = list(dict.fromkeys(figure for bound in these for figure in _TOUCHED[bound.metric]))
            size = max(worst.measured - worst.low, worst.high - worst.measured)
            yield Reason(code, effect, touched, level, size, limits[f"{name}_floor"])


def send_lag_us(log: Log) -> Floats:
    """Return start to last byte sent, without DNS, TCP and TLS, of each record; 0 where nothing was sent."""
    connecting = np.nan_to_num(log.dns_us) + np.nan_to_num(log.tcp_us) + np.nan_to_num(log.tls_us)
    lag: Floats = np.maximum(np.nan_to_num(log.sent_us) - np.where(log.reused, 0.0, connecting), 0.0)
    return lag


# ---- helpers

_TOUCHED = {
    "ttft": ("ttft", "ttfvt", "ttst", "prefill_tps", "scheduled_ttft"),
    "e2e_latency": ("e2e_latency", "output_tps_per_user", "scheduled_latency"),
    "tpot": ("tpot", "decode_tps_per_user"),
    "itl": ("itl", "icl"),
    "icl": ("icl",),
}


def _bounds(name: str, measured: Sample, low: Sample, high: Sample) -> Iterator[Bound]:
    if not measured.size:
        return
    for statistic, q in JUDGED.items():
        at, below, above = (quantile(each, q) * 1e3 for each in (measured, low, high))
        if below < at or above > at:
            yield Bound(name, statistic, at, below, above)


def _ends(log: Log, rows: Bools) -> tuple[Floats, Floats]:
    """Return the uncertainty of each record's first and last token event (us); 0 outside of ``rows``."""
    first, last = np.zeros(len(log)), np.zeros(len(log))
    if rows.any():
        for events in walk(log, TOKEN_KINDS, rows):
            unsure = events.unsure_us
            first[events.rows] = unsure[events.starts]
            last[events.rows] = unsure[events.starts + events.counts - 1]
    return first, last


def _gaps(of: Measured, rows: Bools, split: bool, late: Bools) -> tuple[Sample, Sample]:
    """Return the gaps of ``rows`` as short, and as long, as they may have been.

    Only the gaps beside an event that is not sure are looked at again; the others are as counted before.
    """
    keys: list[list[Ints]] = [[], [], []]
    counts: list[list[Ints]] = [[], [], []]
    for events in walk(of.log, TOKEN_KINDS, late):
        for i, part in enumerate(_beside(events, of, split)):
            distinct, n = np.unique(part, return_counts=True)
            keys[i].append(distinct)
            counts[i].append(n)
            if len(keys[i]) == _PENDING:
                merged, total = add_up(keys[i], counts[i])
                keys[i], counts[i] = [merged], [total.astype(np.int64)]
    groups = np.isin(of.gaps.group, np.unique(of.gap_group[rows]))
    m = of.gaps.m[groups] if split else np.ones(int(groups.sum()), dtype=np.int64)
    all_keys, all_counts = _key(of.gaps.gap_us[groups], m), of.gaps.count[groups]
    gone = [-n for n in counts[0]]
    low = _sample([all_keys, *keys[0], *keys[1]], [all_counts, *gone, *counts[1]])
    high = _sample([all_keys, *keys[0], *keys[2]], [all_counts, *gone, *counts[2]])
    return low, high


def _beside(events: Events, of: Measured, split: bool) -> tuple[Ints, Ints, Ints]:
    """Return the keys of the gaps beside an unsure event: as measured, shortest, longest."""
    m = np.ones(len(events), dtype=np.int64)
    if split and events.tokens is not None:
        known = events.each(of.figures.m_state[events.rows] == KNOWN)
        m[known] = np.maximum(events.tokens[known], 0)
    first = np.zeros(len(events), dtype=bool)
    first[events.starts] = True
    shortest, longest = extremes(first, events.clock_us, events.unsure_us, m)
    beside = np.flatnonzero(~np.isnan(shortest))
    gap = events.clock_us[beside] - events.clock_us[beside - 1]
    low, high = np.floor(shortest[beside]).astype(np.int64), np.ceil(longest[beside]).astype(np.int64)
    return _key(gap, m[beside]), _key(low, m[beside]), _key(high, m[beside])


def extremes(first: Bools, time_us: Ints, unsure_us: Ints, m: Ints) -> tuple[Floats, Floats]:
    """Return values whose percentiles bound those of the true gaps from below and from above.

    The unsure events of one read came some time in its last ``w`` us, in order. So the gaps between them, and that to
    the next sure event, are never longer in sum than ``w`` more than measured: at most k of them are longer than the
    k-th part of that. What they gain, the gap before the first of them loses.

    Parameters:
        first, time_us, unsure_us, m: of events, parallel: first of its record; time; uncertainty; tokens.

    Returns:
        The gap before each event, us; NaN where it is as measured (and before the first event of a record).
    """
    shortest, longest = np.full(len(time_us), np.nan), np.full(len(time_us), np.nan)
    unsure = unsure_us > 0
    same_read = np.zeros(len(time_us), dtype=bool)
    same_read[1:] = unsure[1:] & ~first[1:] & (np.diff(time_us) == 0) & (np.diff(unsure_us) == 0)
    starts = np.flatnonzero(unsure & ~same_read)
    if not len(starts):
        return shortest, longest
    ends = np.append(starts[1:], len(time_us))  # of the run; cut to its own events next
    numbers = np.minimum(ends, _next_false(same_read, starts)) - starts
    after = starts + numbers
    width = unsure_us[starts].astype(np.float64)
    gap = np.append(0, np.diff(time_us)).astype(np.float64)
    follows = ~first[starts]
    before = np.where(follows, gap[starts], 0.0)
    grown = before + np.where(follows, unsure_us[np.maximum(starts - 1, 0)], 0)
    owns = np.zeros(len(starts), dtype=bool)  # the gap to the next event
    inside = after < len(time_us)
    owns[inside] = ~first[after[inside]] & ~unsure[after[inside]]
    last = np.where(owns, gap[np.minimum(after, len(time_us) - 1)], 0.0)

    # The gaps after the first event of each run, and the tokens up to each of them.
    count = numbers - 1 + owns
    run = np.repeat(np.arange(len(starts)), count)
    at = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count) + starts[run] + 1
    tokens = np.cumsum(m[at])
    rank = np.maximum(tokens - (tokens - m[at])[np.searchsorted(run, run)], 1)
    part = (width + last)[run] / rank
    shared = (grown + last)[run] / (rank + (grown[run] >= part))
    high = np.where(follows[run], np.minimum(part, shared), part)
    longest[at] = high * np.maximum(m[at], 1)
    shortest[at] = 0.0
    shortest[after[owns]] = last[owns]

    share = m[starts] / np.maximum(m[starts] + np.bincount(run, m[at], len(starts)), 1)
    even = np.where(owns & (last == 0), before * share, 0.0)
    leads = starts[follows]
    shortest[leads] = np.maximum(before - width, even)[follows]
    longest[leads] = grown[follows]
    return shortest, longest


def _next_false(mask: Bools, starts: Ints) -> Ints:
    """Return the first position after each start at which a mask is false."""
    false = np.append(np.flatnonzero(~mask), len(mask))
    return false[np.searchsorted(false, starts, side="right")]


def _key(gap_us: Ints, m: Ints) -> Ints:
    most = (1 << _GAP_BITS) - 1
    key: Ints = (m.astype(np.int64) << _GAP_BITS) | np.minimum(gap_us, most)
    return key


def _sample(keys: list[Ints], counts: list[Ints]) -> Sample:
    merged, total = add_up(keys, counts)
    m, gap_us = merged >> _GAP_BITS, merged & ((1 << _GAP_BITS) - 1)
    return sample(gap_us / np.maximum(m, 1) / 1e6, np.rint(total).astype(np.int64) * m)
