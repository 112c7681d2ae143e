"""From an attempt that is over to its record: the one place where an ``Exchange`` is filled from the wire."""

from __future__ import annotations

from operator import sub
from typing import TYPE_CHECKING

from .exchange import HTTP_STATUS, MEASURE, UNFINISHED, Exchange, run_lengths
from .target import Attempt, Target
from .tokens import USAGE
from .wire.answer import Usage
from .wire.api import Call

if TYPE_CHECKING:
    from .run import Run


class Draft:
    """What is known of an exchange before it starts; makes the records of its attempts.

    Args:
        run: numbers and names the records, and places them in the day.
        target, call: where and what.
        name: Locust's request name.
        user_class: name of the User class.
        tags: strings for the record; ``user`` is how the steady window is found.
        asked_in, in_source: input tokens the prompt was made for, and by which count.
        asked_out: output tokens that were asked for as a length, not only as a limit.
        prompt: its text, kept if the settings say so.
    """

    __slots__ = (
        "asked_in",
        "asked_out",
        "call",
        "exchange",
        "in_source",
        "name",
        "phase",
        "prompt",
        "run",
        "scheduled_ns",
        "tags",
        "target",
        "user_class",
    )

    def __init__(
        self,
        run: Run,
        target: Target,
        call: Call,
        *,
        name: str,
        user_class: str,
        tags: dict[str, str],
        asked_in: int | None = None,
        in_source: str | None = None,
        asked_out: int | None = None,
        prompt: str | None = None,
        phase: str = MEASURE,
    ) -> None:
        self.run = run
        self.target = target
        self.call = call
        self.name = name
        self.user_class = user_class
        self.tags = tags
        self.asked_in = asked_in
        self.in_source = in_source
        self.asked_out = asked_out
        self.prompt = prompt if target.settings.save_text else None
        self.phase = phase
        self.exchange = run.new_exchange_id()
        self.scheduled_ns: int | None = None
        """When it was due (monotonic), in open loop."""

    def record(self, attempt: Attempt, number: int = 1, killed: str | None = None) -> Exchange:
        """Return the record of an attempt that is over. ``killed``: outcome of one that was killed before its end."""
        run, answer, transfer = self.run, attempt.answer, attempt.transfer
        start = transfer.start_ns
        outcome, error = attempt.judge()
        if killed and outcome == UNFINISHED:
            outcome = killed
        usage = answer.usage or Usage()
        kind_names, kind_runs = run_lengths(answer.kinds)
        counted_in = usage.n_in is not None
        return Exchange(
            run=run.id,
            worker=run.worker,
            seq=run.next_seq(),
            exchange=self.exchange,
            attempt=number,
            name=self.name,
            user_class=self.user_class,
            api=self.target.api.name,
            model=self.call.model,
            phase=self.phase,
            tags=self.tags,
            outcome=outcome,
            error=error,
            status=transfer.status,
            finish_reason=answer.finish_reason,
            streamed=self.call.stream and not answer.whole,
            start_us=run.anchor.wall_us(start),
            scheduled_us=None if self.scheduled_ns is None else run.anchor.wall_us(self.scheduled_ns),
            dns_us=_us(transfer.dns_ns),
            tcp_us=_us(transfer.tcp_ns),
            tls_us=_us(transfer.tls_ns),
            reused=transfer.reused,
            connected_us=_since(transfer.connected_ns, start),
            sent_us=_since(transfer.sent_ns, start),
            headers_us=_since(transfer.headers_ns, start),
            end_us=max(0, transfer.end_ns - start) // 1000,
            event_gaps_us=_gaps_us(answer.times_ns, start),
            kind_names=kind_names,
            kind_runs=kind_runs,
            event_tokens=answer.tokens if answer.tokens and min(answer.tokens) >= 0 else None,
            pings=answer.pings,
            n_out=usage.n_out,
            n_reasoning=usage.n_reasoning,
            n_in=usage.n_in if counted_in else self.asked_in,
            n_cached=usage.n_cached,
            out_source=None if usage.n_out is None else USAGE,
            in_source=USAGE if counted_in else self.in_source if self.asked_in is not None else None,
            asked_in=self.asked_in,
            asked_out=self.asked_out,
            bytes_in=transfer.bytes_in,
            bytes_out=transfer.bytes_out,
            stamp="kernel" if transfer.kernel_stamped and answer.times_ns else "user",
            lag_us_max=transfer.lag_ns_max // 1000,
            uncertain_us_max=transfer.uncertain_ns_max // 1000,
            late_joined=transfer.late_joined,
            uncertain_reads=transfer.uncertain_reads,
            resent=transfer.resent,
            response_id=answer.response_id,
            prompt=self.prompt,
            text=answer.text() if self.target.settings.save_text else None,
        )


def describe(record: Exchange) -> str:
    """Return a failed record as a short line; like failures give the same line, so that Locust groups them."""
    error = record.error
    if error is None:
        return record.outcome
    kind = str(record.status) if record.outcome == HTTP_STATUS else error.kind
    return f"{record.outcome} ({kind}): {error.message[:200]}"


# ---- helpers


def _gaps_us(times_ns: list[int], start_ns: int) -> list[int]:
    # Offsets are rounded, not gaps, so that rounding errors do not add up.
    offsets = [(time_ns - start_ns) // 1000 for time_ns in times_ns]
    return list(map(sub, offsets, [0, *offsets]))


def _us(duration_ns: int | None) -> int | None:
    return None if duration_ns is None else duration_ns // 1000


def _since(instant_ns: int | None, start_ns: int) -> int | None:
    return None if instant_ns is None else max(0, instant_ns - start_ns) // 1000
