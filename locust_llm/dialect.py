"""What a server has refused so far: optional fields are left out after a 400 or 422 that names them, and stay out.

Shared by all users of a process that talk to one target, found by the preflight as a rule, and part of the run card.
"""

from __future__ import annotations

import re
from typing import Any

from .wire.answer import ServerError

REFUSED = frozenset({400, 422})
# Fields the tool adds by itself, so it may also take them back. What the user asked for with --llm-extra is theirs.
OPTIONAL = ("min_tokens", "ignore_eos", "continuous_usage_stats", "stream_options")
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class Dialect:
    """The fields of one target.

    Attributes:
        dropped: names of fields that the server refused.
        max_tokens_field: how this server calls the longest answer.
    """

    def __init__(self, dropped: list[str] | None = None, max_tokens_field: str = "max_tokens") -> None:
        self.dropped: list[str] = list(dropped or ())
        self.max_tokens_field = max_tokens_field

    def apply(self, body: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
        """Return the body as this server takes it. ``theirs``: fields of the user, which are never touched."""
        for name in self.dropped:
            if name == "continuous_usage_stats":
                options = body.get("stream_options")
                if isinstance(options, dict) and "stream_options" not in theirs:
                    body["stream_options"] = {k: v for k, v in options.items() if k != name}
            elif name not in theirs:
                body.pop(name, None)
        if self.max_tokens_field != "max_tokens" and "max_tokens" in body and "max_tokens" not in theirs:
            body[self.max_tokens_field] = body.pop("max_tokens")
        return body

    def learn(self, status: int | None, error: ServerError | None, raw: bytes, body: dict[str, Any]) -> str | None:
        """Look whether a refusal names a field of ``body`` that can be left out; remember it.

        Returns:
            What was learned, in words for the run card and the console; None if nothing was.
        """
        if status not in REFUSED:
            return None
        text = raw.decode("utf-8", "replace") + " " + (error.message if error else "")
        for name, other in _OTHER_NAME.items():
            # "Unsupported parameter: 'max_tokens' … use 'max_completion_tokens' instead", or only the refused name.
            if name in body and _refuses(text, name) and self.max_tokens_field == name:
                self.max_tokens_field = other
                return f"{name} sent as {other}"
        for name in OPTIONAL:
            present = name in body or (name == "continuous_usage_stats" and name in (body.get("stream_options") or {}))
            if present and name not in self.dropped and re.search(rf"\b{name}\b", text):
                self.dropped.append(name)
                return f"{name} left out"
        return None


def _refuses(text: str, name: str) -> bool:
    """Whether an error text speaks of the field itself as unknown, and not of its value ("max_tokens is too large")."""
    if not re.search(rf"\b{name}\b", text):
        return False
    return bool(
        re.search(
            r"unsupported|not supported|unrecognized|unknown|unexpected|extra[_ ](?:inputs|fields|forbidden)|not permitted|instead",
            text,
            re.I,
        )
    )
