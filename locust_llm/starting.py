"""Before a run: settings are validated, the server is found or simulated, first contact is made, prompts are ready.

Nothing here starts a test: what cannot be run is said, in one line, while nothing has happened yet.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locust.env import Environment

from . import assembly
from .errors import UsageError
from .eventlog import run_stamp, unwritable
from .exchange import decode
from .load.arrivals import pacers_of
from .load.prewarm import sentence
from .load.schedule import Share
from .node import llm_values
from .run import Run
from .settings import Settings, settings_from
from .transport.tls import tls_context

if TYPE_CHECKING:
    from .distributed import MasterLink
    from .sim.process import Simulator
    from .users import LLMUser

logger = logging.getLogger(__name__)


class Starter:
    """Makes runs ready on the local node or the master.

    Attributes:
        workers: the master's link to its workers, None on a local node.
        simulator: the embedded server, once it has been started.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.workers: MasterLink | None = None
        self.simulator: Simulator | None = None

    def find_server(self, settings: Settings) -> None:
        """Start the simulator if it is asked for, and make it Locust's host.

        Raises:
            UsageError: there is another host, too.
        """
        environment = self._environment
        if not settings.simulate or self.simulator is not None:
            return
        if environment.host:
            raise UsageError("--llm-simulate and --host are both given: which server is to be tested?")
        from .sim.process import start

        self.simulator = start(settings.simulate_options)
        environment.host = self.simulator.url
        if environment.parsed_options is not None:
            environment.parsed_options.host = self.simulator.url
        logger.warning("SIMULATED SERVER at %s: timings are made up, no model is behind it", self.simulator.url)

    def stop_simulator(self) -> None:
        if self.simulator is not None:
            self.simulator.stop()
            self.simulator = None

    def prepare(self, values: Mapping[str, Any], host: str | None, classes: list[type[LLMUser]]) -> Run:
        """Return a run that can start.

        Args:
            values: option values.
            host: what the form says; None is Locust's own.
            classes: the User classes of this test.

        Raises:
            UsageError: the test cannot be run so.
        """
        settings = settings_from(values)
        self.find_server(settings)
        host = self._environment.host if host is None else host
        if self.simulator is not None and host != self.simulator.url:
            raise UsageError(f"--llm-simulate is on, so the host is {self.simulator.url} (got {host})")
        for cls in classes:
            assembly.spec_of(cls, host, settings)
        pacers_of(settings, classes)
        _must_take_folders(Path(settings.out))
        if settings.ca_file:  # also where no class wants TLS: a file that is not there is a mistake
            tls_context(ca_file=settings.ca_file)
        _must_take_file("--llm-junit", settings.junit)
        _must_take_file("--llm-markdown", settings.markdown)
        users = int(values.get("num_users") or 1)
        seed = settings.seed if settings.seed >= 0 else secrets.randbelow(2**31)
        run_id = f"{run_stamp()}-{_folder_name(settings.name)}{secrets.token_hex(3)}"
        run = Run(run_id, "local" if self.workers is None else "master", settings, seed)
        run.host = host
        if self.workers is None:
            run.facts = assembly.contact_all(run, classes, host, logger.info)
            assembly.prepare_prompts(run, classes, host, worker=0, workers=1)
            assembly.warm_up(run, classes, users, Share(), logger.info)
            if self._prewarms(settings):
                assembly.prewarm(run, classes, users, Share())
        else:
            run.workers = max(1, len(self.workers.alive()))
            job = {
                "values": llm_values(values), "host": host, "run": run.id, "seed": seed, "workers": run.workers,
                "prewarm": self._prewarms(settings),
            }  # fmt: skip
            answer = self.workers.prepare(job, users, logger.info)
            run.warm_s = answer.get("warm_s")
            run.facts = answer["facts"]
            run.held += [decode(line) for line in answer["records"]]
            run.prewarmed = answer["prewarmed"]
        if run.prewarmed:
            logger.info("%s", sentence(run.prewarmed))
        return run

    def _prewarms(self, settings: Settings) -> bool:
        """Whether connections are to be opened before the load; a shape does not say for how many users."""
        if settings.prewarm and self._environment.shape_class is not None:
            logger.warning("--llm-prewarm: a load shape says only as it goes how many users there are: nothing opened")
            return False
        return settings.prewarm


def must_have_users(values: Mapping[str, Any], shape: Any) -> None:
    """Refuse a number of users with which a headless test would never do anything.

    Raises:
        UsageError: it is below 1 (Locust would wait for ever, or fail with a traceback).
    """
    users = values.get("num_users")
    if shape is None and users is not None and users < 1:
        raise UsageError(f"-u/--users must be at least 1 (got {users})")


def warn_of_short_run(values: Mapping[str, Any], shape: Any) -> None:
    """Say so if Locust's ``-t`` ends before its ramp does."""
    users, rate, run_time = values.get("num_users") or 1, values.get("spawn_rate") or 1, values.get("run_time")
    if run_time and shape is None and users / rate > run_time:
        logger.warning(
            "%d users at %g a second take %.0f s to start, but the test ends after %g s (-t): the load asked for is "
            "never reached; raise -r, or use locust-llm run, which counts -t from the end of the ramp",
            users, rate, users / rate, run_time,
        )  # fmt: skip


# ---- helpers


def _must_take_folders(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(0, "Permission denied")
    except OSError as e:
        raise UsageError(unwritable(out, e)) from None


def _must_take_file(flag: str, name: str) -> None:
    """What is written after the run must not fail for want of a look before it."""
    path = Path(name)
    if not name:
        return
    if path.is_dir():
        raise UsageError(f"{flag} {name}: is a folder; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"{flag} {name}: there is no folder {path.parent}; make it, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{flag} {name}: cannot write there (Permission denied); name another file")


def _folder_name(name: str) -> str:
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")[:60]
    return f"{safe}-" if safe else ""
