"""``GET /llm/metrics`` on Locust's web port: the run so far, for Prometheus to scrape.

The one thing to know: with ``--web-login`` a scraper has no session, so it may show the token of
``LOCUST_LLM_METRICS_TOKEN`` instead; without that variable the route is open to those who are logged in alone.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

import gevent
from flask import Response, make_response, request
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from .families import Rising, bounded, of_exchanges, of_run
from .web import base_of, own_site

if TYPE_CHECKING:
    from .desk import Desk

PATH = "/llm/metrics"
TOKEN = "LOCUST_LLM_METRICS_TOKEN"

_NO_SERIES = 1 << 62
_PIECE = 200
_EOF = b"# EOF\n"


def attach(web_ui: Any, desk: Desk) -> None:
    """Add the route to Locust's web server."""
    scrape = Scrape(desk)

    @own_site
    def metrics() -> Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return Response(text_of(scrape.collect(), encode), headers={"Content-Type": content_type})

    guarded = web_ui.auth_required_if_enabled(metrics)

    def metrics_or_refusal() -> Response:
        if _has_token():
            return metrics()
        answer = make_response(guarded())
        if answer.status_code in (200, 403):
            return answer
        # A scraper is told so, not sent to a page with a form.
        text = f"log in, or set {TOKEN} and send its value as Authorization: Bearer VALUE\n"
        return Response(text, 401, {"WWW-Authenticate": "Bearer"}, mimetype="text/plain")

    web_ui.app.add_url_rule(f"{base_of(web_ui)}{PATH}", "llm_metrics", metrics_or_refusal)


class Scrape:
    """All metrics of a desk, anew each time."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._rising = Rising()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; the event loop has its turn between rows."""
        snapshot, board = self._desk.snapshot(_NO_SERIES), self._desk.board
        self._rising.begin((snapshot.get("run"), snapshot.get("epoch")))
        rows = {} if board is None else bounded(board.names)
        yield from of_exchanges(rows, self._rising, lambda: gevent.sleep(0))
        yield from of_run(snapshot, self._rising)


def text_of(families: Iterable[Metric], encode: Callable[[Any], bytes]) -> bytes:
    """Return metrics as text.

    Args:
        encode: one of the client library's; it gets metrics piece by piece, for it does not stop for the event loop.
    """
    parts = []
    for family in families:
        for i in range(0, max(len(family.samples), 1), _PIECE):
            piece = copy(family)
            piece.samples = family.samples[i : i + _PIECE]
            text = encode(_One(piece)).removesuffix(_EOF)
            parts.append(text if i == 0 else _without_head(text))
            gevent.sleep(0)
    return b"".join(parts) + encode(_One())


class _One:
    """What a registry is to an encoder."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _without_head(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))


def _has_token() -> bool:
    expected = os.environ.get(TOKEN, "").encode()
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return bool(expected) and scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), expected)
