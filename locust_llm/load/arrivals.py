"""Arrival processes for User classes (``wait_time = arrivals.poisson(5)``), and which class of a run has which.

    from locust_llm import ChatUser, arrivals

    class Chat(ChatUser):
        wait_time = arrivals.poisson(5)      # five chats a second over all workers, whatever the number of users

The one thing to know: a *stream* is one arrival process. ``--llm-rate`` makes one, named "", which all User classes of
ours share; a class with a process of its own is a stream with the name of the class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .pacer import FASTEST, Constant, Gamma, Pacer

if TYPE_CHECKING:
    from ..settings import Settings

CONSTANT, POISSON = "constant", "poisson"
PROCESSES = (CONSTANT, POISSON)
ALL = ""
"""The stream of ``--llm-rate``."""


def constant(rate: float) -> Constant:
    """Return evenly spaced arrivals, ``rate`` per second over all workers."""
    return Constant(rate)


def poisson(rate: float) -> Gamma:
    """Return a Poisson process of ``rate`` arrivals per second over all workers."""
    return Gamma(rate)


def gamma(rate: float, burstiness: float) -> Gamma:
    """Return arrivals with gamma distributed gaps; ``burstiness`` below 1 comes in bursts, 1 is Poisson."""
    return Gamma(rate, burstiness)


def read_rate(flag: str, text: str) -> float:
    """Read a rate; "" is none (0.0, closed loop).

    Raises:
        UsageError: not a number above 0, or absurd.
    """
    if not text.strip():
        return 0.0
    try:
        rate = float(text)
    except ValueError:
        raise UsageError(f"{flag} must be a number of exchanges per second, such as 5 (got {text!r})") from None
    return checked_rate(flag, rate)


def checked_rate(what: str, rate: Any) -> float:
    """Return a rate that can be kept.

    Raises:
        UsageError: not a finite number above 0, or absurd.
    """
    if not isinstance(rate, int | float) or not math.isfinite(rate) or rate <= 0:
        raise UsageError(f"{what} must be above 0 exchanges per second (got {rate}); leave it out for a closed loop")
    if rate > FASTEST:
        raise UsageError(f"{what} must be at most {FASTEST:g} exchanges per second (got {rate:g})")
    if rate < 1e-5:
        raise UsageError(f"{what} {rate:g}: that is less than one exchange a day")
    return float(rate)


def pacers_of(settings: Settings, classes: Iterable[type[Any]]) -> dict[str, Pacer]:
    """Return the arrival processes of a run by stream; none of them: closed loop.

    Raises:
        UsageError: a rate that cannot be kept, or two that contradict each other.
    """
    pacers: dict[str, Pacer] = {}
    for cls in classes:
        own = cls.__dict__.get("wait_time", getattr(cls, "wait_time", None))
        if isinstance(own, Constant | Gamma):
            if settings.rate:
                raise UsageError(f"--llm-rate and {cls.__name__}.wait_time ({own}) are two rates; give one of them")
            checked_rate(f"{cls.__name__}.wait_time: the rate", own.rate)
            if isinstance(own, Gamma):
                checked_burstiness(f"{cls.__name__}.wait_time: the burstiness", own.burstiness)
            pacers[cls.__name__] = own
        elif settings.rate and waits(cls):
            raise UsageError(
                f"--llm-rate: {cls.__name__} has a wait_time, and with a rate the arrivals say when; take wait_time "
                "out of the class, or leave --llm-rate away"
            )
    if not settings.rate:
        if settings.burstiness != 1.0:
            raise UsageError("--llm-burstiness is about arrivals; give their rate, too: --llm-rate R")
        return pacers
    return {ALL: _pacer(settings)}


def waits(cls: type[Any]) -> bool:
    """Whether a User class has a ``wait_time`` of its own."""
    import locust

    return cls.wait_time is not locust.User.wait_time or getattr(cls, "min_wait", None) is not None


def checked_burstiness(what: str, burstiness: Any) -> float:
    """Return a burstiness that makes arrivals.

    Raises:
        UsageError: not a finite number above 0, or absurd.
    """
    if not isinstance(burstiness, int | float) or not math.isfinite(burstiness) or burstiness <= 0:
        raise UsageError(f"{what} must be above 0 (got {burstiness}); 1 is Poisson, less comes in bursts")
    if not 1e-3 <= burstiness <= 1e6:
        raise UsageError(f"{what} must be from 0.001 to 1000000 (got {burstiness:g})")
    return float(burstiness)


def stream_of(pacers: Mapping[str, Pacer], user_class: str) -> str | None:
    """Return the stream that users of a class wait for; None where they wait for nobody."""
    return user_class if user_class in pacers else ALL if ALL in pacers else None


def _pacer(settings: Settings) -> Pacer:
    if settings.arrivals == CONSTANT:
        if settings.burstiness != 1.0:
            raise UsageError("--llm-burstiness and --llm-arrivals constant: even spacing has no bursts; give one")
        return Constant(settings.rate)
    return Gamma(settings.rate, settings.burstiness)
