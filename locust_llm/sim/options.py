"""How a simulator behaves: one frozen dataclass, the only definition of the simulator's options.

The ``k=v`` list of ``--llm-simulate-options``, the flags of ``locust-llm simulate`` and their help are all made from
the fields below. Durations are seconds in code and carry a unit in text (``50ms``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from ..errors import UsageError


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of option value: what it must be (for the error line), how text becomes one, which values are good."""

    must_be: str
    read: Callable[[str], Any]
    good: Callable[[Any], bool]


_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def _read_duration(text: str) -> float:
    if text == "0":
        return 0.0
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    return float(number) * _UNITS_S[text[len(number) :]]


def _read_flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _read_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split("+") if name.strip())


def _at_least(low: float, high: float = math.inf) -> Callable[[Any], bool]:
    return lambda value: low <= value <= high and math.isfinite(value)


def _choice(*names: str) -> Kind:
    return Kind("one of " + ", ".join(names), str, lambda value: value in names)


DURATION = Kind("a duration with its unit, such as 50ms, 0.2s or 800us", _read_duration, _at_least(0, 86_400))
SHARE = Kind("a share from 0 to 1", float, _at_least(0, 1))
NUMBER = Kind("a number of 0 or more", float, _at_least(0))
COUNT = Kind("a whole number of 0 or more", int, _at_least(0))
POSITIVE = Kind("a whole number of 1 or more", int, _at_least(1))
INTEGER = Kind("a whole number", int, _at_least(-(2**63), 2**63))
FLAG = Kind("true or false", _read_flag, lambda value: isinstance(value, bool))
TEXT = Kind("text", str, lambda value: isinstance(value, str))
NAME = Kind("a name that is not empty", str, bool)
NAMES = Kind("field names joined by +", _read_names, lambda value: all(isinstance(name, str) for name in value))


def _option(default: Any, kind: Kind, text: str) -> Any:
    return field(default=default, metadata={"kind": kind, "help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """Every option of a simulator; see the help text of each field.

    Raises:
        UsageError: a value outside its range; the line names the option.
    """

    ttft: float = _option(0.05, DURATION, "time from the start of a request's work to its first token")
    itl: float = _option(
        0.01, DURATION, "time per further token; an event of m tokens follows the last by m times this"
    )
    jitter: float = _option(0.0, NUMBER, "relative standard deviation of ttft and of each gap (normal, never below 0)")
    prefill_tps: float = _option(0.0, NUMBER, "prompt tokens per second: their prefill adds to ttft (0: free)")
    tokens: int = _option(128, POSITIVE, "tokens of an answer to a request without max_tokens")
    tokens_per_event: int = _option(1, POSITIVE, "tokens in each event")
    reasoning: int = _option(0, COUNT, "how many of a chat answer's tokens come first, as reasoning")
    role: str = _option(
        "with_first",
        _choice("with_first", "early"),
        "when the role event leaves: with the first token, as vLLM, or at once",
    )
    natural_stop: int = _option(
        0,
        COUNT,
        "mean length at which an answer stops by itself (evenly from half to 1.5 times it) unless ignore_eos; 0: never",
    )
    usage: str = _option(
        "continuous",
        _choice("continuous", "final", "off"),
        "usage it can report: on each event if asked, only at the end, none at all",
    )
    prefix_cache: bool = _option(
        False, FLAG, "keep prompts in a prefix cache (16-word blocks) and report cached_tokens"
    )
    slots: int = _option(0, COUNT, "requests worked on at once, the others queue in order (0: no limit)")
    error_rate: float = _option(0.0, SHARE, "share of requests that fail, as error_kind says")
    error_kind: str = _option(
        "http_500",
        _choice("http_500", "http_429", "in_band"),
        "status 500, status 429 with Retry-After, or an error object inside a 200",
    )
    cut_rate: float = _option(
        0.0, SHARE, "share of streams cut after some tokens: connection closed, no end mark, HTTP framing incomplete"
    )
    stall_rate: float = _option(0.0, SHARE, "share of streams that fall silent after some tokens and stay open")
    reject: tuple[str, ...] = _option(
        (), NAMES, "body fields answered with a 400 that names them, such as ignore_eos+min_tokens"
    )
    close: bool = _option(
        False, FLAG, "close the connection after each stream though the head says keep-alive, as llama.cpp"
    )
    fail_first: float = _option(0.0, DURATION, "answer everything with 503 for so long after the start")
    model: str = _option("sim", NAME, "model name")
    strict_model: bool = _option(False, FLAG, "answer another model name with 404")
    max_model_len: int = _option(131_072, POSITIVE, "context length; a request that needs more is answered with 400")
    api_key: str = _option("", TEXT, "answer 401 without this bearer key (empty: no key needed)")
    seed: int = _option(0, INTEGER, "seed of everything random")
    truth_log: str = _option("", TEXT, "new file for the log of when each request was read and each event left")

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            if not kind_of(spec).good(value):
                raise UsageError(_complaint(spec, value))

    @classmethod
    def parse(cls, text: str) -> SimOptions:
        """Read a list such as ``"ttft=50ms,itl=10ms,error_rate=0.01"``; an empty one gives the defaults.

        Raises:
            UsageError: an unknown or repeated name, or a bad value.
        """
        texts: dict[str, str] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not equals:
                raise UsageError(f'simulator options are NAME=VALUE,NAME=VALUE (got "{item}"); names: {_names()}')
            if name in texts:
                raise UsageError(f"simulator option {name} is given twice; leave one")
            texts[name] = value
        return cls.from_texts(texts)

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> SimOptions:
        """Read each option from its text.

        Raises:
            UsageError: an unknown name or a bad value.
        """
        specs = {spec.name: spec for spec in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in specs:
                raise UsageError(f'unknown simulator option "{name}"; known: {_names()}')
            try:
                values[name] = kind_of(specs[name]).read(text)
            except (ValueError, KeyError):
                raise UsageError(_complaint(specs[name], text)) from None
        return cls(**values)


def kind_of(spec: Field[Any]) -> Kind:
    """Return the kind of value an option takes."""
    kind: Kind = spec.metadata["kind"]
    return kind


def _names() -> str:
    return ", ".join(spec.name for spec in fields(SimOptions))


def _complaint(spec: Field[Any], value: object) -> str:
    return f'simulator option {spec.name} must be {kind_of(spec).must_be} (got "{value}")'
