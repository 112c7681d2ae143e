"""The event loop of the simulator's process: precise timers, housekeeping, a clean end.

Precision is the reason for what is unusual here: a selector that waits in microseconds, no garbage collection while a
stream is running, and log writing only between events.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import selectors
import sys
from collections.abc import Callable

from ..errors import UsageError
from .options import SimOptions
from .server import SimulatorServer
from .truth import TruthLog

_TICK_S = 0.25


class Stop:
    """Ends the server from a signal handler or another thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()
        self._asked = False

    def __call__(self) -> None:
        """Ask for the end; can be called at any time, more than once."""
        self._asked = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        """Wait until it is asked for."""
        self._loop = asyncio.get_running_loop()
        if not self._asked:
            await self._event.wait()


def serve(
    options: SimOptions, host: str, port: int, ready: Callable[[str, int], None], stop: Stop, parent: int = 0
) -> None:
    """Serve until ``stop`` is called; streams in flight are cut then, and the truth log is complete.

    Args:
        port: 0 for a free one.
        ready: called with the URL and the port once connections are accepted.
        parent: process whose child this one is and with which it ends; 0 for none.

    Raises:
        UsageError: the address cannot be had, or the truth log not written.
    """
    truth = TruthLog(options.truth_log)
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_serve(options, truth, host, port, ready, stop, parent))
    finally:
        truth.close()


async def _serve(
    options: SimOptions,
    truth: TruthLog,
    host: str,
    port: int,
    ready: Callable[[str, int], None],
    stop: Stop,
    parent: int,
) -> None:
    loop = asyncio.get_running_loop()
    simulator = SimulatorServer(options, truth, loop)
    _raise_file_limit()
    try:
        server = await loop.create_server(simulator, host, port, backlog=4096)
    except OSError as e:
        reason = os.strerror(e.errno) if e.errno and e.errno > 0 else str(e)
        raise UsageError(
            f"simulator: cannot listen on {host} port {port} ({reason}); choose another --port, or 0 for a free one"
        ) from None
    except OverflowError:
        raise UsageError(f"simulator: --port must be from 0 to 65535 (got {port})") from None
    ticks = loop.create_task(_keep_house(simulator, stop, parent))
    address, bound = server.sockets[0].getsockname()[:2]
    gc.collect()
    gc.freeze()
    gc.disable()
    ready(f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}", bound)
    await stop.wait()
    ticks.cancel()
    server.close()
    for connection in list(simulator.connections):
        connection.abort()


async def _keep_house(simulator: SimulatorServer, stop: Stop, parent: int) -> None:
    """Between events: write the log, see whether the parent lives, collect garbage while nothing runs."""
    while True:
        simulator.truth.flush()
        if parent and os.getppid() != parent:
            stop()
        if simulator.engine.idle():
            gc.collect()  # quick: everything from before the first request is frozen
        await asyncio.sleep(_TICK_S)


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "linux":
        return asyncio.SelectorEventLoop(_microsecond_selector())
    return asyncio.new_event_loop()


def _microsecond_selector() -> selectors.BaseSelector:
    class MicrosecondSelector(selectors.EpollSelector):
        """epoll itself waits in whole milliseconds, rounded up; select() on its descriptor waits in microseconds."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0:
                select.select([self.fileno()], (), (), timeout)
                timeout = 0
            return super().select(timeout)

    return MicrosecondSelector()


def _raise_file_limit() -> None:
    """As many sockets as the system lets this process have."""
    if sys.platform == "win32":
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
