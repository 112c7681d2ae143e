"""An alarm of the event loop that rings at a monotonic time, to within some 0.1 ms.

The one thing to know: the loop's own timers end up to a millisecond late, for epoll waits whole milliseconds; arrivals
that are close together would go out together. On Linux the kernel's timer (timerfd) rings on time; elsewhere the loop's
has to do.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent

from ..transport.loop import poll_clock

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1


class Alarm:
    """Calls ``ring`` in the event loop, once for each ``at``; a later ``at`` replaces one that has not rung."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        loop: Any = gevent.get_hub().loop
        self._loop = loop
        self._set = poll_clock(loop).gathering.alarms
        self._timer: Any = None
        self._libc: Any = None
        self._fd = -1
        if sys.platform.startswith("linux") and ctypes.sizeof(ctypes.c_long) == 8:
            libc = ctypes.CDLL(None, use_errno=True)
            if hasattr(libc, "timerfd_create"):
                self._fd = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
                self._libc = libc
        if self._fd >= 0:
            self._timer = self._loop.io(self._fd, 1)
            self._timer.start(self._readable)

    def at(self, mono_ns: int) -> None:
        """Ring at a time of ``time.monotonic_ns``; at once if it is over."""
        self._set[self] = mono_ns
        if self._fd >= 0:
            seconds, nanos = divmod(max(1, mono_ns), 1_000_000_000)
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, (ctypes.c_long * 4)(0, 0, seconds, nanos), None)
            return
        if self._timer is not None:
            self._timer.close()
        self._loop.update_now()  # a timer counts from the loop's own idea of now
        self._timer = self._loop.timer(max(0.0, (mono_ns - time.monotonic_ns()) / 1e9))
        self._timer.start(self._rings)

    def close(self) -> None:
        """Ring no more."""
        self._set.pop(self, None)
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _readable(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, 8)
            self._rings()

    def _rings(self) -> None:
        self._set.pop(self, None)
        self._ring()
