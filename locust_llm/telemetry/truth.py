"""Judge what was measured by a truth log: join the event log with what the server says left it, event by event.

The one thing to know: the k-th token event of an exchange is the k-th event of that request in the truth log, and both
logs are on the wall clock of one machine. Nothing here does I/O. All durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ..exchange import OK, Exchange

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ALLOWED = {50: (0.05, 1.0), 95: (0.05, 1.0), 99: (0.10, 2.0)}
"""How far a measured percentile may be from the true one: a share of it, or so many ms, whichever is more."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Exchanges that succeeded, beside the truth. The first group is parallel to the exchanges, the others are flat.

    Attributes:
        start_us: wall clock of each exchange's start.
        ttft_ms: as measured, from the client's start.
        ttft_true_ms: from the moment the server had read the request to that at which the first token event left it.
        read_lag_ms: from the client's last byte of the request to the server's having read it, 0 or more: the network,
            and a server that reads late.
        event_owner, arrival_error_ms: of each token event, its exchange, and its time less that at which it left.
        gap_owner, gap_ms, gap_true_ms: of each gap between token events, as measured and as they left.
        mismatched: successes with another number of events than the server sent, or not in the truth log at all.
        unlogged: requests of the truth log that no record names.
    """

    start_us: Ints
    ttft_ms: Floats
    ttft_true_ms: Floats
    read_lag_ms: Floats
    event_owner: Ints
    arrival_error_ms: Floats
    gap_owner: Ints
    gap_ms: Floats
    gap_true_ms: Floats
    mismatched: tuple[str, ...] = ()
    unlogged: int = 0

    def __len__(self) -> int:
        return len(self.start_us)

    def between(self, start_us: float, end_us: float) -> Joined:
        """Return the exchanges that started in a window, both ends inside; what was not joined stays counted."""
        rows = (self.start_us >= start_us) & (self.start_us <= end_us)
        place = np.cumsum(rows) - 1
        new: dict[str, Any] = {"mismatched": self.mismatched, "unlogged": self.unlogged}
        for group, mask in (
            (("start_us", "ttft_ms", "ttft_true_ms", "read_lag_ms"), rows),
            (("event_owner", "arrival_error_ms"), rows[self.event_owner]),
            (("gap_owner", "gap_ms", "gap_true_ms"), rows[self.gap_owner]),
        ):
            new |= {name: getattr(self, name)[mask] for name in group}
        new["event_owner"], new["gap_owner"] = place[new["event_owner"]], place[new["gap_owner"]]
        return Joined(**new)


def join(records: Iterable[Exchange], truth: npt.NDArray[np.void]) -> Joined:
    """Join records with a truth log, by the number in the response's id and by the order of the token events.

    Args:
        records: those of a whole run, preflight included, so that ``unlogged`` is right.
        truth: ``sim.truth.read_truth``: members ``request``, ``index`` (0: the request had been read), ``time_ns``.

    Returns:
        The streamed exchanges with outcome ``ok``, in the order of the records.
    """
    truth = truth[np.lexsort((truth["index"], truth["request"]))]
    numbers, starts = np.unique(truth["request"], return_index=True)
    of_request = dict(
        zip(numbers.tolist(), np.split(truth["time_ns"], starts[1:]), strict=False)
    )  # no split of nothing
    named: set[int] = set()
    mismatched: list[str] = []
    columns: dict[str, list[Any]] = {field.name: [] for field in fields(Joined)[:9]}
    for record in records:
        number = _number(record.response_id)
        if number is not None:
            named.add(number)
        if record.outcome != OK or not record.streamed:
            continue
        times_ns = of_request.get(-1 if number is None else number, np.zeros(1, dtype=np.int64))
        offsets_us = np.array(record.token_times_us(), dtype=np.int64)
        if len(times_ns) != len(offsets_us) + 1 or not len(offsets_us):
            mismatched.append(f"{record.response_id}: {len(times_ns) - 1} events left, {len(offsets_us)} were seen")
            continue
        _add(columns, record, times_ns, offsets_us)
    return Joined(
        **{name: _flat(name, values) for name, values in columns.items()},
        mismatched=tuple(mismatched),
        unlogged=len(of_request.keys() - named),
    )


def schedule_lag_ms(truth: npt.NDArray[np.void], ttft_s: float, itl_s: float) -> Floats:
    """Return how late each token event left by the server's own schedule.

    Due times: the first event ``ttft_s`` after its request had been read, each further one ``itl_s`` a token later.
    Early ones are negative. Order: by request and index.
    """
    truth = truth[np.lexsort((truth["index"], truth["request"]))]
    _, starts, counts = np.unique(truth["request"], return_index=True, return_counts=True)
    read_ns = np.repeat(truth["time_ns"][starts], counts)
    first = np.repeat(truth["index"][np.minimum(starts + 1, len(truth) - 1)].astype(np.int64), counts)
    events = truth["index"] > 0
    due_ms = ttft_s * 1e3 + (truth["index"].astype(np.int64) - first) * itl_s * 1e3
    lag: Floats = ((truth["time_ns"] - read_ns) / 1e6 - due_ms)[events]
    return lag


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure, measured and true: percentiles of both, and of the absolute error of each single value, ms.

    Attributes:
        off: percentiles that are further from the truth than ``ALLOWED``, each as a sentence.
    """

    count: int
    measured: dict[str, float]
    true: dict[str, float]
    error_mean: float
    error_p50: float
    error_p99: float
    off: tuple[str, ...]


