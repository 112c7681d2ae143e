"""Where requests go: the many ways to write a server's address, made one.

``http://h:8000``, ``…/v1``, ``…/v1/`` and ``…/v1/chat/completions`` mean the same server; any other path is the API
root.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from .errors import UsageError

# Endpoints that people paste with the address; one of them is cut off again.
_ENDPOINTS = (
    "/chat/completions", "/completions", "/responses", "/messages", "/models",
    "/api/chat", "/api/generate", "/generate_stream", "/generate", "/completion", "/predictions",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Address:
    """A server's API root.

    Attributes:
        root: path of the API root without a final slash, such as ``/v1``; empty when the API is at the server's top.
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


def parse_address(url: str, root: str = "/v1") -> Address:
    """Read a server address.

    Args:
        url: as the user wrote it.
        root: API root of an address without a path.

    Raises:
        UsageError: no host, a scheme other than http(s), a bad port, or credentials in the address.
    """
    text = url.strip()
    shown = "".join(c if c.isprintable() else "?" for c in mask_url(text))  # one line, whatever was typed
    if "://" not in text:
        text = "http://" + text
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"--host {shown}: not an address; write it like http://localhost:8000") from None
    if parts.scheme not in ("http", "https"):
        raise UsageError(f"--host {shown}: only http and https are supported")
    host = _ascii(host or "")
    if not host or port == 0 or not text.isprintable() or re.search(r"[\s\\]", text):
        raise UsageError(f"--host {shown}: not an address; write it like http://localhost:8000")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"--host {shown}: put the key into LOCUST_LLM_API_KEY, not into the address")
    if parts.query or parts.fragment:
        raise UsageError(f"--host {shown}: put a query into --llm-endpoint, such as '/chat/completions?key=value'")
    return Address(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), _root(parts.path, root))


def mask_url(url: str) -> str:
    """Return an address that is safe to show: user info, query values and fragment are masked."""
    url, hash_, _ = url.partition("#")
    url, question, query = url.partition("?")
    scheme, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    if "@" in rest:  # up to the last one, for a password may hold @ and /
        rest = "***" + rest[rest.rindex("@") :]
    elif not re.fullmatch(r"(\[[^\]]*\]|[^:/]*)(:\d*)?(/.*)?", rest, re.DOTALL):  # a password with ? or # in it
        rest = rest.partition(":")[0] + ":***"
    if query:
        query = "&".join(re.sub(r"^([^=]*=)?.*", r"\1***", pair, flags=re.DOTALL) for pair in query.split("&"))
    return scheme + slashes + rest + question + query + (hash_ and "#***")


# ---- helpers


def _root(path: str, default: str) -> str:
    """Return the API root that a path stands for."""
    path = path.rstrip("/")
    if not path:
        return default
    for endpoint in _ENDPOINTS:
        if path.endswith(endpoint):
            path = path.removesuffix(endpoint)
            break
    return quote(path.rstrip("/"), safe="/%:@!$&'()*+,;=~")


def _ascii(host: str) -> str:
    """Return a host as DNS and the ``Host`` header want it, empty if it cannot be one."""
    try:
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return ""
    return host if re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?", host) else ""
