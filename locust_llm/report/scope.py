"""Everything ``summary.json`` says of one scope (a name, or all of them) in one window.

The one thing to know: a figure is there as a number, or its key is missing and stands in ``absent`` with the reason; no
0, null or NaN in place of a figure that nobody measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..exchange import OK, OUTCOMES
from .arrivals import Arrivals
from .columns import Bools, Ints, Log
from .effect import input_effect
from .figures import Figures
from .gaps import GapCounts
from .metrics import METRICS, POOLED
from .rates import KNOWN_SHARE, concurrency, rates
from .stats import describe, sample
from .window import Window

SHORT_BY = 0.05
"""An answer is short if it has fewer than this share less than the tokens that were asked for."""
_ERRORS = 50
_MESSAGE = 200


@dataclass(frozen=True, slots=True)
class Measured:
    """Records of one scope (at first all of a log), a window, and what was computed of them."""

    log: Log
    figures: Figures
    window: Window
    arrived: Arrivals
    gaps: GapCounts
    gap_group: Ints
    """Group of each record in ``gaps``; -1 for those that started outside the window."""

    def of(self, rows: Ints) -> Measured:
        """Return the scope of some rows, without their events: all that is made of these is computed."""
        return Measured(
            self.log.without_events(rows), self.figures.of(rows), self.window,
            self.arrived.of(rows), self.gaps, self.gap_group[rows],
        )  # fmt: skip


def scope(of: Measured, groups: Ints) -> dict[str, Any]:
    """Return the members of one scope.

    Parameters:
        groups: the scope's groups in ``of.arrived.per_second``.
    """
    log, figures = of.log, of.figures
    in_window = of.window.inside(log.start_us)
    started = figures.counted & in_window
    metrics, absent = _metrics(of, started)
    numbers, absent_rates = rates(log, figures, of.window, of.arrived, groups)
    effect, absent_effect = input_effect(log, figures, started & figures.ok)
    return {
        "metrics": metrics,
        "rates": numbers,
        "input_effect": effect,
        "outcomes": _outcomes(log, started),
        "retries": int((figures.measured & ~figures.counted & in_window).sum()),
        "finish_reasons": log.finish_reason.counts(started & figures.ok),
        "tokens": _tokens(log, figures, started & ~figures.failed),
        "lengths": _lengths(log, figures, started & figures.ok),
        "concurrency": concurrency(log, figures, of.window),
        "connection": _connection(of, started),
        "errors": _errors(log, started & figures.failed),
        "absent": absent | absent_rates | absent_effect,
    }


def _metrics(of: Measured, started: Bools) -> tuple[dict[str, Any], dict[str, str]]:
    metrics: dict[str, Any] = {}
    absent: dict[str, str] = {}
    figures = of.figures
    for name, metric in METRICS.items():
        why = ""
        if name in POOLED:
            values, why = pooled(of, name, started)
        else:
            values = sample(figures.values[name][started])
        if not why and values.size:
            metrics[name] = {"unit": metric.unit, **describe(values, metric.scale)}
            if values.size == 1:
                absent[f"{name}.std"] = "one value has no spread"
        else:
            absent[name] = why or _why(of, name, started)
    return metrics, absent


def pooled(of: Measured, name: str, started: Bools) -> tuple[Any, str]:
    """Return the sample of ``itl`` or ``icl`` over the exchanges that ``started``, or why there is none."""
    gives, can = (int((started & rows).sum()) for rows in (of.figures.gives_gaps, of.figures.gives_itl))
    if name == "itl" and gives and can < KNOWN_SHARE * gives:
        return None, f"tokens per event are unknown for {gives - can} of {gives} exchanges; icl stands in its place"
    rows = started & (of.figures.gives_itl if name == "itl" else of.figures.gives_gaps)
    groups = np.unique(of.gap_group[rows])
    return (of.gaps.itl(groups) if name == "itl" else of.gaps.icl(groups)), ""


def _why(of: Measured, name: str, started: Bools) -> str:
    """Return why a figure has no value in the exchanges that started in the window."""
    log, figures = of.log, of.figures
    ok = started & figures.ok
    if not started.any():
        return "no exchange started in the window"
    if name.startswith("schedule") and np.isnan(log.scheduled_us[started]).all():
        return "closed loop: nothing was scheduled"
    if not (ok.any() or (started & figures.cut).any()):
        return "no exchange succeeded"
    streamed_only = (
        "ttft",
        "ttfvt",
        "ttst",
        "tpot",
        "itl",
        "icl",
        "decode_tps_per_user",
        "prefill_tps",
        "scheduled_ttft",
    )
    if name in streamed_only and not log.streamed[started & ~figures.failed].any():
        return "the answers were not streamed"
    if name in ("tpot", "decode_tps_per_user", "ttst", "itl", "icl") and not (figures.k[started] >= 2).any():
        return "no answer had two token events"
    if (
        name in ("tpot", "decode_tps_per_user", "output_tps_per_user", "output_tokens")
        and np.isnan(figures.n[ok]).all()
    ):
        return (
            "the server reported no usage and no tokenizer was named (--llm-tokenizer)"
            if ok.any()
            else "no exchange succeeded"
        )
    if name in ("input_tokens", "prefill_tps") and np.isnan(log.n_in[ok]).all():
        return "input tokens are unknown" if ok.any() else "no exchange succeeded"
    if name == "ttfvt":
        return "no answer text or tool call came"
    return "no exchange that can give it" if ok.any() else "no exchange succeeded"


def _tokens(log: Log, figures: Figures, rows: Bools) -> dict[str, Any]:
    """Sums over the exchanges (failures left out), and where their counts come from."""
    counted = rows & ~np.isnan(figures.n)
    in_chunks = rows & np.isnan(figures.n) & (figures.k > 0)
    source = log.out_source.counts(counted) | ({"chunks": int(in_chunks.sum())} if in_chunks.any() else {})
    out: dict[str, Any] = {"source": source, "input_source": log.in_source.counts(rows & ~np.isnan(log.n_in))}
    columns = {"output": figures.n, "input": log.n_in, "reasoning": log.n_reasoning, "cached": log.n_cached}
    for name, column in columns.items():
        known = rows & ~np.isnan(column)
        if known.any():
            out[name] = int(column[known].sum())
    if "cached" in out:
        told = rows & ~np.isnan(log.n_cached) & ~np.isnan(log.n_in)
        if log.n_in[told].sum():
            out["cached_share"] = float(log.n_cached[told].sum() / log.n_in[told].sum())
    return out


def _lengths(log: Log, figures: Figures, rows: Bools) -> dict[str, Any]:
    """Asked and got, side by side, of the successes where both are known; input only where the server counted it."""
    counted_in = rows & log.in_source.isin("usage")
    out = {}
    for name, asked, got, these in (
        ("output", log.asked_out, figures.n, rows),
        ("input", log.asked_in, log.n_in, counted_in),
    ):
        both = these & ~np.isnan(asked) & ~np.isnan(got)
        if both.any():
            short = int((got[both] < (1 - SHORT_BY) * asked[both]).sum())
            out[name] = {
                "count": int(both.sum()),
                "asked_mean": float(asked[both].mean()),
                "got_mean": float(got[both].mean()),
                "short": short,
                "short_share": short / int(both.sum()),
            }
    return out


def _connection(of: Measured, started: Bools) -> dict[str, Any]:
    """New and reused connections; median time to a ready one, its share of the median TTFT, median TCP connect."""
    log, ttft = of.log, of.figures.values["ttft"]
    out: dict[str, Any] = {
        "new": int((started & ~log.reused & ~np.isnan(log.connected_us)).sum()),
        "reused": int((started & log.reused).sum()),
    }
    rows = started & ~np.isnan(ttft) & ~np.isnan(log.connected_us)
    if rows.any():
        connect_s, ttft_s = float(np.median(log.connected_us[rows])) / 1e6, float(np.median(ttft[rows]))
        out["connect_p50_ms"] = connect_s * 1e3
        if ttft_s > 0:
            out["ttft_share"] = connect_s / ttft_s
    tcp = log.tcp_us[started & ~log.reused]
    tcp = tcp[~np.isnan(tcp)]
    if len(tcp):
        out["tcp_connect_p50_ms"] = float(np.median(tcp)) / 1e3
    return out


def _outcomes(log: Log, started: Bools) -> dict[str, int]:
    """Return how many ended how; an outcome that this version does not know comes after those that it does."""
    found = log.outcome.counts(started)
    return {outcome: found.pop(outcome, 0) for outcome in reversed(OUTCOMES)} | found


def _errors(log: Log, rows: Bools) -> list[dict[str, Any]]:
    """Failures by outcome, status, kind and message, most frequent first."""
    columns = (log.outcome, log.error_kind, log.error_message)
    keys = np.stack(
        [*(c.codes[rows] for c in columns), np.nan_to_num(log.status[rows], nan=-1).astype(np.int64)], axis=1
    )
    found, counts = np.unique(keys, axis=0, return_counts=True)
    out = []
    for (outcome, kind, message, status), count in zip(found.tolist(), counts.tolist(), strict=True):
        text = log.error_message.names[message] if message >= 0 else None
        out.append({
            "outcome": log.outcome.names[outcome] if outcome >= 0 else OK,
            "status": None if status < 0 else status,
            "kind": log.error_kind.names[kind] if kind >= 0 else None,
            "message": text[:_MESSAGE] if text else None,
            "count": count,
        })  # fmt: skip
    out.sort(key=lambda e: -e["count"])
    if len(out) > _ERRORS:
        rest = sum(e["count"] for e in out[_ERRORS:])
        out[_ERRORS:] = [{"outcome": "other", "status": None, "kind": None,
                          "message": f"{len(out) - _ERRORS} more kinds of error", "count": rest}]  # fmt: skip
    return out
