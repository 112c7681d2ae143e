"""What an answer will be, decided when it begins: its length, why it ends, and what befalls it.

Everything random here comes from the request's own generator, so a request number and a seed always give the same
answer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from .body import Generation
from .options import SimOptions
from .text import TEMPLATE_TOKENS, words


@dataclass(frozen=True, slots=True)
class Fate:
    """What befalls a stream once its longest choice has sent ``at`` tokens; ``at`` None: nothing does."""

    kind: Literal["error", "cut", "stall"] = "cut"
    at: int | None = None


def draw_fate(longest: int, fails: bool, options: SimOptions, rng: random.Random) -> Fate:
    """Draw a stream's fate. An error may come before the first token; a cut or a stall comes after at least one."""
    if fails:
        return Fate("error", rng.randrange(max(1, longest)))
    if rng.random() < options.cut_rate:
        return Fate("cut", rng.randint(1, max(1, longest)))
    if rng.random() < options.stall_rate:
        return Fate("stall", rng.randint(1, max(1, longest)))
    return Fate()


def plan_choice(
    generation: Generation, prompt: list[str], offset: int, options: SimOptions, rng: random.Random
) -> tuple[int, str]:
    """Return the tokens of one choice and its finish reason.

    ``length`` if ``max_tokens`` (or the context) ends it; ``stop`` if it stops by itself: at its natural length, at a
    stop string, or at the default length when the client set no limit.
    """
    room = max(1, options.max_model_len - len(prompt) - TEMPLATE_TOKENS)
    limit = room if generation.max_tokens is None else generation.max_tokens
    length, finish_reason = limit, "length"
    wish = limit
    if options.natural_stop and not generation.ignore_eos:
        wish = max(1, round(options.natural_stop * rng.uniform(0.5, 1.5)))
    elif generation.max_tokens is None:
        wish = options.tokens
    wish = max(wish, generation.min_tokens)
    if wish < limit:
        length, finish_reason = wish, "length" if generation.ignore_eos else "stop"
    if generation.stop:
        found = _stop_at(generation, offset, length, options.reasoning if generation.chat else 0)
        if found < length:
            return found, "stop"
    return length, finish_reason


def _stop_at(generation: Generation, offset: int, length: int, reasoning: int) -> int:
    """Return the tokens before the first one that touches a stop string (after ``min_tokens``), at most
    ``length``."""
    first = max(reasoning, generation.min_tokens)
    if first >= length:
        return length
    text = words(offset + first, length - first).decode()
    places = [text.find(stop) for stop in generation.stop]
    # Each token begins with its only space, so the spaces up to a place are the tokens begun by then.
    return min([first + text.count(" ", 0, at + 1) - 1 for at in places if at >= 0], default=length)
