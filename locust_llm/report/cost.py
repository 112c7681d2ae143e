"""What a run costs: by the price of tokens, by the price of the deployment's hour, or both (metrics.md 4).

The one thing to know: everything is of one scope's window: tokens of its successes, and its rates. Prices have no
currency here; costs are in that of the prices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError

KEYS = (
    "per_request", "per_1k_requests", "per_1k_output_tokens", "per_1m_output_tokens", "per_1m_tokens", "per_hour",
)  # fmt: skip
_HOUR = 3600.0
_COMPARED = {"per_1k_requests": "1k req", "per_1m_output_tokens": "1M out"}


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per million input and output tokens, and per hour of the deployment; None where not given."""

    input: float | None = None
    output: float | None = None
    hour: float | None = None

    def __bool__(self) -> bool:
        return (self.input, self.output, self.hour) != (None, None, None)


def prices(
    input: float | None, output: float | None, hour: float | None, meta: Mapping[str, Any] | None = None
) -> Prices:
    """Return the prices given, else those of the run card's meta (``price_input``, ``price_output``, ``price_hour``).

    Raises:
        UsageError: a price is no number from 0 on, or one of the two token prices is missing.
    """
    given = {"input": input, "output": output, "hour": hour}
    found = Prices(**{name: _price(name, value, meta or {}) for name, value in given.items()})
    if (found.input is None) != (found.output is None):
        has, lacks = ("input", "output") if found.output is None else ("output", "input")
        raise UsageError(f"--price-{has} needs --price-{lacks} beside it (0 if they are free)")
    return found


def cost(scope: Mapping[str, Any], of: Prices) -> dict[str, Any]:
    """Return the costs of a scope: ``{"prices", "tokens": {KEYS…}, "hour": {KEYS…}, "absent": {part: why}}``."""
    shown = {name: p for name in ("input", "output", "hour") if (p := getattr(of, name)) is not None}
    out: dict[str, Any] = {"prices": shown}
    absent: dict[str, str] = {}
    rates, metrics = scope["rates"], scope["metrics"]
    per_s = rates.get("requests_per_s", 0.0)
    if of.input is not None and of.output is not None:
        lengths = [metrics[name]["mean"] for name in ("input_tokens", "output_tokens") if name in metrics]
        if len(lengths) == 2:
            each = (lengths[0] * of.input + lengths[1] * of.output) / 1e6
            out["tokens"] = _costs(each, lengths[1], sum(lengths), each * per_s * _HOUR if per_s else None)
        else:
            absent["tokens"] = "input or output tokens of the successes are unknown"
    if of.hour is not None:
        if per_s:
            each = of.hour / (per_s * _HOUR)
            output, total = (
                rates[key] / per_s if key in rates else None for key in ("system_output_tps", "system_total_tps")
            )
            out["hour"] = _costs(each, output, total, of.hour)
        else:
            absent["hour"] = "no exchange ended well in the window"
    return out | ({"absent": absent} if absent else {})


def compared(base: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per cost that all runs have, ``{"figure", "base", "new", "change"?}``; a side: the mean of its runs.

    Costs are not tested: by tokens they follow the lengths alone, by the hour the throughput, which is tested itself.

    Parameters:
        base, new: ``total`` of the summaries of a side.
    """
    rows: list[dict[str, Any]] = []
    for by in ("tokens", "hour"):
        for key, label in _COMPARED.items():
            sides = [[of.get("cost", {}).get(by, {}).get(key) for of in side] for side in (base, new)]
            if all(value is not None for side in sides for value in side):
                before, after = (sum(side) / len(side) for side in sides)
                change = {"change": after / before - 1} if before else {}
                rows.append({"figure": f"cost/{label} ({by})", "base": before, "new": after, **change})
    return rows


def _costs(each: float, output: float | None, total: float | None, hour: float | None) -> dict[str, float]:
    """Return the costs from that of a request and its tokens; what would divide by nothing is left out."""
    costs = {
        "per_request": each,
        "per_1k_requests": each * 1e3,
        "per_1k_output_tokens": each / output * 1e3 if output else None,
        "per_1m_output_tokens": each / output * 1e6 if output else None,
        "per_1m_tokens": each / total * 1e6 if total else None,
        "per_hour": hour,
    }
    return {name: value for name, value in costs.items() if value is not None}


def _price(name: str, given: float | None, meta: Mapping[str, Any]) -> float | None:
    where, value = (
        (f"--price-{name}", given) if given is not None else (f"meta price_{name}", meta.get(f"price_{name}"))
    )
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UsageError(f'{where} must be a number, such as 0.60 (got "{value}")') from None
    if not math.isfinite(number) or number < 0:
        raise UsageError(f'{where} must be a number from 0 on (got "{value}")')
    return number
