"""Lengths in tokens, drawn from a normal distribution as LLMPerf draws them.

A draw below the least length is drawn again, never clipped, so there is no heap of requests at the bound; with a
standard deviation near the mean the lengths that come out are therefore longer on average than the mean asked for.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from ..errors import UsageError

LONGEST = 10_000_000
"""Tokens; more than any model reads, so a larger figure is a slip."""

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")


@dataclass(frozen=True, slots=True)
class Length:
    """A length in tokens: normal with ``mean`` and standard deviation ``std``; ``std`` 0 is constant.

    Raises:
        ValueError: mean not within 1 to ``LONGEST``, or std not within 0 to ``LONGEST``.
    """

    mean: float
    std: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.mean <= LONGEST:
            raise ValueError(f"MEAN must be from 1 to {LONGEST} tokens")
        if not 0 <= self.std <= LONGEST:
            raise ValueError(f"STD must be from 0 to {LONGEST} tokens")

    @classmethod
    def parse(cls, text: str, option: str) -> Length:
        """Read ``MEAN`` or ``MEAN,STD``.

        Raises:
            UsageError: naming ``option`` and what is wrong.
        """
        parts = [part.strip() for part in text.split(",")]
        problem = "give MEAN or MEAN,STD in tokens, such as 550,150"
        if len(parts) <= 2 and all(_NUMBER.fullmatch(part) for part in parts):
            try:
                return cls(*map(float, parts))
            except ValueError as e:
                problem = str(e)
        raise UsageError(f'{option}: {problem} (got "{text}")')

    def draw(self, rng: random.Random, at_least: int = 1) -> int:
        """Return one length in tokens.

        A value below ``at_least`` is drawn again, as in LLMPerf's ``sample_random_positive_int``
        (github.com/ray-project/llmperf, src/llmperf/utils.py); ours rounds where LLMPerf cuts decimals off, which
        makes its lengths half a token short.

        Raises:
            ValueError: the mean is below ``at_least``; drawing again could go on for ever.
        """
        if self.mean < at_least:
            raise ValueError(f"a mean of {self.mean:g} never reaches {at_least}")
        if not self.std:
            return max(round(self.mean), at_least)
        while True:
            length = round(rng.gauss(self.mean, self.std))
            if length >= at_least:
                return length

    def __str__(self) -> str:
        return f"{self.mean:g},{self.std:g}" if self.std else f"{self.mean:g}"
