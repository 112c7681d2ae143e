"""A worker's records on their way to the master: its log is read back and sent, batch by batch, until all is there.

The one thing to know: the log is the queue. What the master has acknowledged is one number, the length of the log's
stream that it has written; whatever is lost on the way (a connection, an answer, ten seconds of standstill) is sent
again from there, and what comes twice the master can tell by its place. So nothing piles up in memory, however long
the master is away: a batch at a time is read, and only a window of bytes may be on the way unacknowledged.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

from ..eventlog import EventLog

logger = logging.getLogger(__name__)

BATCH_BYTES = 256 * 1024
WINDOW_BYTES = 1024 * 1024
LOOK_S = 0.5
RESEND_S = 3.0
"""No answer for so long: what is on the way counts as lost."""
REFUSED_S = 5.0
"""The master could not write: it is asked again after so long."""
PATIENCE_S = 10.0
"""At the end of a run: without any progress for so long, what is unsent stays in this worker's own file."""
PATIENCE_REFUSED_S = 3.0
_FASTEST = 1


class Post:
    """Sends one run's log.

    Args:
        run, worker: whose records they are.
        log: the worker's own.
        send: gives a message to the master; may raise ``OSError``.

    Attributes:
        acknowledged: bytes of the log's stream that the master has in its file.
        refused: why the master does not take any; "" as long as it does.
    """

    def __init__(self, run: str, worker: str, log: EventLog, send: Callable[[dict[str, Any]], None]) -> None:
        self._header = {"run": run, "worker": worker}
        self._log = log
        self._send = send
        self.acknowledged = 0
        self.refused = ""
        self._sent = 0
        self._alone = False
        """Something was lost: one batch at a time until the master answers again."""
        self._sent_s = 0.0
        self._held_until_s = 0.0
        self._finishing = False
        self._over = False
        self._receiver: Any = None
        self._wake = Event()
        self._progress = Event()
        gevent.spawn(self._work)

    def answered(self, answer: dict[str, Any]) -> None:
        """Take the master's word on how much of the log it has. Called where messages are received."""
        self._receiver = gevent.getcurrent()
        at = int(answer["at"])
        self.refused = str(answer["refused"])
        if at > self.acknowledged:
            self.acknowledged = at
            self._sent = max(self._sent, at)
            self._sent_s = time.monotonic()
            self._alone = False
            self._log.release(at)
        if self.refused:
            self._sent = self.acknowledged
            self._held_until_s = time.monotonic() + (RESEND_S if self._finishing else REFUSED_S)
        self._progress.set()
        self._wake.set()

    def finish(self) -> None:
        """Return when the master has all of the log, or when that can no longer be hoped for."""
        self._log.flush()
        self._finishing = True
        self._held_until_s = 0.0
        best, silent_s = self.acknowledged, 0.0
        while self.acknowledged < self._log.end and self._can_hear():
            self._wake.set()
            self._progress.clear()
            if not self._progress.wait(LOOK_S):
                silent_s += LOOK_S  # counted in looks: while this process stands still nothing can come
            if self.acknowledged > best:
                best, silent_s = self.acknowledged, 0.0
            if silent_s > (PATIENCE_REFUSED_S if self.refused else PATIENCE_S):
                break
        self.close()

    def close(self) -> None:
        """Send no more."""
        self._over = True
        self._wake.set()

    # ---- helpers

    def _work(self) -> None:
        while not self._over:
            self._wake.wait(LOOK_S)
            self._wake.clear()
            now_s = time.monotonic()
            if self._sent > self.acknowledged and now_s - self._sent_s > RESEND_S:
                self._sent, self._alone = self.acknowledged, True
            try:
                while not self._over and self._may_send():
                    self._send_batch()
            except Exception:  # whatever it is, the file has what is unsent
                logger.exception("records could not be sent")
                self._held_until_s = time.monotonic() + RESEND_S

    def _can_hear(self) -> bool:
        """Whether answers can come: not while the greenlet that receives waits for them, nor after its end."""
        return gevent.getcurrent() is not self._receiver and not getattr(self._receiver, "dead", False)

    def _may_send(self) -> bool:
        under_way = self._sent - self.acknowledged
        room = under_way == 0 if self._alone else under_way < WINDOW_BYTES
        return room and self._sent < self._log.end and time.monotonic() >= self._held_until_s

    def _send_batch(self) -> None:
        at, skipped = self._sent, self._log.skipped
        read = self._log.chunk(at, BATCH_BYTES)
        packed: Any = gevent.get_hub().threadpool.spawn(_pack, read).get()
        size, lines, body = packed
        if at != self._sent or not size:  # the master has answered meanwhile
            return
        batch = {"at": at, "size": size, "lines": lines, "skipped": skipped, "body": body}
        self._sent = at + size
        self._sent_s = time.monotonic()
        try:
            self._send(self._header | batch)
        except OSError as e:
            logger.debug("records from byte %d on are sent again: %s", at, e)


def _pack(read: Callable[[], bytes]) -> tuple[int, int, bytes]:
    """Return the size of what ``read`` gives, its lines, and it compressed; nothing if it cannot be read now."""
    try:
        data = read()
    except OSError:
        return 0, 0, b""
    return len(data), data.count(b"\n"), zlib.compress(data, _FASTEST)
