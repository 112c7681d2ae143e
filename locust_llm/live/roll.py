"""The roll of a run's workers: who took part, what became of each, and where its records are.

The one thing to know: of each worker's log the master has a beginning (``live.mailbox``). What is beyond it is in the
worker's own file only, and is said here: in the run card, from which the report reads the rest of that file if it lies
beside the master's, and in a line for the console.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..distributed import MasterLink

RUNNING, LOST, LEFT, DRAINED = "running", "lost", "left", "drained"


def card(link: MasterLink) -> dict[str, dict[str, Any]]:
    """Return what the run card says of each worker, by name.

    Returns:
        ``state``: ``drained`` (it was there at the end), ``left`` (it went before and said so), ``lost``; ``records``
        that it measured (absent where it could not say); ``received`` of them by the master, and ``received_bytes`` of
        its own file ``file``; ``clock``: ``[[at_us, ahead_us, uncertain_us], …]``, how much its clock was ahead of the
        master's, when by its own; ``tickets`` given to it; ``undecodable`` batches, if any.
    """
    details = {}
    for node, name in link.members.items():
        report, received = link.report_of(node), link.mailbox.received.get(node)
        one: dict[str, Any] = {"state": _state(link, node), "file": file_of(name)}
        if report is not None:
            one["records"] = report.taken - report.lost
        one["received"] = received.records if received else 0
        one["received_bytes"] = received.file_bytes if received else 0
        one["clock"] = [list(point) for point in link.clocks.points(node)]
        if link.granted[node]:
            one["tickets"] = link.granted[node]
        if received and received.undecodable:
            one["undecodable"] = received.undecodable
        details[name] = one
    return details


def records(link: MasterLink) -> int:
    """Return how many records there are of all workers, as far as is known."""
    return sum(max(one.get("records", 0), one["received"]) for one in card(link).values())


def elsewhere(link: MasterLink, folder: Path) -> str:
    """Return the line that says which records did not arrive and where they are; "" if all is here."""
    said = []
    for one in card(link).values():
        if (folder / one["file"]).exists():
            continue
        if "records" not in one:
            said.append(f"{one['file']} (the worker was lost, {one['received']} records had come)")
        elif one["records"] > one["received"]:
            said.append(f"{one['file']} ({one['records'] - one['received']} records did not come)")
    if not said:
        return ""
    why = f" ({link.mailbox.error})" if link.mailbox.error else ""
    return (
        f"{', '.join(said)}: in the run folders of the workers{why}; put them into {folder}, then: "
        f"locust-llm report {folder}"
    )


def file_of(worker: str) -> str:
    """Return the name of a worker's own log."""
    return f"events-{worker}.jsonl"


def _state(link: MasterLink, node: str) -> str:
    if link.report_of(node) is not None:
        return LEFT if node in link.left else DRAINED
    client = link.client_of(node)
    return LOST if client is None or node in link.away or not link.is_open else RUNNING
