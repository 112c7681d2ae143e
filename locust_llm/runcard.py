"""The run card, ``run.json``: what was run, where, against what, and what happened to it.

It holds everything a reader needs to run the test again, and no secret: header values and keys never get here, addresses are
masked. ``report`` reads it; its members only grow.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

from .address import mask_url
from .credentials import SECRET_HEADERS
from .options import OPTIONS

CARD_SCHEMA = 1
_PACKAGES = ("locust-llm", "locust", "gevent", "geventhttpclient", "orjson", "numpy", "pyarrow")


def write_card(folder: Path, card: dict[str, Any]) -> None:
    """Write ``run.json`` whole: a reader never sees half of it."""
    path = folder / "run.json"
    partial = path.with_suffix(".json.partial")
    partial.write_bytes(orjson.dumps(card, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    os.replace(partial, path)


def options_given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the ``--llm-*`` values that differ from their defaults, as they may be shown."""
    shown: dict[str, Any] = {}
    for option in OPTIONS:
        value = values.get(option.dest, option.default)
        if option.hidden or value in (option.default, None):
            continue
        shown[option.flag] = [_mask_header(item) for item in value] if option.flag == "--llm-header" else value
    return shown


def command_line() -> list[str]:
    """Return how this process was started, addresses masked."""
    arguments, secret_next = [], False
    for argument in [Path(sys.argv[0]).name, *sys.argv[1:]]:
        flag, equals, value = argument.partition("=")
        if secret_next:
            argument, secret_next = _mask_header(argument), False
        elif flag == "--llm-header":
            argument, secret_next = (f"{flag}={_mask_header(value)}", False) if equals else (flag, True)
        elif "web-login" in flag or "password" in flag:
            argument = f"{flag}=***" if equals else flag
        arguments.append(mask_url(argument) if "://" in argument else argument)
    return arguments


def machine() -> dict[str, Any]:
    """Return what this node is: versions and size."""
    packages = {}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "packages": packages,
    }


def git_state(files: list[str]) -> dict[str, Any] | None:
    """Return commit and cleanliness of the locustfiles' repository, None where there is none."""
    paths = [Path(file) for file in files if Path(file).is_file()]
    if not paths:
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=paths[0].resolve().parent, capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "--", *(path.name for path in paths))),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def _mask_header(text: str) -> str:
    name, colon, value = text.partition(":")
    if not colon or value.strip().startswith("env:"):
        return text
    secret = name.strip().lower() in SECRET_HEADERS or any(
        word in name.lower() for word in ("key", "token", "secret", "auth")
    )
    return f"{name}: ***" if secret else text
