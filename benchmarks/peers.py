"""Other tools on the same server: what they say of TTFT, what was true, and what they cost.

    python benchmarks/peers.py --venvs /tmp/venvs               # installs them first (7 GB); then about 6 minutes
    python benchmarks/peers.py --venvs /tmp/venvs --streams 10 --rounds 2 --only aiperf

Each runs as its own documentation says, with its defaults, in a virtual environment of its own, for the same number
of exchanges. What cannot be installed or does not run is skipped with the reason. They need a tokenizer: a small one
is made here, so nothing is fetched but the packages.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from common import (
    Row,
    Server,
    Table,
    Tools,
    busy_window,
    closed_loop,
    events_between,
    ground_truth,
    leave,
    options,
    save,
    say,
    show,
    workplace,
)
from venvs import NotInstalled, environment, version

from locust_llm import __version__
from locust_llm.errors import UsageError
from locust_llm.exchange import MEASURE, OK
from locust_llm.telemetry.check import Schedule
from locust_llm.telemetry.trial import Ended, clean_environment, run_watched

OURS = "locust-llm"
_SLACK_S = 240.0

COLUMNS = [
    ("tool", "tool", ""),
    ("streams", "streams", "d"),
    ("exchanges", "exchanges", "d"),
    ("ttft_mean_ms", "TTFT mean, ms", ".1f"),
    ("ttft_mean_true_ms", "true", ".1f"),
    ("ttft_p50_ms", "p50, ms", ".1f"),
    ("ttft_p50_true_ms", "true", ".1f"),
    ("ttft_p99_ms", "p99, ms", ".1f"),
    ("ttft_p99_true_ms", "true", ".1f"),
    ("tokens_per_s", "tokens/s", ".0f"),
    ("streaming_us", "CPU a token, streaming, us", ".1f"),
    ("whole_us", "whole run, us", ".1f"),
]

TEXT = """\
Closed loop, TTFT 50 ms, ITL 10 ms, 200 tokens. *True* is what the server sent to that tool in that run: from having
read the request to the first token. *Streaming*: CPU of all of the tool's processes while all streams run; *whole run*:
all of it, with start, reports and plots. Each tool has its defaults, and as many processes as it takes by itself."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a tool is to do, and where it may write."""

    bin: Path
    server: Server
    folder: Path
    tokenizer: Path
    streams: int
    exchanges: int


@dataclass(frozen=True, slots=True)
class Peer:
    """How a tool is told an order, and where it keeps the TTFT (ms) of each request."""

    package: str
    command: Callable[[Order], list[str]]
    ttft_ms: Callable[[Path], list[float]]


def genai_bench(order: Order) -> list[str]:
    return [
        str(order.bin / "genai-bench"), "benchmark", "--api-backend", "openai", "--api-base", order.server.url,
        "--api-key", "none", "--api-model-name", "gt", "--model-tokenizer", str(order.tokenizer),
        "--task", "text-to-text", "--traffic-scenario", f"D(100,{order.server.schedule.tokens})",
        "--num-concurrency", str(order.streams), "--max-requests-per-run", str(order.exchanges),
        "--max-time-per-run", "5", "--metrics-time-unit", "ms", "--experiment-base-dir", str(order.folder),
        "--experiment-folder-name", "result", "--log-dir", str(order.folder),
    ]  # fmt: skip


def genai_bench_ttft_ms(folder: Path) -> list[float]:
    files = list((folder / "result").glob("D*_concurrency_*.json"))
    requests = json.loads(files[0].read_text())["individual_request_metrics"]
    return [request["ttft"] for request in requests if request["error_code"] is None]


def aiperf(order: Order) -> list[str]:
    return [
        str(order.bin / "aiperf"), "profile", "-m", "gt", "--url", order.server.url, "--endpoint-type", "chat",
        "--streaming", "--concurrency", str(order.streams), "--request-count", str(order.exchanges),
        "--isl", "100", "--osl", str(order.server.schedule.tokens), "--tokenizer", str(order.tokenizer),
        "--artifact-dir", str(order.folder / "result"), "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics",
    ]  # fmt: skip


def aiperf_ttft_ms(folder: Path) -> list[float]:
    lines = (folder / "result" / "profile_export.jsonl").read_text().splitlines()
    metrics = [json.loads(line)["metrics"] for line in lines]
    return [m["time_to_first_token"]["value"] for m in metrics if "time_to_first_token" in m]


def guidellm(order: Order) -> list[str]:
    return [
        str(order.bin / "guidellm"), "run", "--backend", f"kind=openai_http,target={order.server.url},model=gt",
        "--profile", f"kind=concurrent,streams={order.streams}",
        "--constraint", f"kind=max_requests,count={order.exchanges}",
        "--tokenizer", f"kind=huggingface_auto,model={order.tokenizer}",
        "--data", f"kind=synthetic_text,prompt_tokens=100,output_tokens={order.server.schedule.tokens}",
        "--output", f"kind=json,path={order.folder / 'result.json'}", "--disable-progress",
    ]  # fmt: skip


def guidellm_ttft_ms(folder: Path) -> list[float]:
    benchmark = json.loads((folder / "result.json").read_text())["benchmarks"][0]
    return [request["time_to_first_token_ms"] for request in benchmark["requests"]["successful"]]


PEERS = (
    Peer("genai-bench", genai_bench, genai_bench_ttft_ms),
    Peer("aiperf", aiperf, aiperf_ttft_ms),
    Peer("guidellm", guidellm, guidellm_ttft_ms),
)


