"""Two places where Locust itself stands still for tens of milliseconds while streams are open, made quick.

Neither changes what Locust does: the first gives an answer that never changes, the second is for a line that only a
debug log shows.
"""

from __future__ import annotations

import functools
from typing import Any

import locust.argument_parser
import locust.runners


class _NoLookAtTheStack:
    """Stands for the ``inspect`` module in ``locust.runners``; its caller catches what ``stack`` raises and says so."""

    def stack(self) -> Any:
        raise LookupError("not looked up: it would take 65 ms")


def shorten() -> None:
    """Apply both, once."""
    # Each spawn message makes a worker build one parser per option: 200 ms, always for the same answer.
    if not hasattr(locust.argument_parser.default_args_dict, "cache_info"):
        locust.argument_parser.default_args_dict = functools.cache(locust.argument_parser.default_args_dict)
    # Stopping a test looks up the caller's source text for a debug line: 65 ms with all streams still in flight.
    if hasattr(locust.runners, "inspect"):
        locust.runners.inspect = _NoLookAtTheStack()
