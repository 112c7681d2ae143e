"""``--llm-cancel 5%@1s``: users that hang up, after a time or after some tokens. Recorded as ``cancelled``.

The one thing to know: this is what was asked for; ``hanging_up`` does it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from ..errors import UsageError

_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*%\s*@\s*(\d+(?:\.\d+)?)\s*(ms|s|m|tokens?)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class Cancel:
    """A share of the exchanges is hung up ``after_s`` seconds, or after so many events with tokens; never at 0."""

    share: float = 0.0
    after_s: float = 0.0
    after_tokens: int = 0

    @classmethod
    def parse(cls, text: str) -> Cancel:
        """Read ``5%@1s`` or ``5%@20tokens``; "" is nobody.

        Raises:
            UsageError: anything else.
        """
        if not text.strip():
            return cls()
        match = _FORM.fullmatch(text.strip())
        if not match:
            raise UsageError(f"--llm-cancel must be a share and when, such as 5%@1s or 5%@20tokens (got {text!r})")
        share, number, unit = float(match[1]) / 100, float(match[2]), match[3]
        if not 0 < share <= 1:
            raise UsageError(f"--llm-cancel: the share must be above 0 % and at most 100 % (got {match[1]}%)")
        if number <= 0:
            raise UsageError(f"--llm-cancel: after {match[2]}{unit} nothing has been asked yet; give a time above 0")
        if unit in _SECONDS:
            return cls(share, after_s=number * _SECONDS[unit])
        if number != int(number):
            raise UsageError(f"--llm-cancel: tokens are whole (got {match[2]})")
        return cls(share, after_tokens=int(number))

    def draws(self, draw: Random) -> bool:
        """Whether the next exchange is one of those."""
        return self.share > 0 and draw.random() < self.share


NOBODY = Cancel()
