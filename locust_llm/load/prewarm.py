"""Connections before the load (``--llm-prewarm``), so that no user's first exchange has to connect.

The one thing to know: a connection counts as made when the kernel says so, which may be before the server has accepted
it; so they are opened a few at a time with a breath between, or the server's listen queue would overflow and the rest
wait a second for another try.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import gevent

from ..transport.dial import DialError
from .schedule import Share

if TYPE_CHECKING:
    from ..transport import Transport
    from ..users import LLMUser

AT_ONCE = 16
BREATH_S = 0.005


@dataclass(frozen=True, slots=True)
class Prewarmed:
    """What became of the connections of one process to one server.

    Attributes:
        error: why the last that failed did, "" if none has.
    """

    asked: int
    opened: int
    seconds: float
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


def prewarm(transport: Transport, count: int) -> Prewarmed:
    """Open connections and leave them in the pool; end early if of some that were tried together none succeeds."""
    began = time.monotonic()
    tried, opened, error = 0, 0, ""
    while tried < count:
        batch = [gevent.spawn(_open, transport) for _ in range(min(AT_ONCE, count - tried))]
        gevent.joinall(batch)
        errors = [greenlet.value for greenlet in batch if greenlet.value]
        tried += len(batch)
        opened += len(batch) - len(errors)
        if errors:
            error = errors[-1]
            if len(errors) == len(batch):
                break
        gevent.sleep(BREATH_S)
    return Prewarmed(count, opened, time.monotonic() - began, error)


def connections_of(targets: Mapping[str, list[type[LLMUser]]], users: int, share: Share) -> dict[str, int]:
    """Return how many connections this process needs to each of its targets.

    Args:
        targets: User classes by target. Locust spreads users by their weights, after those of a fixed count.
        users: of all processes.
    """
    own = users // share.of + (share.index < users % share.of)
    if len(targets) == 1:
        return dict.fromkeys(targets, own)
    weights = {key: sum(cls.weight for cls in classes if not cls.fixed_count) for key, classes in targets.items()}
    of_all = sum(weights.values()) or 1
    fixed = {key: sum(ceil(cls.fixed_count / share.of) for cls in classes) for key, classes in targets.items()}
    rest = max(0, own - sum(fixed.values()))
    return {key: min(own, fixed[key] + ceil(rest * weights[key] / of_all)) for key in targets}


def sentence(told: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return what all processes opened, in one line: by process, by target."""
    each = [of for targets in told.values() for of in targets.values()]
    asked, opened = sum(of["asked"] for of in each), sum(of["opened"] for of in each)
    slowest = max((of["seconds"] for of in each), default=0.0)
    line = f"prewarm: {opened} of {asked} connections opened in {slowest:.2f} s"
    error = next((of["error"] for of in each if of["error"]), "")
    return f"{line}; the other users connect with their first exchange ({error})" if opened < asked else line


def _open(transport: Transport) -> str:
    """Return "" or why there is no connection."""
    try:
        transport.open()
    except DialError as e:
        return e.message
    return ""
