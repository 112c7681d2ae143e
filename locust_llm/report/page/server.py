"""The server's own counters beside our figures (``report.server``), as a part of the page."""

from __future__ import annotations

from typing import Any

from ..server import COUNTS, LABELS
from ..table import number
from .parts import Html, table, tag

_WHAT = """\
Read from the server just before the load and after its drain. It counts all that it does, so this is the whole run; its
times start when a request reaches it, ours when the client asks for a connection."""
_COLUMNS = ("server", "ours", "difference")


def servers(summary: dict[str, Any]) -> list[Html]:
    """Return a table for each server whose counters were read, and for the others why there is none."""
    parts = [tag("p", _WHAT, class_="note")]
    for each in summary["server"]:
        if "figures" not in each:
            parts.append(tag("p", tag("code", each["url"]), f": {each['why']}.", class_="absent"))
            continue
        rows = [_row(name, of) for name, of in each["figures"].items()]
        parts.append(tag("p", tag("code", each["url"]), f" ({each['engine']}), {each['seconds']:.1f} s"))
        parts.append(table(["", *_COLUMNS, "%"], rows))
        if "cache_hit_share" in each:
            parts.append(tag("p", f"Its prefix cache had {each['cache_hit_share']:.1%} of the prompt tokens."))
        parts += [tag("p", f"{note[:1].upper()}{note[1:]}.", class_="note") for note in each["notes"]]
    return parts


def _row(name: str, of: dict[str, float]) -> list[str]:
    cells = ["–" if of.get(key) is None else _shown(name, of[key]) for key in _COLUMNS]
    share = of.get("difference_share")
    return [LABELS[name], *cells, "–" if share is None else f"{share:+.2%}"]


def _shown(name: str, value: float) -> str:
    return f"{value:.0f}" if name in COUNTS else number(value)
