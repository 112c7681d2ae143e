"""The truth log: when the simulator read each request and when each token event left, to judge a client by.

A file of 24-byte records in native byte order, ``{uint64 request, uint32 index, uint32 pad, int64 realtime_ns}``.
``request`` is the N of the answer's id ``sim-N`` (also in its ``x-request-id`` header). Index 0 is the moment the
request had been read; any later index is the number of tokens of that answer sent so far, stamped just before they
are given to the kernel. An answer that is not streamed has one such record. Role, finish, usage and ``[DONE]`` events
have none.
"""

from __future__ import annotations

import logging
import os
import struct
import sys
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_RECORD = struct.Struct("=QIIq")
FIELDS = [("request", "=u8"), ("index", "=u4"), ("pad", "=u4"), ("time_ns", "=i8")]


def read_truth(path: str | os.PathLike[str]) -> NDArray[np.void]:
    """Read a truth log.

    Returns: A structured array in the order of sending, with the members ``request``, ``index`` and ``time_ns`` (wall
        clock, epoch ns). A record that was cut at the end of the file (its writer was killed) is left out with a
        warning.
    """
    import numpy as np

    with open(path, "rb") as file:
        data = file.read()
    rest = len(data) % _RECORD.size
    if rest:
        logging.getLogger(__name__).warning("%s: the last record is cut (%d bytes), left out", os.fspath(path), rest)
    records: NDArray[np.void] = np.frombuffer(data[: len(data) - rest], dtype=np.dtype(FIELDS))
    return records


class TruthLog:
    """Writer; collects records in memory until ``flush``, because a write per event would bend the schedule.

    Args:
        path: new (or empty) file; ``""`` logs nothing.

    Raises:
        UsageError: the file holds something already, or cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._pending = bytearray()
        self._file: Any = None
        if not path:
            return
        try:
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (open as long as the server)
        except OSError as e:
            raise UsageError(
                f"simulator option truth_log: {path} cannot be written ({e.strerror}); name another file"
            ) from None
        if self._file.tell():
            self._file.close()
            raise UsageError(f"simulator option truth_log: {path} already holds data; remove it or name another file")

    def add(self, request: int, index: int, time_ns: int) -> None:
        """Note one record; ``time_ns`` is wall clock."""
        if self._file is not None:
            self._pending += _RECORD.pack(request, index, 0, time_ns)

    def flush(self) -> None:
        """Hand what is pending to the kernel. A disk that refuses ends the log, loudly, but not the server."""
        if not self._pending:
            return
        try:
            while self._pending:
                del self._pending[: self._file.write(self._pending)]
        except OSError as e:
            print(f"truth log {self._path} ends here, the rest is lost: {e.strerror}", file=sys.stderr, flush=True)
            self._pending.clear()
            self.close()

    def close(self) -> None:
        """Flush and close."""
        if self._file is not None:
            self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
