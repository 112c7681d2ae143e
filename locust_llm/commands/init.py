"""``locust-llm init``: write a commented locustfile to start from."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from ..errors import UsageError

KINDS = ("chat", "completion", "mixed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = "Write a commented locustfile to start from."
    parser.add_argument("kind", nargs="?", choices=KINDS, default="chat", help="what it holds (default: chat)")
    parser.add_argument("file", nargs="?", default="locustfile.py", help="where it goes (default: ./locustfile.py)")
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")


def run(args: argparse.Namespace) -> int:
    """Write the locustfile and say what to run next.

    Raises:
        UsageError: the file exists, or cannot be written.
    """
    path = Path(args.file)
    if path.suffix != ".py":
        raise UsageError(f"{path}: Locust takes locustfiles only if they end in .py")
    try:
        with path.open("w" if args.force else "x", encoding="utf-8") as file:
            file.write(template(args.kind))
    except FileExistsError:
        raise UsageError(f"{path} exists already; --force overwrites it") from None
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}") from None
    print(f"{path} written. Next: locust-llm run -f {path} --llm-simulate -u 4 -t 10s")
    return 0


def template(kind: str) -> str:
    """Return the text of a template."""
    return (files("locust_llm") / "locustfile_templates" / f"{kind}.py").read_text(encoding="utf-8")
