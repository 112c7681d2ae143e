"""The pieces of a synthetic prompt: a head that no other prompt shares, a window of prose, a request for a long answer.

Prefix caches match from the first token on, so what makes a prompt unique stands at its very beginning: six words
that spell a 60-bit number. The number is a permutation of (worker, counter) under a key made of the run's seed: inside
a run no head can come twice; two runs share one by a chance of about prompts x prompts / 2**60.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_left
from functools import cache

HEAD_WORDS = 6
WORD_BITS = 10
COUNTER_BITS = 44
PROBE_WORKER = (1 << (HEAD_WORDS * WORD_BITS - COUNTER_BITS)) - 1
"""Worker index of the preflight's probes; workers have the indices below it."""

_BITS = HEAD_WORDS * WORD_BITS
_MASK = (1 << _BITS) - 1
_WORD_MASK = (1 << WORD_BITS) - 1
_UNIT = re.compile(r"\w+|[^\w\s]")
_ROUND: list[int] = sorted(digit * 10**power for digit in (1, 2, 5) for power in range(2, 8))


class Heads:
    """The heads of one worker's prompts, as indices into the corpus's vocabulary.

    Args:
        seed: the run's seed.
        worker: index of the worker, from 0, below ``PROBE_WORKER``.
        stream: tells apart several workloads of one worker, such as the names of their user classes.

    Raises:
        ValueError: no such worker index.
    """

    __slots__ = ("_add", "_at", "_times", "_xor")

    def __init__(self, seed: int, worker: int, stream: str = "") -> None:
        if not 0 <= worker <= PROBE_WORKER:
            raise ValueError(f"a worker index is from 0 to {PROBE_WORKER}")
        key = random.Random(f"{seed}/{stream}/heads")
        self._add = key.getrandbits(_BITS)
        self._xor = key.getrandbits(_BITS)
        self._times = key.getrandbits(_BITS) | 1
        self._at = worker << COUNTER_BITS

    def next(self) -> list[int]:
        """Return the next head: ``HEAD_WORDS`` indices."""
        # Each step can be undone (a product modulo 2**60 if the factor is odd), so different inputs stay different. The
        # shifts carry high bits into the low ones, which a product cannot.
        x = (self._at + self._add) & _MASK
        self._at += 1
        x = ((x ^ x >> 31) * self._times) & _MASK
        x = ((x ^ x >> 27 ^ self._xor) * self._times) & _MASK
        x ^= x >> 33
        return [x >> shift & _WORD_MASK for shift in range(0, _BITS, WORD_BITS)]


def units(text: str) -> int:
    """Return the length of ``text`` in words, a punctuation mark counting as a word: tokenizers give it its own token.

    Measured on our prose with four tokenizers, tokens per word counted so vary by 0.3 % over 1 500 words; counted by
    spaces alone, by 0.6 %.
    """
    return len(_UNIT.findall(text))


@cache
def long_ask(words: int) -> str:
    """Return the request that ends a prompt of ordinary length."""
    return f"\n\nContinue this text in the same voice. Write at least {words} words and do not stop or sum up before."


@cache
def short_ask(words: int) -> str:
    """Return the request that ends a prompt too short for the long one."""
    return f"\n\nWrite at least {words} words."


def asked_words(max_tokens: int) -> int:
    """Return how many words to ask for so that the model does not stop before ``max_tokens`` by itself.

    At least twice as many words as tokens, because models tend to write less than they are asked for; a round number,
    so that all requests that can occur are few and can be counted beforehand.
    """
    return _ROUND[min(bisect_left(_ROUND, 2 * max_tokens), len(_ROUND) - 1)]


def all_asked_words() -> list[int]:
    """Return every value of ``asked_words``."""
    return list(_ROUND)


def compose(head: str, prose: str, ask: str) -> str:
    """Put a prompt together."""
    return f"{head}: {prose}{ask}" if prose else f"{head}:{ask}"
