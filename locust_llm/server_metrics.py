"""The server's own counters around the load: ``/metrics`` read just before it and after its drain, for the run card.

The one thing to know: only the local process or the master asks, never while the load runs, and never long; a server
without such counters, or one that answers oddly, is a note in the card and no error.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import gevent

from .address import mask_url
from .assembly import spec_of
from .errors import UsageError
from .settings import Timeouts
from .target import Target, api_for
from .telemetry.counters import NotMetrics, Reading, read_metrics

if TYPE_CHECKING:
    from .run import Run
    from .users import LLMUser

logger = logging.getLogger(__name__)

LIMITS = Timeouts(connect=2.0, first_token=5.0, idle=5.0, total=5.0)
MOST_BYTES = 16 * 1024 * 1024
SETTLE_S = 2.0
"""How long the counters may take to come to rest after the drain."""
_AGAIN_S = 0.2
_REDIRECTS = (301, 302, 307, 308)
_START_HEADER = "process-start-time-unix"


@dataclass(slots=True)
class _Source:
    """One address with counters, and what was read there."""

    url: str
    target: Target | None
    user_classes: list[str] = field(default_factory=list)
    before: Reading | None = None
    after: Reading | None = None
    before_t: float = 0.0
    after_t: float = 0.0
    settled: bool = False
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"url": self.url, "user_classes": self.user_classes}
        if self.before is not None:
            out["before"] = {"t": self.before_t, **self.before.to_json()}
        if self.after is not None:
            out |= {"after": {"t": self.after_t, **self.after.to_json()}, "settled": self.settled}
        return {**out, "note": self.note} if self.note else out


class ServerMetrics:
    """The counters of a run's servers.

    Args:
        classes: the User classes of the run; those that talk to the same server share a reading.
    """

    def __init__(self, run: Run, classes: Sequence[type[LLMUser]]) -> None:
        self._wanted = run.settings.server_metrics
        self._sources: dict[str, _Source] = {}
        self._over = False
        if not run.settings.read_server_metrics:
            return
        settings = replace(run.settings, timeouts=LIMITS, max_bytes=MOST_BYTES)
        for cls in classes:
            spec = spec_of(cls, run.host, run.settings)
            url = self._wanted or _beside(spec.address.url(), spec.address.root, spec.address.at_server("/metrics"))
            source = self._sources.get(url)
            if source is None:
                source = self._sources[url] = _Source(url, None)
                try:
                    source.target = Target(spec.address, api_for("", settings, spec.api), settings, spec.headers)
                    source.target.close()  # keep no connection: it would be one user too many for some servers
                except UsageError as e:  # a key or certificate that only the workers have
                    source.note = f"not read from here: {e}"
            source.user_classes.append(cls.__name__)

    def read_before(self) -> None:
        """Read all servers, at once; takes as long as the slowest, at most ``LIMITS.total``."""
        if not self._sources:
            return
        importlib.import_module("prometheus_client.parser")  # here, for it makes locks, and parsing is in a thread
        sources = [source for source in self._sources.values() if source.target is not None]
        gevent.joinall([gevent.spawn(_read_before, source) for source in sources])
        for source in self._sources.values():
            if source.note and self._wanted:
                logger.warning("--llm-server-metrics: %s: %s", mask_url(source.url), source.note)

    def read_after(self, hurried: Callable[[], bool] = lambda: False) -> None:
        """Read those that answered before, until their counters rest or ``SETTLE_S`` is over; only the first call does.

        Args:
            hurried: whether one reading has to do.
        """
        if self._over:
            return
        self._over = True
        sources = [source for source in self._sources.values() if source.before is not None]
        gevent.joinall([gevent.spawn(_read_after, source, hurried) for source in sources])
        for source in sources:
            if source.after is None:
                logger.warning("%s: %s", mask_url(source.url), source.note)

    def card(self) -> list[dict[str, Any]]:
        """Return what was read, for ``run.json``."""
        return [source.to_json() for source in self._sources.values()]


# ---- helpers


def _beside(url: str, root: str, path: str) -> str:
    return url.removesuffix(root) + path


def _read_before(source: _Source) -> None:
    try:
        source.before = _read(source)
        source.before_t = round(time.time(), 6)
    except NotMetrics as e:
        source.note = str(e)


def _read_after(source: _Source, hurried: Callable[[], bool]) -> None:
    """A server may count a moment after its last byte, and goes on with streams that were cut."""
    deadline = time.monotonic() + SETTLE_S
    try:
        while True:
            last, source.after = source.after, _read(source)
            source.after_t = round(time.time(), 6)
            source.settled = last is not None and last.samples == source.after.samples
            if source.settled or hurried() or time.monotonic() > deadline:
                return
            gevent.sleep(_AGAIN_S)
    except NotMetrics as e:
        source.note = f"after the load: {e}"


def _read(source: _Source) -> Reading:
    assert source.target is not None
    transfer, body = _get(source.target, source.url)
    if transfer.status in _REDIRECTS and (location := transfer.headers.get("location")):
        transfer, body = _get(source.target, urljoin(source.url, location))
    if transfer.status is None:
        raise NotMetrics(transfer.end.message or transfer.end.kind)
    if transfer.status != 200:
        raise NotMetrics(f"answers {transfer.status}")
    if transfer.end.kind != "complete":
        raise NotMetrics(f"the answer broke off: {transfer.end.message or transfer.end.kind}")
    found = gevent.get_hub().threadpool.apply(_parsed, (body,))
    if isinstance(found, NotMetrics):
        raise found
    started = transfer.headers.get(_START_HEADER, "")
    if found.started is None and started.isascii() and started.isdigit():
        return replace(found, started=float(started))
    return found


def _get(target: Target, url: str) -> tuple[Any, bytes]:
    try:
        transfer, body, trouble = target.fetch(url, "text/plain;version=0.0.4")
    except UsageError as e:
        raise NotMetrics(str(e)) from None
    if trouble:
        raise NotMetrics(trouble)
    return transfer, body


def _parsed(body: bytes) -> Reading | NotMetrics:
    """The thread pool prints what is raised in it, so trouble is returned."""
    try:
        return read_metrics(body)
    except NotMetrics as e:
        return e
