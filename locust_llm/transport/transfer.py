"""What one exchange did on the wire: filled by the transport, read by the record."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..outcome import TransportEnd

UNFINISHED = TransportEnd("unfinished")


@dataclass(slots=True)
class Transfer:
    """Instants are monotonic ns, None where they were not reached."""

    start_ns: int = 0
    connected_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    end_ns: int = 0
    """0 while the exchange is not over."""
    dns_ns: int | None = None
    tcp_ns: int | None = None
    tls_ns: int | None = None
    reused: bool = False
    resent: int = 0
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    error_body: bytes = b""
    """Body of an answer that is not 2xx, content encoding removed; long ones are cut."""
    bytes_in: int = 0
    """Body bytes as they came, before any content encoding is undone."""
    bytes_out: int = 0
    end: TransportEnd = UNFINISHED
    kernel_stamped: bool = True
    """Every read that brought something of the body had a kernel stamp."""
    lag_ns_max: int = 0
    uncertain_ns_max: int = 0
    late_joined: int = 0
    uncertain_reads: list[int] = field(default_factory=list)
    """Flat triples, as in the record: first event, number of events, by how many us their stamps may be too late."""
