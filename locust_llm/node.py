"""One Locust process as the extension sees it: what its users need, and what all its roles share.

A node is a ``Conductor`` (the local process, or the master) or a ``WorkerNode``; ``plugin`` calls its ``on_…``
methods when Locust fires the events of the same names.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gevent
import locust
from gevent.event import Event
from locust.env import Environment
from locust.user.task import LOCUST_STATE_STOPPING

from . import assembly, options
from .client import LLMClient
from .errors import UsageError
from .run import Run
from .transport.dial import KERNEL_STAMPS
from .transport.loop import poll_clock

if TYPE_CHECKING:
    from .users import LLMUser
    from .workload.prompts import Prompt

EXIT_USAGE = 2
PATIENCE = 5
"""So many SIGINTs end a process whatever it is doing."""


class Node:
    """The extension in one Locust environment.

    Attributes:
        run: the test that is on, or was last; None before the first.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.run: Run | None = None
        self._drained = Event()
        """Cleared while a drain is under way."""
        self._drained.set()
        self._interrupts = 0

    # ---- for users

    def client_for(self, user: LLMUser) -> LLMClient:
        """Return a client for a user that is being spawned."""
        run = self._running()
        spec = assembly.spec_of(type(user), run.host, run.settings)
        target = assembly.target_of(run, spec)
        return LLMClient(run, target, type(user).__name__, run.new_user_id(), self.environment.events.request)

    def next_prompt(self, user: LLMUser) -> tuple[Prompt, str | None, bool]:
        """Return the next prompt, the source of its length, and whether its answer's length is asked for exactly."""
        source = self._running().sources[type(user)]
        return source.workload.next(), source.length_source, source.exact

    # ---- Locust's events; the roles say what happens

    def on_init(self, runner: Any, web_ui: Any) -> None:
        """Locust is up, no test has started."""

    def on_test_start(self) -> None:
        """A test begins."""

    def on_spawning_complete(self, user_count: int) -> None:
        """The load asked for has been reached."""

    def on_test_stopping(self) -> None:
        run = self.run
        if run is None or run.closed:
            return
        runner = self.environment.runner
        if runner is not None and gevent.getcurrent() in list(runner.user_greenlets):
            # A task ends the test: its stop would be cut short by its own death, so it is begun again from outside.
            self._stop_for_a_task(run)
            run.wait_for_end()
        if not self._drained.is_set():  # told to stop a second time
            self._hurry()
            self._drained.wait()  # who goes on from here kills the users
            return
        self._drained.clear()
        try:
            self._let_others_end()
            self._drain(run)
        finally:
            self._drained.set()

    def on_test_stop(self) -> None:
        run = self.run
        if run is None or run.closed:
            return
        run.mark("test_stop")
        run.close()
        gc.unfreeze()
        self._after(run)

    def _quieten(self) -> None:
        """All that a run needs is imported and made: let nothing but its streams keep the event loop busy."""
        gc.collect()
        gc.freeze()  # what is alive now stays, no collection need look at it again
        loop: Any = gevent.get_hub().loop
        # Others' requests are timed when Python gets them, so they must not wait for ours to gather.
        all_ours = len(self._classes()) == len(list(self.environment.user_classes))
        poll_clock(loop).gathering.allowed = KERNEL_STAMPS and all_ours
        gevent.sleep(0.001)  # that was a long turn of the event loop; let it end before health is watched

    def on_quitting(self) -> None:
        if self.environment.runner is not None:
            self.environment.runner.quit()

    def on_quit(self) -> None:
        """All is over; the last words on the console."""

    # ---- for the roles

    def _drain(self, run: Run) -> None:
        run.drain(run.settings.drain_s)

    def _hurry(self) -> None:
        if self.run is not None:
            self.run.hurry()

    def _stop_for_a_task(self, run: Run) -> None:
        if self.environment.runner is not None:
            gevent.spawn(self.environment.runner.quit)

    def _after(self, run: Run) -> None:
        """The log is closed."""

    def _interrupted(self) -> bool:
        """Deal with a SIGINT; False lets Locust end the process, as the first does. A second one cuts the drain."""
        self._interrupts += 1
        if self._interrupts == 1 and self._drained.is_set():
            return False
        self._hurry()
        return self._interrupts < PATIENCE

    def _running(self) -> Run:
        if self.run is None:
            raise UsageError("no test is running: call locust_llm.setup(environment) before the runner starts")
        return self.run

    def _let_others_end(self) -> None:
        """Users that are none of ours stop at the end of their task; ours wait at their next exchange."""
        from .users import LLMUser

        runner = self.environment.runner
        greenlets = list(runner.user_greenlets) if runner is not None else []
        users = [greenlet.args[0] for greenlet in greenlets if greenlet.args]
        for user in users:
            if isinstance(user, LLMUser) or not isinstance(user, locust.User):
                continue
            if user._state != LOCUST_STATE_STOPPING and user.greenlet is not gevent.getcurrent():
                user.stop(force=False)

    def _count_users(self, run: Run) -> None:
        runner = self.environment.runner
        if runner is not None:
            run.count_users = lambda: runner.user_count

    def _values(self) -> dict[str, Any]:
        """Return the option values, live: what is written here reaches the workers."""
        parsed = self.environment.parsed_options
        return vars(parsed) if parsed is not None else {}

    def _classes(self) -> list[type[LLMUser]]:
        return assembly.llm_classes(self.environment.user_classes)


def llm_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the LLM options alone: what travels to a worker must be plain data."""
    return {key: value for key, value in values.items() if key in options.BY_DEST}
