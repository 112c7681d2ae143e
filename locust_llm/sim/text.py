"""Made-up text and its tokens: here a token is one word with the space before it, in prompts and in answers.

So everyone can recount: the tokens of an answer are ``len(text.split())``; those of a prompt are its words plus
``TEMPLATE_TOKENS`` a request, which stand for the chat template of a real model.
"""

from __future__ import annotations

from collections import OrderedDict

TEMPLATE_TOKENS = 8
BLOCK = 16
"""Words in a block of the prefix cache."""

_CACHE_BLOCKS = 1 << 18

# Free of anything JSON would escape; two words are not ASCII so that a client's UTF-8 is tried as well.
_PROSE = """
the quiet harbour keeps its lamps until morning while small boats drift past and someone counts them aloud from a café
on the hill where rain has begun to fall softly over slate roofs and the baker opens his door to let warm air carry
news of bread across an empty square into every street that leads down toward water again über
"""
WORDS = tuple(f" {word}".encode() for word in _PROSE.split())


def words(start: int, count: int) -> bytes:
    """Return ``count`` tokens of the endless text, from token ``start``."""
    if count == 1:
        return WORDS[start % len(WORDS)]
    return b"".join([WORDS[i % len(WORDS)] for i in range(start, start + count)])


class PrefixCache:
    """Remembers prompts by blocks of ``BLOCK`` words, as paged KV caches do; the longest unused blocks are forgotten
    first."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def lookup(self, prompt: list[str]) -> int:
        """Return how many words of ``prompt``, from its start, were seen before, in whole blocks; remember it."""
        cached, key, hit = 0, 0, True
        for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
            key = hash((key, *prompt[start : start + BLOCK]))
            hit = hit and key in self._blocks
            cached += BLOCK if hit else 0
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > _CACHE_BLOCKS:
            self._blocks.popitem(last=False)
        return cached
