"""``locust-llm report RUN RUN…`` and ``locust-llm leaderboard RUN…``: several runs at once.

The one thing to know: both are thin; the curve is ``curve``, the boards are ``leaderboard``, the page ``curve_html``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from .curve import DEFAULT_LIMIT, limits_of, point, render_curve, series_of, to_csv
from .leaderboard import Entry, markdown, of_llmperf, of_run
from .llmperf_files import find
from .objectives import Objective
from .runs import Prices, Run, load_run
from .summary import write_file

CURVE_FILES = ("curve.csv", "curve.html")
BOARD_FILES = ("leaderboard.md", "leaderboard.html", "leaderboard.csv")

EPILOG = """examples:
  locust-llm leaderboard reports/*-vllm reports/*-sglang > LEADERBOARD.md
  locust-llm leaderboard reports/RUN llmperf_results/ --out board
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``locust-llm leaderboard`` to a parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("sources", nargs="+", metavar="RUN", help="run folders, and result files or folders of LLMPerf")
    parser.add_argument("--out", metavar="DIR", help=f"write {', '.join(BOARD_FILES)} there (default: print Markdown)")
    parser.add_argument("--limit", action="append", metavar="METRIC:STATISTIC<=TIME", help=LIMIT_HELP)
    add_prices(parser)


_NO_RUNS = (".md", ".html", ".csv")
"""What lies beside runs in their folder and is none."""
LIMIT_HELP = f"latency budget to read the curve by, repeatable (default: {DEFAULT_LIMIT})"


def add_prices(parser: argparse.ArgumentParser) -> None:
    """Add the options of prices; a run card's meta (``price_input`` …) stands in for those not given."""
    for name, what in (("input", "million input tokens"), ("output", "million output tokens"),
                       ("hour", "hour of the deployment")):  # fmt: skip
        parser.add_argument(f"--price-{name}", type=float, metavar="P", help=f"price per {what}")


def run(args: argparse.Namespace) -> int:
    """Run ``locust-llm leaderboard`` with parsed arguments; return its exit code.

    Raises:
        UsageError: what to mend.
    """
    _leaderboard(args)
    return 0


def curve(args: argparse.Namespace) -> str:
    """Return the text of ``locust-llm report`` for several runs, and write ``curve.csv`` and ``curve.html``."""
    limits = _limits(args.limit)
    runs = [
        load_run([source], args.window, args.where, given_prices(args), limits=args.limits) for source in args.sources
    ]
    groups = series_of([point(r.summary, r.card) for r in runs])
    text = render_curve(groups, limits)
    if not args.no_write:
        folder = _folder(args.out) if args.out else _parent(args.sources)
        files = {"curve.csv": to_csv(groups)}
        if not args.no_html:
            from .curve_html import curve_page

            files["curve.html"] = curve_page(groups, limits)
        text += _write(folder, files)
    return text


def given_prices(args: argparse.Namespace) -> Prices:
    """Return the prices of the command line."""
    return args.price_input, args.price_output, args.price_hour


def _leaderboard(args: argparse.Namespace) -> None:
    limits = _limits(args.limit)
    if args.limit and not args.out:
        raise UsageError("--limit reads the curve of leaderboard.html, which --out DIR writes")
    runs: list[Run] = []
    entries: list[Entry] = []
    for source in args.sources:
        if foreign := find(Path(source)):
            entries += [of_llmperf(result) for result in foreign]
            continue
        if len(args.sources) > 1 and Path(source).suffix in _NO_RUNS:
            continue
        loaded = load_run([source], priced=given_prices(args))
        here = loaded.analysis.here
        found = of_run(here.log, here.figures, loaded.card, loaded.summary)
        if not found:
            raise UsageError(f"{source}: no streamed exchange succeeded, so it has no place in the leaderboard")
        runs.append(loaded)
        entries += found
    text = markdown(entries)
    if not args.out:
        print(text, end="")
        return
    from .curve_html import curve_page

    groups = series_of([point(r.summary, r.card) for r in runs])
    files = {"leaderboard.md": text, "leaderboard.html": curve_page(groups, limits, entries)}
    if runs:
        files["leaderboard.csv"] = to_csv(groups)
    print(_write(_folder(args.out), files), end="")


def _limits(given: Sequence[str] | None) -> list[Objective]:
    return [limit for text in given or [DEFAULT_LIMIT] for limit in limits_of(text)]


def _folder(out: str) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"--out {out}: cannot be made ({e.strerror})") from None
    return folder


def _parent(sources: Sequence[str]) -> Path:
    parents = {Path(s).resolve().parent for s in sources}
    if len(parents) > 1:
        raise UsageError("the runs are in several folders; say where the curve goes with --out, or use --no-write")
    return Path(sources[0]).parent


def _write(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        write_file(folder / name, text.encode("utf-8", "replace"))
    return "".join(f"{folder / name}\n" for name in files)
