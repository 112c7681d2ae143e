"""What one process has measured since its last report, and how that travels to the master: one opaque ``bytes`` value.

The one thing to know: bytes from another process may be anything; ``decode`` reads all of it or raises ``ValueError``,
so that nothing half-read ever reaches the Board.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from .tally import Tally

VERSION = 1
_MAGIC = b"LLM"

Key = tuple[str, str, str]
"""Name, API and model."""


@dataclass(slots=True)
class Gauges:
    """How a process stands now. ``second``: the last (epoch) whose figures are complete; ``cpu``: 1.0 is one core."""

    second: int = 0
    in_flight: int = 0
    decoding: int = 0
    users: int = 0
    cpu: float = 0.0
    lost_records: int = 0
    health: dict[str, float] = field(default_factory=dict)
    """What ``telemetry.health`` says of the load so far."""
    broken: bool = False
    """An error of ours has cost some of what was measured here."""


@dataclass(slots=True)
class Failed:
    """Failures of one kind."""

    count: int
    example: str
    name: str


@dataclass(slots=True)
class Delta:
    """One report of a process.

    Attributes:
        run, worker: whose.
        epoch: how often the statistics had been reset in this run, as far as this process knew.
        number: reports of this process in this run, from 0.
        sent_us: when, by its own clock (epoch).
        rows: by name, API and model. seconds: of all names, by epoch second.
        failures: by kind.
    """

    run: str
    worker: str
    epoch: int
    number: int
    sent_us: int
    rows: dict[Key, Tally] = field(default_factory=dict)
    seconds: dict[int, Tally] = field(default_factory=dict)
    failures: dict[str, Failed] = field(default_factory=dict)
    gauges: Gauges = field(default_factory=Gauges)


def encode(delta: Delta) -> bytes:
    """Return a delta as bytes."""
    g = delta.gauges
    plain = [
        delta.run, delta.worker, delta.epoch, delta.number, delta.sent_us,
        [[*key, row.to_plain()] for key, row in delta.rows.items()],
        [[second, one.to_plain()] for second, one in delta.seconds.items()],
        [[kind, one.count, one.example, one.name] for kind, one in delta.failures.items()],
        [g.second, g.in_flight, g.decoding, g.users, g.cpu, g.lost_records, g.health, g.broken],
    ]  # fmt: skip
    return _MAGIC + bytes([VERSION]) + orjson.dumps(plain)


def decode(data: object) -> Delta:
    """Read a delta.

    Raises:
        ValueError: it is none, or of another version.
    """
    if not isinstance(data, bytes) or data[:3] != _MAGIC:
        raise ValueError("no statistics of locust-llm")
    if data[3:4] != bytes([VERSION]):
        raise ValueError(f"statistics of another version ({data[3:4].hex()}, this is {VERSION:02x})")
    try:
        return _read(orjson.loads(data[4:]))
    except (ValueError, TypeError, AttributeError, OverflowError, KeyError) as e:
        raise ValueError(f"unreadable statistics ({type(e).__name__}: {str(e)[:80]})") from None


def _read(plain: Any) -> Delta:
    run, worker, epoch, number, sent_us, rows, seconds, failures, gauges = plain
    return Delta(
        run=str(run), worker=str(worker), epoch=int(epoch), number=int(number), sent_us=int(sent_us),
        rows={(str(name), str(api), str(model)): Tally.from_plain(row) for name, api, model, row in rows},
        seconds={int(second): Tally.from_plain(one) for second, one in seconds},
        failures={str(kind): Failed(int(n), str(example), str(name)) for kind, n, example, name in failures},
        gauges=_gauges(*gauges),
    )  # fmt: skip


def _gauges(
    second: int, in_flight: int, decoding: int, users: int, cpu: float, lost: int, health: Any, broken: bool
) -> Gauges:
    health = {str(name): float(value) for name, value in health.items()}
    return Gauges(int(second), int(in_flight), int(decoding), int(users), float(cpu), int(lost), health, bool(broken))
