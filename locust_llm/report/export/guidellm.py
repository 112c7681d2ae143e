"""GuideLLM's ``benchmarks.json`` (0.8.1): one benchmark a run, with a record for each request.

The one thing to know: its layout demands numbers everywhere, so a distribution of nothing is zeros with count 0, as
GuideLLM writes it. The measured stretch is the whole run (no warm-up is cut off), texts are not kept.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import orjson

from ...wire.answer import REASONING
from ..columns import Bools, Floats, Log
from ..definitions import ANSWER
from ..events import Span, span
from ..figures import divide
from ..runs import Run
from .common import Files, Source, source, whole_or_none

VERSION = "0.8.1"
"""The version of GuideLLM whose layout this is."""
_SHARES = {"p001": 0.001, "p01": 0.01, "p05": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9,
           "p95": 0.95, "p99": 0.99, "p999": 0.999}  # fmt: skip
_MODALITIES = {
    "text": ("tokens", "words", "characters"),
    "image": ("tokens", "images", "pixels", "bytes"),
    "video": ("tokens", "frames", "seconds", "bytes"),
    "audio": ("tokens", "samples", "seconds", "bytes"),
    "tool_call": ("tokens", "mixed_tokens", "count"),
}
_PARTS = ("input", "input_per_second", "input_concurrency", "output", "output_per_second", "output_concurrency",
          "total", "total_per_second", "total_concurrency")  # fmt: skip
_INPUT_COUNTS = (
    "text_tokens", "cached_tokens", "text_words", "text_characters", "image_tokens", "image_count", "image_pixels",
    "image_bytes", "video_tokens", "video_frames", "video_seconds", "video_bytes", "audio_tokens", "audio_samples",
    "audio_seconds", "audio_bytes", "tool_call_tokens", "mixed_content_tool_tokens", "tool_call_count",
)  # fmt: skip
_DELAYS = (
    "queued_time_avg", "resolve_start_delay_avg", "resolve_targeted_start_delay_avg", "request_start_delay_avg",
    "request_targeted_start_delay_avg", "resolve_end_delay_avg", "finalized_delay_avg", "processed_delay_avg",
)  # fmt: skip
_MS = {"time_to_first_token_ms": "ttft", "time_per_output_token_ms": "tpot", "inter_token_latency_ms": "itl"}
_NO_PHASE = {"percent": None, "value": None, "mode": "prefer_duration"}

_Json = dict[str, Any]


def files(runs: Sequence[Run]) -> Files:
    """Return one file with a benchmark for each run."""
    sources = [source(run, "guidellm") for run in runs]
    report = {
        "metadata": {"version": 2, "guidellm_version": VERSION, "python_version": platform.python_version(),
                     "platform": platform.platform()},
        "config": {"metadata": {"labels": {}}, "spec": _spec(sources[0])},
        "benchmarks": [_benchmark(of, i) for i, of in enumerate(sources)],
        "conclusions": [],
    }  # fmt: skip
    yield "benchmarks.json", orjson.dumps(report)


def _benchmark(of: Source, index: int) -> _Json:
    start, end = of.start_us / 1e6, of.start_us / 1e6 + of.seconds
    failed = of.figures.failed[of.rows]
    totals = {"successful": int(of.ok.sum()), "errored": int(failed.sum()), "incomplete": 0}
    totals["total"] = sum(totals.values())
    at = span(of.log, ANSWER)
    records = [list(_records(of, at, rows)) for rows in (of.ok, failed)]
    spec = _spec(of)
    return {
        "type_": "generative_benchmark",
        "config": {
            "id_": str(uuid5(NAMESPACE_URL, f"{of.run.summary['run']}/{index}")),
            "run_id": str(uuid5(NAMESPACE_URL, of.run.summary["run"])), "run_index": index,
            "strategy": _strategy(of),
            "constraints": {}, "sample_size": None, "warmup": _NO_PHASE, "cooldown": _NO_PHASE,
            "prefer_response_metrics": True, "slo": None, "confidence": 0.95, "warnings": [],
            "profile": spec["profile"], "requests": {"kind": "pytorch"}, "backend": spec["backend"],
            "environment": {"str": "locust-llm"},
        },
        "scheduler_state": {
            "node_id": 0, "num_processes": _streams(of), "start_time": start, "end_time": end,
            "start_requests_time": start, "end_requests_time": end, "created_requests": totals["total"],
            "queued_requests": 0, "pending_requests": 0, "processing_requests": 0,
            "processed_requests": totals["total"], "successful_requests": totals["successful"],
            "errored_requests": totals["errored"], "cancelled_requests": 0,
        },
        "scheduler_metrics": _scheduler(of, totals, start, end),
        "metrics": _metrics(of, at, totals),
        "requests": {"successful": records[0], "errored": records[1], "incomplete": [], "total": None},
        "warnings": [], "start_time": start, "end_time": end, "duration": of.seconds, "warmup_duration": 0.0,
        "cooldown_duration": 0.0,
    }  # fmt: skip


def _spec(of: Source) -> _Json:
    path = "/v1/chat/completions" if of.kind == "chat" else "/v1/completions"
    data = {"kind": "synthetic_text", "prompt_tokens": max(of.asked.n_in, 1), "output_tokens": max(of.asked.n_out, 1)}
    load = {"streams": [_streams(of)], "rampup_duration": 0.0} if of.asked.rate is None else {"rate": [of.asked.rate]}
    return {
        "backend": {"kind": "openai_http", "target": of.address or "http://localhost", "model": of.model,
                    "request_format": path, "stream": of.streamed},
        "profile": {"kind": _kind(of), **load, "warmup": _NO_PHASE, "cooldown": _NO_PHASE},
        "data": [data],
    }  # fmt: skip


def _kind(of: Source) -> str:
    """Return the kind of load; GuideLLM knows no bursts, so arrivals by a gamma distribution are its ``poisson``."""
    if of.asked.rate is None:
        return "concurrent"
    return "constant" if of.asked.burstiness is None else "poisson"


def _strategy(of: Source) -> _Json:
    if of.asked.rate is not None:
        return {"type_": _kind(of), "rate": of.asked.rate, "max_concurrency": None}
    streams = dict.fromkeys(("streams", "worker_count", "max_concurrency"), _streams(of))
    return {"type_": "concurrent", "rampup_duration": 0.0, **streams}


def _streams(of: Source) -> int:
    return of.asked.users or 1


def _scheduler(of: Source, totals: _Json, start: float, end: float) -> _Json:
    ended = of.log.end_us[of.rows] / 1e6
    mean = float(ended.mean()) if len(ended) else 0.0
    return {
        "start_time": start, "request_start_time": start, "measure_start_time": start, "measure_end_time": end,
        "request_end_time": end, "end_time": end, "requests_made": totals, **dict.fromkeys(_DELAYS, 0.0),
        "request_time_avg": mean, "resolve_time_avg": mean, "strategy_type": _kind(of),
    }  # fmt: skip


def _metrics(of: Source, at: Span, totals: _Json) -> _Json:
    log = of.log
    per = {name: of.found.per_request[name] for name in ("ttft", "itl", "tpot", "e2e_latency")}
    n, n_in = of.found.n, log.n_in
    e2e, ttft = per["e2e_latency"], per["ttft"]
    events = at.count.astype(np.float64)
    starts, ends = (
        log.start_us[of.rows] / 1e6 - of.start_us / 1e6,
        (log.start_us + log.end_us)[of.rows] / 1e6 - of.start_us / 1e6,
    )
    firsts = starts + np.where(np.isnan(ttft[of.rows]), e2e[of.rows], ttft[of.rows])
    both = {
        "request_latency": e2e, "request_streaming_iterations_count": events,
        "prompt_token_count": n_in, "output_token_count": n, "total_token_count": n_in + n,
        "time_to_first_token_ms": ttft * 1e3, "time_to_first_output_token_ms": _output_us(log) / 1e3,
        "time_to_last_round_trip_ms": np.full(len(n), np.nan), "avg_round_trip_time_ms": np.full(len(n), np.nan),
        "output_tokens_per_iteration": divide(n, events), "iter_tokens_per_iteration": divide(n - 1, events - 1),
    }  # fmt: skip
    out: _Json = {"request_totals": totals}
    out["requests_per_second"] = _rates(of, ends, np.ones(len(of.rows)))
    out["request_concurrency"] = _by_status(of, lambda rows: _levels(starts[rows], ends[rows], of.seconds))
    out |= {name: _by_status(of, _of_requests(of, values)) for name, values in both.items()}
    weighted = {"time_per_output_token_ms": (per["tpot"], n), "inter_token_latency_ms": (per["itl"], n - 1)}
    out |= {name: _by_status(of, _of_requests(of, v * 1e3, weights)) for name, (v, weights) in weighted.items()}
    out |= dict.fromkeys(("request_dispatch_delay", "request_scheduled_latency", "turn_predecessor_delay",
                          "turn_scheduling_delay", "root_dispatch_delay"))  # fmt: skip
    tokens_in, tokens_out = np.nan_to_num(n_in[of.rows]), np.nan_to_num(n[of.rows])
    out["prompt_tokens_per_second"] = _rates(of, firsts, tokens_in)
    out["output_tokens_per_second"] = _rates(of, ends, tokens_out)
    out["tokens_per_second"] = _rates(of, ends, tokens_in + tokens_out)
    for name, kinds in _MODALITIES.items():
        out[name] = {kind: dict.fromkeys(_PARTS) for kind in kinds}
    counts = {"input": "prompt_token_count", "output": "output_token_count", "total": "total_token_count"}
    out["text"]["tokens"] |= {part: out[key] for part, key in counts.items()}
    return out | {"turns": None, "slo_attainment": None, "slo_determined_requests": 0, "request_goodput": None}


def _by_status(of: Source, make: Any) -> _Json:
    failed = of.figures.failed[of.rows]
    return {"successful": make(of.ok), "errored": make(failed), "incomplete": _nothing(), "total": make(of.ok | failed)}


def _of_requests(of: Source, values: Floats, weights: Floats | None = None) -> Any:
    """Return what makes the distribution of a figure of requests; ``weights``: what each counts for, else 1."""

    def make(rows: Bools) -> _Json:
        known, weight = values[of.rows[rows]], np.ones(int(rows.sum())) if weights is None else weights[of.rows[rows]]
        there = ~np.isnan(known) & (weight > 0)
        return _distribution(known[there], weight[there], round(float(weight[there].sum())))

    return make


def _rates(of: Source, times: Floats, amounts: Floats) -> _Json:
    """Return how fast amounts came: between two arrivals it is the amount over the time, weighted by that time."""

    def make(rows: Bools) -> _Json:
        order = np.argsort(times[rows], kind="stable")
        at, amount = times[rows][order], amounts[rows][order]
        if not len(at) or of.seconds <= 0:
            return _nothing()
        moments, which = np.unique(at, return_inverse=True)
        sums = np.bincount(which, amount)
        gaps = np.diff(np.concatenate(([0.0], moments)))
        some = gaps > 0
        rest = max(of.seconds - float(moments[-1]), 0.0)
        values = np.concatenate((sums[some] / gaps[some], [0.0] * (rest > 0)))
        found = _distribution(values, np.concatenate((gaps[some], [rest] * (rest > 0))), len(at))
        return {**found, "mean": float(amount.sum()) / of.seconds, "total_sum": float(amount.sum())}

    return _by_status(of, make)


def _levels(starts: Floats, ends: Floats, seconds: float) -> _Json:
    """Return how many were in flight, weighted by time."""
    if not len(starts) or seconds <= 0:
        return _nothing()
    times = np.concatenate((starts, ends))
    steps = np.concatenate((np.ones(len(starts)), -np.ones(len(ends))))
    order = np.argsort(times, kind="stable")
    moments = np.concatenate((times[order], [seconds]))
    level, lasted = np.cumsum(steps[order]), np.maximum(np.diff(moments), 0.0)
    return _distribution(level, lasted, len(starts))


def _distribution(values: Floats, weights: Floats, count: int) -> _Json:
    """Return GuideLLM's summary of weighted values: quantiles are lower order statistics."""
    total = float(weights.sum())
    if not len(values) or total <= 0:
        return _nothing()
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    mean = float(np.dot(values, weights)) / total
    variance = float(np.dot((values - mean) ** 2, weights)) / total
    shares = np.cumsum(weights) / total

    def at(q: float) -> float:
        return float(values[min(int(np.searchsorted(shares, q - 1e-12)), len(values) - 1)])

    distinct, which = np.unique(values, return_inverse=True)
    return {
        "mean": mean, "median": at(0.5), "mode": float(distinct[np.argmax(np.bincount(which, weights))]),
        "variance": variance, "std_dev": math.sqrt(variance), "min": float(values[0]), "max": float(values[-1]),
        "count": count, "total_sum": mean * count, "percentiles": {name: at(q) for name, q in _SHARES.items()},
        "pdf": None, "mean_ci": None, "percentile_cis": None,
    }  # fmt: skip


