"""How many tokens the server sees per word, learnt from its own ``prompt_tokens`` of two preflight prompts.

Without a tokenizer, tokens = ``tokens_per_word`` x words + ``overhead``; two prompts of different length give both.
The probes are made of the same pieces as the prompts of the run, so what heads and requests cost beyond plain prose
is in the overhead. Words here are ``pieces.units``: punctuation marks count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..tokens import APPROXIMATE, CALIBRATED
from .corpus import prose
from .lengths import Length
from .pieces import PROBE_WORKER, Heads, asked_words, compose, long_ask, units
from .prompts import Prompt, user_message

PROBE_START = 773
"""Word of the prose where the probes begin. Fixed, so that runs to be compared are calibrated alike; and a place where
windows of any length are about as dense in tokens as the whole prose (a test holds it there)."""

PROBE_MAX_TOKENS = 16

_LONG_PROBE = (150, 1500)
"""Least and greatest length of the long probe, in words of prose: long enough to be typical, and cheap all the same."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Tokens of a prompt as a line over its words.

    Attributes:
        tokens_per_word: slope.
        overhead: tokens beside the words: mostly the chat template.
        source: ``calibrated``, or ``approximate`` if nothing was measured.
        reason: why nothing was measured, if so.
    """

    tokens_per_word: float
    overhead: float
    source: str = CALIBRATED
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """A preflight prompt and its length in words."""

    prompt: Prompt
    words: int


def probe_prompts(input: Length, *, seed: int, chat: bool = True) -> tuple[Probe, Probe]:
    """Return a short and a long probe for a run whose prompts have the length ``input``.

    Their heads belong to no worker, so no prompt of the run finds them in a cache.
    """
    corpus = prose()
    heads = Heads(seed, PROBE_WORKER)
    long_words = round(min(max(1.5 * input.mean, _LONG_PROBE[0]), _LONG_PROBE[1]))
    ask = long_ask(asked_words(PROBE_MAX_TOKENS))

    def probe(length: int) -> Probe:
        head = " ".join(corpus.vocabulary[i] for i in heads.next())
        text = compose(head, corpus.window(PROBE_START, length), ask)
        return Probe(Prompt(text, user_message(text) if chat else None, max_tokens=PROBE_MAX_TOKENS), units(text))

    return probe(long_words // 8), probe(long_words)


def fit(words1: int, tokens1: int, words2: int, tokens2: int) -> Calibration:
    """Return the line through two measured prompts.

    Raises:
        ValueError: the counts cannot be those of a tokenizer reading these prompts.
    """
    if words1 == words2:
        raise ValueError("both prompts have the same length")
    tokens_per_word = (tokens2 - tokens1) / (words2 - words1)
    overhead = tokens2 - tokens_per_word * words2
    # From below one token a word (words merged) to a byte-level model's token a letter.
    if not 0.5 <= tokens_per_word <= 8:
        raise ValueError(f"{words1} and {words2} words were counted as {tokens1} and {tokens2} tokens")
    if overhead < -0.1 * max(tokens1, tokens2) - 5:
        raise ValueError(f"a chat template of {overhead:.0f} tokens")
    return Calibration(tokens_per_word, overhead)


def approximate(reason: str, *, chat: bool = True) -> Calibration:
    """Return the calibration for when nothing could be measured.

    1.07 tokens per word or mark is about what tokenizers of 32,000 to 131,000 tokens give our prose (measured: DeepSeek
    1.04, Mistral Tekken 1.05, Mistral v1 1.12); 12 tokens are a usual chat template without a system prompt.
    """
    return Calibration(1.07, 12.0 if chat else 0.0, APPROXIMATE, reason)


def calibrate(probes: Sequence[Probe], prompt_tokens: Sequence[int | None], *, chat: bool = True) -> Calibration:
    """Return the calibration that the server's counts of both probes give, or the approximate one with the reason.

    Args:
        probes: the two of ``probe_prompts``.
        prompt_tokens: what the server's usage says of each; None where it said nothing.
    """
    first, second = prompt_tokens
    if first is None or second is None:
        return approximate("the server sends no usage", chat=chat)
    try:
        return fit(probes[0].words, first, probes[1].words, second)
    except ValueError as e:
        return approximate(f"the server's prompt_tokens make no sense: {e}", chat=chat)
