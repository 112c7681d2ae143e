"""What ``locust-llm selfcheck`` says: the table, the conclusion, the JSON.

The one thing to know: two judgements stand side by side, that of the tool on itself (the verdict any run has) and that
of the truth log; only a load with both in its favour is sound.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from textwrap import fill
from typing import TYPE_CHECKING

import orjson

from .. import __version__
from ..telemetry.check import LoadCheck
from ..telemetry.truth import ALLOWED, Compared

if TYPE_CHECKING:
    from .selfcheck import Plan

JSON_SCHEMA = 1
OTHERS_NOTABLE_CORES = 0.25
WIDTH, INDENT = 120, " " * 10

_FIGURE = f"{'true p50/p99':>15}{'measured':>15}{'error p50/p99':>15}"
_HEAD = f"""\
{"":18} |{"TTFT, ms":^45} |{"ITL, ms":^45} |{"CPU us":>8}
{"streams":>8}{"tokens/s":>10} |{_FIGURE} |{_FIGURE} |{"a token":>8}  the client says"""


def heading(plan: Plan) -> str:
    """Return what is printed before the first load."""
    what = "process" if plan.processes == 1 else "processes"
    schedule = plan.schedule
    return f"""\
SELF-CHECK against a simulated server on this machine: its timings are made up, and known event by event.
Python {platform.python_version()}, {os.cpu_count()} cores, {plan.processes} {what}; true TTFT \
{schedule.ttft_s * 1e3:g} ms, ITL {schedule.itl_s * 1e3:g} ms, {plan.tokens} tokens an answer, {plan.seconds} s a load

{_HEAD}"""


def row(load: LoadCheck) -> str:
    """Return a load as a line of the table, and what is to be said about it below."""
    cpu = f"{load.cpu_us_per_event:8.1f}" if load.cpu_us_per_event is not None else f"{'-':>8}"
    figures = f"{_figure(load.ttft_ms)} |{_figure(load.itl_ms)}"
    line = f"{load.streams:8}{load.events_per_s:10.0f} |{figures} |{cpu}  {load.verdict}"
    return "\n".join(
        [line, *(fill(note, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT) for note in _notes(load))]
    )


def conclusion(plan: Plan, loads: Sequence[LoadCheck]) -> str:
    """Return the last words: the highest sound load, and what ended the search."""
    sound = [load for load in loads if load.sound]
    lines = [""]
    if sound:
        best = max(sound, key=lambda load: load.events_per_s)
        lines.append(f"Sound up to {best.events_per_s:.0f} tokens/s with {best.streams} streams.")
        doubted = [str(load.streams) for load in loads if load.streams < best.streams and not load.sound]
        if doubted:
            lines.append(f"Smaller loads were not: {', '.join(doubted)} streams.")
    else:
        lines.append(f"No load was measured soundly, not even {loads[0].streams} streams.")
    others = max(load.other_cores for load in loads)
    if others > OTHERS_NOTABLE_CORES and not all(load.sound for load in loads):
        lines.append(f"Other work took up to {others:.1f} cores of this machine meanwhile: repeat it when it is quiet.")
    late = [load for load in loads if load.server and load.server.was_the_limit]
    if late:
        who = "not the client, was the limit" if late[0].sound else "too, was beyond its limit"
        lines.append(f"From {late[0].streams} streams on the simulator, {who}: it did not keep its schedule.")
    if len(loads) < len(plan.streams):
        lines.append("Larger loads were not tried: two in a row were beyond what can be checked here.")
    elif sound and sound[-1] is loads[-1] and not late:
        lines.append("No limit was found: try larger --streams.")
    return "\n".join(lines)


def to_json(plan: Plan, loads: Sequence[LoadCheck]) -> bytes:
    """Return the content of ``--json``: options, machine, limits, one object per load, the highest sound one."""
    best = max((load for load in loads if load.sound), key=lambda load: load.events_per_s, default=None)
    data = {
        "schema": JSON_SCHEMA,
        "version": __version__,
        "machine": {
            "platform": platform.platform(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
        },
        "options": {
            "streams": plan.streams,
            "ttft_ms": plan.schedule.ttft_s * 1e3,
            "itl_ms": plan.itl_s * 1e3,
            "tokens": plan.tokens,
            "seconds": plan.seconds,
            "processes": plan.processes,
        },
        "allowed": {f"p{q}": {"share": share, "ms": ms} for q, (share, ms) in ALLOWED.items()},
        "loads": [asdict(load) | {"sound": load.sound, "wrong_verdict": load.wrong_verdict} for load in loads],
        "sound": None if best is None else {"streams": best.streams, "tokens_per_s": best.events_per_s},
        "complete": len(loads) == len(plan.streams),
    }
    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


# ---- helpers


def _figure(of: Compared | None) -> str:
    if of is None:
        return f"{'-':>15}" * 3
    pairs = [(of.true["p50"], of.true["p99"]), (of.measured["p50"], of.measured["p99"]), (of.error_p50, of.error_p99)]
    return "".join(f"{p50:7.2f} /{p99:6.2f}" for p50, p99 in pairs)


def _notes(load: LoadCheck) -> list[str]:
    notes = []
    if load.wrong_verdict:
        notes.append("WRONG VERDICT: the client calls itself sound, and the truth log disagrees; please report this")
    notes += [f"by the truth log: {line}" for line in load.off]
    notes += [f"by the client: {line}" for line in load.reasons]
    server = load.server
    if server is not None and server.was_the_limit:
        who = "was the limit" if load.sound else "was late, too"
        notes.append(
            f"the simulator {who}: its events left {server.late_p50_ms:.1f} ms late in the median, "
            f"{server.late_p99_ms:.1f} ms at p99; {load.delivered:.0%} of the load came about"
        )
    if load.failed:
        notes.append(f"{load.failed} exchanges failed")
    if load.other_cores > OTHERS_NOTABLE_CORES:
        notes.append(f"other work on this machine took {load.other_cores:.1f} cores meanwhile")
    return notes
