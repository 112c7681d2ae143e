"""Read the tree of GenAI-Perf 24.06 by position, as NVIDIA's benchmarking guide does, and print its figures as JSON."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pandas as pd


def main(file: Path) -> None:
    lines = file.read_text().splitlines(keepends=True)
    frame = pd.read_csv(io.StringIO("".join(line for number, line in enumerate(lines) if number not in (6, 7))))
    summary = {
        "TTFT mean, ms": frame.iloc[0]["avg"] / 1e6,
        "TTFT p99, ms": frame.iloc[0]["p99"] / 1e6,
        "ITL mean, ms": frame.iloc[1]["avg"] / 1e6,
        "e2e latency mean, ms": frame.iloc[2]["avg"] / 1e6,
        "output tokens/s": frame.iloc[5]["avg"],
        "requests/s": frame.iloc[6]["avg"],
    }
    print(json.dumps({"summary": {name: float(value) for name, value in summary.items()}}))


if __name__ == "__main__":
    main(next(Path(sys.argv[1]).glob("artifacts/*-openai-chat-concurrency*/*_genai_perf.csv")))
