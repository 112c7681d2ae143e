"""Make docs/benchmarks.md of the results: ``python benchmarks/page.py``. Each benchmark does it after its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
ORDER = (
    "fidelity",
    "verdict",
    "capacity",
    "cpu",
    "tls",
    "peers",
    "agreement",
    "exports",
    "same_server",
    "arrivals",
    "start",
    "startup",
    "memory",
    "mailbox",
    "report",
    "live",
)

HEAD = """\
# Benchmarks

What the measurement itself is worth: error against the truth, capacity, cost. Made by `benchmarks/page.py` from
`benchmarks/results/`; how to repeat each is in [benchmarks/README.md](../benchmarks/README.md). Client and server share
one machine over loopback, so the figures hold for a machine like the one named, at the load named.
"""


def render() -> str:
    """Return the page: one section for each benchmark that has results."""
    sections = [HEAD]
    for name in ORDER:
        path = HERE / "results" / f"{name}.json"
        if path.exists():
            sections.append(_section(name, orjson.loads(path.read_bytes())))
        else:
            title = name.capitalize().replace("_", " ")
            sections.append(f"## {title}\n\nNot measured yet: `python benchmarks/{name}.py`.\n")
    return "\n".join(sections)


def write_page() -> Path:
    """Write the page and return its path."""
    PAGE.write_text(render(), encoding="utf-8")
    return PAGE


def _section(name: str, result: dict[str, Any]) -> str:
    machine = result["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, Python {machine['python']}"
    options = " ".join(f"{key}={_plain(value)}" for key, value in result["options"].items())
    parts = [f"## {result['title']}", result["text"].strip()]
    for table in result["tables"]:
        if table["title"]:
            parts.append(f"### {table['title']}")
        parts.append(_table(table))
    parts.append(f"`{name}.py`, {result['date']}, version {result['version']}, {where}; {options}")
    return "\n\n".join(parts) + "\n"


def _table(table: dict[str, Any]) -> str:
    columns = table["columns"]
    lines = [
        "| " + " | ".join(heading for _, heading, _ in columns) + " |",
        "|" + "|".join(" ---: " if spec else " --- " for _, _, spec in columns) + "|",
    ]
    lines += ["| " + " | ".join(_cell(row.get(key), spec) for key, _, spec in columns) + " |" for row in table["rows"]]
    return "\n".join(lines)


def _cell(value: Any, spec: str) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, str) or not spec else format(value, spec)


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


if __name__ == "__main__":
    print(write_page())
