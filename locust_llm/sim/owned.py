"""The child's side of ``process.start``: serve for one parent process and end with it.

The parent writes one JSON line to our stdin and keeps the pipe open; we answer with one JSON line on stdout: where we
listen, or what is wrong. Any further byte on stdin, its end, or another parent process (ours was killed, but a fork
of it still holds the pipe) ends us.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import orjson

from ..errors import UsageError
from .options import SimOptions
from .serve import Stop, serve

_STDIN = 0  # read unbuffered: a thread blocked inside sys.stdin would be in the way of the interpreter's end


def serve_parent() -> int:
    """Serve as the parent's line says; return the exit code."""
    line, newline, more = _read_order().partition(b"\n")
    if not newline or more:
        return 0  # the parent has gone, or has changed its mind
    order = orjson.loads(line)
    options = SimOptions(**{**order["options"], "reject": tuple(order["options"]["reject"])})
    stop = Stop()
    signal.signal(signal.SIGTERM, lambda *_: stop())

    def watch_stdin() -> None:
        os.read(_STDIN, 1)
        stop()

    def say(message: dict[str, object]) -> None:
        sys.stdout.buffer.write(orjson.dumps(message) + b"\n")
        sys.stdout.buffer.flush()

    threading.Thread(target=watch_stdin, daemon=True).start()
    try:
        serve(
            options,
            order["host"],
            order["port"],
            lambda url, port: say({"url": url, "port": port}),
            stop,
            order["parent"],
        )
    except UsageError as e:
        say({"error": str(e)})
        return 2
    return 0


def _read_order() -> bytes:
    data = b""
    while b"\n" not in data and (part := os.read(_STDIN, 65536)):
        data += part
    return data
