"""What one delta or message of an OpenAI chat says, in any of the spellings that servers use.

Pure functions over decoded JSON; they take anything and never raise. Text is never trimmed: white space is a token.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .jsontext import as_text

# Reasons that mean the server gave up. All others are ends of an answer: stop, length, tool_calls, content_filter, …
FAILED_REASONS = frozenset(
    {
        "abort", "aborted", "cancel", "cancelled", "canceled", "engine_error", "error", "failed", "failure",
        "insufficient_system_resource", "internal_error", "model_error", "network_error", "other_error", "server_error",
        "timeout", "timed_out",
    }
)  # fmt: skip

REASONING_NAMES = frozenset({"reasoning_content", "reasoning", "thinking"})


class Said(NamedTuple):
    """Pieces by channel; ``other`` is output that has no text (audio, images)."""

    text: str
    reasoning: str
    refusal: str
    other: bool


def read_delta(delta: dict[str, Any]) -> Said:
    """Return what a delta or message says, tool calls apart."""
    text = reasoning = refusal = ""
    other = False
    for name, value in delta.items():
        if not value or name == "role":
            continue
        if name == "content":
            if isinstance(value, str):
                text = value
            else:
                parts = _read_parts(value)
                text, other = parts.text, other or parts.other
                reasoning, refusal = reasoning or parts.reasoning, refusal or parts.refusal
        elif name in REASONING_NAMES:
            reasoning = reasoning or _inner_text(value)  # some gateways send the same piece under two names
        elif name == "refusal":
            refusal = refusal or _inner_text(value)
        elif name == "audio":
            other = other or (isinstance(value, dict) and bool(value.get("data") or value.get("transcript")))
        elif name == "images":
            other = True
    if not reasoning and "reasoning_details" in delta:
        reasoning = _inner_text(delta["reasoning_details"])
    return Said(text, reasoning, refusal, other)


def known_tokens(choice: dict[str, Any]) -> int:
    """Return how many generated tokens a choice carries by its token ids or log-probabilities, -1 if unknown."""
    ids = choice.get("token_ids")
    if isinstance(ids, list):
        return len(ids)
    logprobs = choice.get("logprobs")
    if not logprobs or not isinstance(logprobs, dict):
        return -1
    known = -1
    for name in ("content", "refusal", "tokens"):
        entries = logprobs.get(name)
        if isinstance(entries, list):
            known = max(known, 0) + len(entries)
    return known


def finish_reason(choice: dict[str, Any]) -> str | None:
    """Return the finish reason of a choice; null and the empty string are none."""
    reason = choice.get("finish_reason")
    if not reason:
        return None
    return as_text(reason.get("type") if isinstance(reason, dict) else reason)


def _read_parts(content: object) -> Said:
    text: list[str] = []
    reasoning: list[str] = []
    refusal: list[str] = []
    other = False
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict):
            text.append(_inner_text(part))
            continue
        kind = part.get("type")
        if kind == "refusal":
            refusal.append(_inner_text(part.get("refusal")))
        elif isinstance(kind, str) and (kind.startswith("reasoning") or kind == "thinking"):
            reasoning.append(_inner_text(part.get("thinking") or part))
        elif kind in (None, "text", "output_text"):
            text.append(_inner_text(part.get("text")))
        elif kind != "reference":
            other = True
    return Said("".join(text), "".join(reasoning), "".join(refusal), other)


def _inner_text(value: object, depth: int = 4) -> str:
    """Return the text of a string, of an object that holds one, or of a list of such."""
    if isinstance(value, str):
        return value
    if not value or depth == 0:
        return ""
    if isinstance(value, list):
        return "".join(_inner_text(item, depth - 1) for item in value)
    if isinstance(value, dict):
        for name in ("text", "summary", "content", "reasoning", "thinking"):
            text = _inner_text(value.get(name), depth - 1)
            if text:
                return text
        return ""
    return as_text(value) or ""
