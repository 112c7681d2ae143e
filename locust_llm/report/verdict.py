"""May these figures be trusted? ``sound``, ``doubtful`` or ``overloaded``, with reasons (metrics.md 5).

The one thing to know: a reason says what happened, which figures it touches and by how much; ``note`` reasons are
worth reading but leave the state alone. Every threshold stands in ``LIMITS``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .open_loop import open_loop
from .scope import Measured
from .window import ALL, STEADY

NOTE, DOUBTFUL, OVERLOADED = "note", "doubtful", "overloaded"
SOUND = "sound"

LIMITS = {
    "censored_share": 0.01,  # exchanges of the window that the end of the run cut
    "cached_share": 0.01,  # input tokens from the server's prefix cache
    "short_share": 0.01,  # exchanges that are short of the length asked for (scope.SHORT_BY)
    "estimated_share": 0.05,  # output tokens whose number is only the mean of other exchanges
    "late_joined_share": 0.01,  # events whose stamp is uncertain by more than 1 ms
    "late_joined_share_overloaded": 0.10,
    "lag_p99_ms": 20.0,  # kernel stamp to user stamp, the largest of each exchange
    "lag_p50_ms_overloaded": 20.0,
    "bad_line_share": 0.0,
    "clock_step_ms": 10.0,
}

# Tokens at the start of two synthetic prompts that may agree by chance, beyond the chat template.
_TEMPLATE_SLACK = 4

_RATES = ["system_output_tps", "system_total_tps", "requests_per_s"]
_LATENCIES = ["ttft", "tpot", "itl", "icl", "e2e_latency"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a verdict is what it is: a code, the effect in words, the figures it touches, and how grave it is."""

    code: str
    effect: str
    figures: list[str]
    level: str = DOUBTFUL


def verdict(of: Measured, total: dict[str, Any], card: dict[str, Any]) -> dict[str, Any]:
    """Judge a run by its headline window.

    Parameters:
        total: what ``scope`` says of all records in it.
        card: the run card, {} where there is none.

    Returns:
        ``{"state", "reasons": [{"code", "effect", "figures", "level"}]}``, gravest first.
    """
    checks = (_window, _nothing, _client, _log, _card, _arrivals, _tokens, _lengths)
    reasons = [reason for check in checks for reason in check(of, total, card)]
    grave = [OVERLOADED, DOUBTFUL, NOTE]
    reasons.sort(key=lambda r: grave.index(r.level))
    worst = reasons[0].level if reasons else NOTE
    return {"state": SOUND if worst == NOTE else worst, "reasons": [asdict(r) for r in reasons]}


def _window(of: Measured, total: dict[str, Any], card: dict[str, Any]) -> Iterator[Reason]:
    window = of.window
    if window.kind == ALL and window.why:
        effect = f"{window.why}: the figures are of the whole run, ramp and end included"
        yield Reason("no_steady_window", effect, _RATES + _LATENCIES)
    if window.started and window.censored / window.started > LIMITS["censored_share"]:
        share = window.censored / window.started
        effect = (
            f"{window.censored} of {window.started} exchanges ({share:.1%}) were cut by the end of the run, and the "
            "slow ones are the ones cut: let them finish (--llm-drain)"
        )
        yield Reason("censored", effect, ["tpot", "e2e_latency", "output_tps_per_user"])
    changes = [e for e in card.get("events") or [] if isinstance(e, dict) and e.get("event") == "load_changed"]
    if changes and window.kind == STEADY:
        effect = f"the load was changed {len(changes)} times while it ran: the steady window is that of the last level"
        yield Reason("load_changed", effect, [], NOTE)


def _nothing(of: Measured, total: dict[str, Any], card: dict[str, Any]) -> Iterator[Reason]:
    if not total["outcomes"]["ok"]:
        yield Reason("nothing_ok", "no exchange of the window succeeded, so there are no latencies", _LATENCIES)