def _nothing() -> _Json:
    keys = ("mean", "median", "mode", "variance", "std_dev", "min", "max", "total_sum")
    return {**dict.fromkeys(keys, 0.0), "count": 0, "percentiles": dict.fromkeys(_SHARES, 0.0), "pdf": None,
            "mean_ci": None, "percentile_cis": None}  # fmt: skip


def _records(of: Source, at: Span, mask: Bools) -> Iterator[_Json]:
    log, per, output_us = of.log, of.found.per_request, _output_us(of.log)
    for row in of.rows[mask].tolist():
        start, end = int(log.start_us[row]) / 1e6, int(log.start_us[row] + log.end_us[row]) / 1e6
        failed = bool(of.figures.failed[row])
        n_in, n_out = whole_or_none(log.n_in[row]), whole_or_none(of.found.n[row])
        first, output, last = (_time(log, row, t[row]) for t in (at.first_us, output_us, at.last_us))
        scheduled = _number(log.scheduled_us[row])
        name = log.exchange[row] or f"{log.worker.at(row)}-{int(log.seq[row])}"
        turn = log.tags["turn"].at(row) if "turn" in log.tags else None
        ms = {key: None if failed else _number(per[figure][row] * 1e3) for key, figure in _MS.items()}
        total = None if n_in is None or n_out is None else n_in + n_out
        took = end - start
        yield {
            "type_": "generative_request_stats", "request_id": name, "response_id": None, "request_args": "",
            "output": None, "reasoning_output": None, "tool_calls": None,
            "info": {
                "request_id": name, "conversation_id": name,
                "turn_index": int(turn) if turn and turn.isdecimal() else 0,
                "status": "errored" if failed else "completed", "scheduler_node_id": 0, "scheduler_process_id": 0,
                "scheduler_start_time": of.start_us / 1e6,
                "timings": {
                    "targeted_start": start if scheduled is None else scheduled / 1e6,
                    "queued": start, "dequeued": start,
                    "scheduled_at": start, "resolve_start": start, "request_start": start,
                    "first_request_iteration": first, "first_token_iteration": first,
                    "first_output_token_iteration": output,
                    "last_token_iteration": last, "last_request_iteration": last,
                    "request_iterations": int(at.count[row]), "token_iterations": int(at.count[row]),
                    "request_end": end, "resolve_end": end, "finalized": end,
                },
                "error": (log.error_message.at(row) or log.outcome.at(row)) if failed else None, "traceback": None,
            },
            "input_metrics": {**dict.fromkeys(_INPUT_COUNTS), "text_tokens": n_in,
                              "cached_tokens": whole_or_none(log.n_cached[row])},
            "output_metrics": {**dict.fromkeys(_INPUT_COUNTS), "text_tokens": n_out},
            "request_start_time": start, "request_end_time": end, "request_latency": took,
            "prompt_tokens": n_in, "output_tokens": n_out, "total_tokens": total, **ms,
            "time_to_first_output_token_ms": None if failed else _number(output_us[row] / 1e3),
            "tokens_per_second": total / took if total is not None and took > 0 else None,
            "output_tokens_per_second": n_out / took if n_out is not None and took > 0 else None,
        }  # fmt: skip


def _output_us(log: Log) -> Floats:
    """Return when the first token that is not reasoning came, of streams."""
    return np.where(log.streamed, span(log, ANSWER - frozenset({REASONING})).first_us, np.nan)


def _time(log: Any, row: int, offset_us: float) -> float | None:
    return None if np.isnan(offset_us) else (int(log.start_us[row]) + float(offset_us)) / 1e6


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
