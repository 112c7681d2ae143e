"""Connections and routes: requests in, answers handed to the engine.

A connection works on one request at a time and in order, as HTTP/1.1 wants; a pipelined request waits unread in the
reader. A client that closes its end is gone, and its slot is free at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import cast

import orjson

from .answer import StreamAnswer, WholeAnswer
from .body import read_generation
from .engine import Engine, FixedEngine, Job
from .http import CONTINUE, HttpError, Request, RequestReader, head
from .metrics import CONTENT_TYPE, Metrics
from .options import SimOptions
from .shapes import error_object
from .text import PrefixCache
from .truth import TruthLog

_JSON = {"content-type": "application/json"}
_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class SimulatorServer:
    """What all connections share; call it to make the protocol of a new connection.

    Args:
        options: how to behave.
        truth: open truth log.
        loop: the loop that serves.
    """

    def __init__(self, options: SimOptions, truth: TruthLog, loop: asyncio.AbstractEventLoop) -> None:
        self.options = options
        self.truth = truth
        self.loop = loop
        self.engine: Engine = FixedEngine(options, loop)
        self.prefixes = PrefixCache()
        self.metrics = Metrics()
        self.requests = 0
        self.ready_at = time.monotonic() + options.fail_first
        self.connections: set[Connection] = set()
        self._by_chance = any(
            (options.jitter, options.natural_stop, options.error_rate, options.cut_rate, options.stall_rate)
        )
        self._no_chance = random.Random(0)

    def chance(self, number: int) -> random.Random:
        """Return one request's random numbers; not seeded (30 us) where nothing is left to chance."""
        return random.Random(self.options.seed * 1_000_003 + number) if self._by_chance else self._no_chance

    def __call__(self) -> Connection:
        return Connection(self)


