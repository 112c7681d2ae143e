"""What the client's health figures mean for a run: reasons for a note or a doubt, from plain numbers.

The one thing to know: the same functions judge at the end (``verdict``, from log and run card) and while a run is on
(the live snapshot, from the workers' counters); they need neither numpy nor a log. These figures are causes; what they
do to the latencies is judged by the bounds of the error (``bounds``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .limits import DEFAULTS, DOUBTFUL, NOTE, OVERLOADED, Limits

SOUND = "sound"
MASTER = "master"
"""Name of the process that leads workers, in the run card."""
GRAVE = (OVERLOADED, DOUBTFUL, NOTE)
"""Levels, gravest first."""

RATES = ("system_output_tps", "system_total_tps", "requests_per_s")
ARRIVED = ("ttft", "ttfvt", "itl", "icl")
"""Figures that are made of the times at which events arrived."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a verdict is what it is.

    Attributes:
        code: a name that stays.
        effect: what happened, and how much it is, in words.
        figures: the figures it touches.
        value, limit: the size and the limit it is beyond, where there is one; ms, or a share of 1.
    """

    code: str
    effect: str
    figures: list[str]
    level: str = DOUBTFUL
    value: float | None = None
    limit: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the members that are there."""
        members = {"code": self.code, "effect": self.effect, "figures": self.figures, "level": self.level}
        sizes = {"value": self.value, "limit": self.limit}
        return members | {name: size for name, size in sizes.items() if size is not None}


def state(reasons: Iterable[Reason]) -> str:
    """Return ``sound``, ``doubtful`` or ``overloaded``."""
    levels = {reason.level for reason in reasons}
    return next((level for level in (OVERLOADED, DOUBTFUL) if level in levels), SOUND)


@dataclass(frozen=True, slots=True)
class Reads:
    """How the reads of some exchanges went; a figure that nobody knows is None.

    Attributes:
        late_joined_share: token events whose time is uncertain by more than 1 ms. ``uncertain_max_ms``: the worst.
        lag_p50_ms, lag_p99_ms: over exchanges, the longest time from the kernel's stamp to the read.
        send_lag_p50_ms, send_lag_p99_ms: over exchanges, start to last byte sent, without DNS, TCP and TLS.
    """

    late_joined_share: float | None = None
    uncertain_max_ms: float | None = None
    lag_p50_ms: float | None = None
    lag_p99_ms: float | None = None
    send_lag_p50_ms: float | None = None
    send_lag_p99_ms: float | None = None


def judge_reads(reads: Reads, limits: Limits = DEFAULTS) -> Iterator[Reason]:
    """Yield what is to be said of reads and sends that came late."""
    share, limit = reads.late_joined_share, limits["late_joined_share"]
    if share is not None and share > limit:
        worst = f" (up to {reads.uncertain_max_ms:.1f} ms)" if reads.uncertain_max_ms is not None else ""
        effect = (
            f"the client came late to {share:.1%} of the events and cannot say to within 1 ms when they arrived{worst}:"
            " fewer streams a process, or more processes (--processes)"
        )
        yield Reason("late_joined", effect, list(ARRIVED), limits.level("late_joined_share"), share, limit)
    lag, limit = reads.lag_p99_ms, limits["lag_p99"]
    if lag is not None and lag > limit:
        effect = (
            f"the client read late: the longest wait of an answer in its socket was {reads.lag_p50_ms or 0:.1f} ms in "
            f"the median exchange, {lag:.1f} ms at p99"
        )
        yield Reason("lag", effect, list(RATES), limits.level("lag_p99"), lag, limit)
    lag, limit = reads.send_lag_p99_ms, limits["send_lag_p99"]
    if lag is not None and lag > limit:
        effect = (
            f"requests left late: {reads.send_lag_p50_ms or 0:.1f} ms after their start in the median, {lag:.1f} ms at "
            "p99, connecting not counted; it is part of their TTFT"
        )
        figures = ["ttft", "ttfvt", "e2e_latency"]
        yield Reason("send_lag", effect, figures, limits.level("send_lag_p99"), lag, limit)


