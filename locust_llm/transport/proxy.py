"""Proxies as the environment names them (``http_proxy``, ``https_proxy``, ``all_proxy``, ``no_proxy``).

Never for loopback: what runs here is reached here.
"""

from __future__ import annotations

import base64
import ipaddress
import urllib.request
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ..address import Address, mask_url
from ..errors import UsageError


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. ``authorization``: value of ``Proxy-Authorization``, if the environment gave name and password."""

    host: str
    port: int
    authorization: str | None


def proxy_for(address: Address) -> Proxy | None:
    """Return the proxy to reach a server by, None if it is reached directly.

    Raises:
        UsageError: the environment names one that this tool does not speak to.
    """
    if is_loopback(address.host):
        return None
    known = urllib.request.getproxies()
    url = known.get(address.scheme) or known.get("all")
    if not url or urllib.request.proxy_bypass(f"{bracketed(address.host)}:{address.port}"):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        raise _unusable(url) from None
    if not host or parts.scheme != "http":
        raise _unusable(url)
    authorization = None
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(host, port, authorization)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """Return a host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def _unusable(url: str) -> UsageError:
    return UsageError(
        f"the proxy {mask_url(url)} from the environment is not an http:// proxy; unset it, or add the host to NO_PROXY"
    )