def _client(of: Measured, total: dict[str, Any], card: dict[str, Any]) -> Iterator[Reason]:
    log, figures = of.log, of.figures
    rows = figures.measured & of.window.inside(log.start_us)
    events = np.diff(log.offsets)[rows]
    if events.sum():
        share = float(log.late_joined[rows].sum() / events.sum())
        if share > LIMITS["late_joined_share"]:
            level = OVERLOADED if share > LIMITS["late_joined_share_overloaded"] else DOUBTFUL
            worst = float(log.uncertain_us_max[rows].max()) / 1e3
            effect = (
                f"the client came late to {share:.1%} of the events and cannot say to within 1 ms when they arrived "
                f"(up to {worst:.1f} ms): fewer streams a process, or more processes (--processes)"
            )
            yield Reason("late_joined", effect, ["ttft", "ttfvt", "itl", "icl"], level)
    if rows.any():
        p50, p99 = np.percentile(log.lag_us_max[rows], [50, 99]) / 1e3
        if p99 > LIMITS["lag_p99_ms"]:
            level = OVERLOADED if p50 > LIMITS["lag_p50_ms_overloaded"] else DOUBTFUL
            effect = (
                f"the client read late: the longest wait of an answer in its socket was {p50:.1f} ms in the median "
                f"exchange, {p99:.1f} ms at p99; the next requests left late by as much"
            )
            yield Reason("lag", effect, [*_RATES, "e2e_latency"], level)
    stamped = rows & (np.diff(log.offsets) > 0)
    by_user = int((stamped & log.stamp.isin("user")).sum())
    if by_user:
        effect = (
            f"events of {by_user} of {int(stamped.sum())} exchanges have no kernel stamp: their times are those at "
            "which Python read them, and how late that was is not known"
        )
        yield Reason("user_stamps", effect, _LATENCIES, NOTE)


def _log(of: Measured, total: dict[str, Any], card: dict[str, Any]) -> Iterator[Reason]:
    damage, runs = of.log.damage, of.log.run.names
    if damage.cut_bytes:
        effect = (
            f"{damage.cut_bytes} bytes after the last line of {', '.join(damage.cut_files)} were cut: its process died "
            "while writing, so what was in flight then is missing"
        )
        yield Reason("log_cut", effect, ["e2e_latency", *_RATES])
    if damage.bad_lines > LIMITS["bad_line_share"] * len(of.log):
        effect = f"{damage.bad_lines} lines are no records and were left out ({damage.bad_examples[0]})"
        yield Reason("log_damaged", effect, _RATES)
    if damage.missing:
        effect = f"{damage.missing} records are missing from the log (their numbers are skipped)"
        yield Reason("records_missing", effect, _RATES)
    if damage.newer_schema is not None:
        effect = (
            f"the log has schema {damage.newer_schema}, written by a newer locust-llm: what is new in it is not read"
        )
        yield Reason("newer_schema", effect, [])
    if len(runs) > 1:
        yield Reason("mixed_runs", f"the log mixes {len(runs)} runs: {', '.join(runs[:5])}", _RATES + _LATENCIES)


