"""Compare what locust-llm measured with what a ground-truth server really sent, event by event.

    python benchmarks/fidelity.py --streams 50 200 --repeats 5

Builds ``gtserver.c`` and ``cclient.c`` (a C reader: the limit of this machine), runs a closed loop through the real command line, joins
the server's truth log with the event log by response id and event index, and prints one row a run. The C reader runs before and
after each; a run during which its own mean moves by more than 1 ms is void. Needs a C compiler. Loopback only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from locust_llm.exchange import Exchange, decode

HERE = Path(__file__).parent
TRUTH = np.dtype([("request", "<u8"), ("index", "<u4"), ("pad", "<u4"), ("t_ns", "<i8")])
TTFT_US = 50_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--itl-us", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the rows there")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        tools = build(Path(work))
        for streams in options.streams:
            runs = []
            while len(runs) < options.repeats:
                row = measure(tools, Path(work), streams, options)
                print(row, flush=True)
                if not row["void"]:
                    runs.append(row)
            median = {k: round(statistics.median(r[k] for r in runs), 3) for k in runs[0] if isinstance(runs[0][k], float)}
            rows.append({"streams": streams, "runs": len(runs), **median})
            print("median", rows[-1], flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


def build(work: Path) -> dict[str, str]:
    compiler = shutil.which("cc") or sys.exit("fidelity needs a C compiler (cc)")
    for name in ("gtserver", "cclient"):
        subprocess.run([compiler, "-O2", "-w", "-o", work / name, HERE / f"{name}.c"], check=True)
    return {name: str(work / name) for name in ("gtserver", "cclient")}


def measure(tools: dict[str, str], work: Path, streams: int, options: argparse.Namespace) -> dict[str, object]:
    port, log, out = free_port(), work / "truth.bin", work / "reports"
    shutil.rmtree(out, ignore_errors=True)
    server = subprocess.Popen(
        [tools["gtserver"], str(port), str(TTFT_US), str(options.itl_us), str(options.tokens), "1", str(log)],
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(0.3)
        before = c_limit(tools, port, streams, options)
        run = [
            sys.executable, "-m", "locust_llm.cli", "run", "-H", f"http://127.0.0.1:{port}", "-u", str(streams), "-t", f"{options.seconds}s",
            "--llm-input-tokens", "100", "--llm-output-tokens", str(options.tokens), "--llm-out", str(out), "--only-summary",
        ]  # fmt: skip
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"locust-llm run failed ({done.returncode}):\n{done.stderr[-3000:]}")
        after = c_limit(tools, port, streams, options)
        time.sleep(0.7)  # the server flushes its log twice a second
    finally:
        server.terminate()
        server.wait()
    folder = next(out.iterdir())
    records = [decode(line) for line in (folder / "events.jsonl").open("rb")]
    records = [r for r in records if r.phase == "measure"]
    card = json.loads((folder / "run.json").read_text())
    marks = {event["event"]: event["t"] for event in card["events"]}
    row = compare(records, np.fromfile(log, TRUTH), marks["ramp_complete"], marks["stop"], streams, options)
    return {"streams": streams, "void": abs(after - before) > 1.0, "c_before_ms": before, "c_after_ms": after, **row}


def compare(
    records: list[Exchange], truth: np.ndarray, begin_s: float, end_s: float, streams: int, options: argparse.Namespace
) -> dict[str, object]:
    """Join on (request, index) and return errors in ms."""
    order = np.lexsort((truth["index"], truth["request"]))
    truth = truth[order]
    starts = np.searchsorted(truth["request"], np.arange(truth["request"].max() + 2))
    ttft, ttft_error, arrival_error, itl, true_itl = [], [], [], [], []
    for record in records:
        if record.outcome != "ok" or not record.response_id:
            continue
        request = int(record.response_id.removeprefix("gt-"))
        sent_ns = truth["t_ns"][starts[request] : starts[request + 1]]
        times_us = np.array(record.token_times_us())
        if len(sent_ns) != len(times_us) + 1:
            sys.exit(f"request {request}: server sent {len(sent_ns) - 1} events, {len(times_us)} were seen")
        read_ns, sent_ns = sent_ns[0], sent_ns[1:]
        ttft.append(times_us[0] / 1e3)
        ttft_error.append(times_us[0] / 1e3 - (sent_ns[0] - read_ns) / 1e6)
        # Arrival against departure, both as offsets from the wall clock of one machine.
        arrival_error.append((record.start_us + times_us) / 1e3 - sent_ns / 1e6)
        itl.append(np.diff(times_us) / 1e3)
        true_itl.append(np.diff(sent_ns) / 1e6)
    errors, arrivals = np.array(ttft_error), np.concatenate(arrival_error)
    window = (truth["t_ns"] >= begin_s * 1e9) & (truth["t_ns"] < end_s * 1e9) & (truth["index"] > 0)
    cycle_s = (TTFT_US + (options.tokens - 1) * options.itl_us) / 1e6
    ideal = streams * options.tokens / cycle_s * (end_s - begin_s)
    return {
        "exchanges": len(errors),
        "failed": sum(record.outcome != "ok" for record in records),
        "ttft_mean": float(np.mean(ttft)),
        "ttft_error_mean": float(errors.mean()),
        "ttft_error_p50": float(np.median(np.abs(errors))),
        "ttft_error_p99": float(np.quantile(np.abs(errors), 0.99)),
        "arrival_error_p50": float(np.median(arrivals)),
        "arrival_error_p99": float(np.quantile(np.abs(arrivals), 0.99)),
        "itl_p50": float(np.median(np.concatenate(itl))),
        "itl_p50_true": float(np.median(np.concatenate(true_itl))),
        "delivered": float(window.sum() / ideal),
        "late_joined": float(sum(r.late_joined for r in records) / max(1, sum(len(r.event_gaps_us) for r in records))),
        "kernel": float(np.mean([r.stamp == "kernel" for r in records])),
    }


def c_limit(tools: dict[str, str], port: int, streams: int, options: argparse.Namespace) -> float:
    """Return the mean TTFT (ms) that the C reader sees."""
    command = [tools["cclient"], str(port), str(streams), str(options.tokens), str(options.itl_us), "2"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(text.split("TTFT mean=")[1].split()[0])


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
