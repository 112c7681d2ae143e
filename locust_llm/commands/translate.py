"""A command line in anybody's words, in; one that Locust's parser with our options understands, out.

Pure: no Locust, no environment, no files. What is not in ``names.NAMES`` passes through untouched and in order; so a
custom option of a locustfile keeps working, unless it has the same name as a row of the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from ..address import mask_url
from ..errors import UsageError
from ..options import OPTIONS
from .names import BY_FLAG, Kind, Name

# Which option a key of the readers becomes; lengths, the body and repeatable options are put together in ``_emit``.
TARGETS: Mapping[str, str] = {
    "host": "--host",
    "users": "--users",
    "time": "--run-time",
    "requests": "--llm-requests",
    "api": "--llm-api",
    "model": "--llm-model",
    "endpoint": "--llm-endpoint",
    "input.mean": "--llm-input-tokens",
    "input.std": "--llm-input-tokens",
    "output.mean": "--llm-output-tokens",
    "output.std": "--llm-output-tokens",
    "tokenizer": "--llm-tokenizer",
    "seed": "--llm-seed",
    "out": "--llm-out",
    "name": "--llm-name",
    "total_timeout": "--llm-total-timeout",
    "wait_ready": "--llm-wait-ready",
    "drain": "--llm-drain",
    "goodput": "--llm-goodput",
    "rate": "--llm-rate",
    "arrivals": "--llm-arrivals",
    "burstiness": "--llm-burstiness",
    "warmup": "--llm-warmup",
    "stream": "--llm-stream",
    "natural_stop": "--llm-natural-stop",
    "insecure": "--llm-insecure",
}

OFF: Mapping[str, str] = {"stream": "--llm-no-stream"}
"""Options that say no; where there is none, no is the default."""

MEANS = {"input": "550", "output": "150"}
"""Means where only a deviation was given: those of ``--llm-input-tokens`` and ``--llm-output-tokens``."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What one flag set: its value, who said so, and in which words."""

    value: Any
    flag: str
    kind: Kind


@dataclass(slots=True)
class Translation:
    """``argv`` for Locust, and ``notes``: a line for each accepted flag that changes nothing."""

    argv: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def translate(argv: Sequence[str]) -> Translation:
    """Translate a command line of ``locust-llm run``.

    Raises:
        UsageError: a value that cannot be read, two that contradict each other, or an option that cannot be followed.
    """
    settings: dict[str, Setting] = {}
    rest: list[str] = []
    notes: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            rest += [word, *words]
            break
        flag, attached = _split(word)
        name = BY_FLAG.get(flag)
        if name is None:
            if in_full := _in_full(flag):
                raise UsageError(f"{flag}: write it in full: {in_full}")
            rest.append(word)
            continue
        if name.kind is Kind.REFUSED:
            raise UsageError(f"{flag}: {name.says}")
        values = _values(flag, name, attached, words)
        if name.kind is Kind.GIVEN:
            notes.append(f"{flag} changes nothing: {name.says}")
        elif name.kind is Kind.LOCUST:
            rest += [flag, *values] if attached is None else [word]
        for value in values or ([""] if name.takes == "none" else []):
            for key, part in (name.read(flag, value) if name.read else {}).items():
                _set(settings, key, Setting(part, flag, name.kind))
    return Translation(_emit(settings) + rest, notes)


# ---- helpers


def _split(word: str) -> tuple[str, str | None]:
    """Split ``--flag=value``, and ``-u5`` for those short flags that we read."""
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        return flag, value if equals else None
    if len(word) > 2 and word[0] == "-" and word[:2] in BY_FLAG:
        return word[:2], word[2:]
    return word, None


def _in_full(flag: str) -> str:
    """Return which options of ours a flag abbreviates, "" for none: what is not seen as ours cannot be compared."""
    if not flag.startswith("--llm-"):
        return ""
    flags = [f for option in OPTIONS if not option.hidden for f in (option.flag, option.negative) if f]
    return "" if flag in flags else " or ".join(f for f in flags if f.startswith(flag))


def _values(flag: str, name: Name, attached: str | None, words: list[str]) -> list[str]:
    """Take the values of a flag off ``words``."""
    if name.takes == "none":
        if attached is not None:
            raise UsageError(f"{flag} takes no value")
        return []
    if attached is not None:
        return [attached]
    values: list[str] = []
    if words and _is_value(words[0]):
        values.append(words.pop(0))
    while name.takes == "many" and words and _is_value(words[0]) and re.search(r"[:={]", words[0]):
        values.append(words.pop(0))
    if not values:
        if name.kind is Kind.LOCUST:
            return []  # Locust says so
        raise UsageError(f"{flag} needs a value")
    return values


def _is_value(word: str) -> bool:
    return not word.startswith("-") or re.match(r"-\.?\d", word) is not None


def _set(settings: dict[str, Setting], key: str, new: Setting) -> None:
    old = settings.get(key)
    if old is None or old.value == "" or Kind.PEER not in (old.kind, new.kind):
        settings[key] = new  # our own and Locust's options: the last one counts, as everywhere in Locust
    elif new.value != "" and str(old.value) != str(new.value):
        raise UsageError(_conflict(key, old, new))
    elif old.kind is Kind.PEER and new.value != "":
        settings[key] = new


def _conflict(key: str, old: Setting, new: Setting) -> str:
    target = TARGETS.get(key, key.partition(".")[2])
    if key.startswith(("header.", "extra.")):  # values may be secrets
        shown = [old.flag, new.flag]
    else:
        shown = [s.flag if isinstance(s.value, bool) else f"{s.flag} {_shown(key, s.value)}" for s in (old, new)]
    if old.flag == new.flag:
        return f"{new.flag} is given twice, differently; one run has one {target}"
    return f"{shown[0]} and {shown[1]} contradict each other: both set {target}; give one of them"


def _shown(key: str, value: Any) -> str:
    return mask_url(value) if key == "host" else str(value)


def _emit(settings: Mapping[str, Setting]) -> list[str]:
    """Write settings as options; Locust's own stand in the rest already."""
    values = {key: setting.value for key, setting in settings.items() if setting.kind is not Kind.LOCUST}
    argv: list[str] = []
    for kind, mean in MEANS.items():
        parts = [values.pop(f"{kind}.mean", None), values.pop(f"{kind}.std", None)]
        if parts != [None, None]:
            argv.append(f"{TARGETS[f'{kind}.mean']}={parts[0] or mean}" + (f",{parts[1]}" if parts[1] else ""))
    body = {key.removeprefix("extra."): values.pop(key) for key in list(values) if key.startswith("extra.")}
    if body:
        argv.append("--llm-extra=" + orjson.dumps(body).decode())
    limits = [f"{key.removeprefix('goodput.')}:{values.pop(key)}" for key in list(values) if key.startswith("goodput.")]
    if limits:
        if "goodput" in values:
            raise UsageError("--llm-goodput and --goodput both set the limits of a good request; give one of them")
        argv.append(f"--llm-goodput={' '.join(limits)}")
    for key, value in values.items():
        if key.startswith("header."):
            argv.append(f"--llm-header={value}")
        elif key.startswith("meta."):
            argv.append(f"--llm-meta={key.removeprefix('meta.')}={value}")
        elif isinstance(value, bool):
            argv += [TARGETS[key]] if value else [OFF[key]] if key in OFF else []
        else:
            argv.append(f"{TARGETS[key]}={value}")
    return argv
