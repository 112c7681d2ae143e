"""``locust-llm report``: read a run, print its table, write ``summary.json``, ``summary.csv``, ``report.html``.

The one thing to know: it is thin; a report from Python is ``summary.report`` and ``table.render``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from .breakdown import breakdown
from .ci import STEP_SUMMARY, one_line, write_junit, write_markdown
from .curve_command import LIMIT_HELP, add_prices, curve, given_prices
from .definitions import NAMES, compare
from .definitions_table import render_definitions
from .more_table import render_more
from .runs import are_several, given, load_run
from .summary import write
from .table import render
from .token_check import token_check
from .window import ALL, STEADY

EPILOG = """examples:
  locust-llm report reports/20261129T201500Z-chat
  locust-llm report reports/20261129T201500Z-chat --window 30..90
  locust-llm report reports/*-sweep --limit 'ttft:p95<=500ms'
  locust-llm report reports/20261129T201500Z-chat --slo 'ttft:p95<=500ms, error_rate<=1%' --junit objectives.xml
  locust-llm report events-host1.jsonl events-host2.jsonl --no-write --definitions vllm,aiperf
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``locust-llm report`` to a parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="RUN_DIR|events*.jsonl",
        help="a run folder, or its log files; several run folders make a latency-throughput curve",
    )
    parser.add_argument(
        "--window",
        default=STEADY,
        metavar=f"{STEADY}|{ALL}|A..B",
        help="part of the run that the figures are of (default: steady); A and B are seconds after the start",
    )
    parser.add_argument("--no-write", action="store_true", help="print only: write no files")
    parser.add_argument("--no-html", action="store_true", help="write summary.json and summary.csv, but no report.html")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only exchanges with this name, model, worker, stage … or tag; repeatable (KEY=A,B either, KEY!=A not)",
    )
    parser.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="KEY",
        help="figures per worker, stage, turn, model, name or any tag too; repeatable",
    )
    parser.add_argument(
        "--definitions",
        metavar="TOOL,...",
        help=f"show the same log under the rules of other tools: {','.join(NAMES)} (or all)",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="compare the server's token counts with this tokenizer (a folder or a hub id), on the texts that are kept",
    )
    add_prices(parser)
    _add_objectives(parser)
    parser.add_argument(
        "--limit", action="append", metavar="METRIC:STATISTIC<=TIME", help=f"several runs: {LIMIT_HELP}"
    )
    parser.add_argument(
        "--out", metavar="DIR", help="several runs: where curve.csv and curve.html go (default: beside them)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command with parsed arguments; return its exit code.

    With objectives: 0 met, 3 missed, 4 undecided, 5 spoilt by the client.

    Raises:
        UsageError: what to mend.
    """
    tools = _tools(args.definitions)
    args.sources = [str(source) for source in given(args.sources)]
    if are_several(args.sources):
        _refuse(args, _OF_ONE, "is for one run; several runs make a curve, with --limit")
        _print(curve(args))
        return 0
    _refuse(args, _OF_SEVERAL, "is for the curve of several runs; this is one, which --slo judges")
    folder = None if args.no_write else _folder(args.sources)
    loaded = load_run(
        args.sources, args.window, args.where, given_prices(args), (args.slo, args.goodput, args.exit_undecided),
        args.limits,
    )  # fmt: skip
    analysis, summary = loaded.analysis, loaded.summary
    if args.by:
        summary["by"] = [breakdown(analysis, key) for key in dict.fromkeys(args.by)]
    if args.tokenizer:
        found, why = token_check(analysis.here, args.tokenizer)
        if found:
            summary["total"]["token_check"] = found
        else:
            summary["total"]["absent"]["token_check"] = why
    text = render(summary)
    if more := render_more(summary):
        text += "\n" + more
    if tools:
        text += "\n" + render_definitions(compare(analysis.here.log, tools), summary["total_all"])
    _print(f"{text}\n{one_line(summary)}\n")
    if folder is not None:
        write(summary, folder)
        if not args.no_html:
            from .html import write_html

            write_html(analysis, summary, folder)
    if args.junit:
        write_junit(summary, args.junit)
    if args.markdown or "objectives" in summary:
        write_markdown(summary, args.markdown)
    return int(summary["objectives"]["exit_code"]) if "objectives" in summary else 0


_OF_ONE = ("slo", "goodput", "exit_undecided", "junit", "markdown", "by", "definitions", "tokenizer")
_OF_SEVERAL = ("limit", "out")


def _refuse(args: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Raise for the options that would be without effect here, so that nobody waits for what they ask."""
    for name in names:
        if getattr(args, name) not in (None, "", []):
            raise UsageError(f"--{name.replace('_', '-')} {why}")


def _add_objectives(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--slo", metavar="OBJECTIVES", help='judge these, such as "ttft:p95<=500ms, error_rate<=1%%" (else the run\'s)'
    )
    parser.add_argument(
        "--goodput", metavar="LIMITS", help='what a good request meets: "ttft<=500ms tpot<=50ms", or "ttft:500 tpot:50"'
    )
    parser.add_argument("--exit-undecided", type=int, metavar="CODE", help="exit code if undecided (default 4)")
    parser.add_argument(
        "--limits", metavar="NAME=VALUE,...",
        help='beyond what a measurement is doubted, such as "error=2%%, lag_p99=30ms" (else the run\'s)',
    )  # fmt: skip
    parser.add_argument("--junit", default="", metavar="FILE", help="write the objectives as JUnit XML")
    parser.add_argument(
        "--markdown", default="", metavar="FILE",
        help=f"write the result as Markdown (with objectives also to ${STEP_SUMMARY}, if set)",
    )  # fmt: skip


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def _tools(given: str | None) -> list[str]:
    if not given:
        return []
    tools = list(NAMES) if given.strip() == "all" else [name.strip() for name in given.split(",") if name.strip()]
    for name in tools or [given]:
        if name not in NAMES:
            raise UsageError(f'--definitions knows {", ".join(NAMES)} and all (got "{name}")')
    return list(dict.fromkeys(tools))


def _folder(sources: list[str]) -> Path:
    """Return where the summary goes: beside the logs."""
    folders = {Path(s) if Path(s).is_dir() else Path(s).parent for s in sources}
    if len({folder.resolve() for folder in folders}) > 1:
        raise UsageError("the logs are in several folders, so the summary has no place; use --no-write to print only")
    return folders.pop()
