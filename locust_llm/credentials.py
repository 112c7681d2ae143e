"""Keys and headers: which may be written down, and where the others are read.

Locust shows option values in its page and forwards them to workers, and the process list shows them; so a key is never
an option's value. Options name where it is (a file, a variable); each node reads it there itself.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .errors import UsageError

if TYPE_CHECKING:
    from .settings import Settings
    from .wire.api import Api

SECRET_HEADERS = frozenset(
    {
        "authorization", "proxy-authorization", "cookie",
        "api-key", "x-api-key", "x-auth-token", "x-goog-api-key", "ocp-apim-subscription-key",
    }
)  # fmt: skip
_LEAST_SECRET = 4
FRAMING_HEADERS = frozenset({"connection", "content-length", "expect", "transfer-encoding"})


def resolve_headers(settings: Settings, host: str, api: Api) -> list[tuple[str, str]]:
    """Return the request headers of this node, those of the API included; keys and ``env:NAME`` are read on each node.

    ``OPENAI_API_KEY`` alone is used only when ``host`` (a host name) is api.openai.com.

    Raises:
        UsageError: a named variable or file is missing or empty.
    """
    headers = [(name, _resolve(name, text)) for name, text in settings.headers]
    given = {name.lower() for name, _ in headers}
    wanted = api.headers(_api_key(settings, host))
    return headers + [(name, value) for name, value in wanted if name.lower() not in given]


def secrets_among(headers: list[tuple[str, str]], settings: Settings) -> tuple[str, ...]:
    """Return what must never be shown of a node's request headers: keys, and values that came from ``env:``."""
    named = SECRET_HEADERS | {name.lower() for name, text in settings.headers if text.startswith("env:")}
    values = [value for name, value in headers if name.lower() in named]
    parts = [*values, *(value.partition(" ")[2] for value in values)]
    return tuple(part for part in parts if len(part) >= _LEAST_SECRET)


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text of a server's without the secrets that it may have repeated."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def read_header(text: str) -> tuple[str, str]:
    """Read ``NAME: VALUE`` of ``--llm-header``; a value ``env:VARIABLE`` stays a reference.

    Raises:
        UsageError: no header, one that locust-llm must set itself, or a secret written down.
    """
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        # Not repeated here: what is no header may be a key.
        raise UsageError("--llm-header must be 'NAME: VALUE', such as 'X-Tenant: blue'")
    if name.lower() in FRAMING_HEADERS:
        raise UsageError(f"--llm-header {name}: locust-llm sets this header itself")
    if value.startswith("env:"):
        return name, "env:" + read_variable(f"--llm-header {name}: env:", value.removeprefix("env:").strip())
    _header_safe(f"--llm-header {name}", value)
    if name.lower() in SECRET_HEADERS:
        raise UsageError(
            f"--llm-header {name}: option values are visible in the web page and the process list; "
            f"write '{name}: env:VARIABLE' and put the value into that variable, or use LOCUST_LLM_API_KEY"
        )
    return name, value


def read_variable(flag: str, name: str) -> str:
    """Return ``name`` if it can be the name of an environment variable.

    Raises:
        UsageError: it cannot; the message does not repeat it, for it may be the key itself.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"{flag} takes the name of an environment variable, not a value")
    return name


def _resolve(name: str, value: str) -> str:
    if not value.startswith("env:"):
        return value
    variable = value.removeprefix("env:")
    secret = os.environ.get(variable, "")
    if not secret:
        raise UsageError(f"--llm-header {name}: the environment variable {variable} is not set on this node")
    return _header_safe(f"the environment variable {variable}", secret)


def _api_key(settings: Settings, host: str) -> str:
    if settings.api_key_file:
        try:
            with open(settings.api_key_file, encoding="utf-8") as file:
                key = file.read().strip()
        except (OSError, UnicodeDecodeError) as e:
            reason = e.strerror if isinstance(e, OSError) else "not text"
            raise UsageError(f"--llm-api-key-file {settings.api_key_file}: {reason}") from None
        if not key:
            raise UsageError(f"--llm-api-key-file {settings.api_key_file}: the file is empty")
        return _header_safe("--llm-api-key-file", key)
    if settings.api_key_env:
        key = os.environ.get(settings.api_key_env, "").strip()
        if not key:
            raise UsageError(
                f"--llm-api-key-env: the environment variable {settings.api_key_env} is not set on this node"
            )
        return _header_safe(f"the environment variable {settings.api_key_env}", key)
    key = os.environ.get("LOCUST_LLM_API_KEY", "").strip()
    if not key and host.lower() == "api.openai.com":
        return _header_safe("OPENAI_API_KEY", os.environ.get("OPENAI_API_KEY", "").strip())
    return _header_safe("LOCUST_LLM_API_KEY", key)


def _header_safe(where: str, secret: str) -> str:
    if any(ord(c) < 32 or ord(c) > 126 for c in secret):
        raise UsageError(f"{where} holds characters that no HTTP header can carry; look for line breaks and accents")
    return secret
