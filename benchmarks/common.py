"""What the benchmarks share: the C tools, ground-truth servers, runs of the tool, and how results are kept.

The one thing to know: every server listens on 127.0.0.1 and lives only inside its ``with`` block; nothing else is ever
a target. Results go to ``results/NAME.json``, and ``page.py`` makes docs/benchmarks.md of them.
"""

from __future__ import annotations

import argparse
import compileall
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import orjson

from locust_llm import __version__
from locust_llm.errors import UsageError
from locust_llm.sim.truth import read_truth
from locust_llm.telemetry.check import Schedule
from locust_llm.telemetry.trial import Ended, Trial, run_tool
from locust_llm.telemetry.watch import Watch

HERE = Path(__file__).parent
RESULTS = HERE / "results"
FLUSH_S = 0.8
"""The C server writes its log twice a second."""
_UP_S = 5.0
_SLACK_S = 150.0
_SETTLE_S = 1.0

Row = dict[str, Any]

COST_COLUMNS = [
    ("streams", "streams", "d"),
    ("tokens_per_s", "tokens/s", ".0f"),
    ("streaming_us", "streaming, us a token", ".1f"),
    ("whole_us", "whole run, us a token", ".1f"),
]
"""Of the rows that ``token_cost`` returns."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Paths of the C tools, built: the ground-truth server and the C reader (the limit of this machine)."""

    gtserver: str
    cclient: str


@dataclass(frozen=True, slots=True)
class Server:
    """A running ground-truth server."""

    port: int
    schedule: Schedule
    watch: Watch
    _log: Path
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def truth(self) -> npt.NDArray[np.void]:
        """Return its truth log up to now (``sim.truth.read_truth``)."""
        time.sleep(FLUSH_S)
        return read_truth(self._log)


@dataclass(frozen=True, slots=True)
class CReader:
    """What the C reader saw and cost."""

    ttft_mean_ms: float
    events_per_s: float
    cpu_us_per_event: float


@dataclass(frozen=True, slots=True)
class Table:
    """A table of results. ``columns``: member of the row, heading, format (such as ``.2f``; empty for text)."""

    title: str
    columns: Sequence[tuple[str, str, str]]
    rows: Sequence[Row]


