"""The live figures on the console of a headless test: a block of a few lines every ten seconds.

The one thing to know: it is made from ``Desk.snapshot`` and printed through Locust's own console logger, under the
rules of Locust's own periodic tables (``--only-summary``, ``--print-stats``). The table at the end is the report's.
"""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap
import time
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import gevent
from locust.env import Environment

from ..report.table import number, plain

if TYPE_CHECKING:
    from ..run import Run
    from .desk import Desk

logger = logging.getLogger(__name__)
console = logging.getLogger("locust.stats_logger")

OFF, FULL = "off", "full"
FIRST_S, EVERY_S = 5.0, 10.0
"""A first sign of life, then a block at each ten seconds of the run."""

_WIDTH, _NARROWEST, _WIDEST = 100, 40, 120
_KINDS, _KINDS_FULL = 3, 8
_NAME = 20
_GAP = 2

Cell = tuple[str, str]
"""A column's title and what stands in it."""


def attach(environment: Environment, desk: Desk) -> None:
    """Print the figures of each run of ``desk`` while it goes on, if this console is one that Locust prints on."""
    options = environment.parsed_options
    if options is None:  # library mode: Locust prints nothing either
        return
    if (options.headless or options.print_stats) and not options.only_summary:
        ticker = _Ticker(desk)
        desk.on_run(ticker.begin, ticker.end)
    if options.json or options.json_file:  # stdout, or that file, holds Locust's figures alone
        events: Any = environment.events
        events.quit.add_listener(lambda **_: _say_where(desk))


def block(snapshot: dict[str, Any], width: int = _WIDTH, full: bool = False, told: Collection[str] = ()) -> str:
    """Return a snapshot as lines of text, none longer than ``width`` columns, the last one empty.

    Args:
        snapshot: what ``Desk.snapshot`` returned.
        full: with a row for each name, the kinds of errors with examples, and all reasons each time.
        told: codes of reasons, and what is incomplete, that the reader has seen already.
    """
    width = max(width, _NARROWEST)
    return "\n".join([*(plain(line) for line in _lines(snapshot, width, full, told)), ""])


def terminal_width() -> int:
    """Return the columns of the terminal behind stderr, as far as they can be read at a glance; 100 if it is none."""
    return min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDEST) if sys.stderr.isatty() else _WIDTH


