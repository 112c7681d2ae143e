"""Pieces of HTML: escaped text, tables, sections, a chart with its table behind it, and the whole document.

The one thing to know: a ``str`` is text and is escaped; what is already markup is an ``Html``. Names of requests,
models and messages of servers come from outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from ...errors import UsageError
from ..table import number

HERE = Path(__file__).parent


class Html(str):
    """Markup; everything else is text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A plotly figure, without what all of them share (``page.js``), and the table of its numbers.

    Attributes:
        key: its id in the page and the name of its SVG file. note: what one sees, in a sentence or two.
        head, rows: the table behind it. height: pixels.
    """

    key: str
    title: str
    note: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    height: int = 380
    table_left: int = 1


def text(value: object) -> Html:
    """Return text as markup; markup stays. No control characters."""
    if isinstance(value, Html):
        return value
    return Html(escape("".join(c if c.isprintable() or c in "\n\u00a0" else "\ufffd" for c in str(value))))


def join(parts: Iterable[object]) -> Html:
    """Return the parts one after another."""
    return Html("".join(text(part) for part in parts))


def tag(name: str, *content: object, **attributes: object) -> Html:
    """Return an element; ``class_`` is ``class``."""
    given = "".join(f' {key.rstrip("_")}="{text(value)}"' for key, value in attributes.items() if value is not None)
    return Html(f"<{name}{given}>{join(content)}</{name}>")


def figure_text(value: object, unit: str = "") -> str:
    """Return a number as people read it (an absent one: an en dash), with its unit."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    shown = number(float(value)) if isinstance(value, float) else f"{value}"
    return f"{shown} {unit}".rstrip()


def table(head: Sequence[object], rows: Sequence[Sequence[object]], left: int = 1, class_: str | None = None) -> Html:
    """Return a table that scrolls sideways where the page is narrow; the first ``left`` columns are text."""

    def cells(name: str, row: Sequence[object]) -> Html:
        return join(
            tag(name, cell if isinstance(cell, str) else figure_text(cell), class_="t" if i < left else None)
            for i, cell in enumerate(row)
        )

    header = tag("thead", tag("tr", cells("th", head)))
    body = tag("tbody", *(tag("tr", cells("td", row)) for row in rows))
    return tag("div", tag("table", header, body, class_=class_), class_="scroll")


def section(title: str, *content: object, id: str | None = None) -> Html:
    """Return a part of the page under a heading."""
    return tag("section", tag("h2", title), *content, id=id)


def details(title: str, *content: object, open: bool = False) -> Html:
    """Return content behind a line that opens it."""
    inner = join((tag("summary", title), *content))
    return Html(f"<details{' open' if open else ''}>{inner}</details>")


def chart(of: Chart) -> Html:
    """Return a chart's place in the page: its data, its SVG button, and the table behind it."""
    spec = {"data": of.data, "layout": {**of.layout, "height": of.height}}
    data = orjson.dumps(spec, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    for character in "<>&\u2028\u2029":
        data = data.replace(character, f"\\u{ord(character):04x}")
    button = tag("button", "SVG", type="button", **{"data-chart": of.key}, title="save this chart as SVG")
    return tag(
        "figure",
        tag("figcaption", tag("h3", of.title), button),
        tag("p", of.note, class_="note"),
        tag("div", class_="chart", id=of.key, style=f"min-height:{of.height}px"),
        Html(f'<script type="application/json" id="{of.key}-data">{data}</script>'),
        details("the numbers", table(of.head, of.rows, of.table_left)),
    )


def document(title: str, content: Html, charts: bool) -> str:
    """Return the whole page; with ``charts`` plotly's script is in it, once.

    Raises:
        UsageError: plotly is not installed.
    """
    style = (HERE / "style.css").read_text(encoding="utf-8")
    scripts = ""
    if charts:
        code = (plotly_js(), (HERE / "page.js").read_text(encoding="utf-8"))
        scripts = "".join(f"<script>{c.replace('</script', '<' + chr(92) + '/script')}</script>\n" for c in code)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>{content}</main>\n"
        f"{scripts}</body>\n</html>\n"
    )


def plotly_js() -> str:
    """Return the script that plotly's Python package carries, without loading the package.

    Raises:
        UsageError: plotly is not installed.
    """
    spec = find_spec("plotly")
    for folder in spec.submodule_search_locations or [] if spec else []:
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise UsageError("the page needs the package plotly (pip install plotly); --no-html makes the report without it")
