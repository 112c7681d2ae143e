"""The run card, ``run.json``: what was run, where, against what, and what happened to it.

It holds everything a reader needs to run the test again, and no secret: header values and keys never get here,
addresses are masked. ``report`` reads it; its members only grow.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from .address import mask_url
from .credentials import SECRET_HEADERS
from .live import roll
from .options import OPTIONS
from .target import facts_to_json

if TYPE_CHECKING:
    from .distributed import MasterLink
    from .load.lead import Lead
    from .run import Run

CARD_SCHEMA = 1
ROOM_BYTES = 32 * 1024
_PACKAGES = ("locust-llm", "locust", "gevent", "geventhttpclient", "orjson", "numpy", "pyarrow")


def write_card(folder: Path, card: dict[str, Any], last: bool = False) -> None:
    """Write ``run.json`` whole: a reader never sees half of it.

    Room for the next card is set aside unless this is the last, so that the log cannot fill the disk before it.
    """
    path, partial = folder / "run.json", folder / "run.json.partial"
    with open(partial, "r+b" if partial.exists() else "wb") as file:
        file.write(orjson.dumps(card, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        file.truncate()
    os.replace(partial, path)
    if not last:
        with contextlib.suppress(OSError):
            partial.write_bytes(bytes(ROOM_BYTES))


def new_card(run: Run, values: dict[str, Any], environment: Any, simulated: bool) -> dict[str, Any]:
    """Return the part of a card that is known when the run starts."""
    settings = run.settings
    return {
        "schema": CARD_SCHEMA,
        "run": run.id,
        "name": settings.name,
        "command": command_line(),
        "options": options_given(values),
        "load": {
            "users": values.get("num_users"),
            "spawn_rate": values.get("spawn_rate"),
            "run_time_s": settings.run_time_s or values.get("run_time"),
            "requests": settings.requests or None,
            "user_classes": [cls.__name__ for cls in environment.user_classes],
        },
        "lengths": {
            "input_tokens": str(settings.input_tokens),
            "output_tokens": str(settings.output_tokens),
            "natural_stop": settings.natural_stop,
            "prompts": settings.prompts or None,
        },
        "seed": run.seed,
        "host": mask_url(environment.host) if environment.host else None,
        "simulated": simulated,
        "machine": machine(),
        "git": git_state(tuple(environment.parsed_locustfiles or ())),
        "meta": settings.meta,
    }


def what_happened(run: Run, workers: MasterLink | None = None) -> dict[str, Any]:
    """Return the part of a card that grows: events, targets, what became of the records.

    Args:
        workers: the master's link to them; None for a local run.
    """
    log, reports = run.event_log, workers.reports if workers else []
    written, lost, error = (log.written, log.lost, log.error) if log else (0, 0, None)
    own_steps = [[step.at_us, step.by_us] for step in run.anchor.steps]
    own_facts = {spec.key: facts_to_json(target.facts) for spec, target in run.targets.items()}
    happened = {
        "workers": [report.worker for report in reports] or [run.worker],
        "workers_missing": workers.missing() if workers else [],
        "targets": run.facts | own_facts,
        "events": run.events,
        "clock_steps": own_steps + [step for report in reports for step in report.steps],
        "records": written + (roll.records(workers) if workers else 0),
        "records_lost": lost + sum(report.lost for report in reports),
        "log_errors": [text for text in (error, *(report.error for report in reports)) if text],
        "finished": dict(run.finished),
        "prewarmed": run.prewarmed,
        "client": {run.worker: run.client} | {report.worker: report.client for report in reports},
    }
    if workers is not None:
        happened["worker_details"] = roll.card(workers)
        happened["mailbox_error"] = workers.mailbox.error
        with contextlib.suppress(OSError):
            happened["log_bytes"] = log.path.stat().st_size if log else 0
    return happened


def arrivals(run: Run, lead: Lead, workers: MasterLink | None = None) -> dict[str, Any]:
    """Return what became of the arrivals. A worker that died says nothing: its share is counted by the schedule."""
    lost = []
    if workers is None:
        said = [run.open_loop.report()] if run.open_loop is not None else []
    else:
        said = []
        for node in lead.nodes():
            report = workers.report_of(node)
            own = dict(report.arrivals) if report is not None else {}
            if lead.has_left(node) or (lead.end_us is not None and not own):
                own["due"] = max(own.get("due", 0), lead.due_of(node))
                lost.append(workers.name_of(node))
            said.append(own)
    keys = ("due", "waiting", "most_waiting")
    return {"asked": lead.card(), "taken_over_from": lost} | {k: sum(one.get(k, 0) for one in said) for k in keys}


def options_given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the ``--llm-*`` values that differ from their defaults, as they may be shown."""
    shown: dict[str, Any] = {}
    for option in OPTIONS:
        value = values.get(option.dest, option.default)
        if option.hidden or value in (option.default, None):
            continue
        shown[option.flag] = [_mask_header(item) for item in value] if option.flag == "--llm-header" else value
    return shown


def command_line() -> list[str]:
    """Return how this process was started, addresses masked."""
    arguments, secret_next = [], False
    for argument in [Path(sys.argv[0]).name, *sys.argv[1:]]:
        flag, equals, value = argument.partition("=")
        if secret_next:
            argument, secret_next = _mask_header(argument), False
        elif flag == "--llm-header":
            argument, secret_next = (f"{flag}={_mask_header(value)}", False) if equals else (flag, True)
        elif "web-login" in flag or "password" in flag:
            argument = f"{flag}=***" if equals else flag
        arguments.append(mask_url(argument) if "://" in argument else argument)
    return arguments


def machine() -> dict[str, Any]:
    """Return what this node is: versions and size."""
    packages = {}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "packages": packages,
    }


@functools.cache
def git_state(files: tuple[str, ...]) -> dict[str, Any] | None:
    """Return commit and cleanliness of the locustfiles' repository as they were loaded, None where there is none."""
    paths = [Path(file) for file in files if Path(file).is_file()]
    if not paths:
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=paths[0].resolve().parent, capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "--", *(path.name for path in paths))),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def _mask_header(text: str) -> str:
    name, colon, value = text.partition(":")
    if not colon or value.strip().startswith("env:"):
        return text
    secret = name.strip().lower() in SECRET_HEADERS or any(
        word in name.lower() for word in ("key", "token", "secret", "auth")
    )
    return f"{name}: ***" if secret else text
