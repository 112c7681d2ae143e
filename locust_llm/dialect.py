"""What a server has refused so far: optional fields are left out after a 400 or 422 that names them, and stay out.

Shared by all users of a process that talk to one target, found by the preflight as a rule, and part of the run card.
A refusal of a field's *value* ("max_tokens is too large: 5000") teaches nothing: the same request would be another one.
"""

from __future__ import annotations

import re
from typing import Any

from .wire.answer import ServerError

REFUSED = frozenset({400, 422})
# Fields the tool adds by itself, so it may also take them back. What the user asked for with --llm-extra is theirs.
OPTIONAL = ("continuous_usage_stats", "min_tokens", "ignore_eos", "stream_options")
LIMIT, OTHER_LIMIT = "max_tokens", "max_completion_tokens"

_UNKNOWN = re.compile(
    r"unsupported|(?:not|n't) (?:\w+ )?support|unrecogni[sz]ed|unknown|unexpected|invalid (?:parameter|field|argument)"
    r"|extra[_ ](?:inputs?|fields?|forbidden)|not (?:permitted|allowed)|instead",
    re.I,
)
_VALUE = re.compile(
    r"\bvalues?\b|\btoo \w+|\bat (?:most|least)\b|\b(?:max|min)imum\b|\bexceed|\b(?:great|larg|small)er\b|\bless\b"
    r"|\brange\b|\bmust be\b|[<>]=? ?\d",
    re.I,
)


class Dialect:
    """The fields of one target.

    Attributes:
        dropped: names of fields that the server refused.
        max_tokens_field: how this server calls the longest answer.
    """

    def __init__(self, dropped: list[str] | None = None, max_tokens_field: str = LIMIT) -> None:
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
        if self.max_tokens_field != LIMIT and LIMIT in body and LIMIT not in theirs:
            body[self.max_tokens_field] = body.pop(LIMIT)
        return body

    def learn(
        self, status: int | None, error: ServerError | None, body: dict[str, Any], theirs: dict[str, Any]
    ) -> str | None:
        """Look whether a refusal names a field that can be left out; remember it.

        Args:
            status, error: of the answer.
            body: what was sent. ``theirs``: the user's own fields in it.

        Returns:
            What was learned, in words for the run card and the console; None if nothing was.
        """
        if status not in REFUSED or error is None:
            return None
        own = {name: value for name, value in body.items() if name not in theirs}
        if LIMIT in own and self.max_tokens_field == LIMIT and _limit_is_unknown(error, own[LIMIT]):
            self.max_tokens_field = OTHER_LIMIT
            return f"{LIMIT} sent as {OTHER_LIMIT}"
        options = own.get("stream_options")
        present = own.keys() | (options if isinstance(options, dict) else {}).keys()
        named = [name for name in OPTIONAL if name in present and _position(error, name) is not None]
        if not named:
            return None
        # A list of what would be right may follow the name of what is wrong; an option of an option follows its owner.
        first = min(named, key=lambda name: (name != OPTIONAL[0], _position(error, name)))
        if first not in self.dropped:
            self.dropped.append(first)
        return f"{first} left out"


def _position(error: ServerError, name: str) -> int | None:
    """Where an error names a field, None if it does not."""
    if error.param is not None and error.param.rpartition(".")[2] == name:
        return -1
    found = re.search(rf"\b{name}\b", error.message)
    return found.start() if found else None


def _limit_is_unknown(error: ServerError, value: object) -> bool:
    """Whether the name ``max_tokens`` was refused, not its value."""
    if _position(error, LIMIT) is None:
        return False
    if "unsupported_parameter" in (error.code, error.type):
        return True
    text = error.message
    about_value = _VALUE.search(text) or re.search(rf"\b{value}\b", text)
    return bool(_UNKNOWN.search(text)) and not about_value
