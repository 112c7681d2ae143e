"""Where Python and Locust keep the event loop waiting while streams are open, made quick.

None changes what they do: of Locust, one gives an answer that never changes, one is for a line that only a debug log
shows.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import locust.argument_parser
import locust.runners

SWITCH_S = 0.0005


class _NoLookAtTheStack:
    """Stands for the ``inspect`` module in ``locust.runners``; its caller catches what ``stack`` raises and says so."""

    def stack(self) -> Any:
        raise LookupError("not looked up: it would take 65 ms")


def shorten() -> None:
    """Apply all, once."""
    # A thread that computes (a log is written, prompts are made) gives Python's lock back after this time: the event
    # loop waits so long each time that it wakes. Python's own 5 ms joined arrivals.
    sys.setswitchinterval(SWITCH_S)
    # Each spawn message makes a worker build one parser per option: 200 ms, always for the same answer.
    if not hasattr(locust.argument_parser.default_args_dict, "cache_info"):
        locust.argument_parser.default_args_dict = functools.cache(locust.argument_parser.default_args_dict)
    # Stopping a test looks up the caller's source text for a debug line: 65 ms with all streams still in flight.
    if hasattr(locust.runners, "inspect"):
        locust.runners.inspect = _NoLookAtTheStack()
