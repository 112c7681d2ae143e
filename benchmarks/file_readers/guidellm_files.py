"""Run in GuideLLM's environment: read an exported report with GuideLLM's own classes and print what it holds as JSON.

It is written out again in GuideLLM's other layouts, too, as ``guidellm export`` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from guidellm.benchmark.entrypoints import reimport_benchmarks_report
from guidellm.benchmark.schemas import GenerativeBenchmarksReport

FIGURES = {
    "TTFT mean, ms": ("time_to_first_token_ms", 1),
    "ITL mean, ms": ("inter_token_latency_ms", 1),
    "TPOT mean, ms": ("time_per_output_token_ms", 1),
    "e2e latency mean, ms": ("request_latency", 1e3),
    "output tokens/s": ("output_tokens_per_second", 1),
    "requests/s": ("requests_per_second", 1),
}


def main(file: Path) -> None:
    report = GenerativeBenchmarksReport.load_file(file)
    with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(sys.stderr):
        kinds = [{"kind": kind, "path": str(Path(work) / f"again.{kind}")} for kind in ("json", "csv", "html")]
        asyncio.run(reimport_benchmarks_report(file, [{"kind": "console"}, *kinds]))
    (benchmark,) = report.benchmarks
    metrics, done = benchmark.metrics, benchmark.requests.successful
    summary = {name: getattr(metrics, key).successful.mean * scale for name, (key, scale) in FIGURES.items()}
    summary["requests"] = metrics.request_totals.successful
    summary["TTFT p99, ms"] = metrics.time_to_first_token_ms.successful.percentiles.p99
    # computed by its own properties from the times of each request
    ttft = [r.time_to_first_token_ms for r in done if r.time_to_first_token_ms is not None]
    itl = [(r.inter_token_latency_ms, r.output_tokens - 1) for r in done if r.inter_token_latency_ms is not None]
    tpot = [(r.time_per_output_token_ms, r.output_tokens) for r in done if r.time_per_output_token_ms is not None]
    records = {
        "requests": len(done),
        "TTFT mean, ms": float(np.mean(ttft)),
        "ITL mean, ms": mean(itl),
        "TPOT mean, ms": mean(tpot),
        "e2e latency mean, ms": float(np.mean([r.request_latency for r in done])) * 1e3,
    }
    print(json.dumps({"summary": summary, "records": records}))


def mean(weighted: list[tuple[float, int]]) -> float:
    values, weights = zip(*weighted, strict=True)
    return float(np.average(values, weights=weights))


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "benchmarks.json")
