"""The prose that synthetic prompts are cut from: some thousand words of our own, kept as a ring of words.

A window may start at any word and be of any length; past the end it goes on at the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import accumulate

HEAD_VOCABULARY = 1024
"""Words that heads are made of: a power of two, so that a word is 10 bits."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A ring of words.

    Attributes:
        words: every word in order, punctuation attached.
        vocabulary: ``HEAD_VOCABULARY`` different plain words, in a fixed order.
    """

    words: tuple[str, ...]
    vocabulary: tuple[str, ...]
    _ring: str
    """The words twice over, each followed by a space."""
    _offsets: list[int]
    """Where each word of the ring begins, and where the last one ends."""

    def window(self, start: int, length: int) -> str:
        """Return ``length`` words as text, beginning with word ``start`` (below ``len(words)``)."""
        rounds, rest = divmod(length, len(self.words))
        begin = self._offsets[start]
        end = self._offsets[start + rest]
        once = self._ring[begin : begin + len(self._ring) // 2] if rounds else ""
        return (once * rounds + self._ring[begin:end]).rstrip(" ")


@cache
def prose() -> Corpus:
    """Return the packaged corpus; read once a process."""
    return corpus_of((files(__package__) / "prose.txt").read_text(encoding="utf-8"))


def corpus_of(text: str) -> Corpus:
    """Return a text as a corpus.

    Raises:
        ValueError: it has fewer than ``HEAD_VOCABULARY`` different plain words of 4 to 9 letters.
    """
    words = tuple(text.split())
    plain = sorted(
        {word for word in words if word.isascii() and word.isalpha() and word.islower() and 4 <= len(word) <= 9}
    )
    if len(plain) < HEAD_VOCABULARY:
        raise ValueError(f"a corpus needs {HEAD_VOCABULARY} different words, this one has {len(plain)}")
    vocabulary = tuple(plain[i * len(plain) // HEAD_VOCABULARY] for i in range(HEAD_VOCABULARY))
    ring = words * 2
    offsets = list(accumulate((len(word) + 1 for word in ring), initial=0))
    return Corpus(words, vocabulary, "".join(word + " " for word in ring), offsets)
