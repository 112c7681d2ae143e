"""Goodput while it happens: which exchanges met every limit of ``--llm-goodput`` (as ``report/goodput.py``)."""

from __future__ import annotations

from collections.abc import Sequence

from ..exchange import Exchange
from ..report.metrics import METRICS
from ..report.objectives import OF_GAPS, Limit
from .figures import KNOWN, Figures
from .provisional import token_gaps
from .tally import Tally


class Goods:
    """Counts good exchanges into tallies.

    Args:
        limits: what each exchange must meet; nothing is counted without.
    """

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._limits = limits

    def count(self, row: Tally, record: Exchange, figures: Figures) -> None:
        """Count one exchange: a failure, or a figure that it does not have, is a miss; one that was cut is neither."""
        if not self._limits or not (figures.ok or figures.failed):
            return
        row.add("good_of")
        if figures.failed:
            row.add("good_failed")
            return
        good = True
        for limit in self._limits:
            value = _value(limit.metric, record, figures)
            if value is None:
                row.add(f"absent {limit}")
            elif value > limit.limit if limit.sign == "<=" else value < limit.limit:
                row.add(f"over {limit}")
            else:
                continue
            good = False
        row.add("good", good)


def _value(metric: str, record: Exchange, figures: Figures) -> float | None:
    """Return a figure in the unit of limits; the values of an exchange are in us, tokens and tokens/s."""
    if metric in OF_GAPS:
        if not figures.gives_itl:
            return None
        value = figures.values.get("tpot") if metric == "itl_mean" else _longest_itl_us(record, figures)
        return None if value is None else value / 1e3
    value = figures.values.get(metric)
    return value if value is None or METRICS[metric].unit != "ms" else value / 1e3


def _longest_itl_us(record: Exchange, figures: Figures) -> float:
    _, gaps, m = token_gaps(record, figures)
    if m is None or figures.state != KNOWN:
        return max(gaps)
    return max(gap / max(number, 1) for gap, number in zip(gaps, m[1:], strict=True))
