"""Where requests go: the many ways to write a server's address, made one.

``http://h:8000``, ``…/v1``, ``…/v1/`` and ``…/v1/chat/completions`` mean the same server; any other path is the API root.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from .errors import UsageError

# Endpoints that people paste with the address; they are cut off again.
_ENDPOINTS = ("/chat/completions", "/completions", "/models")


@dataclass(frozen=True, slots=True)
class Address:
    """A server's API root.

    Attributes:
        root: path of the API root without a final slash, such as ``/v1``; may be empty.
    """

    scheme: str
    host: str
    port: int
    root: str

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def netloc(self) -> str:
        """Value of the ``Host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def url(self, path: str = "") -> str:
        """Return the address for people: no user info, no query."""
        return f"{self.scheme}://{self.netloc}{self.root}{path}"

    def at_server(self, path: str) -> str:
        """Return a path beside the API root rather than under it (``/version`` next to ``/v1``)."""
        return self.root.removesuffix("/v1") + path


def parse_address(url: str) -> Address:
    """Read a server address.

    Raises:
        UsageError: no host, a scheme other than http(s), a bad port, or credentials in the address.
    """
    text = url.strip()
    if "://" not in text:
        text = "http://" + text
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as e:
        raise UsageError(f"--host {mask_url(url)}: {e}") from None
    if parts.scheme not in ("http", "https"):
        raise UsageError(f"--host {mask_url(url)}: only http and https are supported")
    if not host or re.search(r"[\s\x00-\x1f]", text):
        raise UsageError(f"--host {mask_url(url)}: not an address; write it like http://localhost:8000")
    if parts.username or parts.password:
        raise UsageError(f"--host {mask_url(url)}: put the key into LOCUST_LLM_API_KEY, not into the address")
    if parts.query or parts.fragment:
        raise UsageError(f"--host {mask_url(url)}: put a query into --llm-endpoint, such as '/chat/completions?key=value'")
    root = parts.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        root = root.removesuffix(endpoint)
    if not root:
        root = "/v1"
    return Address(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), root)


def mask_url(url: str) -> str:
    """Return an address that is safe to show: user info and query values are masked."""
    masked = re.sub(r"(://)[^/@?#]*@", r"\1***@", url)
    return re.sub(r"([?&][^=&#\s]+=)[^&#\s]*", r"\1***", masked)
