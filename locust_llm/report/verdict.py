"""May these figures be trusted? ``sound``, ``doubtful`` or ``overloaded``, with reasons (metrics.md 5).

The one thing to know: a reason says what happened, which figures it touches and by how much; ``note`` reasons are
worth reading but leave the state alone. Every threshold stands in ``limits``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .bounds import bounds, judge_bounds, send_lag_us
from .client_health import GRAVE, RATES, Reads, Reason, judge_processes, judge_reads, state
from .client_health import SOUND as SOUND
from .limits import DEFAULTS, NOTE, OVERLOADED, Limits
from .open_loop import open_loop
from .scope import Measured
from .server import restarts
from .window import ALL, STEADY
from .worker_reasons import judge_workers, not_here

# Tokens at the start of two synthetic prompts that may agree by chance, beyond the chat template.
_TEMPLATE_SLACK = 4

_RATES = list(RATES)
_LATENCIES = ["ttft", "tpot", "itl", "icl", "e2e_latency"]


def verdict(of: Measured, total: dict[str, Any], card: dict[str, Any], limits: Limits = DEFAULTS) -> dict[str, Any]:
    """Judge a run by its headline window.

    Parameters:
        total: what ``scope`` says of all records in it.
        card: the run card, {} where there is none.

    Returns:
        ``{"state", "reasons": [{"code", "effect", "figures", "level", "value"?, "limit"?}], "bounds"?, "limits"?}``,
        gravest first. ``bounds``: figure → percentile → [least, most] that the true one can be, in ms, where that is
        not the measured one. ``limits``: those that were given.
    """
    found = bounds(of)
    checks = (_window, _nothing, _log, _card, _arrivals, _tokens, _lengths)
    reasons = [*judge_bounds(found, limits), *_client(of, card, limits)]
    reasons += [reason for check in checks for reason in check(of, total, card, limits)]
    reasons = _overloaded(reasons)
    reasons.sort(key=lambda r: GRAVE.index(r.level))
    out: dict[str, Any] = {"state": state(reasons), "reasons": [reason.to_json() for reason in reasons]}
    for bound in found:
        out.setdefault("bounds", {}).setdefault(bound.metric, {})[bound.statistic] = [bound.low, bound.high]
    if limits.given:
        out["limits"] = dict(limits.given)
    return out


def client_figures(of: Measured, card: dict[str, Any]) -> dict[str, Any]:
    """Return the client's health for ``summary.json``: how reads went, and each process as the run card has it."""
    reads = _reads(of)
    out: dict[str, Any] = {name: value for name in Reads.__slots__ if (value := getattr(reads, name)) is not None}
    lost = _lost_load(of)
    if lost is not None:
        out["lost_load"] = lost
    processes = card.get("client")
    return out | ({"processes": processes} if isinstance(processes, dict) and processes else {})


def _window(of: Measured, total: dict[str, Any], card: dict[str, Any], limits: Limits) -> Iterator[Reason]:
    window = of.window
    if window.kind == ALL and window.why:
        effect = f"{window.why}: the figures are of the whole run, ramp and end included"
        yield Reason("no_steady_window", effect, _RATES + _LATENCIES)
    if window.started and window.censored / window.started > limits["censored_share"]:
        share = window.censored / window.started
        effect = (
            f"{window.censored} of {window.started} exchanges ({share:.1%}) were cut by the end of the run, and the "
            "slow ones are the ones cut: let them finish (--llm-drain)"
        )
        yield Reason("censored", effect, ["tpot", "e2e_latency", "output_tps_per_user"])
    changes = [e for e in card.get("events") or [] if isinstance(e, dict) and e.get("event") == "load_changed"]
    if changes and window.kind == STEADY:
        real = [e for e in changes if not e.get("moved")]
        said = [f"the load was changed {_times(real)} while it ran{_last_level(real[-1])}"] if real else []
        moved = [e for e in changes if e.get("moved")]
        said += [f"users were moved between workers {_times(moved)} while it ran"] if moved else []
        effect = f"{'; '.join(said)}: the steady window begins after the last of these"
        yield Reason("load_changed", effect, [], NOTE)


def _times(events: list[dict[str, Any]]) -> str:
    return "once" if len(events) == 1 else f"{len(events)} times"


