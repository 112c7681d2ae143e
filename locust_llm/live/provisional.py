"""Streams that are still open: what of them has been counted already, and how that becomes exact.

The one thing to know: an open stream gives its TTFT, its gaps and its tokens as they come (one token an event where
the server does not say). When its record comes, the rest is added; where the record says otherwise (several tokens an
event, a failure), all that was given is taken back first, from the same seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..exchange import Exchange
from ..wire.answer import TOKEN_KINDS, VISIBLE_KINDS
from .delta import Key
from .figures import CONFIRMED, KNOWN, Figures
from .gaps import SECOND_US, Spread
from .tally import Tally

if TYPE_CHECKING:
    from ..recording import Draft
    from ..target import Attempt

_SHARE_OF_ITL = 0.95


class Given:
    """What has been counted of an open stream.

    Attributes:
        events: so many of its events have been looked at; ``tokens`` of them are token events.
        before_us: offset of its last token event; -1 without one.
        values: ``ttft`` and ``ttfvt`` (us), as far as they were counted.
        by_second: events and tokens that were counted.
        known: the server says how many tokens each event has. itl: its gaps were counted as inter-token latencies.
    """

    __slots__ = ("attempt", "before_us", "by_second", "events", "itl", "key", "known", "start_us", "tokens", "values")

    def __init__(self, key: Key, attempt: Attempt, start_us: int, known: bool, itl: bool) -> None:
        self.key = key
        self.attempt = attempt
        self.start_us = start_us
        self.known = known
        self.itl = itl
        self.events = self.tokens = 0
        self.before_us = -1
        self.values: dict[str, float] = {}
        self.by_second: dict[int, tuple[int, float]] = {}


class Provisional:
    """The open streams of a process.

    Args:
        spread: counts their events.
        row_of, second_of: return the tallies of a name and of a second.
    """

    def __init__(self, spread: Spread, row_of: Callable[[Key], Tally], second_of: Callable[[int], Tally]) -> None:
        self._spread = spread
        self._row_of = row_of
        self._second_of = second_of
        self._given: dict[str, Given] = {}
        self._since_us = 0
        self._gaps_known = self._gaps_all = 0

    def forget(self, since_us: int) -> None:
        """A new epoch: what was given is gone and is given anew, but for tokens that had arrived before."""
        self._since_us = since_us
        self._given.clear()

    def look(self, exchange: str, draft: Draft, attempt: Attempt) -> tuple[bool, bool]:
        """Count what is new of an open stream; returns whether it is in flight, and decoding."""
        answer, transfer = attempt.answer, attempt.transfer
        if not transfer.start_ns:
            return False, False
        flying = not transfer.end_ns
        given = self._given.get(exchange)
        if given is not None and given.attempt is not attempt:
            self._take_back(given)
            given = None
        count = min(len(answer.times_ns), len(answer.kinds), len(answer.tokens))
        if not count or answer.whole or not draft.call.stream:
            return flying, False
        if given is None:
            key = (draft.name, draft.target.api.name, draft.call.model)
            first = next((i for i in range(count) if answer.kinds[i] in TOKEN_KINDS), None)
            if first is None:
                return flying, False
            known = answer.tokens[first] >= 0
            given = Given(key, attempt, draft.run.anchor.wall_us(transfer.start_ns), known, known or self._one_each)
            self._given[exchange] = given
            begun_us = max(given.start_us, self._since_us)
            self._row_of(key).seen(begun_us, begun_us)
        if count > given.events:
            self._give(given, given.events, count)
        return flying, flying and given.tokens > 0

    def ended(self, record: Exchange, figures: Figures) -> Given | None:
        """Return what was given of a stream that is over, if it can stay; what cannot is taken back."""
        if figures.gives_gaps:
            self._gaps_all += 1
            self._gaps_known += figures.gives_itl
        given = self._given.pop(record.exchange, None)
        if given is None:
            return None
        if self._holds(given, record, figures):
            return given
        self._take_back(given)
        return None

    def arrive(self, row: Tally, record: Exchange, figures: Figures, given: Given | None, since_us: int) -> None:
        """Count a record's events, without those that were given."""
        spread = self._spread
        start_us = record.start_us
        if not record.streamed:
            self._whole(row, record, figures, since_us)
            return
        gaps = figures.gives_gaps
        weight = None if figures.n_stream is None else figures.n_stream / max(figures.k, 1)
        if figures.k:
            at_us = spread.array(record.event_gaps_us).cumsum()
            m = spread.array(record.event_tokens or []) if figures.state == KNOWN else None
            if len(figures.runs) == 1:
                a, b = figures.runs[0]
                at_us, m = at_us[a:b], None if m is None else m[a:b]
            else:
                places = spread.array([i for a, b in figures.runs for i in range(a, b)])
                at_us, m = at_us[places], None if m is None else m[places]
            if gaps:
                self._stretch(row, at_us, m, figures)
            done = given.tokens if given is not None else 0
            spread.add(
                row, start_us, at_us[done:], before_us=given.before_us if given is not None else -1, weight=weight,
                m=None if m is None else m[done:], itl=figures.gives_itl, gaps=gaps, failed=figures.failed,
                since_us=since_us,
            )  # fmt: skip
            if given is not None and m is None and weight is not None:
                for second, (events, _) in given.by_second.items():
                    spread.arrived(row, second, -events, 0.0, known=False)
                    spread.arrived(row, second, events, weight * events, known=True)
        if figures.hidden:
            first_us = int(sum(record.event_gaps_us[: figures.runs[0][0] + 1])) if figures.k else record.end_us
            at = start_us + first_us
            if at >= since_us:
                spread.arrived(row, at // SECOND_US, 0, figures.hidden, known=True, failed=figures.failed)
                row.add("hidden", 0 if figures.failed else figures.hidden)

    # ---- helpers

    @property
    def _one_each(self) -> bool:
        """Whether a gap may be taken for an inter-token latency until its record says so."""
        return self._gaps_known >= _SHARE_OF_ITL * self._gaps_all

    def _holds(self, given: Given, record: Exchange, figures: Figures) -> bool:
        return (
            given.start_us == record.start_us
            and record.streamed
            and not figures.failed
            and figures.k >= given.tokens
            and given.known == (figures.state == KNOWN)
            and given.itl == (figures.state in (KNOWN, CONFIRMED))
            and all(figures.values.get(name) == value for name, value in given.values.items())
        )

    def _give(self, given: Given, begin: int, end: int, sign: int = 1) -> None:
        """Count events ``begin`` to ``end`` of an open stream, or take them back."""
        answer, transfer = given.attempt.answer, given.attempt.transfer
        kinds = answer.kinds[begin:end]
        times = answer.times_ns[begin:end]
        tokens = answer.tokens[begin:end]
        if kinds.count(kinds[0]) != len(kinds) or kinds[0] not in TOKEN_KINDS:
            picked = [i for i, kind in enumerate(kinds) if kind in TOKEN_KINDS]
            kinds = [kinds[i] for i in picked]
            times = [times[i] for i in picked]
            tokens = [tokens[i] for i in picked]
        if sign > 0:
            given.events = end
        if not times:
            return
        spread, row = self._spread, self._row_of(given.key)
        at_us = (spread.array(times) - transfer.start_ns) // 1000
        if sign > 0:
            self._first(given, row, at_us, kinds)
        # Where it no longer says how many, its record will not either, and all of this is taken back then.
        m = spread.array([m if m >= 0 else 1 for m in tokens]) if given.known else None
        counted = spread.add(
            row, given.start_us, at_us, before_us=given.before_us if sign > 0 else -1, m=m, itl=given.itl, sign=sign,
            since_us=self._since_us,
        )  # fmt: skip
        if sign > 0:
            for second, (events, number) in counted.items():
                old = given.by_second.get(second, (0, 0.0))
                given.by_second[second] = (old[0] + events, old[1] + number)
            given.tokens += len(times)
            given.before_us = int(at_us[-1])

    def _first(self, given: Given, row: Tally, at_us: Any, kinds: list[str]) -> None:
        if given.before_us < 0:
            given.values["ttft"] = value = int(at_us[0])
            row.of("ttft").add_provisional(value)
            self._second_of((given.start_us + value) // SECOND_US).of("ttft").add_provisional(value)
        if "ttfvt" not in given.values:
            visible = next((i for i, kind in enumerate(kinds) if kind in VISIBLE_KINDS), None)
            if visible is not None:
                given.values["ttfvt"] = value = int(at_us[visible])
                row.of("ttfvt").add_provisional(value)

    def _take_back(self, given: Given) -> None:
        row = self._row_of(given.key)
        for name, value in given.values.items():
            row.of(name).add_provisional(value, -1)
            if name == "ttft":
                second = self._second_of((given.start_us + int(value)) // SECOND_US)
                second.of("ttft").add_provisional(value, -1)
        self._give(given, 0, given.events, -1)

    def _stretch(self, row: Tally, at_us: Any, m: Any, figures: Figures) -> None:
        """Take note of the extremes of a stream's gaps: those that were counted while it was open are final now."""
        gaps = at_us[1:] - at_us[:-1]
        low, high = int(gaps.min()), int(gaps.max())
        row.of("icl").stretch(low, high)
        if not figures.gives_itl:
            return
        if m is None:
            row.of("itl").stretch(low, high)
            return
        counted = m[1:] > 0
        if counted.any():
            each = gaps[counted] / m[1:][counted]
            row.of("itl").stretch(float(each.min()), float(each.max()))

    def _whole(self, row: Tally, record: Exchange, figures: Figures, since_us: int) -> None:
        """An answer that came at once: its tokens arrived at its end."""
        at = record.start_us + record.end_us
        if at >= since_us:
            self._spread.arrived(row, at // SECOND_US, 1, figures.n or 0, known=True, failed=figures.failed)
