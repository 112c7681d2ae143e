"""Synthetic prompts of a drawn length that no prefix cache can flatter.

A prompt is a unique head, a window of prose from a random place, and a request for a long answer. Its length is what
the model sees, chat template included; ``source`` says how well that is known. With the same seed the same prompts come
again, so a second run with the same ``--llm-seed`` against the same server finds them in its cache.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_left
from itertools import accumulate
from math import ceil

from .corpus import prose
from .costs import Costs
from .lengths import Length
from .pieces import Heads, asked_words, compose, long_ask, short_ask
from .prompts import Prompt, user_message

logger = logging.getLogger(__name__)

_TRIES = 4
"""Places tried for a window that hits the length exactly; the nearest is off by a token or so."""


class SyntheticWorkload:
    """Prompts with drawn input and output lengths (``--llm-input-tokens``, ``--llm-output-tokens``).

    Args:
        input: input tokens as the model sees them, chat template included.
        output: output tokens, sent as ``max_tokens``.
        costs: from ``tokenizer_costs`` or ``calibrated_costs``; workloads may share one.
        seed: the run's seed.
        worker: index of this worker process, from 0; no two workers ever make the same prompt.
        stream: name of the user class, where one worker has several synthetic workloads.
        chat: make chat messages, else completions. ``costs`` must be made for the same.

    Attributes:
        source: provenance of the input lengths: ``tokenizer``, ``calibrated`` or ``approximate``.
        template_tokens: input tokens that all prompts share, so cached ones up to this many flatter nothing.
        shortest: fewest input tokens a prompt can have; shorter ones that are asked for get this many.
    """

    def __init__(
        self,
        input: Length,
        output: Length,
        *,
        costs: Costs,
        seed: int,
        worker: int = 0,
        stream: str = "",
        chat: bool = True,
    ) -> None:
        self.source = costs.source
        self.template_tokens = costs.template_tokens
        self.shortest = ceil(costs.shortest())
        self._input = input
        self._output = output
        self._costs = costs
        self._chat = chat
        self._heads = Heads(seed, worker, stream)
        self._lengths = random.Random(f"{seed}/{worker}/{stream}/lengths")
        self._places = random.Random(f"{seed}/{worker}/{stream}/places")
        self._corpus = prose()
        self._until = list(accumulate(costs.words * 2, initial=0))
        self._at_least = self.shortest if input.mean >= self.shortest else 1
        if input.mean < self.shortest:
            logger.warning(
                "--llm-input-tokens %s: template and unique head alone take %d tokens; shorter prompts get that many",
                input,
                self.shortest,
            )

    def next(self) -> Prompt:
        """Return the next prompt; about 10 µs for 550 tokens."""
        asked_in = self._input.draw(self._lengths, self._at_least)
        max_tokens = self._output.draw(self._lengths)
        costs, vocabulary = self._costs, self._corpus.vocabulary
        head = self._heads.next()
        room = round((asked_in - costs.fixed) / costs.scale) - costs.head(head)
        ask = self._ask(max_tokens, room)
        window = self._window(room - costs.asks.get(ask, 0))
        text = compose(" ".join([vocabulary[i] for i in head]), window, ask)
        return Prompt(text, user_message(text) if self._chat else None, max_tokens, None, asked_in)

    def _ask(self, max_tokens: int, room: int) -> str:
        """Return the fullest request that leaves at least as much room to prose as it takes itself."""
        words = asked_words(max_tokens)
        for ask in (long_ask(words), short_ask(words)):
            if 2 * self._costs.asks[ask] <= room:
                return ask
        return ""

    def _window(self, cost: int) -> str:
        """Return prose of the given cost from a random place."""
        if cost <= 0:
            return ""
        size, until = len(self._corpus.words), self._until
        rounds, rest = divmod(cost, until[size])
        start = self._places.randrange(size)
        for place in range(start, start + _TRIES):
            start = place % size
            wanted = until[start] + rest
            end = bisect_left(until, wanted, start, start + size)
            if until[end] == wanted:
                break
        else:
            end -= wanted - until[end - 1] < until[end] - wanted
        return self._corpus.window(start, rounds * size + end - start)
