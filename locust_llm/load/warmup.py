"""``--llm-warmup``: what is asked for. ``warming`` sends it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import UsageError

MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Warmup:
    """So many exchanges over all workers, or so many seconds; neither: none."""

    exchanges: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str, duration: Callable[[str, str], float]) -> Warmup:
        """Read ``20`` or ``30s``; "" and ``0`` are none. ``duration`` reads times.

        Raises:
            UsageError: anything else.
        """
        text = text.strip()
        if not text:
            return cls()
        if re.fullmatch(r"\d+", text):
            if int(text) > MOST:
                raise UsageError(f"--llm-warmup must be at most {MOST} exchanges (got {text})")
            return cls(exchanges=int(text))
        if re.fullmatch(r"[-+.\d]+", text):
            raise UsageError(f"--llm-warmup must be a number such as 20, or a time such as 30s (got {text!r})")
        return cls(seconds=duration("--llm-warmup", text))

    def __bool__(self) -> bool:
        return bool(self.exchanges or self.seconds)


NO_WARMUP = Warmup()
