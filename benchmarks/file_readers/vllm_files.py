"""Read a result of ``vllm bench serve`` by the keys that scripts around vLLM use, and its lists by vLLM's formulas."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def main(file: Path) -> None:
    result = json.loads(file.read_text())
    summary = {
        "requests": result["completed"],
        "TTFT mean, ms": result["mean_ttft_ms"],
        "TTFT p50, ms": result["median_ttft_ms"],
        "TTFT p99, ms": result["p99_ttft_ms"],
        "TPOT mean, ms": result["mean_tpot_ms"],
        "ITL mean, ms": result["mean_itl_ms"],
        "ITL p99, ms": result["p99_itl_ms"],
        "e2e latency mean, ms": result["mean_e2el_ms"],
        "output tokens/s": result["output_throughput"],
        "requests/s": result["request_throughput"],
    }
    done = [i for i, error in enumerate(result["errors"]) if not error]
    ttfts, latencies, lengths = (
        np.array([result[key][i] for i in done]) for key in ("ttfts", "latencies", "output_lens")
    )
    itls = np.concatenate([result["itls"][i] for i in done])
    many = lengths > 1
    records = {
        "requests": len(done),
        "TTFT mean, ms": ttfts.mean() * 1e3,
        "TTFT p99, ms": np.percentile(ttfts, 99) * 1e3,
        "TPOT mean, ms": ((latencies - ttfts)[many] / (lengths[many] - 1)).mean() * 1e3,
        "ITL mean, ms": itls.mean() * 1e3,
        "e2e latency mean, ms": latencies.mean() * 1e3,
        "output tokens/s": lengths.sum() / result["duration"],
        "requests/s": len(done) / result["duration"],
    }
    print(json.dumps({"summary": summary, "records": {name: float(value) for name, value in records.items()}}))


if __name__ == "__main__":
    main(next(Path(sys.argv[1]).glob("openai-chat-*.json")))
