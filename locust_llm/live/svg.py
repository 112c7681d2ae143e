"""A line chart as inline SVG, for pages that must not need a script.

The one thing to know: colours are classes (``c1`` …), so one chart serves a light and a dark page; each class has a
dash of its own as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..report.page.parts import Html, tag

WIDTH, HEIGHT = 620, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 8, 8, 22
_MOST_POINTS = 400
_BRIDGE = 5
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Line:
    """One line. ``values``: one a step, None where there is none. ``colour``: 1 to 7."""

    label: str
    values: Sequence[float | None]
    colour: int


def line_chart(title: str, unit: str, step_s: float, lines: Sequence[Line], marks: Sequence[tuple[float, str]]) -> Html:
    """Return a figure with a chart over the time of a run; nothing if no line has a value.

    Args:
        step_s: seconds from one value to the next.
        marks: seconds after the start, and what happened then.
    """
    there = [line for line in lines if any(value is not None for value in line.values)]
    if not there:
        return Html("")
    span_s = max(len(line.values) for line in there) * step_s
    top = ceiling(max(value for line in there for value in line.values if value is not None))

    def x(at_s: float) -> float:
        return round(_LEFT + at_s / span_s * (WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM), 1)

    parts = []
    for n in range(5):
        at = y(top * n / 4)
        parts.append(tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", _tick(top * n / 4), x=_LEFT - 6, y=at + 4, **{"text-anchor": "end"}))
    every = next((s for s in _STEPS_S if span_s / s <= 8), math.ceil(span_s / 8 / 86400) * 86400)
    parts += [
        tag("text", clock(at), x=x(at), y=HEIGHT - 6, **{"text-anchor": "middle"})
        for at in range(0, int(span_s) + 1, every)
        if x(at) < WIDTH - 14
    ]
    parts += [
        tag(
            "line", tag("title", f"{clock(at)} {text}"), x1=x(at), x2=x(at), y1=_TOP, y2=HEIGHT - _BOTTOM, class_="mark"
        )
        for at, text in marks
        if 0 <= at <= span_s
    ]
    for line in there:
        path = "".join(
            f"{'M' if new else 'L'}{x((i + 0.5) * step_s)},{y(value)}{'h0' if alone else ''}"
            for i, value, new, alone in _pieces(thinned(line.values))
        )
        parts.append(tag("path", d=path, class_=f"c{line.colour}"))
    drawn = tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", **{"aria-label": f"{title}, {unit}"})
    return tag("figure", tag("figcaption", tag("b", title), f" {unit}"), _legend(there), drawn)


def ceiling(value: float) -> float:
    """Return a round number that is at least the value: the top of the axis."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(n * size for n in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10, 12) if n * size >= value * 1.02)


def clock(seconds: float) -> str:
    """Return seconds as 0:42, 12:07 or 1:02:03."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def thinned(values: Sequence[float | None]) -> list[tuple[int, float]]:
    """Return places and values, of a long line only the lowest and the highest of each stretch."""
    stretch = max(1, math.ceil(2 * len(values) / _MOST_POINTS)) if len(values) > _MOST_POINTS else 1
    kept: list[tuple[int, float]] = []
    for start in range(0, len(values), stretch):
        here = [(i, v) for i, v in enumerate(values[start : start + stretch], start) if v is not None]
        if here:
            ends = {min(here, key=lambda one: one[1]), max(here, key=lambda one: one[1])}
            kept += sorted(ends)
    return kept


def _pieces(points: Sequence[tuple[int, float]]) -> list[tuple[int, float, bool, bool]]:
    """Return points with whether a piece of the line begins there, and whether the point is alone in it."""
    usual = max((b[0] - a[0] for a, b in pairwise(points)), default=1)
    bridge = max(_BRIDGE, min(usual, 4 * _BRIDGE) if len(points) > _MOST_POINTS // 2 else 0)
    new = [n == 0 or points[n][0] - points[n - 1][0] > bridge for n in range(len(points))]
    return [(i, v, new[n], new[n] and (n + 1 == len(points) or new[n + 1])) for n, (i, v) in enumerate(points)]


def _tick(value: float) -> str:
    scaled, letter = (value / 1000, "k") if value >= 1e4 else (value, "")
    return f"{float(f'{scaled:.3g}'):g}{letter}"


def _legend(lines: Sequence[Line]) -> Html:
    samples = [
        tag(
            "span", tag("svg", tag("path", d="M1,4h20", class_=f"c{line.colour}"), width=22, height=8), f" {line.label}"
        )
        for line in lines
    ]
    return tag("div", *samples, class_="keys")
