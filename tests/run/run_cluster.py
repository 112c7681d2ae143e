"""A master and workers started apart, as on several hosts: each with a folder of its own, told where the master is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from run_processes import CHAT, Ended, Live, Plan, RunFolder, free_port


def master(
    args: list[str], act: Callable[[Live, str], None], locustfile: str = CHAT, workers: int | None = None
) -> Plan:
    """Return the plan of a master; ``act`` starts its workers, with the port to connect to."""
    port, expected = str(free_port()), str(workers or 1)
    own = ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--expect-workers", expected]
    return Plan([*own, *args], locustfile, lambda live: act(live, port))


def worker(port: str, locustfile: str = CHAT, **env: str) -> Plan:
    return Plan(["--worker", "--master-port", port], locustfile, env=env, headless=False)


def codes(ended: Ended) -> list[int]:
    found: list[int] = json.loads((ended.folder / "codes").read_text())
    return found


def keys(records: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return the keys of records, sorted, doubles and all."""
    return sorted((record["worker"], record["seq"]) for record in records)


def start_worker(live: Live, port: str, name: str, locustfile: str = CHAT) -> Live:
    """Start a worker whose log is not in the master's folder but in ``of-NAME`` beside it."""
    return worker(port, locustfile, LOCUST_LLM_WORKER_OUT=f"{live.folder}/of-{name}").start(live.folder / name)


def own_logs(ended: Ended) -> dict[str, RunFolder]:
    """Return the run folders of the workers, by the names they were started with."""
    run = ended.run.path.name
    return {path.name[3:]: RunFolder(path / run) for path in sorted(ended.folder.glob("of-*"))}


def note(live: Live, what: str, value: Any) -> None:
    (live.folder / what).write_text(json.dumps(value))


def noted(ended: Ended, what: str) -> Any:
    return json.loads((ended.folder / what).read_text())
