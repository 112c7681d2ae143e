"""What a reader must know first: did it pass, may the figures be trusted, and which of them not.

The one thing to know: a state is a word and a mark, never a colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..client_health import in_words
from ..metrics import METRICS, RATES
from .parts import Html, section, table, tag

_STATES = {
    "sound": ("good", "✓", "The measurement is sound"),
    "doubtful": ("warn", "!", "Some figures are doubtful"),
    "overloaded": ("bad", "✗", "The client was overloaded: do not trust the latencies"),
}
_RESULTS = {"pass": ("good", "✓\u00a0pass"), "fail": ("bad", "✗\u00a0fail"), "undecided": ("warn", "?\u00a0undecided")}


def verdict(summary: dict[str, Any]) -> Html:
    """Return the verdict with its reasons, gravest first."""
    state = summary["verdict"]["state"]
    class_, mark, words = _STATES.get(state, ("warn", "?", str(state)))
    reasons = []
    for reason in summary["verdict"]["reasons"]:
        touched = ", ".join(_label(name) for name in reason["figures"])
        about = tag("span", f" Touches: {touched}.", class_="soft") if touched and reason["level"] != "note" else ""
        reasons.append(tag("li", tag("span", reason["level"], class_="level"), " ", reason["effect"], ".", about))
    listed = tag("ul", *reasons) if reasons else tag("p", "Nothing to distrust was found.")
    health = in_words(summary.get("client", {}), summary["verdict"].get("bounds", {}))
    told = [tag("p", f"The client: {health}.", class_="soft")] if health else []
    return tag("div", tag("strong", f"{mark} {words}"), listed, *told, class_=f"verdict {class_}")


def objectives(summary: dict[str, Any]) -> Html:
    """Return the objectives and what became of them; nothing if none were set."""
    found = summary.get("objectives")
    if not isinstance(found, dict) or not found.get("results"):
        return Html("")
    state = str(found.get("state", "undecided"))
    class_, words = _RESULTS.get(state, ("warn", state))
    rows = [list(_objective(r)) for r in found["results"] if isinstance(r, dict)]
    head = tag("div", tag("strong", f"Objectives: {words}"), class_=f"verdict {class_}")
    return section("Objectives", head, table(["objective", "result", "measured"], rows, left=3))


def _objective(result: dict[str, Any]) -> Iterator[str]:
    state = str(result.get("state"))
    yield str(result.get("objective", result.get("text", "")))
    yield _RESULTS.get(state, ("", state))[1]
    yield str(result.get("why", result.get("message", "")))


def _label(name: str) -> str:
    metric = METRICS.get(name) or RATES.get(name)
    return metric.label.split(" (")[0] if metric else name
