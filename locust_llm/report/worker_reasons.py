"""Reasons of the verdict that come from workers: lost, away for a while, foreign, or with a clock that was off.

The one thing to know: the run card says it all (``events``, ``workers_missing``, ``worker_details``); the log cannot.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from .client_health import RATES, Reason
from .limits import NOTE
from .workers import offsets_ms

_RATES = list(RATES)
_LATENCIES = ["ttft", "tpot", "itl", "icl", "e2e_latency"]


def judge_workers(card: dict[str, Any], clock_ms: float) -> Iterator[Reason]:
    """Judge what became of the workers. ``clock_ms``: a clock that was off by more is worth a note."""
    events = [e for e in card.get("events") or [] if isinstance(e, dict)]
    if card.get("workers_missing"):
        lost = {e.get("worker"): e.get("t") for e in events if e.get("event") == "worker_lost"}
        names = [f"{name}{_at(lost.get(name))}" for name in map(str, card["workers_missing"])]
        effect = (
            f"workers were lost during the run: {', '.join(names)}; what they measured and did not send is in their "
            "own files only, what was in flight is nowhere"
        )
        if owing := _owing(card):
            effect += f". Of the exchanges that --llm-requests asks for, {owing} were theirs and did not come"
        yield Reason("workers_missing", effect, _RATES)
    back = [e for e in events if e.get("event") == "worker_back"]
    if back:
        said = [f"{e.get('worker')} for {e.get('away_s')} s until{_at(e.get('t'))}" for e in back]
        effect = f"workers stood still or were cut off: {', '.join(said)}; they started nothing meanwhile and read late"
        yield Reason("worker_away", effect, _RATES + _LATENCIES)
    foreign = [str(e.get("node")) for e in events if e.get("event") == "worker_foreign"]
    if foreign:
        effect = f"workers without this extension had users: {', '.join(foreign)}; what they did is not in the log"
        yield Reason("worker_foreign", effect, _RATES)
    for worker, (ahead_ms, uncertain_ms) in offsets_ms(card).items():
        if abs(ahead_ms) > clock_ms:
            effect = (
                f"the clock of {worker} was {ahead_ms / 1e3:+.3f} s off the master's: its exchanges are placed by it, "
                f"to within {uncertain_ms:.1f} ms"
            )
            yield Reason("clock_offset", effect, [], NOTE)


def _owing(card: dict[str, Any]) -> int:
    """Return how many tickets of ``--llm-requests`` lost workers held, or used and did not report."""
    details = card.get("worker_details")
    lost = [details.get(name) for name in card["workers_missing"]] if isinstance(details, dict) else []
    return sum(max(one.get("tickets", 0) - one.get("received", 0), 0) for one in lost if isinstance(one, dict))


def _at(t: Any) -> str:
    return f" at {time.strftime('%H:%M:%S', time.gmtime(t))} UTC" if isinstance(t, int | float) else ""


def not_here(card: dict[str, Any]) -> str:
    """Return the files of the workers whose records did not all reach the master."""
    details = card.get("worker_details")
    if not isinstance(details, dict):
        return "the events-*.jsonl of all workers"
    files = [
        str(one.get("file")) for one in details.values()
        if isinstance(one, dict) and one.get("received", 0) < one.get("records", float("inf"))
    ]  # fmt: skip
    return f"{', '.join(files) or 'the events-*.jsonl'} of the workers"
