"""Hanging up in the middle of an answer, on purpose (``--llm-cancel``).

The one thing to know: the connection is closed, as a browser tab does it, so that the server sees what it would see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent

from ..wire.answer import TOKEN_KINDS
from ..wire.api import Decoder
from .cancel import Cancel


class HangUp(BaseException):
    """Raised in the greenlet of an exchange that is cancelled. No ``Exception``: no task is to catch it."""


class HangingUp:
    """A ``with`` block inside which the current greenlet gets ``HangUp`` when it is time.

    Args:
        cancel: after how long, or how many tokens.
        watch: called with a function that makes a decoder out of the exchange's own, to count its tokens.
    """

    def __init__(self, cancel: Cancel, watch: Callable[[Callable[[Decoder], Decoder]], None]) -> None:
        self._cancel = cancel
        self._loop: Any = gevent.get_hub().loop
        self._greenlet = gevent.getcurrent()
        self._timer: Any = None
        self._over = False
        if cancel.after_tokens:
            watch(lambda decoder: _Counting(decoder, cancel.after_tokens, self._soon))

    def __enter__(self) -> None:
        if self._cancel.after_s:
            self._loop.update_now()
            self._timer = self._loop.timer(self._cancel.after_s)
            self._timer.start(self._now)

    def __exit__(self, *_: object) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.close()

    def _soon(self) -> None:
        # Not now: this is called from inside the read of the stream.
        self._loop.run_callback(self._now)

    def _now(self) -> None:
        if not self._over:
            self._over = True
            self._greenlet.throw(HangUp)


class _Counting:
    """A decoder that says when its answer has enough events with tokens."""

    def __init__(self, inner: Decoder, enough: int, say: Callable[[], None]) -> None:
        self._inner = inner
        self._enough = enough
        self._say = say
        self._looked = self._seen = 0
        self.answer = inner.answer

    @property
    def at_event_end(self) -> bool:
        return self._inner.at_event_end

    def feed(self, data: bytes, at_ns: int) -> None:
        self._inner.feed(data, at_ns)
        kinds = self.answer.kinds
        self._seen += sum(kind in TOKEN_KINDS for kind in kinds[self._looked :])
        self._looked = len(kinds)
        if self._enough and self._seen >= self._enough:
            self._enough = 0
            self._say()

    def eof(self, at_ns: int) -> None:
        self._inner.eof(at_ns)
