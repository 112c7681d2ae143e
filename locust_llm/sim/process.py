"""A simulator as a child process that cannot outlive its parent.

The child holds a pipe from its owner and ends when that closes, also if the owner is killed. Processes forked from
the owner inherit the pipe's other end, so the child watches its parent's process id as well. Works the same under
gevent's monkey patching.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import IO

import orjson

from ..errors import UsageError
from .options import SimOptions


@dataclass(frozen=True, slots=True)
class Simulator:
    """A running simulator.

    Attributes:
        url: where it listens, such as ``http://127.0.0.1:40123``.
        pid: its process.
    """

    url: str
    port: int
    pid: int
    options: SimOptions
    _process: subprocess.Popen[bytes]
    _owner: int

    def running(self) -> bool:
        """Whether its process is still there."""
        return self._process.poll() is None

    def stop(self, timeout_s: float = 5.0) -> None:
        """End it; its truth log is complete then. Harmless when repeated, and in a fork of the owner."""
        if os.getpid() == self._owner:
            _end(self._process, timeout_s)

    def __enter__(self) -> Simulator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(
    options: SimOptions | None = None, port: int = 0, *, host: str = "127.0.0.1", timeout_s: float = 15.0
) -> Simulator:
    """Start a simulator and wait until it accepts connections.

    Args:
        options: how it behaves; None for the defaults.
        port: 0 for a free one.
        timeout_s: how long it may take.

    Raises:
        UsageError: the port is taken, the truth log cannot be written, or it does not come up.
    """
    options = options or SimOptions()
    process = subprocess.Popen(
        [sys.executable, "-m", "locust_llm.sim", "--owned"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C meant for the load test must not cut its streams
    )
    assert process.stdin is not None
    assert process.stdout is not None
    order = {"options": asdict(options), "host": host, "port": port, "parent": os.getpid()}
    try:
        process.stdin.write(orjson.dumps(order) + b"\n")
        process.stdin.flush()
        line = _first_line(process.stdout, timeout_s)
    except BaseException as e:
        _end(process, 0)
        if isinstance(e, BrokenPipeError):
            raise UsageError(_NOT_UP.format("ended at once")) from None
        raise
    if not line:
        _end(process, 1)
        reason = f"said nothing for {timeout_s:g} s" if line is None else f"ended with exit code {process.returncode}"
        raise UsageError(_NOT_UP.format(reason))
    answer = orjson.loads(line)
    if "error" in answer:
        _end(process, 1)
        raise UsageError(answer["error"])
    return Simulator(answer["url"], answer["port"], process.pid, options, process, os.getpid())


_NOT_UP = "the simulated server did not come up: it {}; see its messages above, or try `locust-llm simulate`"


def _first_line(stream: IO[bytes], timeout_s: float) -> bytes | None:
    """Return the first line of ``stream``, empty at its end, None if none came in time."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    try:
        return lines.get(timeout=timeout_s)
    except queue.Empty:
        return None


def _end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Ask the child to end, wait, then kill it."""
    if process.poll() is None:
        with contextlib.suppress(OSError):
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.write(b"\n")  # closing is not enough if a fork of ours holds the pipe too
                process.stdin.close()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None and not stream.closed:
            with contextlib.suppress(OSError):
                stream.close()