def judge_processes(client: Mapping[str, Any], limits: Limits = DEFAULTS) -> Iterator[Reason]:
    """Yield what is to be said of the processes.

    Parameters:
        client: by process, what ``telemetry.health.HealthReport`` says, as in ``run.json``; what is missing is not
            judged. A master reads no streams: only its CPU is.
    """
    for code, member, name, effect, figures in _OF_PROCESSES:
        limit = limits[name]
        sizes = {
            process: value
            for process in client
            if (value := _number(client[process], member)) is not None and (process != MASTER or code == "cpu")
        }
        beyond = {process: value for process, value in sizes.items() if value > limit}
        if beyond:
            process, worst = max(beyond.items(), key=lambda item: item[1])
            who = f"process {process}" if len(beyond) == 1 else f"{len(beyond)} processes, most of all {process},"
            yield Reason(code, effect.format(who=who, v=worst), list(figures), limits.level(name), worst, limit)


def in_words(client: Mapping[str, Any], bounds: Mapping[str, Any]) -> str:
    """Return the client's health as a line; "" if nothing is known of it.

    Parameters:
        client: that of ``summary.json``.
        bounds: those of its verdict.
    """
    said = []
    off = [_largest(name, bounds[name]) for name in ("ttft", "itl", "icl") if name in bounds]
    said.append(f"error at most {', '.join(off)} ms" if off else "no error of its own known")
    if "lag_p99_ms" in client:
        said.append(f"read lag p50 {client['lag_p50_ms']:.1f}, p99 {client['lag_p99_ms']:.1f} ms")
    if "send_lag_p99_ms" in client:
        said.append(f"send lag p99 {client['send_lag_p99_ms']:.1f} ms")
    if "late_joined_share" in client:
        said.append(f"late-joined {client['late_joined_share']:.1%}")
    processes = client.get("processes")
    cpus = [cpu for p in processes.values() if (cpu := _number(p, "cpu")) is not None] if processes else []
    if cpus:
        said.append(f"CPU {max(cpus):.0%} of a core{f' in the busiest of {len(cpus)} processes' if cpus[1:] else ''}")
    return "; ".join(said) if client else ""


# ---- helpers


def _largest(name: str, of: Mapping[str, Any]) -> str:
    sizes = [f"{statistic} {max(high - low, 0.0):.1f}" for statistic, (low, high) in of.items()]
    return f"{name} {' '.join(sizes)}"


_OF_PROCESSES = (
    ("cpu", "cpu", "cpu",
     "{who} took {v:.0%} of a core, all that Python can take: answers and users wait for it; more "
     "processes (--processes), or fewer streams", RATES),
    ("loop_lag", "loop_away_p99_ms", "loop_away_p99",
     "the event loop of {who} did not look at its sockets for up to {v:.0f} ms at p99 of its turns: "
     "users and arrivals were late by as much", RATES),
    ("standstill", "loop_away_max_ms", "loop_away_max",
     "the event loop of {who} stood still for {v:.0f} ms once: something in it blocks (time.sleep or "
     "long computing in a task?)", (*ARRIVED, *RATES)),
    ("stolen", "stolen", "stolen",
     "the host took {v:.1%} of the processors from the machine of {who}: events that came then have wrong times, and "
     "nothing here can say which", (*ARRIVED, *RATES)),
    ("collector", "gc_share", "gc_share",
     "{who} spent {v:.1%} of its time in the garbage collector", (*ARRIVED, *RATES)),
    ("collector_pause", "gc_max_ms", "gc_max",
     "a pause of the garbage collector took {v:.0f} ms in {who}", ARRIVED),
)  # fmt: skip


def _number(report: Any, member: str) -> float | None:
    if not isinstance(report, Mapping):
        return None
    if member == "gc_share":
        pause_ms, seconds = _number(report, "gc_ms"), _number(report, "seconds")
        return pause_ms / 1e3 / seconds if pause_ms is not None and seconds else None
    value = report.get(member)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
