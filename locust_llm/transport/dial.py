"""From an address to a connected byte stream: DNS, TCP, proxy tunnel, TLS, each timed.

Sockets are plain non-blocking ones watched by gevent's loop, and TLS runs over memory buffers: every byte is read by
one ``recvmsg`` of ours, so plain and encrypted streams get the same kernel receive stamps.
"""

from __future__ import annotations

import base64
import errno
import os
import socket as stdlib_socket
import ssl
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import gevent
from gevent import monkey
from gevent.socket import getaddrinfo, wait_read, wait_write

from ..address import Address, mask_url
from ..errors import UsageError

RawSocket: Any = monkey.get_original("socket", "socket")
stdlib_getaddrinfo: Any = monkey.get_original("socket", "getaddrinfo")

# Linux; not in Python's socket module. The stamp is a struct timespec of two longs.
SO_TIMESTAMPNS = 35
STAMP_BYTES = 16
KERNEL_STAMPS = sys.platform == "linux" and sys.maxsize > 2**32

_CONNECTING = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY})

LOOPBACK = ("localhost", "127.", "::1")


class DialError(Exception):
    """A connection that could not be made. ``kind`` is an ``ExchangeError.kind`` of a connection, or ``connect`` for the deadline."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@dataclass(frozen=True, slots=True)
class Proxy:
    host: str
    port: int
    authorization: str | None


@dataclass(frozen=True, slots=True)
class Route:
    """How to reach one server: its address, a proxy from the environment if any, and the TLS context."""

    address: Address
    proxy: Proxy | None = None
    tls: ssl.SSLContext | None = None

    @property
    def tunnels(self) -> bool:
        return self.proxy is not None and self.address.tls


@dataclass(slots=True)
class Dialed:
    """A connected stream: the socket, TLS over it if any, and what each step took (ns)."""

    sock: Any
    tls: TlsStream | None
    dns_ns: int
    tcp_ns: int
    tls_ns: int | None
    peer: str


def route_to(address: Address, insecure: bool = False, ca_file: str = "") -> Route:
    """Return the route to a server: proxies as the environment says (never for loopback), one TLS context.

    Raises:
        UsageError: the CA file cannot be read, or the proxy is not one this tool speaks.
    """
    context = None
    if address.tls:
        try:
            context = ssl.create_default_context(cafile=ca_file or None)
        except (OSError, ssl.SSLError) as e:
            raise UsageError(f"--llm-ca-file {ca_file}: {e.strerror or e}") from None
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["http/1.1"])
    return Route(address, _proxy_for(address), context)


def dial(route: Route, timeout_s: float) -> Dialed:
    """Connect, within ``timeout_s`` seconds (0: no limit), TLS included.

    Raises:
        DialError: with the kind of failure.
    """
    limit = gevent.Timeout(timeout_s or None)
    with limit:
        try:
            return _dial(route)
        except gevent.Timeout as expired:
            if expired is not limit:
                raise
    raise DialError("connect", f"no connection to {route.address.netloc} within {timeout_s:g} s")


class TlsStream:
    """TLS as bytes in, bytes out. ``send`` gives ciphertext to transmit, ``receive`` plaintext that arrived."""

    __slots__ = ("_in", "_object", "_out", "closed")

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=server_name)
        self.closed = False

    def handshake(self, data: bytes = b"") -> tuple[bool, bytes]:
        """Advance the handshake; returns (finished, bytes to transmit)."""
        if data:
            self._in.write(data)
        try:
            self._object.do_handshake()
            finished = True
        except ssl.SSLWantReadError:
            finished = False
        return finished, self._out.read()

    def send(self, data: bytes) -> bytes:
        self._object.write(data)
        return self._out.read()

    def receive(self, data: bytes) -> bytes:
        self._in.write(data)
        pieces = []
        try:
            while piece := self._object.read(65536):
                pieces.append(piece)
            self.closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.closed = True
        return b"".join(pieces)


# ---- steps


def _dial(route: Route) -> Dialed:
    host, port = (route.proxy.host, route.proxy.port) if route.proxy else (route.address.host, route.address.port)
    begun = time.monotonic_ns()
    found = _resolve(host, port)
    resolved = time.monotonic_ns()
    sock, peer = _connect_any(found)
    connected = time.monotonic_ns()
    tls, tls_ns = None, None
    try:
        if route.tunnels:
            _open_tunnel(sock, route)
        if route.tls is not None:
            before = time.monotonic_ns()
            tls = _handshake(sock, route.tls, route.address.host)
            tls_ns = time.monotonic_ns() - before
        if KERNEL_STAMPS:
            # After the handshake: the first stamps of a process are late, for the kernel switches stamping on with the first user.
            sock.setsockopt(stdlib_socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except BaseException:
        sock.close()
        raise
    return Dialed(sock, tls, resolved - begun, connected - resolved, tls_ns, peer)


def _resolve(host: str, port: int) -> list[Any]:
    try:
        # A literal address needs no resolver, whose thread pool would make many users wait for one another.
        return stdlib_getaddrinfo(host, port, 0, stdlib_socket.SOCK_STREAM, 0, stdlib_socket.AI_NUMERICHOST)
    except OSError:
        pass
    try:
        found: list[Any] = getaddrinfo(host, port, 0, stdlib_socket.SOCK_STREAM)
    except OSError as e:
        raise DialError("dns", f"cannot resolve {host}: {e.strerror or e}") from None
    return found


def _connect_any(found: list[Any]) -> tuple[Any, str]:
    failure: OSError | None = None
    for family, kind, protocol, _, address in found:
        sock = RawSocket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(stdlib_socket.IPPROTO_TCP, stdlib_socket.TCP_NODELAY, 1)
            code = sock.connect_ex(address)
            if code in _CONNECTING:
                # A near server has answered by now; asking again spares many starting users a turn of the loop each.
                code = sock.connect_ex(address)
            if code in _CONNECTING:
                wait_write(sock.fileno())
                code = sock.getsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_ERROR)
            if code in (0, errno.EISCONN):
                return sock, address[0]
            raise OSError(code, os.strerror(code))
        except OSError as e:
            sock.close()
            failure = e
        except BaseException:
            sock.close()
            raise
    assert failure is not None
    kind = "refused" if failure.errno == errno.ECONNREFUSED else "unreachable"
    raise DialError(kind, f"cannot connect to {found[0][4][0]}:{found[0][4][1]}: {failure.strerror or failure}")


def _handshake(sock: Any, context: ssl.SSLContext, server_name: str) -> TlsStream:
    try:
        tls = TlsStream(context, server_name)
        finished, out = tls.handshake()
        while True:
            if out:
                send_all(sock, out)
            if finished:
                return tls
            data = _receive(sock)
            if not data:
                raise DialError("tls", "the server closed the connection during the TLS handshake")
            finished, out = tls.handshake(data)
    except ssl.SSLCertVerificationError as e:
        raise DialError(
            "tls", f"certificate refused: {e.verify_message} (--llm-ca-file FILE, or --llm-insecure)"
        ) from None
    except ssl.SSLError as e:
        hint = " (is this an http:// server?)" if "WRONG_VERSION" in str(e) or "record layer" in str(e) else ""
        raise DialError("tls", f"TLS handshake failed: {e.reason or e}{hint}") from None
    except OSError as e:
        raise DialError("tls", f"connection lost during the TLS handshake: {e.strerror or e}") from None


def _open_tunnel(sock: Any, route: Route) -> None:
    assert route.proxy is not None
    target = f"{_bracket(route.address.host)}:{route.address.port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if route.proxy.authorization:
        lines.append(f"Proxy-Authorization: {route.proxy.authorization}")
    try:
        send_all(sock, ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        answer = b""
        while b"\r\n\r\n" not in answer and len(answer) < 65536:
            data = _receive(sock)
            if not data:
                break
            answer += data
    except OSError as e:
        raise DialError("proxy", f"proxy {route.proxy.host}: {e.strerror or e}") from None
    status = answer.split(b"\r\n", 1)[0].decode("latin-1")
    if not status.startswith("HTTP/") or status.split(" ")[1:2] != ["200"]:
        raise DialError("proxy", f"proxy {route.proxy.host} refused the tunnel: {status or 'no answer'}")


def send_all(sock: Any, data: bytes | memoryview) -> None:
    """Give all bytes to the kernel, waiting cooperatively while its buffer is full."""
    view = memoryview(data)
    while view:
        try:
            view = view[sock.send(view) :]
        except BlockingIOError:
            wait_write(sock.fileno())


def _receive(sock: Any) -> bytes:
    while True:
        try:
            data: bytes = sock.recv(65536)
            return data
        except BlockingIOError:
            wait_read(sock.fileno())


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _proxy_for(address: Address) -> Proxy | None:
    if address.host.lower().startswith(LOOPBACK):
        return None
    url = urllib.request.getproxies().get(address.scheme)
    if not url or urllib.request.proxy_bypass(address.host):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise UsageError(
            f"the proxy {mask_url(url)} from the environment is not an http:// proxy; unset it or add the host to NO_PROXY"
        )
    credentials = None
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(parts.hostname, parts.port or 80, credentials)
