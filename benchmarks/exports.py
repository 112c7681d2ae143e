"""Do the tools themselves read what ``locust-llm export`` writes, and find our figures in it?

    python benchmarks/exports.py --venvs /tmp/venvs             # installs the tools first (5 GB); then half a minute

One short run against the simulated server, with reasoning, failures and cut streams in it, is exported in each layout.
AIPerf, GuideLLM and GenAI-Perf read it with their own classes, in their environments (``file_readers/``); for LLMPerf,
vLLM bench and the older GenAI-Perf it is what their public scripts and NVIDIA's guide do with the files, written
down again here. What they find is compared with ``report --definitions``. Exit code 1: one refuses, or differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common import HERE, Row, Table, leave, options, save, say, show
from peers import install
from venvs import version

from locust_llm.report.definitions import Definition, compare
from locust_llm.report.export.command import export
from locust_llm.report.reading import read
from locust_llm.sim.options import SimOptions
from locust_llm.sim.process import start
from locust_llm.telemetry.trial import clean_environment, run_tool

WITHIN = 5e-4
"""Of a figure: text has two decimals, and moments since 1970 are exact to a quarter of a microsecond."""
MODEL = "meta/llama3-8b-instruct"
SIMULATED = SimOptions(
    ttft=0.03, itl=0.003, jitter=0.2, reasoning=4, error_rate=0.04, cut_rate=0.04, model=MODEL, seed=1
)
_RUN_S, _READ_S = 120.0, 180.0

COLUMNS = [
    ("layout", "layout", ""),
    ("by", "read by", ""),
    ("figures", "figures compared", "d"),
    ("difference", "greatest difference", ".4%"),
    ("agrees", "reads and agrees", ""),
]

TEXT = """\
{requests} requests to the simulated server, {failed} of them failures, exported in each layout and read again. Figures:
requests, TTFT, ITL, TPOT, e2e latency, tokens/s and requests/s as far as the layout has them, from its summary and,
where it has single requests, from these; compared with `report --definitions`."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads a layout. ``rules``: whose definitions it follows; ``package``: what is installed for it, if any."""

    layout: str
    rules: str
    script: str
    by: str
    package: str | None = None


READERS = (
    Reader("aiperf", "aiperf", "aiperf_files.py", "its own classes, its plot of lanes", "aiperf"),
    Reader("guidellm", "guidellm", "guidellm_files.py", "its own classes, its `guidellm export`", "guidellm"),
    Reader("genai-perf", "genai-perf", "genai_perf_files.py", "its own `process-export-files` and CSV", "genai-perf"),
    Reader("genai-perf-24.06", "genai-perf", "guide_files.py", "as NVIDIA's guide does, by row number"),
    Reader("vllm", "vllm", "vllm_files.py", "by key, and by its formulas from its lists"),
    Reader("llmperf", "llmperf", "llmperf_files.py", "by key, and with pandas as its notebook does"),
)


def main() -> int:
    parser = options(__doc__, users=8, requests=200)
    parser.add_argument("--venvs", type=Path, required=True, help="folder for the tools' virtual environments")
    given = parser.parse_args()
    skipped: list[str] = []
    tools = dict(install(given.venvs, [reader.package for reader in READERS if reader.package], skipped))
    with tempfile.TemporaryDirectory(prefix="locust-llm-bench-") as name, start(SIMULATED) as server:
        work = Path(name)
        load = ["-u", str(given.users), "--llm-requests", str(given.requests), "--llm-seed", "1", "--only-summary"]
        lengths = ["--llm-input-tokens", "200,20", "--llm-output-tokens", "60,15"]
        trial = run_tool(server.url, work, [*load, *lengths], _RUN_S)
        log = read([trial.folder])
        rows = []
        for reader in READERS:
            if reader.package is None or reader.package in tools:
                folder = work / reader.layout
                export([str(trial.folder)], reader.layout, str(folder))
                [ours] = compare(log, [reader.rules])
                rows.append(read_again(reader, tools.get(reader.package or ""), folder, ours))
                say(show(rows[-1]))
    failed = trial.summary["failures"]["count"]
    text = TEXT.format(requests=given.requests, failed=failed)
    text += "".join(f"\n\nSkipped: {line}" for line in skipped)
    save(given.json, "Exports, read by the tools themselves", text, [Table("", COLUMNS, rows)], vars(given))
    return 1 if any(row["agrees"] != "yes" for row in rows) else 0


def read_again(reader: Reader, bin_folder: Path | None, folder: Path, ours: Definition) -> Row:
    """Return what a reader finds in an export, against our figures."""
    python = sys.executable if bin_folder is None else str(bin_folder / "python")
    by = (
        reader.by if bin_folder is None else f"{reader.package} {version(bin_folder, str(reader.package))}: {reader.by}"
    )
    row: Row = {"layout": f"`{reader.layout}`", "by": by}
    done = subprocess.run(
        [python, str(HERE / "file_readers" / reader.script), str(folder)], cwd=folder, capture_output=True, text=True,
        env=clean_environment(package=False), timeout=_READ_S, check=False,
    )  # fmt: skip
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return row | {"agrees": f"no: {lines[-1][:200]}"}
    found = json.loads(done.stdout.splitlines()[-1])
    own = figures_of(ours)
    off = {(part, name): abs(value / own[name] - 1) for part, values in found.items() for name, value in values.items()}
    worst = max(off, key=lambda key: off[key])
    agrees = "yes" if off[worst] <= WITHIN else f"no: {worst[1]} of its {worst[0]}"
    return row | {"figures": len(off), "difference": off[worst], "agrees": agrees}


def figures_of(ours: Definition) -> dict[str, float]:
    """Return our figures under a tool's rules by the names that the readers use."""
    out = {"requests": float(ours.metrics["e2e_latency"]["count"])}
    out |= {"output tokens/s": ours.rates["output_tps"], "requests/s": ours.rates["requests_per_s"]}
    names = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2e_latency": "e2e latency"}
    for key, name in names.items():
        for statistic, value in ours.metrics.get(key, {}).items():
            out[f"{name} {statistic}, ms"] = value * 1e3
    return out


if __name__ == "__main__":
    leave(main)
