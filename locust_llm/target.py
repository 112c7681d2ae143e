"""A target: one server spoken to through one API, with what is known about it. The unit that the preflight checks.

One process keeps one target per (address, API, endpoint, headers); all its users share the connection pool and the
dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from .address import Address, mask_url, parse_address
from .credentials import FRAMING_HEADERS, hide, resolve_headers, secrets_among
from .dialect import Dialect
from .errors import UsageError
from .exchange import ExchangeError
from .outcome import judge
from .settings import Settings
from .transport import Transfer, Transport, route_to
from .transport.http1 import request_head
from .transport.transfer import UNFINISHED
from .wire import registry
from .wire.answer import Answer
from .wire.api import Api, Call, Decoder, Signs
from .wire.errors import server_error

_IN_PATH = "/%:@!$&'()*+,;=~?[]"
# Servers that one target may send on to.
_MOST_ELSEWHERE = 8


@dataclass(slots=True)
class Facts:
    """What first contact found out about a target; travels to the workers as JSON."""

    model: str = ""
    models: list[str] = field(default_factory=list)
    context_length: int | None = None
    server: str | None = None
    version: str | None = None
    streamed: bool | None = None
    usage: bool | None = None
    connect_ms: float | None = None
    ttft_ms: float | None = None
    dropped: list[str] = field(default_factory=list)
    max_tokens_field: str = "max_tokens"
    learned: list[str] = field(default_factory=list)
    tokens_per_word: float | None = None
    overhead: float | None = None


class Attempt:
    """One request and its answer: prepared, then run once, then judged.

    Attributes:
        body: the JSON body as this server takes it. ``theirs``: the user's own fields in it.
        answer, transfer: what came, and how; complete even when ``run`` was killed.
    """

    __slots__ = ("_decoder", "_request", "_target", "answer", "body", "theirs", "transfer")

    def __init__(self, target: Target, decoder: Decoder, call: Call, body: dict[str, Any], request: bytes) -> None:
        self.body = body
        self.theirs = call.extra
        self.transfer = Transfer()
        self._decoder = decoder
        self.answer = self._decoder.answer
        self._target = target
        self._request = request

    def run(self) -> None:
        """Send and read to the end. Failures do not raise; a killed greenlet goes on being killed."""
        self._target.transport.exchange(self._request, self._decoder, self.transfer)
        if self.answer.follow is not None and self.transfer.end.kind == "complete":
            self._follow(self.answer.follow)

    def watch(self, wrap: Callable[[Decoder], Decoder]) -> None:
        """Put a decoder around this attempt's own, before ``run``."""
        self._decoder = wrap(self._decoder)

    def _follow(self, url: str) -> None:
        """Get the answer where the first one says it is: one transfer of two requests, with the start of the first."""
        first = self.transfer
        try:
            transport, request = self._target.at(url)
        except UsageError as e:
            self.answer.malformed = f"cannot follow the answer: {e}"
            return
        self.transfer = replace(first, end=UNFINISHED, end_ns=0, status=None, headers={}, headers_ns=None)
        try:
            transport.exchange(request, self._decoder, self.transfer)
        finally:
            rest = self.transfer
            rest.connected_ns, rest.sent_ns, rest.reused = first.connected_ns, first.sent_ns, first.reused
            rest.dns_ns, rest.tcp_ns, rest.tls_ns = first.dns_ns, first.tcp_ns, first.tls_ns
            rest.resent += first.resent

    def judge(self) -> tuple[str, ExchangeError | None]:
        """Return the outcome and, for failures, the error."""
        transfer = self.transfer
        if transfer.status is not None and not 200 <= transfer.status < 300:
            headers = transfer.headers
            self.answer.error = server_error(
                transfer.error_body, headers.get("content-type"), headers.get("x-amzn-errortype")
            )
            location = headers.get("location")
            if transfer.status < 400 and location:
                self.answer.error.message = f"redirects to {mask_url(location)[:200]}: not followed, use that address"
        outcome, error = judge(self.answer, transfer.status, transfer.end, transfer.headers.get("retry-after"))
        if error is not None:
            error = replace(error, message=hide(error.message, self._target.secrets))
        return outcome, error