def _last_level(change: dict[str, Any]) -> str:
    if isinstance(rate := change.get("rate"), int | float):
        return f", last to {rate:g} arrivals per second" + (f" of {change['stream']}" if change.get("stream") else "")
    return f", last to {change['users']} users" if "users" in change else ""


def _nothing(of: Measured, total: dict[str, Any], card: dict[str, Any], limits: Limits) -> Iterator[Reason]:
    if not total["outcomes"]["ok"]:
        yield Reason("nothing_ok", "no exchange of the window succeeded, so there are no latencies", _LATENCIES)


def _client(of: Measured, card: dict[str, Any], limits: Limits) -> Iterator[Reason]:
    lost, limit = _lost_load(of), limits["lost_load"]
    if lost is not None and lost > limit:
        effect = (
            f"for up to {lost:.1%} of the users' time an answer was over and the client had not seen it, so the next "
            "requests left late: the load was lower by as much than the users would have made it"
        )
        yield Reason("lost_load", effect, _RATES, limits.level("lost_load"), lost, limit)
    yield from judge_reads(_reads(of), limits)
    processes = card.get("client")
    if isinstance(processes, dict):
        yield from judge_processes(processes, limits)
    rows = of.figures.measured & of.window.inside(of.log.start_us)
    stamped = rows & (np.diff(of.log.offsets) > 0)
    by_user = int((stamped & of.log.stamp.isin("user")).sum())
    if by_user:
        effect = (
            f"events of {by_user} of {int(stamped.sum())} exchanges have no kernel stamp: their times are those at "
            "which Python read them"
        )
        yield Reason("user_stamps", effect, _LATENCIES, NOTE)


def _overloaded(reasons: list[Reason]) -> list[Reason]:
    """A processor at its limit is no fault by itself; where latencies or load were spoilt, too, it is why."""
    spoilt = {figure for reason in reasons if reason.code in _SPOILS for figure in reason.figures}
    return [replace(r, level=OVERLOADED, figures=sorted(spoilt)) if r.code == "cpu" and spoilt else r for r in reasons]


_SPOILS = ("error", "error_median", "lost_load")


def _reads(of: Measured) -> Reads:
    """Return how the reads and sends of the window's exchanges went."""
    log = of.log
    rows = of.figures.measured & of.window.inside(log.start_us)
    events = int(of.figures.k[rows].sum())
    sent = rows & ~np.isnan(log.sent_us)
    lag_p50, lag_p99 = _p50_p99(log.lag_us_max[rows])
    send_p50, send_p99 = _p50_p99(send_lag_us(log)[sent])
    return Reads(
        late_joined_share=float(log.late_joined[rows].sum() / events) if events else None,
        uncertain_max_ms=float(log.uncertain_us_max[rows].max()) / 1e3 if events else None,
        lag_p50_ms=lag_p50, lag_p99_ms=lag_p99, send_lag_p50_ms=send_p50, send_lag_p99_ms=send_p99,
    )  # fmt: skip


def _p50_p99(us: Any) -> tuple[float | None, float | None]:
    if not len(us):
        return None, None
    p50, p99 = np.percentile(us, [50, 99]).tolist()
    return p50 / 1e3, p99 / 1e3


def _lost_load(of: Measured) -> float | None:
    """Return the share of the users' time in which an answer may have been over and not seen; None in open loop.

    The longest wait of an exchange's bytes stands for that of its last ones: more than was.
    """
    log, window = of.log, of.window
    rows = of.figures.measured & window.inside(log.start_us)
    if not rows.any() or window.duration_s <= 0 or not np.isnan(log.scheduled_us[rows]).all():
        return None
    user = log.tags.get("user")
    users = len(np.unique(user.codes[rows])) if user is not None else 0
    if not users:
        return None
    last_us = int((log.start_us + log.end_us)[rows].max())
    seconds = (min(window.end_us, last_us) - window.start_us) / 1e6
    return float(min(1.0, log.lag_us_max[rows].sum() / 1e6 / (users * max(seconds, 1e-6))))


def _log(of: Measured, total: dict[str, Any], card: dict[str, Any], limits: Limits) -> Iterator[Reason]:
    damage, runs = of.log.damage, of.log.run.names
    if damage.cut_bytes:
        effect = (
            f"{damage.cut_bytes} bytes after the last line of {', '.join(damage.cut_files)} were cut: its process died "
            "while writing, so what was in flight then is missing"
        )
        yield Reason("log_cut", effect, ["e2e_latency", *_RATES])
    if damage.bad_lines > limits["bad_line_share"] * len(of.log):
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


