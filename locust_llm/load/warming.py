"""Warm-up: exchanges before the load, outside every figure (``--llm-warmup 20``, ``--llm-warmup 30s``).

They are sent before any user starts, so that the clock of ``-t`` and the arrivals of the measured part begin after
them, with prompts of a stream of their own: nothing that is measured has been seen by a prefix cache before. With a
rate they arrive as the load will, else as many at once as there are users.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gevent
from gevent.pool import Pool

from ..errors import UsageError
from ..exchange import OK, WARMUP, Exchange
from ..recording import Draft
from .pacer import Pacer
from .resting import Rest
from .schedule import Share, due_ns

if TYPE_CHECKING:
    from ..run import Run
    from ..target import Target
    from ..wire.api import Call

STREAM = "warmup"


def warm_up(
    run: Run,
    sources: list[tuple[Target, Callable[[], Call]]],
    pacer: Pacer | None,
    users: int,
    share: Share,
    say: Callable[[str], None],
) -> float | None:
    """Send this process's part of the warm-up and wait for its end; the records go to the run's log.

    Args:
        sources: where to, and what makes the next call there; used in turn.
        pacer: arrivals of the whole system; None sends as many at once as this process has users.
        users: of all processes.
        share: of this process.
        say: takes lines for the console.

    Returns:
        Mean seconds of an exchange that ended well.

    Raises:
        UsageError: none of them did.
    """
    warmup = run.settings.warmup
    number = warmup.exchanges // share.of + (share.index < warmup.exchanges % share.of)
    if not sources or (warmup.exchanges and not number):
        return None
    records: list[Exchange] = []
    at_once = max(1, users // share.of + (share.index < users % share.of))
    pool = Pool(min(at_once, number) if number else at_once)
    rest = Rest() if pacer is None and not number else None  # else their number or the arrivals are bounds enough
    due = due_ns(pacer, run.seed, STREAM, 0, share) if pacer is not None else None
    began_ns = time.monotonic_ns()
    sent = 0
    while (sent < number) if number else (time.monotonic_ns() - began_ns < warmup.seconds * 1e9):
        if due is not None:
            wait_ns = began_ns + next(due) - time.monotonic_ns()
            if not number and wait_ns > began_ns + warmup.seconds * 1e9 - time.monotonic_ns():
                break
            gevent.sleep(max(0, wait_ns) / 1e9)
        target, make = sources[sent % len(sources)]
        pool.spawn(_send, run, target, make(), records, rest)  # waits while all are busy
        sent += 1
    if warmup.seconds:
        gevent.sleep(max(0.0, warmup.seconds - (time.monotonic_ns() - began_ns) / 1e9))
    pool.join()
    return _judge(records, say)


def _send(run: Run, target: Target, call: Call, records: list[Exchange], rest: Rest | None) -> None:
    draft = Draft(run, target, call, name=STREAM, user_class="", tags={}, phase=WARMUP)
    attempt = target.attempt(call)
    attempt.run()
    record = draft.record(attempt)
    run.log(record)
    records.append(record)
    if rest is not None:
        rest.after(record, time.monotonic(), random.random())
        gevent.sleep(rest.left_s(time.monotonic()))


def _judge(records: list[Exchange], say: Callable[[str], None]) -> float | None:
    if not records:
        return None
    ok = [record.end_us for record in records if record.outcome == OK]
    if not ok:
        error: Any = records[-1].error
        why = error.message[:200] if error is not None else records[-1].outcome
        raise UsageError(f"--llm-warmup: none of {len(records)} exchanges ended well, the last: {why}")
    mean_s = sum(ok) / len(ok) / 1e6
    failed = f", {len(records) - len(ok)} of them failed" if len(ok) < len(records) else ""
    say(f"warm-up: {len(records)} exchanges{failed}, {mean_s:.2f} s on average; not in any figure")
    return mean_s
