"""Do ``--definitions aiperf`` and ``--definitions guidellm`` say what these tools themselves say?

    python benchmarks/agreement.py --venvs /tmp/venvs            # installs them first; then about 6 minutes

Each tool sends the same number of requests of the same lengths to the same server, then locust-llm does, and its log
is read under that tool's rules. Both are real runs, so what differs is the rules, the noise, and what each client adds
of its own; the server's truth log says which part of a TTFT the client added. Exit code 1: a difference above
2 % that the client's own delay does not explain.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, Server, Table, Tools, closed_loop, ground_truth, leave, options, save, say, workplace
from peers import Order, Peer, install, make_tokenizer, peer_named, true_ttft_ms

from locust_llm.errors import UsageError
from locust_llm.report.definitions import compare
from locust_llm.report.reading import read
from locust_llm.telemetry.check import Schedule
from locust_llm.telemetry.trial import clean_environment, run_watched

WITHIN = 0.02
_SLACK_S = 240.0

COLUMNS = [
    ("tool", "tool", ""),
    ("streams", "streams", "d"),
    ("figure", "figure", ""),
    ("theirs", "it says", ".2f"),
    ("ours", "its rules on our log", ".2f"),
    ("difference", "difference", "+.2%"),
    ("their_delay_ms", "its own delay in it, ms", ".2f"),
    ("agrees", "within 2 %", ""),
]

TEXT = """\
The same server (TTFT {ttft:g} ms, ITL {itl:g} ms, {tokens} tokens) and the same requests, first from the tool, then
from locust-llm, whose log is read under the tool's rules. *Its own delay*: its TTFT above the time from the server's
having read the request to the first token's leaving; *yes, but for its delay*: within 2 % once that is taken off. Rates
hold each client's pauses between requests, too."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool printed: means of TTFT, ITL (as it defines it) and e2e latency in ms, output tokens/s."""

    ttft_ms: float
    itl_ms: float
    e2e_latency_ms: float
    output_tps: float


def aiperf(folder: Path) -> Said:
    result = json.loads((folder / "result" / "profile_export_aiperf.json").read_text())
    names = ("time_to_first_token", "inter_token_latency", "request_latency", "output_token_throughput")
    return Said(*(float(result[name]["avg"]) for name in names))


def guidellm(folder: Path) -> Said:
    metrics = json.loads((folder / "result.json").read_text())["benchmarks"][0]["metrics"]

    def mean(name: str) -> float:
        return float(metrics[name]["successful"]["mean"])

    return Said(
        mean("time_to_first_token_ms"),
        mean("inter_token_latency_ms"),
        mean("request_latency") * 1e3,
        mean("output_tokens_per_second"),
    )


SAID: dict[str, Callable[[Path], Said]] = {"aiperf": aiperf, "guidellm": guidellm}


def main() -> int:
    parser = options(__doc__, streams=[1, 8], rounds=15, ttft_ms=200, itl_us=10_000, tokens=200)
    parser.add_argument("--venvs", type=Path, required=True, help="folder for the tools' virtual environments")
    given = parser.parse_args()
    schedule = Schedule(given.ttft_ms / 1e3, given.itl_us / 1e6, given.tokens)
    rows: list[Row] = []
    skipped: list[str] = []
    with workplace() as (tools, work):
        tokenizer = make_tokenizer(work / "tokenizer")
        for name, bin_folder in install(given.venvs, list(SAID), skipped):
            for streams in given.streams:
                order = (bin_folder, tokenizer, streams, streams * given.rounds)
                rows += agreement(tools, work, schedule, peer_named(name), order)
    text = TEXT.format(ttft=given.ttft_ms, itl=given.itl_us / 1e3, tokens=given.tokens)
    text += "".join(f"\n\nSkipped: {line}" for line in skipped)
    save(given.json, "Agreement with other tools", text, [Table("", COLUMNS, rows)], vars(given))
    return 1 if any(row["agrees"] == "no" for row in rows) else 0


def agreement(
    tools: Tools, work: Path, schedule: Schedule, peer: Peer, order: tuple[Path, Path, int, int]
) -> list[Row]:
    """Run one tool and then ours; return a row for each figure."""
    bin_folder, tokenizer, streams, exchanges = order
    folder = work / peer.package
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    limit_s = 3 * exchanges / streams * schedule.exchange_s + _SLACK_S
    with ground_truth(tools, work, schedule) as server:
        command = peer.command(Order(bin_folder, server, folder, tokenizer, streams, exchanges))
        ended = run_watched(command, folder, limit_s, clean_environment(package=False))
        try:
            theirs = SAID[peer.package](folder)
        except (OSError, LookupError, ValueError) as e:
            raise UsageError(f"{peer.package} left no result ({type(e).__name__}: {e}; {ended.last_line()})") from None
        delay_ms = theirs.ttft_ms - true_mean_ms(server)
    with ground_truth(tools, work, schedule) as server:
        trial = closed_loop(server, work, streams, 0, more=["--llm-requests", str(exchanges), "-r", str(streams)])
    [found] = compare(read([trial.folder]), [peer.package])
    ours = {name: found.metrics[name]["mean"] * 1e3 for name in ("ttft", "itl", "e2e_latency")}
    wanted = [
        ("TTFT mean, ms", theirs.ttft_ms, ours["ttft"], delay_ms),
        ("ITL mean, ms", theirs.itl_ms, ours["itl"], None),
        ("e2e latency mean, ms", theirs.e2e_latency_ms, ours["e2e_latency"], delay_ms),
        ("output tokens/s", theirs.output_tps, found.rates["output_tps"], None),
    ]
    rows = [_row(peer.package, streams, *one) for one in wanted]
    for row in rows:
        say(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()))
    return rows


def true_mean_ms(server: Server) -> float:
    """Return the mean time from a request's having been read to its first token's leaving."""
    return float(np.mean(true_ttft_ms(server.truth())))


def _row(tool: str, streams: int, figure: str, theirs: float, ours: float, delay_ms: float | None) -> dict[str, Any]:
    difference = theirs / ours - 1
    agrees = "yes" if abs(difference) <= WITHIN else "no"
    if agrees == "no" and delay_ms is not None and abs((theirs - delay_ms) / ours - 1) <= WITHIN:
        agrees = "yes, but for its delay"
    row: dict[str, Any] = {"tool": tool, "streams": streams, "figure": figure, "theirs": theirs, "ours": ours}
    row |= {"difference": difference, "agrees": agrees}
    return row if delay_ms is None else row | {"their_delay_ms": delay_ms}


if __name__ == "__main__":
    leave(main)