def compare(name: str, measured_ms: Floats, true_ms: Floats) -> Compared:
    """Compare the values of one figure with the truth, value by value and as distributions (at least one value)."""
    error = measured_ms - true_ms
    measured, true = ({f"p{q}": float(np.percentile(v, q)) for q in ALLOWED} for v in (measured_ms, true_ms))
    off = [
        f"{name} p{q} is {measured[f'p{q}']:.2f} ms where {true[f'p{q}']:.2f} ms is true"
        for q, (share, least_ms) in ALLOWED.items()
        if abs(measured[f"p{q}"] - true[f"p{q}"]) > max(share * true[f"p{q}"], least_ms)
    ]
    p50, p99 = np.percentile(np.abs(error), [50, 99]).tolist()
    return Compared(len(error), measured, true, float(error.mean()), p50, p99, tuple(off))


# ---- helpers


def _number(response_id: str | None) -> int | None:
    """Return the N of an id such as ``sim-N``; None for an id that does not end so."""
    digits = (response_id or "").rpartition("-")[2]
    return int(digits) if digits.isdecimal() else None


def _add(columns: dict[str, list[Any]], record: Exchange, times_ns: Ints, offsets_us: Ints) -> None:
    owner = len(columns["start_us"])
    read_ns, sent_ns = int(times_ns[0]), times_ns[1:]
    # Differences of whole ns before any float: an epoch time in ns does not fit one.
    errors_ns = (record.start_us + offsets_us) * 1000 - sent_ns
    left_ns = (record.start_us + (record.sent_us or 0)) * 1000
    columns["start_us"].append(record.start_us)
    columns["ttft_ms"].append(offsets_us[0] / 1e3)
    columns["ttft_true_ms"].append((int(sent_ns[0]) - read_ns) / 1e6)
    columns["read_lag_ms"].append(max(0, read_ns - left_ns) / 1e6)
    columns["arrival_error_ms"].append(errors_ns / 1e6)
    columns["event_owner"].append(np.full(len(offsets_us), owner))
    columns["gap_ms"].append(np.diff(offsets_us) / 1e3)
    columns["gap_true_ms"].append(np.diff(sent_ns) / 1e6)
    columns["gap_owner"].append(np.full(len(offsets_us) - 1, owner))


def _flat(name: str, values: list[Any]) -> Any:
    kind = np.int64 if name.endswith(("_us", "_owner")) else np.float64
    if values and isinstance(values[0], np.ndarray):
        return np.concatenate(values).astype(kind)
    return np.array(values, dtype=kind)