class _Ticker:
    """Prints a block now and then while a run is on."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._version = 0
        self._told: set[str] = set()
        self._printing: gevent.Greenlet[..., None] | None = None

    def begin(self, run: Run) -> None:
        self.end(run)
        self._told = set()
        if run.settings.console != OFF:
            self._printing = gevent.spawn(self._print, run.settings.console == FULL)

    def end(self, run: Run) -> None:
        if self._printing is not None:
            self._printing.kill(block=False)
            self._printing = None

    def _print(self, full: bool) -> None:
        began = time.monotonic()
        after_s = FIRST_S
        while True:
            gevent.sleep(began + after_s - time.monotonic())
            snapshot = self._desk.snapshot(self._version)
            self._version = snapshot.get("version", 0)  # of no use but to be spared the series
            console.info("%s", block(snapshot, terminal_width(), full, self._told))
            self._told.update(reason["code"] for reason in snapshot["verdict"]["reasons"])
            self._told.update(snapshot.get("incomplete", ()))
            after_s = max(after_s - after_s % EVERY_S + EVERY_S, time.monotonic() - began)


def _lines(of: dict[str, Any], width: int, full: bool, told: Collection[str]) -> Iterator[str]:
    yield from _wrap(_progress(of, full), width)
    yield from _table([_head_cells(of)], width)
    if full:
        yield from _names(of, width)
    yield from _errors(of.get("errors", []), width, full)
    yield from _objectives(of.get("objectives", []), width, full)
    verdict = of.get("verdict", {})
    for reason in verdict.get("reasons", []):
        if full or (reason["level"] != "note" and reason["code"] not in told):
            yield from _wrap(f"  client {reason['level']}: {reason['effect']} ({reason['code']})", width)
    for gap in of.get("incomplete", []):
        if full or gap not in told:
            yield from _wrap(f"  incomplete: {gap}", width)


def _progress(of: dict[str, Any], full: bool) -> str:
    """Return the line that says how far the run is."""
    progress, head = of.get("progress", {}), of.get("head", {})
    parts = []
    elapsed = of.get("elapsed_s")
    if elapsed is not None:
        limit = progress.get("run_time_s")
        parts.append(_clock(elapsed) + (f" of {_clock(limit)}" if limit else ""))
    ended, asked = progress.get("ended"), progress.get("requests_asked")
    if ended is not None:
        parts.append(f"{ended} of {asked} requests" if asked else f"{ended} requests")
    if of.get("state") == "stopping":
        parts.append("stopping")
    elif "remaining_s" in progress:
        parts.append(f"{_clock(progress['remaining_s'])} left")
    if full:
        parts.append(f"{_figure(head, 'users')} users, {_figure(head, 'decoding')} decoding")
    now = time.strftime("%H:%M:%S", time.localtime(of.get("now")))
    return f"LLM {now}  {', '.join(parts)}; {head.get('of', 'last 10 s')}:"


def _head_cells(of: dict[str, Any]) -> list[Cell]:
    """Return what is asked for most, in at most 80 columns while all is well; errors and client are of all the run."""
    head, failed = of.get("head", {}), of.get("total", {}).get("failed", 0)
    share = f" ({head['error_rate']:.1%})" if failed and "error_rate" in head else ""
    return [
        ("in flight", f"{_figure(head, 'in_flight'):>9}"),
        _or(head, ("tok/s", "output_tps"), ("chunks/s", "output_chunks_per_s"), 6),
        ("req/s", f"{_figure(head, 'requests_per_s'):>6}"),
        ("TTFT p50", f"{_figure(head, 'ttft_p50_ms'):>8}"),
        ("p95 ms", f"{_figure(head, 'ttft_p95_ms'):>6}"),
        _or(head, ("ITL p50", "itl_p50_ms"), ("ICL p50", "icl_p50_ms"), 7),
        _or(head, ("p95 ms", "itl_p95_ms"), ("p95 ms", "icl_p95_ms"), 6),
        ("errors", f"{failed}{share}"),
        ("client", str(of.get("verdict", {}).get("state", "unknown"))),
    ]


def _or(of: dict[str, Any], first: Cell, other: Cell, wide: int) -> Cell:
    """Return the cell of a figure, given as title and key, or of the one that stands in its place where it is not."""
    title, key = other if first[1] not in of and other[1] in of else first
    return title, f"{_figure(of, key):>{wide}}"


def _names(of: dict[str, Any], width: int) -> Iterator[str]:
    names = of.get("names", [])
    rows = [(row.get("name", ""), row) for row in names]
    if len(names) > 1:
        rows.append(("total", of.get("total", {})))
    if not rows:
        return
    yield "  since the start"
    longest = min(max(len(name) for name, _ in rows), _NAME)
    table = [[("name", f"{_clip(plain(name), longest):<{longest}}"), *_row_cells(row)] for name, row in rows]
    yield from _table(table, width)


def _row_cells(row: dict[str, Any]) -> list[Cell]:
    def at(metric: str, statistic: str) -> str:
        return _figure(row.get(metric, {}), statistic)

    return [
        ("ended", f"{row.get('counts', {}).get('exchanges', 0):>6}"),
        ("failed", f"{row.get('failed', 0):>6}"),
        ("tok/s", f"{_figure(row, 'system_output_tps'):>6}"),
        ("TTFT p50", f"{at('ttft', 'p50'):>8}"),
        ("p95 ms", f"{at('ttft', 'p95'):>6}"),
        ("ITL p50", f"{at('itl', 'p50'):>7}"),
        ("p95 ms", f"{at('itl', 'p95'):>6}"),
        ("e2e p50", f"{at('e2e_latency', 'p50'):>7}"),
        ("p95 ms", f"{at('e2e_latency', 'p95'):>6}"),
    ]


def _errors(errors: Sequence[dict[str, Any]], width: int, full: bool) -> Iterator[str]:
    if not errors:
        return
    if not full:
        shown = [f"{error['count']} {error['kind']}" for error in errors[:_KINDS]]
        more = [f"{len(errors) - _KINDS} more kinds"] if len(errors) > _KINDS else []
        yield _clip(f"  errors: {', '.join(shown + more)}", width)
        return
    yield "  errors"
    for error in errors[:_KINDS_FULL]:
        example = " ".join(error.get("example", "").split())
        name = f"{error['name']}: " if error.get("name") else ""
        yield _clip(f"  {error['count']:>6}  {name}{error['kind']}{': ' if example else ''}{example}", width)
    if len(errors) > _KINDS_FULL:
        yield f"          {len(errors) - _KINDS_FULL} more kinds"


def _objectives(objectives: Sequence[dict[str, Any]], width: int, full: bool) -> Iterator[str]:
    if not objectives:
        return
    if not full:
        shown = ", ".join(f"{one['text']} {one['state']}" for one in objectives)
        yield from _wrap(f"  objectives: {shown}", width)
        return
    yield "  objectives"
    for one in objectives:
        value = f" ({one['value']})" if one.get("value") else ""
        yield from _wrap(f"    {one['state']:<10}{one['text']}{value}", width)


def _table(rows: Sequence[Sequence[Cell]], width: int) -> list[str]:
    """Return rows of the same columns under their titles; where the width does not hold them, in several parts.

    The first column of a table of several rows says which row it is, and is repeated in each part.
    """
    titles = [title for title, _ in rows[0]]
    wide = [max(len(title), *(len(row[i][1]) for row in rows)) for i, title in enumerate(titles)]
    named = titles[0] == "name"
    parts: list[list[int]] = [[]]
    for i in range(len(titles)):
        if parts[-1] and sum(_GAP + wide[j] for j in (*parts[-1], i)) > width:
            parts.append([0] if named else [])
        parts[-1].append(i)
    lines = []
    for part in parts:
        texts = [titles, *([cell for _, cell in row] for row in rows)]
        for text in texts:
            cells = (f"{text[i]:<{wide[i]}}" if named and i == 0 else f"{text[i]:>{wide[i]}}" for i in part)
            lines.append("".join(" " * _GAP + cell for cell in cells).rstrip())
    return lines


def _figure(of: dict[str, Any], key: str) -> str:
    value = of.get(key)
    return "-" if value is None else str(value) if isinstance(value, int) else number(value)


def _clock(seconds: float) -> str:
    """Return a duration as 0:05, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _wrap(text: str, width: int) -> list[str]:
    lead = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(text, width, subsequent_indent=f"{lead}    ", break_on_hyphens=False)


def _say_where(desk: Desk) -> None:
    if desk.run_folder is not None:
        logger.info("the JSON holds Locust's figures; those of the LLM are in %s/summary.json", desk.run_folder)
