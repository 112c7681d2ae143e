"""Colours that people with any colour vision can tell apart (Okabe and Ito's eight), with dashes and marks to go along.

The one thing to know: no chart says anything by colour alone: lines have dashes, bars patterns, and a table is behind
each chart.
"""

from __future__ import annotations

BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PURPLE, SKY, GREY, BLACK = "#cc79a7", "#56b4e9", "#8a939c", "#1b1f24"

SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down")
PATTERNS = ("", "/", "x", "-", "\\", "|", "+", ".")


def rgba(colour: str, opacity: float) -> str:
    """Return a colour seen through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
