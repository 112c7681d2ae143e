"""The result file of ``vllm bench serve --save-result --save-detailed`` (MAX writes the same layout).

The one thing to know: the lists hold failed requests too, with 0 and empty lists, as vLLM has it; figures are of the
successes. ``generated_texts`` is empty: the log keeps texts apart. ``itls`` are gaps between chunks with choices.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..definitions import CHOICES
from ..events import walk
from ..rates import concurrency
from ..runs import Run
from .common import Files, Source, event_gaps, slug, source, statistics

_PERCENTILES = (50, 90, 95, 99)
_METRICS = (("ttft", "ttft"), ("tpot", "tpot"), ("e2el", "e2e_latency"))


def files(runs: Sequence[Run]) -> Files:
    """Return the file of each run."""
    for run in runs:
        of = source(run, "vllm")
        users = f"-concurrency{of.asked.users}" if of.asked.users is not None else ""
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(of.start_us / 1e6 + of.seconds))
        model = slug(of.model.rpartition("/")[2])
        rate = "inf" if of.asked.rate is None else str(of.asked.rate)
        yield f"{_backend(of)}-{rate}qps{users}-{model}-{stamp}.json", json.dumps(_result(of, stamp)).encode()


def _result(of: Source, stamp: str) -> dict[str, Any]:
    log, rows, ok = of.log, of.rows, of.ok
    gaps = event_gaps(log, CHOICES, of.found.valid)
    n_out = np.nan_to_num(np.where(ok, of.found.n[rows], 0.0))
    n_in = np.where(np.isnan(log.n_in[rows]), np.nan_to_num(log.asked_in[rows]), log.n_in[rows])
    completed = int(ok.sum())
    out: dict[str, Any] = {
        "date": stamp, "endpoint_type": _backend(of), "backend": _backend(of), "label": None, "model_id": of.model,
        "tokenizer_id": None, "num_prompts": len(rows),
    }  # fmt: skip
    out |= {k: v for k, v in of.meta.items() if k not in out}
    out |= {
        "request_rate": "inf" if of.asked.rate is None else of.asked.rate, "burstiness": of.asked.burstiness,
        "max_concurrency": of.asked.users, "duration": of.seconds,
        "completed": completed, "failed": int(of.figures.failed[rows].sum()),
        "total_input_tokens": int(n_in[ok].sum()), "total_output_tokens": int(n_out.sum()),
    }  # fmt: skip
    in_flight = concurrency(log, of.figures, of.run.analysis.overall.window)["in_flight"]
    per_s = 1 / of.seconds if of.seconds > 0 else 0.0
    out |= {
        "request_throughput": completed * per_s, "request_goodput": None,
        "output_throughput": float(n_out.sum()) * per_s,
        "total_token_throughput": float(n_in[ok].sum() + n_out.sum()) * per_s,
        "input_lens": n_in.astype(int).tolist(), "output_lens": n_out.astype(int).tolist(),
        "ttfts": _filled(of, "ttft"), "itls": [gaps.get(row, np.zeros(0)).tolist() for row in rows.tolist()],
        "latencies": _filled(of, "e2e_latency"), "start_times": (log.start_us[rows] / 1e6).tolist(),
        "queue_times": np.nan_to_num((log.start_us - log.scheduled_us)[rows] / 1e6).tolist(),
        "generated_texts": [""] * len(rows),
        "errors": [_error(of, row) for row in rows.tolist()],
        "max_output_tokens_per_s": _busiest(of),
        "max_concurrent_requests": int(in_flight["peak"]),
        "rtfx": 0.0,
    }  # fmt: skip
    pooled = of.found.pooled["itl"]
    samples = {short: of.per_request(name) for short, name in _METRICS}
    samples["itl"] = np.repeat(pooled.values, pooled.counts)
    for short in ("ttft", "tpot", "itl", "e2el"):
        out |= _metric(short, statistics(samples[short], _PERCENTILES, 1e3))
    return out


def _metric(name: str, found: dict[str, float]) -> dict[str, float]:
    if not found:
        return {}
    out = {f"mean_{name}_ms": found["avg"], f"median_{name}_ms": found["p50"], f"std_{name}_ms": found["std"]}
    return out | {f"p{p}_{name}_ms": found[f"p{p}"] for p in _PERCENTILES}


def _filled(of: Source, name: str) -> list[float]:
    values: list[float] = np.where(of.ok, np.nan_to_num(of.found.per_request[name][of.rows]), 0.0).tolist()
    return values


def _error(of: Source, row: int) -> str:
    return (of.log.error_message.at(row) or of.log.outcome.at(row) or "") if of.figures.failed[row] else ""


def _busiest(of: Source) -> float:
    """Return the most chunks in one second, which vLLM calls tokens."""
    seconds = [np.zeros(0, dtype=np.int64)]
    for events in walk(of.log, CHOICES, of.found.valid):
        seconds.append((events.at_us(of.log.start_us) - of.start_us) // 1_000_000)
    counts = np.bincount(np.concatenate(seconds))
    return float(counts.max()) if len(counts) else 0.0


def _backend(of: Source) -> str:
    return "openai-chat" if of.kind == "chat" else "openai"
