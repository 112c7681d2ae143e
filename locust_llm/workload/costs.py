"""What every piece of a synthetic prompt costs, found out once so that making a prompt is only adding.

Two sources, one shape: with a tokenizer each word costs its tokens; without one each word costs one and a
``Calibration`` says how many tokens that makes. Tokens of a prompt = ``scale`` x (head + prose + ask) + ``fixed``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import linear_regression, mean

from ..tokens import Tokenizer
from .calibration import Calibration
from .corpus import prose
from .pieces import HEAD_WORDS, PROBE_WORKER, Heads, all_asked_words, compose, long_ask, short_ask, units
from .prompts import user_message

_SAMPLES = 16
_BEFORE = "is"
"""A word to stand before a piece while it is counted: some tokenizers treat the start of a text apart."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of all pieces.

    Attributes:
        source: ``tokenizer``, ``calibrated`` or ``approximate``: the provenance of the lengths that come out.
        scale: tokens per unit of cost.
        fixed: tokens of every prompt beside its head, prose and ask.
        template_tokens: how many of those are the chat template's. Every prompt shares them, so a server may rightly
            report up to this many cached input tokens.
        words: cost of each word of the corpus.
        first: cost of each word of the vocabulary at the very start of a prompt; ``later``: after another word.
        asks: cost of every request text.
    """

    source: str
    scale: float
    fixed: float
    template_tokens: int
    words: list[int]
    first: list[int]
    later: list[int]
    asks: dict[str, int]

    def head(self, indices: list[int]) -> int:
        """Return the cost of a head."""
        later = self.later
        return self.first[indices[0]] + sum([later[i] for i in indices[1:]])

    def shortest(self) -> float:
        """Return the tokens of an average prompt that is nothing but a head."""
        return self.scale * (mean(self.first) + ((HEAD_WORDS - 1) * mean(self.later))) + self.fixed


def calibrated_costs(calibration: Calibration) -> Costs:
    """Return costs in words (punctuation marks count), scaled by ``calibration``."""
    corpus = prose()
    ones = [1] * len(corpus.vocabulary)
    colon = calibration.tokens_per_word
    return Costs(
        source=calibration.source,
        scale=calibration.tokens_per_word,
        fixed=calibration.overhead + colon,
        template_tokens=max(round(calibration.overhead), 0),
        words=[units(word) for word in corpus.words],
        first=ones,
        later=ones,
        asks=_asks(units),
    )


def tokenizer_costs(tokenizer: Tokenizer, *, chat: bool = True) -> Costs:
    """Return costs in tokens of ``tokenizer``; counts the whole prose several times, so call it in a thread.

    Tokens of a text are not exactly the sum of its words' tokens (joints, and tokenizers that merge words), so scale
    and fixed part are fitted by least squares on whole prompts of all lengths.
    """
    corpus = prose()
    before = tokenizer.count(_BEFORE)

    def cost(piece: str) -> int:
        return tokenizer.count(_BEFORE + piece) - before

    def whole(text: str) -> int:
        return tokenizer.count_chat(user_message(text)) if chat else tokenizer.count_completion(text)

    of_word = {word: cost(f" {word}") for word in {*corpus.words, *corpus.vocabulary}}
    words = [of_word[word] for word in corpus.words]
    first = [tokenizer.count(word) for word in corpus.vocabulary]
    later = [of_word[word] for word in corpus.vocabulary]
    asks = _asks(cost)

    raw = Costs(tokenizer.source, 1.0, 0.0, whole(_BEFORE) - before, words, first, later, asks)
    heads = Heads(0, PROBE_WORKER)
    ask = long_ask(all_asked_words()[0])
    summed: list[int] = []
    counted: list[int] = []
    size = len(corpus.words)
    for i in range(_SAMPLES):
        start, length = i * size // _SAMPLES, (i + 1) * size // (2 * _SAMPLES)
        head = heads.next()
        text = compose(" ".join(corpus.vocabulary[j] for j in head), corpus.window(start, length), ask)
        summed.append(raw.head(head) + sum((words * 2)[start : start + length]) + asks[ask])
        counted.append(whole(text))
    line = linear_regression(summed, counted)
    return Costs(raw.source, line.slope, line.intercept, raw.template_tokens, words, first, later, asks)


def _asks(cost: Callable[[str], int]) -> dict[str, int]:
    return {ask: cost(ask) for words in all_asked_words() for ask in (long_ask(words), short_ask(words))}
