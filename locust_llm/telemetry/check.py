"""One load under the eyes of the truth log: what the tool measured, what was true, its cost, its own verdict.

The one thing to know: the client is charged only with what is its own. A server that reads a request late, or sends an
event late, makes the true figures worse, not the measurement; that is told apart, as ``Server``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..exchange import MEASURE, OK
from .trial import Trial
from .truth import ALLOWED, Compared, Joined, compare, join, schedule_lag_ms
from .watch import Watch

SERVER_LATE_GAPS = 1.0
"""A server whose events leave later than so many ITLs at p95 could not follow its schedule: it was the limit."""
SOUND = "sound"


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a server was told to do: durations in s, answers of ``tokens`` events."""

    ttft_s: float
    itl_s: float
    tokens: int

    @property
    def exchange_s(self) -> float:
        """How long an answer takes."""
        return self.ttft_s + (self.tokens - 1) * self.itl_s

    def ideal_events_per_s(self, streams: int) -> float:
        """Events a second if each stream starts its next exchange at once."""
        return streams * self.tokens / self.exchange_s


@dataclass(frozen=True, slots=True)
class Server:
    """How the server did: events that left later than due, requests read later than sent, share of a core it took."""

    late_p50_ms: float
    late_p95_ms: float
    late_p99_ms: float
    read_lag_p99_ms: float
    cores: float
    was_the_limit: bool


@dataclass(frozen=True, slots=True)
class LoadCheck:
    """One load, checked.

    Attributes:
        exchanges: successes that started in the window of the report; figures are of these.
        failed: exchanges of the run that failed.
        events_per_s: token events that left the server in the window. ``delivered``: their share of the ideal.
        measured_tokens_per_s: the report's own figure.
        cpu_us_per_event: of all the tool's processes in the window.
        busiest_cores: cores (1 or less) that the busiest of these processes took.
        other_cores: what neither they nor the server took, but something else on this machine.
        late_joined: share of the token events that the tool marked so.
        verdict: what the tool said of itself, ``reasons`` why.
        off: what was wrong by the truth, as sentences; empty if nothing was.
        bounds: between what the tool says that true percentiles lie (``report.bounds``), where not as measured.
        sound: nothing was wrong, and the tool said so.
    """

    streams: int
    processes: int
    exchanges: int
    failed: int
    events_per_s: float
    delivered: float
    measured_tokens_per_s: float | None
    ttft_ms: Compared | None
    itl_ms: Compared | None
    arrival_error_p50_ms: float | None
    arrival_error_p99_ms: float | None
    cpu_us_per_event: float | None
    busiest_cores: float | None
    other_cores: float
    late_joined: float
    server: Server | None
    verdict: str
    reasons: tuple[str, ...]
    off: tuple[str, ...]
    bounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return not self.off and self.verdict == SOUND

    def outside(self) -> list[str]:
        """Return the true percentiles that lie outside of their bounds by more than ``ALLOWED``, as sentences."""
        found = []
        for name, of in (("ttft", self.ttft_ms), ("itl", self.itl_ms)):
            if of is None:
                continue
            for q, (share, least_ms) in ALLOWED.items():
                measured, true = of.measured[f"p{q}"], of.true[f"p{q}"]
                low, high = self.bounds.get(name, {}).get(f"p{q}", (measured, measured))
                room = max(share * true, least_ms)
                if not low - room <= true <= high + room:
                    found.append(f"{name} p{q} is {true:.2f} ms, not {low:.2f} to {high:.2f}")
        return found

    @property
    def wrong_verdict(self) -> bool:
        """The tool called itself sound, and was not."""
        return bool(self.off) and self.verdict == SOUND


def check(
    trial: Trial,
    truth: npt.NDArray[np.void],
    schedule: Schedule,
    server_watch: Watch,
    streams: int,
    processes: int = 1,
    only: bool = True,
) -> LoadCheck:
    """Check a run of closed-loop users against the truth log of its server.

    Args:
        truth: as ``truth.join`` wants it.
        server_watch: of the server's process.
        only: the server served nobody else, so each request in its log must be in ours.
    """
    records = trial.records()
    joined = join(records, truth)
    off = [f"an exchange does not fit the truth log ({line})" for line in joined.mismatched[:3]]
    if only and joined.unlogged:
        off.append(f"{joined.unlogged} requests that the server read are missing from the event log")
    begin, end = float(trial.summary["window"]["start"]), float(trial.summary["window"]["end"])
    joined = joined.between(begin * 1e6, end * 1e6)
    ttft = itl = None
    arrival: list[float | None] = [None, None]
    if len(joined):
        # What the server takes to read a request is no error of the client; in the truth it is part of the TTFT.
        ttft = compare("TTFT", joined.ttft_ms, joined.ttft_true_ms + joined.read_lag_ms)
        arrival = np.percentile(np.abs(joined.arrival_error_ms), [50, 99]).tolist()
        off += ttft.off
    else:
        off.append("no exchange succeeded in the window of the report")
    if len(joined.gap_ms):
        itl = compare("ITL", joined.gap_ms, joined.gap_true_ms)
        off += itl.off
    left_s = truth["time_ns"][truth["index"] > 0] / 1e9
    events = int(((left_s >= begin) & (left_s <= end)).sum())
    duration = max(end - begin, 1e-9)
    cpu_s, server_s = trial.process.watch.cpu_s(begin, end), sum(server_watch.cpu_s(begin, end).values())
    others_s = trial.process.watch.machine_cpu_s(begin, end) - sum(cpu_s.values()) - server_s
    measured = [record for record in records if record.phase == MEASURE]
    seen = sum(len(record.token_times_us()) for record in measured)
    verdict = trial.summary["verdict"]
    return LoadCheck(
        streams=streams,
        processes=processes,
        exchanges=len(joined),
        failed=sum(record.outcome != OK for record in measured),
        events_per_s=events / duration,
        delivered=events / duration / schedule.ideal_events_per_s(streams),
        measured_tokens_per_s=trial.summary["total"]["rates"].get("system_output_tps"),
        ttft_ms=ttft,
        itl_ms=itl,
        arrival_error_p50_ms=arrival[0],
        arrival_error_p99_ms=arrival[1],
        cpu_us_per_event=sum(cpu_s.values()) / events * 1e6 if events else None,
        busiest_cores=max(cpu_s.values()) / duration if cpu_s and events else None,
        other_cores=max(0.0, others_s / duration),
        late_joined=sum(record.late_joined for record in measured) / max(1, seen),
        server=_server(joined, truth, schedule, server_s / duration),
        verdict=str(verdict["state"]),
        reasons=tuple(f"{r['code']}: {r['effect']}" for r in verdict["reasons"] if r["level"] != "note"),
        off=tuple(off),
        bounds=verdict.get("bounds", {}),
    )


def _server(joined: Joined, truth: npt.NDArray[np.void], schedule: Schedule, cores: float) -> Server | None:
    late_ms = schedule_lag_ms(truth, schedule.ttft_s, schedule.itl_s)
    if not len(late_ms) or not len(joined):
        return None
    p50, p95, p99 = np.percentile(late_ms, [50, 95, 99]).tolist()
    limit_ms = max(SERVER_LATE_GAPS * schedule.itl_s * 1e3, 1.0)
    return Server(p50, p95, p99, float(np.percentile(joined.read_lag_ms, 99)), cores, p95 > limit_ms)