def main() -> int:
    names = [peer.package for peer in PEERS]
    parser = options(__doc__, streams=[50, 200], rounds=6, itl_us=10_000, tokens=200)
    parser.add_argument("--venvs", type=Path, required=True, help="folder for the tools' virtual environments")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="some of them")
    given = parser.parse_args()
    schedule = Schedule(0.05, given.itl_us / 1e6, given.tokens)
    rows: list[Row] = []
    skipped: list[str] = []
    with workplace() as (tools, work):
        tokenizer = make_tokenizer(work / "tokenizer")
        installed = dict(install(given.venvs, given.only, skipped))
        for streams in given.streams:
            exchanges = streams * given.rounds
            rows.append(measure_ours(tools, work, schedule, streams, exchanges))
            say(show(rows[-1]))
            for peer, bin_folder in installed.items():
                try:
                    rows.append(
                        measure(tools, work, schedule, peer_named(peer), bin_folder, tokenizer, streams, exchanges)
                    )
                    say(show(rows[-1]))
                except NotInstalled as e:
                    skipped.append(f"{peer} at {streams} streams: {e}")
                    say(f"skipped: {skipped[-1]}")
    text = TEXT + "".join(f"\n\nSkipped: {line}" for line in skipped)
    save(given.json, "Other tools on the same server", text, [Table("", COLUMNS, rows)], vars(given))
    return 0


def install(venvs: Path, names: list[str], skipped: list[str]) -> list[tuple[str, Path]]:
    """Return (package, bin folder) of each tool that could be installed."""
    found = []
    for name in names:
        try:
            say(f"{name}: installing, or found installed")
            found.append((name, environment(venvs, name)))
        except NotInstalled as e:
            skipped.append(f"{name}: {e}")
            say(f"skipped: {skipped[-1]}")
    return found


def peer_named(name: str) -> Peer:
    return next(peer for peer in PEERS if peer.package == name)


def measure(
    tools: Tools,
    work: Path,
    schedule: Schedule,
    peer: Peer,
    bin_folder: Path,
    tokenizer: Path,
    streams: int,
    exchanges: int,
) -> Row:
    """Run one tool once.

    Raises:
        NotInstalled: it did not run here, with its own last line.
    """
    folder = work / peer.package
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with ground_truth(tools, work, schedule) as server:
        order = Order(bin_folder, server, folder, tokenizer, streams, exchanges)
        limit_s = 3 * exchanges / streams * schedule.exchange_s + _SLACK_S
        try:
            ended = run_watched(peer.command(order), folder, limit_s, clean_environment(package=False))
            ttft_ms = peer.ttft_ms(folder)
        except UsageError as e:
            raise NotInstalled(str(e)) from None
        except (OSError, LookupError, ValueError) as e:
            raise NotInstalled(f"it left no result ({type(e).__name__}: {e}; {ended.last_line()})") from None
        if not ttft_ms:
            raise NotInstalled(f"it measured nothing ({ended.last_line()})")
        return _row(f"{peer.package} {version(bin_folder, peer.package)}", streams, ttft_ms, ended, server)


def measure_ours(tools: Tools, work: Path, schedule: Schedule, streams: int, exchanges: int) -> Row:
    with ground_truth(tools, work, schedule) as server:
        trial = closed_loop(server, work, streams, 0, more=["--llm-requests", str(exchanges)])
        records = [r for r in trial.records() if r.phase == MEASURE and r.outcome == OK]
        ttft_ms = [r.ttft * 1e3 for r in records if r.ttft is not None]
        return _row(f"{OURS} {__version__}", streams, ttft_ms, trial.process, server)


def make_tokenizer(folder: Path) -> Path:
    """Train a small byte-level tokenizer on the package's own prose; it is all that the tools need."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    import locust_llm.workload

    prose = Path(locust_llm.workload.__file__).with_name("prose.txt").read_text()
    answer = " the model streams tokens over a socket now"
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator([prose, answer * 200], vocab_size=4000, special_tokens=["<|end|>"])
    end = dict.fromkeys(("eos_token", "bos_token", "pad_token"), "<|end|>")
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=trained._tokenizer, **end).save_pretrained(folder)
    return folder


def _row(tool: str, streams: int, ttft_ms: list[float], ended: Ended, server: Server) -> Row:
    truth = server.truth()
    begin, end = busy_window(truth, streams)
    events = events_between(truth, begin, end)
    row: Row = {"tool": tool, "streams": streams, "exchanges": len(ttft_ms)}
    for name, values in (("", ttft_ms), ("_true", true_ttft_ms(truth))):
        p50, p99 = np.percentile(values, [50, 99]).tolist()
        row |= {f"ttft_mean{name}_ms": float(np.mean(values)), f"ttft_p50{name}_ms": p50, f"ttft_p99{name}_ms": p99}
    return row | {
        "tokens_per_s": events / (end - begin),
        "streaming_us": sum(ended.watch.cpu_s(begin, end).values()) / events * 1e6,
        "whole_us": None if ended.cpu_s is None else ended.cpu_s / int((truth["index"] > 0).sum()) * 1e6,
    }


def true_ttft_ms(truth: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """From the moment each request had been read to that at which its first token left."""
    truth = truth[np.lexsort((truth["index"], truth["request"]))]
    _, starts, counts = np.unique(truth["request"], return_index=True, return_counts=True)
    answered = starts[counts > 1]
    true_ms: npt.NDArray[np.float64] = (truth["time_ns"][answered + 1] - truth["time_ns"][answered]) / 1e6
    return true_ms


if __name__ == "__main__":
    leave(main)