def _card(of: Measured, total: dict[str, Any], card: dict[str, Any], limits: Limits) -> Iterator[Reason]:
    if card.get("log_errors") or card.get("records_lost"):
        errors = card.get("log_errors")
        said = ", ".join(sorted({str(e) for e in errors})) if isinstance(errors, list) else str(errors or "")
        effect = f"{card.get('records_lost') or 'some'} records could not be written{f' ({said})' if said else ''}"
        yield Reason("log_write_failed", effect, _RATES)
    written = card.get("records")
    if isinstance(written, int) and written > len(of.log):
        effect = (
            f"the run card counts {written} records, {len(of.log)} were read: put {not_here(card)} into the run folder"
        )
        yield Reason("records_elsewhere", effect, _RATES)
    for reason in judge_workers(card, limits["clock_offset"]):
        yield replace(reason, level=limits.level("clock_offset")) if reason.code == "clock_offset" else reason
    steps = [s[1] for s in card.get("clock_steps") or [] if isinstance(s, list) and len(s) == 2]
    worst = max((abs(s) for s in steps if isinstance(s, int | float)), default=0) / 1e3
    if worst > limits["clock_step"]:
        effect = f"the wall clock was set by {worst:.0f} ms during the run: where exchanges lie in it is off by as much"
        yield Reason("clock_step", effect, _RATES)
    yield from _prewarmed(card)
    for why in restarts(card):
        yield Reason("server_restarted", why, _RATES + _LATENCIES)
    targets = card.get("targets")
    facts = [t for t in targets.values() if isinstance(t, dict)] if isinstance(targets, dict) else []
    dropped = sorted({str(name) for t in facts for name in t.get("dropped") or []})
    if dropped:
        yield Reason("fields_dropped", f"the server refused {', '.join(dropped)}: sent without", [], NOTE)
    if card.get("simulated"):
        yield Reason("simulated", "the server was the simulated one: its timings are made up", [], NOTE)


def _prewarmed(card: dict[str, Any]) -> Iterator[Reason]:
    """Connections that were opened before the load: what a user's first exchange does not show."""
    told = card.get("prewarmed")
    processes = [p for p in told.values() if isinstance(p, dict)] if isinstance(told, dict) else []
    each = [of for targets in processes for of in targets.values() if isinstance(of, dict)]
    asked, opened = (sum(n for of in each if isinstance(n := of.get(key), int)) for key in ("asked", "opened"))
    if asked:
        effect = (
            f"{opened} of {asked} connections were opened before the load (--llm-prewarm): their set-up is in no TTFT, "
            "and they count as reused"
        )
        yield Reason("prewarmed", effect, [], NOTE)


def _arrivals(of: Measured, total: dict[str, Any], card: dict[str, Any], limits: Limits) -> Iterator[Reason]:
    return open_loop(of, card, limits)


def _tokens(of: Measured, total: dict[str, Any], card: dict[str, Any], limits: Limits) -> Iterator[Reason]:
    numbers = total["rates"]
    estimated = numbers.get("estimated_output_tps", 0.0) / (numbers.get("system_output_tps") or 1.0)
    if estimated > limits["estimated_share"]:
        effect = (
            f"{estimated:.1%} of the output tokens are of exchanges without a count, taken as the mean of the others"
        )
        yield Reason("estimated_tokens", effect, ["system_output_tps", "system_total_tps"])
    cached = _cached_share(of, card)
    if cached > limits["cached_share"]:
        effect = (
            f"{cached:.1%} of the input tokens came from the server's prefix cache, though each prompt was to be new"
        )
        yield Reason("cached_input", effect, ["ttft", "prefill_tps", *_RATES])


def _lengths(of: Measured, total: dict[str, Any], card: dict[str, Any], limits: Limits) -> Iterator[Reason]:
    output = total["lengths"].get("output")
    lengths = card.get("lengths")
    natural = isinstance(lengths, dict) and lengths.get("natural_stop")
    if output and not natural and output["short_share"] > limits["short_share"]:
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