def options(doc: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser with ``--json`` and an option for each default; lists take several values."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(default, list):
            parser.add_argument(flag, type=type(default[0]), nargs="+", default=default, help=f"(default: {default})")
        else:
            parser.add_argument(flag, type=type(default), default=default, help=f"(default: {default})")
    name = Path(sys.argv[0]).stem
    parser.add_argument(
        "--json", type=Path, default=RESULTS / f"{name}.json", help=f"results (default: results/{name}.json)"
    )
    return parser


def leave(main: Callable[[], int]) -> NoReturn:
    """Run a benchmark and leave with its exit code; an error is one line."""
    try:
        sys.exit(main())
    except UsageError as e:
        sys.exit(f"error: {e}")


@contextmanager
def workplace() -> Iterator[tuple[Tools, Path]]:
    """Build the C tools into a temporary folder; everything in it goes when the block ends.

    The package is compiled, as pip does it: compiling anew at each start would count as a cost of the tool.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise UsageError("this benchmark needs a C compiler (cc)")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(HERE.parent / "locust_llm", quiet=2)
    with tempfile.TemporaryDirectory(prefix="locust-llm-bench-") as name:
        work = Path(name)
        for tool in ("gtserver", "cclient"):
            subprocess.run([compiler, "-O2", "-w", "-o", work / tool, HERE / f"{tool}.c"], check=True)
        yield Tools(str(work / "gtserver"), str(work / "cclient")), work


@contextmanager
def ground_truth(tools: Tools, work: Path, schedule: Schedule) -> Iterator[Server]:
    """Serve a schedule on a free port with a truth log of its own."""
    port, log = free_port(), work / "truth.bin"
    log.unlink(missing_ok=True)
    ttft_us, itl_us = round(schedule.ttft_s * 1e6), round(schedule.itl_s * 1e6)
    command = [tools.gtserver, str(port), str(ttft_us), str(itl_us), str(schedule.tokens), "1", str(log)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        _wait_until_up(port, process)
        with Watch(process.pid) as watch:
            yield Server(port, schedule, watch, log)
    finally:
        process.terminate()
        process.wait()


def c_reader(tools: Tools, server: Server, streams: int, repeats: int = 2, tokens: int | None = None) -> CReader:
    """Let the C reader take ``repeats`` answers of ``tokens`` on each of ``streams`` connections."""
    schedule = server.schedule
    itl_us = round(schedule.itl_s * 1e6)
    command = [tools.cclient, str(server.port), str(streams), str(tokens or schedule.tokens), str(itl_us), str(repeats)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    def said(label: str) -> float:
        return float(text.split(f"{label}=")[1].split()[0].removesuffix("us"))

    return CReader(said("TTFT mean"), said("ev/s"), said("cpu/ev"))


def closed_loop(
    server: Server, work: Path, streams: int, seconds: int, processes: int = 1, more: Sequence[str] = ()
) -> Trial:
    """Run the tool against a server, ``streams`` users, each one exchange after the other.

    Args:
        seconds: after the start of the last user; 0 if ``more`` says when it ends.
    """
    out = work / "run"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    arguments = [
        "-u", str(streams), "--only-summary", "--llm-seed", "1",
        "--llm-input-tokens", "100", "--llm-output-tokens", str(server.schedule.tokens), *more,
    ]  # fmt: skip
    if seconds:
        arguments += ["-t", f"{seconds}s"]
    if processes > 1:
        port = str(free_port())  # Locust's own may be taken
        arguments += ["--processes", str(processes), "--master-bind-port", port, "--master-port", port]
    return run_tool(server.url, out, arguments, (seconds or 600) + _SLACK_S)


def events_between(truth: npt.NDArray[np.void], begin: float, end: float) -> int:
    """Return how many token events left between two moments (wall clock s)."""
    left_s = truth["time_ns"][truth["index"] > 0] / 1e9
    return int(((left_s >= begin) & (left_s <= end)).sum())


def busy_window(truth: npt.NDArray[np.void], streams: int) -> tuple[float, float]:
    """Return when all streams had been running for a second, and when the last exchange began (wall clock s)."""
    read_s = np.sort(truth["time_ns"][truth["index"] == 0]) / 1e9
    if len(read_s) <= streams or read_s[-1] - read_s[streams - 1] < 2 * _SETTLE_S:
        raise UsageError(f"{len(read_s)} exchanges on {streams} streams are too few to measure; let it run longer")
    return float(read_s[streams - 1]) + _SETTLE_S, float(read_s[-1])


def token_cost(ended: Ended, server: Server, streams: int) -> Row:
    """Return what a token cost a client that held so many streams of a server until it ended.

    *Streaming* is CPU within ``busy_window`` over the tokens that left then, *whole* all CPU over all tokens.
    """
    truth = server.truth()
    begin, end = busy_window(truth, streams)
    events, tokens = events_between(truth, begin, end), int((truth["index"] > 0).sum())
    return {
        "streams": streams,
        "tokens_per_s": events / (end - begin),
        "streaming_us": sum(ended.watch.cpu_s(begin, end).values()) / events * 1e6,
        "whole_us": None if ended.cpu_s is None else ended.cpu_s / tokens * 1e6,
    }


def medians(runs: Sequence[Row]) -> Row:
    """Return the median of each number over runs that have it; other members are those of the first run."""
    row: Row = {}
    for name, first in runs[0].items():
        values = [run[name] for run in runs if isinstance(run.get(name), float)]
        row[name] = statistics.median(values) if isinstance(first, float) and values else first
    return row


def say(text: str) -> None:
    """Print progress."""
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)


def show(row: Row) -> str:
    """Return a row as a short line."""
    return " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items() if v is not None)


def save(path: Path, title: str, text: str, tables: Sequence[Table], given: Mapping[str, Any], runs: Any = ()) -> None:
    """Write results, and make the page anew if they lie where it looks.

    Args:
        text: a few sentences of Markdown: what was measured and how to read it.
        given: the benchmark's options.
        runs: everything that was measured, beside the tables made of it.
    """
    content = {
        "benchmark": Path(sys.argv[0]).stem,
        "title": title,
        "text": text,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "version": __version__,
        "machine": machine(),
        "options": {name: value for name, value in given.items() if not isinstance(value, Path)},
        "tables": [{"title": t.title, "columns": t.columns, "rows": t.rows} for t in tables],
        "runs": runs,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    say(f"results: {path}")
    if path.resolve().parent == RESULTS.resolve():
        from page import write_page

        say(f"page: {write_page()}")


def machine() -> dict[str, Any]:
    """Return what matters of this machine; not its name."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        models = [
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ]
        cpu = models[0] if models else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
    }


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago (the C server cannot choose one itself)."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _wait_until_up(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _UP_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise UsageError(f"the ground-truth server did not come up on port {port}")
