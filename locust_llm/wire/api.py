"""The protocol an API module fulfils, and the call it turns into a request body.

One module an API, no I/O in any of them: ``build_body`` makes the JSON of a request, ``decoder`` makes the
reader of its answer. ``locust_llm.wire.registry`` maps the names of ``--llm-api`` to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from .answer import Answer

UsageMode = Literal["final", "continuous", "off"]

Sign = Callable[[str, str, bytes], list[tuple[str, str]]]
"""Takes method, URL and body of a request; returns the headers that this request has besides."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the user meant it, before an API gives it its shape.

    Attributes:
        messages: chat messages; or ``prompt`` for completions (a list is a client batch).
        max_tokens: longest answer in tokens; ``None`` leaves it to the server.
        exact_length: ask the server to deliver exactly ``max_tokens`` (``ignore_eos``, ``min_tokens``).
        usage: ask for usage at the end, on each event, or not at all. Ignored when not streaming.
        extra: fields merged into the body last; they win.
    """

    model: str
    messages: list[dict[str, Any]] | None = None
    prompt: str | list[str] | None = None
    max_tokens: int | None = None
    stream: bool = True
    usage: UsageMode = "final"
    exact_length: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


class Decoder(Protocol):
    """Bytes of one answer's body in, events out into ``answer``. Never raises on what a server sends."""

    answer: Answer

    @property
    def at_event_end(self) -> bool:
        """The last byte fed so far is the one that completed the last event."""

    def feed(self, data: bytes, at_ns: int) -> None:
        """Take body bytes (any split) that arrived at ``at_ns``; events they complete get that time."""

    def eof(self, at_ns: int) -> None:
        """The body ended and its HTTP framing was intact: decide about what is left over."""


class Api(Protocol):
    """What ``--llm-api NAME`` names."""

    name: str
    request_type: str
    """Locust's request type: ``CHAT`` or ``COMPLETION``."""
    root: str
    """API root of an address without a path: ``/v1``, or empty."""
    models_path: str | None
    """Where the server lists its models, under the root; None if it does not."""

    def path(self, call: Call) -> str:
        """Return the endpoint of a call under the API root, query included."""

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body of a request."""

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the headers that this API wants on every request; ``key`` is the API key, empty if there is none."""

    def decoder(self, stream: bool) -> Decoder:
        """Return a fresh decoder. ``stream`` is what was asked; what the server answers instead is read as it is."""


@runtime_checkable
class Signs(Protocol):
    """What an API has besides if its servers want each request signed where no ``Authorization`` is sent."""

    def signer(self, host: str) -> Sign:
        """Return what signs requests to a host; asked for once a target.

        Raises:
            UsageError: what is needed to sign is missing; one line with the remedy.
        """