class Connection(asyncio.Protocol):
    """One client connection; also the sink of the answer it is being given."""

    _transport: asyncio.Transport

    def __init__(self, server: SimulatorServer) -> None:
        self._server = server
        self._reader = RequestReader()
        self._request: Request | None = None
        self._request_id = ""
        self._job: Job | None = None
        self._closing = False

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # with TCP_NODELAY, which asyncio sets
        # A stamp must not be earlier than the send: as soon as the kernel takes no more, the job is held.
        self._transport.set_write_buffer_limits(high=0)
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        read_ns, read_wall_ns = time.monotonic_ns(), time.time_ns()
        self._reader.feed(data)
        # Not now: where many requests come at once, each is to be stamped before the work on the first delays the rest.
        self._server.loop.call_soon(self._serve_next, read_ns, read_wall_ns)

    def pause_writing(self) -> None:
        if self._job is not None:
            self._job.held = True

    def resume_writing(self) -> None:
        if self._job is not None:
            self._server.engine.resume(self._job)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._server.connections.discard(self)
        if self._job is not None:
            self._server.engine.cancel(self._job)
            self._job = None
            self._server.metrics.finished["abort"] += 1

    def abort(self) -> None:
        """Drop the connection now."""
        self._transport.abort()

    # the answer's side (Sink)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def end_stream(self) -> None:
        assert self._request is not None
        self._finish(close=self._server.options.close or not self._request.chunked_ok)

    def send_whole(self, body: bytes) -> None:
        self._respond(200, body, _JSON)
        self._finish()

    def cut(self) -> None:
        self._finish(close=True)

    # requests

    def _serve_next(self, read_ns: int, read_wall_ns: int) -> None:
        """Answer complete requests until one takes time, or the bytes run out."""
        while self._request is None and not self._closing:
            try:
                self._request = self._reader.next()
            except HttpError as error:
                self._respond(error.status, error_object(error), _JSON, close=True)
                return
            if self._reader.continue_due:
                self._reader.continue_due = False
                self._transport.write(CONTINUE)
            if self._request is None:
                return
            self._answer(self._request, read_ns, read_wall_ns)

    def _answer(self, request: Request, read_ns: int, read_wall_ns: int) -> None:
        try:
            self._check(request)
            method, answer = _route(request.path)
            if request.method != method:
                raise HttpError(405, f"{request.path} takes {method}", headers={"allow": method})
            answer(self, request, read_ns, read_wall_ns)
        except HttpError as error:
            self._respond(error.status, error_object(error), _JSON | error.headers)
            self._request_id = ""
            self._request = None

    def _check(self, request: Request) -> None:
        options = self._server.options
        if time.monotonic() < self._server.ready_at:
            raise HttpError(503, "the model is still loading", "ServiceUnavailableError", headers={"retry-after": "1"})
        if not options.api_key or request.path in ("/health", "/version", "/v1/health", "/v1/version"):
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or key.strip() != options.api_key:
            raise HttpError(
                401, "missing or wrong API key", "AuthenticationError", headers={"www-authenticate": "Bearer"}
            )

    def health(self, request: Request, read_ns: int, read_wall_ns: int) -> None:
        """Answer that all is well."""
        self._send_json({"status": "ok"})

    def version(self, request: Request, read_ns: int, read_wall_ns: int) -> None:
        """Answer with our own version, marked as a simulator's."""
        self._send_json({"version": _version(), "simulated": True})

    def metrics(self, request: Request, read_ns: int, read_wall_ns: int) -> None:
        """Answer with the counters."""
        server = self._server
        body = server.metrics.render(server.options.model, *server.engine.load())
        self._respond(200, body, {"content-type": CONTENT_TYPE})
        self._request = None

    def models(self, request: Request, read_ns: int, read_wall_ns: int) -> None:
        """Answer with the one model there is."""
        options = self._server.options
        model = {
            "id": options.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "locust-llm-simulator",
            "max_model_len": options.max_model_len,
        }
        self._send_json({"object": "list", "data": [model]})

    def chat(self, request: Request, read_ns: int, read_wall_ns: int) -> None:
        """Begin a chat answer."""
        self._generate(True, request, read_ns, read_wall_ns)

    def completions(self, request: Request, read_ns: int, read_wall_ns: int) -> None:
        """Begin a completions answer."""
        self._generate(False, request, read_ns, read_wall_ns)

    def _generate(self, chat: bool, request: Request, read_ns: int, read_wall_ns: int) -> None:
        server, options = self._server, self._server.options
        number = server.requests
        server.requests += 1
        self._request_id = f"sim-{number}"
        server.truth.add(number, 0, read_wall_ns)
        generation = read_generation(request.body, chat, options)
        rng = server.chance(number)
        fails = rng.random() < options.error_rate
        if fails and options.error_kind == "http_500":
            raise HttpError(500, "simulated failure", "InternalServerError")
        if fails and options.error_kind == "http_429":
            raise HttpError(429, "simulated rate limit", "RateLimitError", headers={"retry-after": "1"})
        cached = sum(map(server.prefixes.lookup, generation.prompts)) if options.prefix_cache else 0
        if generation.stream:
            answer = StreamAnswer(
                number, generation, cached, fails, rng, options, server.truth, server.metrics, read_wall_ns, self,
                request.chunked_ok,
            )  # fmt: skip
            self._job = answer
            self._transport.write(self._stream_head(request))
            answer.start()
        else:
            self._job = WholeAnswer(
                number, generation, cached, fails, rng, options, server.truth, server.metrics, read_wall_ns, self
            )
        server.engine.submit(self._job, read_ns)

    # responses

    def _stream_head(self, request: Request) -> bytes:
        headers = _STREAM | {"x-request-id": self._request_id}
        if request.chunked_ok:
            headers["transfer-encoding"] = "chunked"
        if self._server.options.close and request.keep_alive:
            headers["keep-alive"] = "timeout=5, max=100"  # a lie, and the point of the option
        elif not (request.keep_alive and request.chunked_ok):
            headers["connection"] = "close"
        return head(200, headers)

    def _send_json(self, body: object) -> None:
        self._respond(200, orjson.dumps(body), _JSON)
        self._request = None

    def _respond(self, status: int, body: bytes, headers: Mapping[str, str], close: bool = False) -> None:
        """Send a whole response; close after it if the client or ``close`` says so."""
        close = close or (self._request is not None and not self._request.keep_alive)
        more = {"content-length": str(len(body))}
        if self._request_id:
            more["x-request-id"] = self._request_id
        if close:
            more["connection"] = "close"
        elif self._request is not None and not self._request.chunked_ok:
            more["connection"] = "keep-alive"
        self._transport.write(head(status, {**headers, **more}) + body)
        if close:
            self._close()

    def _finish(self, close: bool = False) -> None:
        """The engine's answer has ended: close, or go on with what the client has sent meanwhile."""
        assert self._request is not None
        close = close or not self._request.keep_alive
        self._job = self._request = None
        self._request_id = ""
        if close:
            self._close()
        else:
            self._serve_next(time.monotonic_ns(), time.time_ns())

    def _close(self) -> None:
        self._closing = True
        self._transport.close()


Handler = Callable[[Connection, Request, int, int], None]

_ROUTES: dict[str, tuple[str, Handler]] = {
    "/chat/completions": ("POST", Connection.chat),
    "/completions": ("POST", Connection.completions),
    "/metrics": ("GET", Connection.metrics),
    "/models": ("GET", Connection.models),
    "/health": ("GET", Connection.health),
    "/version": ("GET", Connection.version),
}


def _route(path: str) -> tuple[str, Handler]:
    route = _ROUTES.get(path.removeprefix("/v1"))
    if route is None:
        raise HttpError(404, f"there is no {path} here", "NotFoundError")
    return route


@cache
def _version() -> str:
    from .. import __version__

    return __version__
