"""``locust-llm export``: write runs in the files of another tool.

The one thing to know: several runs go into one output folder; two that would write the same file are refused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...errors import UsageError
from ..definitions import NAMES, found_by
from ..runs import Run, are_several, given, load_run
from ..summary import write_file
from . import aiperf, genai_perf, guidellm, llmperf, tables, vllm
from .common import Files

FORMATS: Mapping[str, Callable[[Sequence[Run]], Files]] = {
    "llmperf": llmperf.files,
    "vllm": vllm.files,
    "genai-perf": genai_perf.files,
    "genai-perf-24.06": genai_perf.files_2406,
    "aiperf": aiperf.files,
    "guidellm": guidellm.files,
    "parquet": tables.parquet,
    "csv": tables.csv,
}

EPILOG = """examples:
  locust-llm export reports/RUN --to vllm
  locust-llm export reports/RUN --to parquet --out tables
  locust-llm export reports/*-sweep --to genai-perf-24.06 --out .      a tree ./artifacts as NVIDIA's guide reads it
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``locust-llm export`` to a parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("sources", nargs="+", metavar="RUN|events*.jsonl", help="run folders, or one run's log files")
    parser.add_argument("--to", required=True, choices=list(FORMATS), help="the layout (MAX reads that of vllm)")
    parser.add_argument("--out", metavar="DIR", help="folder for the files (default, for one run: RUN/export)")
    parser.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="only some exchanges, as in locust-llm report"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command with parsed arguments; return its exit code.

    Raises:
        UsageError: what to mend.
    """
    written, left_out = export(args.sources, args.to, args.out, args.where)
    for path in written:
        print(path)
    if left_out:
        print(f"locust-llm: note: {args.to} has no place for {left_out}", file=sys.stderr)
    return 0


def export(
    sources: Sequence[str], to: str, out: str | None = None, where: Sequence[str] = ()
) -> tuple[list[Path], str]:
    """Write runs in the layout ``to`` (a key of ``FORMATS``); return the files, and in words what has no place in them.

    Parameters:
        sources: run folders, or the log files of one run.
        out: the folder; None is ``RUN/export``, for one run.

    Raises:
        UsageError: nothing to read or measured, two runs would write the same file, or a file cannot be written.
    """
    paths = given(sources)
    groups = [[path] for path in paths] if are_several(paths) else [paths]
    if out is None and len(groups) > 1:
        raise UsageError("several runs: say where their files go with --out DIR")
    first = paths[0]
    folder = Path(out) if out is not None else (first if first.is_dir() else first.parent) / "export"
    runs = [load_run(group, where=where) for group in groups]
    written: list[Path] = []
    for name, content in FORMATS[to](runs):
        path = folder / name
        if path in written:
            raise UsageError(
                f"two of the runs would write {path}: they have the same model, lengths and users; export one by one"
            )
        _make(path.parent)
        if isinstance(content, bytes):
            write_file(path, content)
        else:
            content(path)
        written.append(path)
    return written, _left_out(runs, to)


def _left_out(runs: Sequence[Run], to: str) -> str:
    """Return how many successes a tool's rules do not count, and how many exchanges were cut; "" if none were."""
    tool = to.removesuffix("-24.06")
    if tool not in NAMES:
        return ""
    parts = []
    for run in runs:
        log, figures = run.analysis.overall.log, run.analysis.overall.figures
        ok = figures.counted & figures.ok
        uncounted = int((ok & ~found_by(tool, log, figures).valid).sum())
        cut = int((figures.counted & figures.cut).sum())
        shown = [f"{uncounted} successes that it does not count (not streamed, or no answer text)"] if uncounted else []
        shown += [f"{cut} exchanges that were cut"] if cut else []
        if shown:
            parts.append(f"{' and '.join(shown)} of {run.summary['run']}")
    return "; ".join(parts)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"--out {folder}: cannot be made ({e.strerror})") from None
