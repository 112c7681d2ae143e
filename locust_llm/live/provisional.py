"""Streams that are still open: what of them has been counted already, and how that becomes exact.

The one thing to know: an open stream gives its TTFT, its gaps and its tokens as they come (one token an event where
the server does not say). When its record comes, the rest is added; where the record says otherwise (several tokens an
event, a failure), all that was given is taken back first, from the same seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from operator import sub
from typing import TYPE_CHECKING

from ..exchange import Exchange
from ..wire.answer import TOKEN_KINDS, VISIBLE_KINDS
from .delta import Key
from .figures import CONFIRMED, KNOWN, Figures
from .gaps import SECOND_US, Spread, pieces
from .tally import Tally

if TYPE_CHECKING:
    from ..recording import Draft
    from ..target import Attempt

YOUNG_US = 2_000_000
"""A stream younger than this is not looked into: most short ones end before, and their records cost less."""
_SHARE_OF_ITL = 0.95


class Given:
    """What has been counted of an open stream.

    Attributes:
        events: so many of its events have been looked at; ``tokens`` of them are token events.
        before_us: offset of its last token event; -1 without one.
        values: ``ttft`` and ``ttfvt`` (us), as far as they were counted.
        unknown: token events without a known number of tokens that were counted, by second.
        input: input tokens that were counted, as many as were asked for.
        known: the server says how many tokens each event has. itl: its gaps were counted as inter-token latencies.
    """

    __slots__ = (
        "attempt",
        "before_us",
        "events",
        "input",
        "itl",
        "key",
        "known",
        "start_us",
        "tokens",
        "unknown",
        "values",
    )

    def __init__(self, key: Key, attempt: Attempt, start_us: int, known: bool, itl: bool) -> None:
        self.key = key
        self.attempt = attempt
        self.start_us = start_us
        self.known = known
        self.itl = itl
        self.events = self.tokens = self.input = 0
        self.before_us = -1
        self.values: dict[str, int] = {}
        self.unknown: dict[int, int] = {}


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
        self._gaps_known = self._gaps_all = 0

    def forget(self) -> None:
        """A new epoch: what was given is gone and is given anew, but for tokens that had arrived before."""
        self._given.clear()

    def look(self, exchange: str, draft: Draft, attempt: Attempt, now_ns: int) -> tuple[bool, bool]:
        """Count what is new of an open stream; returns whether it is in flight, and decoding.

        Args:
            now_ns: monotonic.
        """
        answer, transfer = attempt.answer, attempt.transfer
        if not transfer.start_ns:
            return False, False
        flying = not transfer.end_ns
        given = self._given.get(exchange)
        if given is not None and given.attempt is not attempt:
            self._take_back(given)
            self._second_of(given.start_us // SECOND_US).add("input", -given.input)
            given = None
        count = len(answer.times_ns)
        if not count or answer.whole or not draft.call.stream:
            return flying, False
        if given is None:
            if now_ns - transfer.start_ns < YOUNG_US * 1000:
                return flying, flying and answer.has_tokens()
            first = next((i for i, kind in enumerate(answer.kinds) if kind in TOKEN_KINDS), None)
            if first is None:
                return flying, False
            given = self._given[exchange] = self._begin(draft, attempt, answer.tokens[first] >= 0)
        if count > given.events:
            self._give(given, given.events, count)
        return flying, flying

    def ended(self, record: Exchange, figures: Figures) -> Given | None:
        """Return what was given of a stream that is over, if it can stay; what cannot is taken back."""
        if figures.gives_gaps:
            self._gaps_all += 1
            self._gaps_known += figures.gives_itl
        given = self._given.pop(record.exchange, None)
        if given is not None and given.input:  # what the record says of it is counted anew
            self._second_of(given.start_us // SECOND_US).add("input", -given.input)
        if given is None or self._holds(given, record, figures):
            return given
        self._take_back(given)
        return None

    def arrive(self, row: Tally, record: Exchange, figures: Figures, given: Given | None) -> None:
        """Count a record's events, without those that were given."""
        spread, start_us = self._spread, record.start_us
        if not record.streamed:
            at = start_us + record.end_us
            if at >= spread.since_us:
                spread.arrived(row, at // SECOND_US, 1, figures.n or 0, known=True, failed=figures.failed)
            return
        if figures.k:
            self._stream(row, record, figures, given)
        if figures.hidden:  # reasoning that was never streamed counts at the first token event
            at = start_us + (sum(record.event_gaps_us[: figures.runs[0][0] + 1]) if figures.k else record.end_us)
            if at >= spread.since_us:
                spread.arrived(row, at // SECOND_US, 0, figures.hidden, known=True, failed=figures.failed)

    # ---- helpers

    def _begin(self, draft: Draft, attempt: Attempt, known: bool) -> Given:
        key = (draft.name, draft.target.api.name, draft.call.model)
        start_us, since_us = draft.run.anchor.wall_us(attempt.transfer.start_ns), self._spread.since_us
        given = Given(key, attempt, start_us, known, known or self._one_each)
        begun_us = max(start_us, since_us)
        self._row_of(key).seen(begun_us, begun_us)
        if draft.asked_in and start_us >= since_us:
            given.input = draft.asked_in
            self._second_of(start_us // SECOND_US).add("input", given.input)
        return given

    @property
    def _one_each(self) -> bool:
        """Whether a gap may be taken for an inter-token latency until its record says so."""
        return self._gaps_known >= _SHARE_OF_ITL * self._gaps_all

    def _stream(self, row: Tally, record: Exchange, figures: Figures, given: Given | None) -> None:
        first_us, gaps, m = token_gaps(record, figures)
        known = figures.state == KNOWN
        if figures.gives_gaps:
            self._stretch(row, gaps, m[1:] if m is not None and known else None, figures)
        weight = None if figures.n_stream is None else figures.n_stream / figures.k
        if given is not None:
            done = given.tokens
            gaps = gaps[done - 1 :]
            at_us = list(accumulate(gaps, initial=given.before_us))[1:]
            m = None if m is None else m[done:]
        else:
            at_us = list(accumulate(gaps, initial=first_us))
        self._spread.add(
            row, record.start_us, at_us, gaps, weight=weight, m=m if known else None, itl=figures.gives_itl,
            counts=figures.gives_gaps, failed=figures.failed,
        )  # fmt: skip
        if given is not None and weight is not None:
            for second, events in given.unknown.items():
                self._spread.arrived(row, second, -events, 0.0, known=False)
                self._spread.arrived(row, second, events, weight * events, known=True)

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
        answer, start_ns = given.attempt.answer, given.attempt.transfer.start_ns
        kinds, times = answer.kinds[begin:end], answer.times_ns[begin:end]
        m = answer.tokens[begin:end] if given.known else None
        if kinds.count(kinds[0]) != len(kinds) or kinds[0] not in TOKEN_KINDS:
            picked = [i for i, kind in enumerate(kinds) if kind in TOKEN_KINDS]
            kinds, times = [kinds[i] for i in picked], [times[i] for i in picked]
            m = None if m is None else [m[i] for i in picked]
        if sign > 0:
            given.events = end
        if not times:
            return
        if m is not None and min(m) < 0:
            # Where it no longer says how many, its record will not either, and all of this is taken back then.
            m = [max(number, 1) if number < 0 else number for number in m]
        row = self._row_of(given.key)
        at_us = [(time_ns - start_ns) // 1000 for time_ns in times]
        gaps = list(map(sub, at_us[1:], at_us))
        if sign > 0:
            self._first(given, row, at_us, kinds)
            if given.before_us >= 0:
                gaps.insert(0, at_us[0] - given.before_us)
            given.tokens += len(times)
            given.before_us = at_us[-1]
        self._spread.add(row, given.start_us, at_us, gaps, m=m, itl=given.itl, sign=sign)
        if sign > 0 and m is None:
            since_us = self._spread.since_us
            for second, first, last in pieces(given.start_us, at_us):
                counted = last - first
                if second * SECOND_US < since_us:
                    counted = sum(given.start_us + at >= since_us for at in at_us[first:last])
                given.unknown[second] = given.unknown.get(second, 0) + counted

    def _first(self, given: Given, row: Tally, at_us: list[int], kinds: list[str]) -> None:
        if given.before_us < 0:
            given.values["ttft"] = value = at_us[0]
            row.of("ttft").add_provisional(value)
            self._second_of((given.start_us + value) // SECOND_US).of("ttft").add_provisional(value)
        if "ttfvt" not in given.values:
            visible = next((i for i, kind in enumerate(kinds) if kind in VISIBLE_KINDS), None)
            if visible is not None:
                given.values["ttfvt"] = value = at_us[visible]
                row.of("ttfvt").add_provisional(value)

    def _take_back(self, given: Given) -> None:
        row = self._row_of(given.key)
        for name, value in given.values.items():
            row.of(name).add_provisional(value, -1)
            if name == "ttft":
                second = self._second_of((given.start_us + value) // SECOND_US)
                second.of("ttft").add_provisional(value, -1)
        self._give(given, 0, given.events, -1)

    def _stretch(self, row: Tally, gaps: list[int], m: list[int] | None, figures: Figures) -> None:
        """Take note of the extremes of a stream's gaps: those that were counted while it was open are final now."""
        low, high = min(gaps), max(gaps)
        row.of("icl").stretch(low, high)
        if not figures.gives_itl:
            return
        if m is None:
            row.of("itl").stretch(low, high)
        elif each := [gap / number for gap, number in zip(gaps, m, strict=True) if number > 0]:
            row.of("itl").stretch(min(each), max(each))


def token_gaps(record: Exchange, figures: Figures) -> tuple[int, list[int], list[int] | None]:
    """Return the offset of the first token event, the gaps between them (us), and the tokens of each."""
    gaps, tokens = record.event_gaps_us, record.event_tokens
    begin, end = figures.runs[0]
    first_us = sum(gaps[: begin + 1])
    if len(figures.runs) == 1:
        return first_us, gaps[begin + 1 : end], None if tokens is None else tokens[begin:end]
    at_us = list(accumulate(gaps))
    places = [i for a, b in figures.runs for i in range(a, b)]
    at_us = [at_us[i] for i in places]
    return first_us, list(map(sub, at_us[1:], at_us)), None if tokens is None else [tokens[i] for i in places]
