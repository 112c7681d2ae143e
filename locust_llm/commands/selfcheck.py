"""``locust-llm selfcheck``: what may this machine be trusted to measure?

It runs the tool itself, as a user would, against the simulated server at rising load, and compares each event with the
server's truth log. The one thing to know: server and client share the machine, so what it finds is a lower bound.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..sim.options import DURATION, SimOptions

if TYPE_CHECKING:
    from ..telemetry.check import LoadCheck, Schedule

DEFAULT_STREAMS = "10,50,100,200,400,800"
TTFT_S = 0.05
EXIT_NOT_SOUND = 1
UNSOUND_IN_A_ROW = 2
"""After so many loads in a row that are not sound, or at which the simulator was late, no larger one is tried."""
_SLACK_S = 180.0

EPILOG = """examples:
  locust-llm selfcheck
  locust-llm selfcheck --streams 100,200,300 --itl 5ms
  locust-llm selfcheck --processes 2 --json selfcheck.json
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to check, validated."""

    streams: tuple[int, ...]
    itl_s: float
    tokens: int
    seconds: int
    processes: int
    json: Path | None

    @property
    def schedule(self) -> Schedule:
        """What the simulator is told to do."""
        from ..telemetry.check import Schedule

        return Schedule(TTFT_S, self.itl_s, self.tokens)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``locust-llm selfcheck`` to a parser."""
    parser.description = (
        "Measure this machine against a simulated server whose truth is known, at rising load: errors of TTFT and ITL, "
        "CPU a token, and the highest load that is measured soundly. Nothing but this machine is contacted."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add = parser.add_argument
    add("--streams", default=DEFAULT_STREAMS, metavar="N,N,...", help="loads to try, rising (default: %(default)s)")
    add("--itl", default="10ms", metavar="TIME", help="true time between the tokens of a stream (default: %(default)s)")
    add("--tokens", default="100", metavar="N", help="tokens of an answer, one event each (default: %(default)s)")
    add("--seconds", default="8", metavar="S", help="how long each load lasts (default: %(default)s)")
    add("--processes", default="1", metavar="N", help="worker processes of the load test (default: %(default)s)")
    add("--json", default="", metavar="FILE", help="write all figures there, too")


def run(args: argparse.Namespace) -> int:
    """Check this machine; return 0 if a load was measured soundly, 1 if not even the smallest was.

    Raises:
        UsageError: a bad option, or a run of the tool that failed.
    """
    from . import selfcheck_words as words

    plan = read_plan(args)
    print(words.heading(plan), flush=True)
    loads: list[LoadCheck] = []
    for load in measure(plan):
        loads.append(load)
        print(words.row(load), flush=True)
    print(words.conclusion(plan, loads), flush=True)
    if plan.json is not None:
        _write(plan.json, words.to_json(plan, loads))
    return 0 if any(load.sound for load in loads) else EXIT_NOT_SOUND


def measure(plan: Plan) -> Iterator[LoadCheck]:
    """Yield each load as soon as it is checked; ends early after two in a row that say nothing more."""
    in_a_row = 0
    for streams in plan.streams:
        load = _measure_one(plan, streams)
        yield load
        late = load.server is not None and load.server.was_the_limit
        in_a_row = 0 if load.sound and not late else in_a_row + 1
        if in_a_row == UNSOUND_IN_A_ROW:
            return


def read_plan(args: argparse.Namespace) -> Plan:
    """Validate the options.

    Raises:
        UsageError: one of them is wrong; the line names it.
    """
    streams = tuple(_whole("--streams", item, 1) for item in args.streams.split(","))
    if any(b <= a for a, b in pairwise(streams)):
        raise UsageError(f'--streams must rise, such as {DEFAULT_STREAMS} (got "{args.streams}")')
    processes = _whole("--processes", args.processes, 1)
    if streams[0] < processes:
        raise UsageError(f"--streams must be at least as many as --processes ({processes}) (got {streams[0]})")
    plan = Plan(
        streams,
        _itl_s(args.itl),
        _whole("--tokens", args.tokens, 2),
        _whole("--seconds", args.seconds, 1),
        processes,
        Path(args.json) if args.json else None,
    )
    needed_s = 3 * plan.schedule.exchange_s
    if plan.seconds < needed_s:
        raise UsageError(
            f"--seconds must be at least {needed_s:.1f}, three answers of --tokens {plan.tokens} at --itl {args.itl} "
            f"(got {plan.seconds})"
        )
    if plan.json is not None and not plan.json.parent.is_dir():
        raise UsageError(f"--json {plan.json}: there is no folder {plan.json.parent}; make it, or name another file")
    return plan


# ---- helpers


def _measure_one(plan: Plan, streams: int) -> LoadCheck:
    from ..sim.process import start
    from ..sim.truth import read_truth
    from ..telemetry.check import check
    from ..telemetry.trial import run_tool
    from ..telemetry.watch import Watch

    with tempfile.TemporaryDirectory(prefix="locust-llm-selfcheck-") as work:
        log, out = Path(work) / "truth.bin", Path(work) / "run"
        out.mkdir()
        options = SimOptions(ttft=TTFT_S, itl=plan.itl_s, tokens=plan.tokens, truth_log=str(log))
        arguments = [
            "-u", str(streams), "-t", f"{plan.seconds}s", "--only-summary",
            "--llm-input-tokens", "100", "--llm-output-tokens", str(plan.tokens), "--llm-seed", "1",
        ]  # fmt: skip
        if plan.processes > 1:
            arguments += ["--processes", str(plan.processes)]
        with start(options) as simulator, Watch(simulator.pid) as server_watch:
            trial = run_tool(simulator.url, out, arguments, plan.seconds + _SLACK_S)
        return check(trial, read_truth(log), plan.schedule, server_watch, streams, plan.processes)


def _whole(option: str, text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise UsageError(f'{option} must be a whole number of {least} or more (got "{text}")')
    return value


def _itl_s(text: str) -> float:
    try:
        value = float(DURATION.read(text))
    except (ValueError, KeyError):
        value = 0.0
    if not (value > 0 and DURATION.good(value)):
        raise UsageError(f'--itl must be {DURATION.must_be}, above 0 (got "{text}")')
    return value


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as e:
        raise UsageError(f"--json {path}: cannot be written ({e.strerror}); name another file") from None