def _card(of: Measured, total: dict[str, Any], card: dict[str, Any]) -> Iterator[Reason]:
    if card.get("log_errors") or card.get("records_lost"):
        errors = card.get("log_errors")
        said = ", ".join(sorted({str(e) for e in errors})) if isinstance(errors, list) else str(errors or "")
        effect = f"{card.get('records_lost') or 'some'} records could not be written{f' ({said})' if said else ''}"
        yield Reason("log_write_failed", effect, _RATES)
    written = card.get("records")
    if isinstance(written, int) and written > len(of.log):
        effect = (
            f"the run card counts {written} records, {len(of.log)} were read: put the events-*.jsonl of all workers "
            "into the run folder"
        )
        yield Reason("records_elsewhere", effect, _RATES)
    if card.get("workers_missing"):
        effect = f"workers were lost during the run: {', '.join(map(str, card['workers_missing']))}"
        yield Reason("workers_missing", effect, _RATES)
    steps = [s[1] for s in card.get("clock_steps") or [] if isinstance(s, list) and len(s) == 2]
    worst = max((abs(s) for s in steps if isinstance(s, int | float)), default=0) / 1e3
    if worst > LIMITS["clock_step_ms"]:
        effect = f"the wall clock was set by {worst:.0f} ms during the run: where exchanges lie in it is off by as much"
        yield Reason("clock_step", effect, _RATES)
    targets = card.get("targets")
    facts = [t for t in targets.values() if isinstance(t, dict)] if isinstance(targets, dict) else []
    dropped = sorted({str(name) for t in facts for name in t.get("dropped") or []})
    if dropped:
        yield Reason("fields_dropped", f"the server refused {', '.join(dropped)}: sent without", [], NOTE)
    if card.get("simulated"):
        yield Reason("simulated", "the server was the simulated one: its timings are made up", [], NOTE)


def _arrivals(of: Measured, total: dict[str, Any], card: dict[str, Any]) -> Iterator[Reason]:
    return (Reason(*found) for found in open_loop(of, card))


def _tokens(of: Measured, total: dict[str, Any], card: dict[str, Any]) -> Iterator[Reason]:
    numbers = total["rates"]
    estimated = numbers.get("estimated_output_tps", 0.0) / (numbers.get("system_output_tps") or 1.0)
    if estimated > LIMITS["estimated_share"]:
        effect = (
            f"{estimated:.1%} of the output tokens are of exchanges without a count, taken as the mean of the others"
        )
        yield Reason("estimated_tokens", effect, ["system_output_tps", "system_total_tps"])
    cached = _cached_share(of, card)
    if cached > LIMITS["cached_share"]:
        effect = (
            f"{cached:.1%} of the input tokens came from the server's prefix cache, though each prompt was to be new"
        )
        yield Reason("cached_input", effect, ["ttft", "prefill_tps", *_RATES])


def _lengths(of: Measured, total: dict[str, Any], card: dict[str, Any]) -> Iterator[Reason]:
    output = total["lengths"].get("output")
    lengths = card.get("lengths")
    natural = isinstance(lengths, dict) and lengths.get("natural_stop")
    if output and not natural and output["short_share"] > LIMITS["short_share"]:
        remedy = "; the server must honour ignore_eos, or ask for natural lengths with --llm-natural-stop"
        effect = (
            f"{output['short']} of {output['count']} answers ({output['short_share']:.1%}) are more than 5 % shorter "
            f"than asked (mean {output['got_mean']:.0f} of {output['asked_mean']:.0f} tokens){remedy}"
        )
        yield Reason("short_answers", effect, ["e2e_latency", "system_output_tps"], NOTE)


def _cached_share(of: Measured, card: dict[str, Any]) -> float:
    """Share of input tokens that came from the cache though their prompt was made to be new.

    Later turns of conversations (tag ``turn``) and prompts of the user's own may be cached. So may the chat template,
    which all prompts share: first contact measured its tokens.
    """
    log, figures = of.log, of.figures
    rows = figures.counted & ~figures.failed & of.window.inside(log.start_us)
    rows &= ~np.isnan(log.n_cached) & ~np.isnan(log.n_in)
    turn = log.tags.get("turn")
    if turn is not None:
        rows &= (turn.codes < 0) | turn.isin("0", "1")
    rows &= ~np.isnan(log.asked_in)  # only synthetic prompts have a length that was asked for
    targets = card.get("targets")
    found = [t.get("overhead") for t in targets.values() if isinstance(t, dict)] if isinstance(targets, dict) else []
    template = max((float(n) for n in found if isinstance(n, int | float)), default=0.0) + _TEMPLATE_SLACK
    n_in = float(log.n_in[rows].sum())
    return float(np.maximum(log.n_cached[rows] - template, 0).sum()) / n_in if n_in else 0.0
