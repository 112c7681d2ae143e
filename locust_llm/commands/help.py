"""The text of ``locust-llm run --help``: our options first, then what they are called elsewhere. Loads no Locust."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

from ..options import SECTIONS, Option
from .names import NAMES, Kind

_INDENT = 32

_INTRO = """\
Usage: locust-llm run [options] [UserClass ...]

Load-test an LLM server and measure TTFT, inter-token latency and tokens per second.

Examples:
  locust-llm run --llm-simulate -u 8 -t 10s                  no server at all: a simulated one
  locust-llm run -H http://localhost:8000 -u 8 -t 60s        8 streams at a time, 60 s at full load
  locust-llm run -H localhost:8000 -u 32 --llm-requests 500 --llm-input-tokens 1024 --llm-output-tokens 128
  locust-llm run -H http://localhost:8000 -f locustfile.py --web    your own users, with the web page
  locust-llm run --base-url http://localhost:8000 --max-concurrency 32 --num-prompts 500 \\
    --random-input-len 1024 --random-output-len 128          the words of vllm bench serve
"""

_LOAD = (
    ("-H, --host URL", "server: http://host:port, with or without /v1"),
    ("-u, --users N", "users = streams at a time (default: 1)"),
    (
        "-t, --run-time TIME",
        "how long at full load, such as 60s or 10m, counted from the moment the last user has started; 0: until "
        "Ctrl-C (default: 60s, unless --llm-requests ends the run; with --web as in Locust)",
    ),
    ("-r, --spawn-rate N", "users started a second (default: all at once)"),
    ("-f, --locustfile FILE", "your users (default: one built-in user that sends the workload below)"),
    ("--web", "with the web page instead of headless"),
    ("--processes N", "fork into N processes; -1: one a core"),
    ("--help-all", "every option of Locust, too"),
)

_MORE = """\
Each --llm option is also an environment variable (--llm-model: LOCUST_LLM_MODEL) and a line of locust.conf or of
[tool.locust] in pyproject.toml; the command line wins over the environment, the environment over files.
The API key is never an option: put it into LOCUST_LLM_API_KEY.
"""


def run_help(width: int | None = None) -> str:
    """Return the help text, for a terminal of ``width`` columns (default: this one's)."""
    width = width or min(shutil.get_terminal_size((100, 24)).columns, 120)
    parts = [_INTRO, _block("Load", _LOAD, width)]
    for title, options in SECTIONS.items():
        rows = [(_flags(option), _meaning(option)) for option in options if not option.hidden]
        if rows:
            parts.append(_block(title, rows, width))
    parts.append(_fill(_MORE, width, ""))
    parts.append(_block("Options of other tools that are understood", _peers(), width))
    given = [(" ".join(name.flags), name.says) for name in NAMES if name.kind is Kind.GIVEN]
    parts.append(_block("Options of other tools that change nothing here", given, width))
    refused = " ".join(flag for name in NAMES if name.kind is Kind.REFUSED for flag in name.flags)
    parts.append(
        "Options of other tools that cannot be followed (each says what to do instead):\n" + _fill(refused, width)
    )
    return "\n".join(parts)


# ---- helpers


def _flags(option: Option) -> str:
    flags = option.flag + (f", {option.negative}" if option.negative else "")
    value = "|".join(option.values) or option.metavar or ""
    return f"{flags} {value}".rstrip()


def _meaning(option: Option) -> str:
    value = f"{option.default:g}" if isinstance(option.default, float) else str(option.default)
    shown = value not in ("", "0", "[]", "True", "False") and "default" not in option.help
    return option.help + (f" (default: {value})" if shown else "")


def _peers() -> list[tuple[str, str]]:
    by_target: dict[str, list[str]] = {}
    for name in NAMES:
        if name.kind is Kind.PEER:
            by_target.setdefault(name.says, []).extend(name.flags)
    return [(target, " ".join(flags)) for target, flags in by_target.items()]


def _block(title: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    lines = [f"{title}:"]
    for left, right in rows:
        wrapped = textwrap.wrap(right, max(width - _INDENT, 30), break_on_hyphens=False, break_long_words=False)
        head = f"  {left}"
        if len(head) >= _INDENT:
            lines.append(_fill(left, width).rstrip())
            head = ""
        for line in wrapped:
            lines.append(head.ljust(_INDENT) + line)
            head = ""
    return "\n".join(lines) + "\n"


def _fill(text: str, width: int, indent: str = "  ") -> str:
    text = " ".join(text.split())
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False) + "\n"
