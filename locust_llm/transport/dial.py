"""From an address to a connected byte stream: DNS, TCP, proxy tunnel, TLS, each timed.

Sockets are plain non-blocking ones watched by gevent's loop: every byte is read by one ``recvmsg`` of ours, so plain
and encrypted streams get the same kernel receive stamps.
"""

from __future__ import annotations

import errno
import os
import re
import socket as stdlib_socket
import ssl
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gevent
from gevent import monkey
from gevent.socket import getaddrinfo, wait_read, wait_write

from ..address import Address
from .proxy import Proxy, bracketed, proxy_for
from .tls import TlsStream, reason, tls_context

RawSocket: Any = monkey.get_original("socket", "socket")
stdlib_getaddrinfo: Any = monkey.get_original("socket", "getaddrinfo")

# Linux; not in Python's socket module. The stamp is a struct timespec of two longs.
SO_TIMESTAMPNS = 35
STAMP_BYTES = 16
KERNEL_STAMPS = sys.platform == "linux" and sys.maxsize > 2**32

_CONNECTING = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY})
_TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_PROXY_HEAD_BYTES = 65536


class DialError(Exception):
    """A connection that could not be made.

    Attributes:
        kind: an ``ExchangeError.kind`` of a connection; "" if the time was over.
        message: one line for people.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@dataclass(frozen=True, slots=True)
class Route:
    """How to reach one server: its address, a proxy from the environment if any, and the TLS context."""

    address: Address
    proxy: Proxy | None = None
    tls: ssl.SSLContext | None = None


@dataclass(slots=True)
class Dialed:
    """A connected stream: the socket, TLS over it if any, and what each step took (ns)."""

    sock: Any
    tls: TlsStream | None
    dns_ns: int
    tcp_ns: int
    tls_ns: int | None


def route_to(address: Address, insecure: bool = False, ca_file: str = "") -> Route:
    """Return the route to a server: proxies as the environment says (never for loopback), one TLS context.

    Raises:
        UsageError: the CA file cannot be read, or the proxy is not one this tool speaks.
    """
    return Route(address, proxy_for(address), tls_context(insecure, ca_file) if address.tls else None)


def dial(route: Route, timeout_s: float) -> Dialed:
    """Connect, within ``timeout_s`` seconds (0: no limit), TLS included.

    Raises:
        DialError: what went wrong, or that the time was over and in which step.
    """
    attempt = _Dialing(route)
    limit = gevent.Timeout(timeout_s or None)
    with limit:
        try:
            return attempt.run()
        except gevent.Timeout as expired:
            if expired is not limit:
                raise
    raise DialError("", f"no connection to {route.address.netloc} within {timeout_s:.3g} s ({attempt.step})")


# ---- steps


class _Dialing:
    """One way to a connection. ``step``: where it is, for the message if it takes too long."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self.step = "resolving the name"

    def run(self) -> Dialed:
        proxy, address, context = self._route.proxy, self._route.address, self._route.tls
        begun = time.monotonic_ns()
        try:
            found = _resolve(proxy.host, proxy.port) if proxy else _resolve(address.host, address.port)
            resolved = time.monotonic_ns()
            self.step = "connecting to the proxy" if proxy else "connecting"
            sock = _connect_any(found)
        except DialError as e:
            if proxy is None:
                raise
            raise DialError("proxy", f"proxy {proxy.host}: {e.message}") from None
        connected = time.monotonic_ns()
        tls, tls_ns = None, None
        try:
            if context is not None:
                if proxy is not None:
                    self.step = "opening the proxy's tunnel"
                    _open_tunnel(sock, proxy, f"{bracketed(address.host)}:{address.port}")
                self.step = "TLS handshake"
                before = time.monotonic_ns()
                tls = _handshake(sock, context, address.host)
                tls_ns = time.monotonic_ns() - before
            if KERNEL_STAMPS:
                # The first stamps of a machine are late, for the kernel switches stamping on with the first user.
                with suppress(OSError):  # some sandboxes have none; each read says for itself whether it has one
                    sock.setsockopt(stdlib_socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        except BaseException:
            sock.close()
            raise
        return Dialed(sock, tls, resolved - begun, connected - resolved, tls_ns)


def _resolve(host: str, port: int) -> list[Any]:
    found: list[Any]
    with suppress(OSError, UnicodeError):
        # A literal address needs no resolver, whose thread pool would make many users wait for one another.
        found = stdlib_getaddrinfo(host, port, 0, stdlib_socket.SOCK_STREAM, 0, stdlib_socket.AI_NUMERICHOST)
        return found
    try:
        found = getaddrinfo(host, port, 0, stdlib_socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        raise DialError("dns", f"cannot resolve {host}: {getattr(e, 'strerror', None) or e}") from None
    return found


def _connect_any(found: list[Any]) -> Any:
    """Return a socket connected to the first address that answers."""
    failure: OSError | None = None
    for family, kind, protocol, _, address in found:
        try:
            sock = RawSocket(family, kind, protocol)
        except OSError as e:
            failure = e
            continue
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
                return sock
            raise OSError(code, os.strerror(code))
        except OSError as e:
            sock.close()
            failure = e
        except BaseException:
            sock.close()
            raise
    assert failure is not None
    message = f"cannot connect to {bracketed(found[0][4][0])}:{found[0][4][1]}: {failure.strerror or failure}"
    if failure.errno in _TOO_MANY_FILES:
        message += "; raise the limit (ulimit -n), or use more processes (--processes)"
    raise DialError("refused" if failure.errno == errno.ECONNREFUSED else "unreachable", message)


def _handshake(sock: Any, context: ssl.SSLContext, server_name: str) -> TlsStream:
    try:
        tls = TlsStream(context, server_name)
        finished, out = tls.handshake()
        while True:
            if out:
                _send_all(sock, out)
            if finished:
                return tls
            data = _receive(sock)
            if not data:
                raise ConnectionError(0, "the server closed it")
            finished, out = tls.handshake(data)
    except ssl.SSLError as e:
        raise DialError("tls", f"TLS handshake failed: {reason(e)}") from None
    except OSError as e:
        why = f"connection lost: {e.strerror or e} (is this an http:// server?)"
        raise DialError("tls", f"TLS handshake failed: {why}") from None
    except ValueError as e:
        raise DialError("tls", f"TLS handshake failed: {server_name}: {e}") from None


def _open_tunnel(sock: Any, proxy: Proxy, target: str) -> None:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    answer = b""
    try:
        _send_all(sock, ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        while b"\r\n\r\n" not in answer and len(answer) < _PROXY_HEAD_BYTES:
            data = _receive(sock)
            if not data:
                break
            answer += data
    except OSError as e:
        raise DialError("proxy", f"proxy {proxy.host}: {e.strerror or e}") from None
    status = answer.split(b"\r\n", 1)[0].decode("latin-1")
    if not re.match(r"HTTP/1\.\d 2\d\d\b", status) or b"\r\n\r\n" not in answer:
        said = "".join(c for c in status[:100] if c.isprintable())
        raise DialError("proxy", f"proxy {proxy.host} refused the tunnel: {said or 'no answer'}")


def _send_all(sock: Any, data: bytes) -> None:
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