class Target:
    """Sends calls to one server. No statistics, no log: ``Exchange`` records are made by the client."""

    def __init__(
        self, address: Address, api: Api, settings: Settings, extra_headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.address = address
        self.api = api
        self.settings = settings
        self.facts = Facts()
        self.dialect = Dialect()
        self.transport = self._transport_to(address)
        self._elsewhere: dict[Address, Transport] = {}
        headers = [*resolve_headers(settings, address.host, api), *map(_checked, extra_headers)]
        self._heads: dict[str, bytes] = {}
        self._origin, proxy_headers = _through_proxy(self.transport)
        self.headers = headers + proxy_headers
        self.secrets = secrets_among(self.headers, settings)
        self._endpoint = _join(address, settings.endpoint) if settings.endpoint else ""
        keyed = any(name.lower() == "authorization" for name, _ in headers)
        self._sign = api.signer(address.host) if isinstance(api, Signs) and not keyed else None

    @property
    def signs(self) -> bool:
        """Whether each request is signed."""
        return self._sign is not None

    def learn(self, facts: Facts) -> None:
        """Take over what a preflight found, here or on another node."""
        self.facts = facts
        self.dialect = Dialect(facts.dropped, facts.max_tokens_field)

    def path(self, call: Call) -> str:
        """Return the path, from the server's root, that a call is sent to."""
        return self._endpoint or self.address.root + self.api.path(call)

    def url(self, call: Call) -> str:
        """Return the address of a call for people: no query."""
        return self.address.url(self.path(call).removeprefix(self.address.root).partition("?")[0])

    def attempt(self, call: Call) -> Attempt:
        """Prepare a call: the request's bytes are ready before any clock starts."""
        body = self.dialect.apply(self.api.build_body(call), call.extra)
        request = self._request("POST", self.path(call), orjson.dumps(body))
        return Attempt(self, self.api.decoder(call.stream), call, body, request)

    def learn_from(self, attempt: Attempt) -> str | None:
        """Learn from a refusal that names an optional field; returns what was learned if trying again makes sense."""
        answer, transfer = attempt.answer, attempt.transfer
        learned = self.dialect.learn(transfer.status, answer.error, attempt.body, attempt.theirs)
        if learned:
            if learned not in self.facts.learned:
                self.facts.learned.append(learned)
            self.facts.dropped, self.facts.max_tokens_field = self.dialect.dropped, self.dialect.max_tokens_field
        return learned

    def at(self, url: str, accept: str = "text/event-stream") -> tuple[Transport, bytes]:
        """Return the way to another address, such as one that the server named, and the request that gets it.

        Headers of the user and the key go to the target's own origin only.

        Raises:
            UsageError: it is no http(s) address.
        """
        try:
            parts = urlsplit(url)
            address = parse_address(f"{parts.scheme}://{parts.netloc}", "")
        except (UsageError, ValueError):
            raise UsageError(f"not an address: {mask_url(url)[:200]}") from None
        own = address.url() == self.address.url().removesuffix(self.address.root)
        transport = self.transport if own else self._elsewhere.get(address)
        if transport is None:
            if len(self._elsewhere) == _MOST_ELSEWHERE:
                raise UsageError(f"the server named more than {_MOST_ELSEWHERE} other servers")
            transport = self._elsewhere[address] = self._transport_to(address)
        path = quote(parts.path or "/", safe=_IN_PATH)
        if parts.query:
            path += "?" + quote(parts.query, safe=_IN_PATH)
        origin, headers = _through_proxy(transport)
        if own:
            headers = self.headers
        headers = [*headers, ("Accept", accept), ("Cache-Control", "no-store")]
        return transport, request_head("GET", origin + path, address.netloc, headers) + b"\r\n"

    def close(self) -> None:
        """Close the idle connections."""
        for transport in (self.transport, *self._elsewhere.values()):
            transport.close()

    def _transport_to(self, address: Address) -> Transport:
        settings = self.settings
        route = route_to(address, settings.insecure, settings.ca_file)
        return Transport(route, settings.timeouts, settings.max_bytes)

    def get(self, path: str) -> tuple[Transfer, bytes]:
        """GET a path of the server (absolute) and return its body, whatever its status."""
        sink = _Collector()
        transfer = Transfer()
        self.transport.exchange(self._request("GET", path, b""), sink, transfer)
        return transfer, bytes(sink.body) or transfer.error_body

    def fetch(self, url: str, accept: str) -> tuple[Transfer, bytes, str]:
        """GET any address (see ``at``); return its body, whatever its status, and why it cannot be read ("": it can).

        Raises:
            UsageError: it is no http(s) address.
        """
        transport, request = self.at(url, accept)
        sink, transfer = _Collector(), Transfer()
        transport.exchange(request, sink, transfer)
        return transfer, bytes(sink.body) or transfer.error_body, sink.answer.malformed or ""

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        head = self._heads.get(method + path)
        if self._sign is not None:
            url = f"{self.address.scheme}://{self.address.netloc}{path}"
            head = self._head(method, path, self._sign(method, url, body))
        elif head is None:
            head = self._heads[method + path] = self._head(method, path, [])
        if method == "GET":
            return head + b"\r\n"
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)

    def _head(self, method: str, path: str, more: list[tuple[str, str]]) -> bytes:
        return request_head(method, self._origin + path, self.address.netloc, [*self.headers, *more])


class _Collector:
    """A decoder that only keeps the body."""

    at_event_end = True

    def __init__(self) -> None:
        self.answer = Answer()
        self.body = bytearray()

    def feed(self, data: bytes, at_ns: int) -> None:
        self.body += data

    def eof(self, at_ns: int) -> None:
        pass


def facts_to_json(facts: Facts) -> dict[str, Any]:
    return asdict(facts)


def facts_from_json(data: dict[str, Any]) -> Facts:
    return Facts(**{k: v for k, v in data.items() if k in Facts.__slots__})


def api_for(request_type: str, settings: Settings, own: str | None) -> Api:
    """Return the API of a User class: its own, else ``--llm-api`` or what the same server has of its kind."""
    if own:
        return registry.api(own)
    return registry.of_kind(registry.api(settings.api), request_type)


def _checked(header: tuple[str, str]) -> tuple[str, str]:
    """Return a header of a User class if it can be sent. Its value may be a secret and is not repeated."""
    name, value = header
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or name.lower() in FRAMING_HEADERS:
        raise UsageError(f"headers of a User class: {name!r} is not a header to set there")
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise UsageError(f"headers of a User class: the value of {name} is not text that an HTTP header can carry")
    return name, value


def _through_proxy(transport: Transport) -> tuple[str, list[tuple[str, str]]]:
    """Return what a plain proxy wants before the path of a request, and its header."""
    route = transport.route
    if route.proxy is None or route.address.tls:
        return "", []
    authorization = route.proxy.authorization
    return f"http://{route.address.netloc}", [("Proxy-Authorization", authorization)] if authorization else []


def _join(address: Address, endpoint: str) -> str:
    endpoint = "/" + quote(endpoint.lstrip("/"), safe=_IN_PATH)
    # "/v1/chat/completions" means the same as "/chat/completions" under the root "/v1".
    if address.root and endpoint.startswith(address.root + "/"):
        return endpoint
    return address.root + endpoint
