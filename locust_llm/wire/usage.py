"""Token counts as servers report them: which object, which names, which number forms.

A count is a whole number of 0 or more; ``"7"`` and ``3.0`` are taken for one, anything else is no count (None), not 0.
"""

from __future__ import annotations

from typing import Any

from .answer import Usage


def find_usage(chunk: dict[str, Any]) -> dict[str, Any] | None:
    """Return the usage object of a chunk: its own, Groq's ``x_groq.usage`` or that of a choice (Moonshot), or None."""
    usage = chunk.get("usage")
    if usage and isinstance(usage, dict):
        return usage
    choices = chunk.get("choices")
    for place in (chunk.get("x_groq"), *(choices if isinstance(choices, list) else ())):
        if place and isinstance(place, dict):
            usage = place.get("usage")
            if usage and isinstance(usage, dict):
                return usage
    return None


def read_usage(usage: dict[str, Any]) -> Usage:
    """Read a usage object of the OpenAI kind."""
    return Usage(
        n_in=_read(usage, "prompt_tokens", "input_tokens"),
        n_out=_read(usage, "completion_tokens", "output_tokens"),
        n_reasoning=_read_detail(usage, "completion_tokens_details", "output_tokens_details", "reasoning_tokens"),
        n_cached=_first(
            _read_detail(usage, "prompt_tokens_details", "input_tokens_details", "cached_tokens"),
            count(usage.get("prompt_cache_hit_tokens")),  # DeepSeek
        ),
    )


def read_timings(timings: dict[str, Any]) -> Usage:
    """Read llama.cpp's ``timings``, the only counts that it sends where no usage was asked for."""
    cached, fresh = count(timings.get("cache_n")), count(timings.get("prompt_n"))
    return Usage(
        n_in=None if cached is None or fresh is None else cached + fresh,
        n_out=count(timings.get("predicted_n")),
        n_cached=cached,
    )


def merge(old: Usage | None, new: Usage) -> Usage:
    """Return the later of two reports; a count that it does not give stays, and zeros never replace real counts."""
    if old is None:
        return new
    out = old if old.n_out and not new.n_out else new
    into = old if old.n_in and not new.n_in else new
    return Usage(
        _first(into.n_in, old.n_in),
        _first(out.n_out, old.n_out),
        _first(out.n_reasoning, old.n_reasoning),
        _first(into.n_cached, old.n_cached),
    )


def total(usages: list[Usage]) -> Usage:
    """Return the sum over several outputs; a count that one of them does not have is unknown."""

    def added(counts: list[int | None]) -> int | None:
        known = [each for each in counts if each is not None]
        return sum(known) if len(known) == len(counts) else None

    return Usage(
        added([usage.n_in for usage in usages]),
        added([usage.n_out for usage in usages]),
        added([usage.n_reasoning for usage in usages]),
        added([usage.n_cached for usage in usages]),
    )


def count(value: object) -> int | None:
    """Return a token count, None if ``value`` is none."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, float):
        if not value.is_integer():  # neither are NaN and infinity
            return None
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 2**53 else None


def _read(usage: dict[str, Any], name: str, other: str) -> int | None:
    return _first(count(usage.get(name)), count(usage.get(other)))


def _read_detail(usage: dict[str, Any], part: str, other: str, name: str) -> int | None:
    details = usage.get(part) or usage.get(other)
    return _first(count(details.get(name)) if isinstance(details, dict) else None, count(usage.get(name)))


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one
