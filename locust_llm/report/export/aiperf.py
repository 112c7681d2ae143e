"""AIPerf's files: ``profile_export_aiperf.json``, ``….csv`` and ``profile_export.jsonl`` (schema 1.4).

The one thing to know: metrics are AIPerf's tags under AIPerf's rules; token counts are the record's, as with its
``--use-server-token-count``. Failed requests are lines with an ``error`` and no latencies.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson

from ..columns import Floats
from ..definitions import ANSWER
from ..events import span
from ..runs import Run
from .common import Files, Source, event_gaps, source, statistics, whole_or_none
from .genai_perf import folder

VERSION = "0.13.0"
"""The version of AIPerf whose layout this is."""
_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
_LABELS = {
    "e2e_output_token_throughput": ("E2E Output Token Throughput", "tokens/sec/user"),
    "input_sequence_length": ("Input Sequence Length", "tokens"),
    "inter_chunk_latency": ("Inter Chunk Latency", "ms"),
    "inter_token_latency": ("Inter Token Latency", "ms"),
    "output_sequence_length": ("Output Sequence Length", "tokens"),
    "output_token_count": ("Output Token Count", "tokens"),
    "output_token_throughput_per_user": ("Output Token Throughput Per User", "tokens/sec/user"),
    "prefill_throughput_per_user": ("Prefill Throughput Per User", "tokens/sec/user"),
    "reasoning_token_count": ("Reasoning Token Count", "tokens"),
    "request_latency": ("Request Latency", "ms"),
    "time_to_first_output_token": ("Time to First Output Token", "ms"),
    "time_to_first_token": ("Time to First Token", "ms"),
    "time_to_second_token": ("Time to Second Token", "ms"),
}
_TOTALS = {
    "benchmark_duration": ("Benchmark Duration", "sec"),
    "error_request_count": ("Error Request Count", "requests"),
    "output_token_throughput": ("Output Token Throughput", "tokens/sec"),
    "request_count": ("Request Count", "requests"),
    "request_throughput": ("Request Throughput", "requests/sec"),
    "total_isl": ("Total Input Sequence Length", "tokens"),
    "total_osl": ("Total Output Sequence Length", "tokens"),
    "total_output_tokens": ("Total Output Tokens", "tokens"),
}


def files(runs: Sequence[Run]) -> Files:
    """Return the three files of each run."""
    for run in runs:
        of = source(run, "aiperf")
        values, gaps = _values(of), event_gaps(of.log, ANSWER, of.found.valid & of.log.streamed)
        pooled = [np.zeros(0), *gaps.values()]
        figures = {**values, "inter_chunk_latency": np.concatenate(pooled) * 1e3}
        totals = _totals(of, values)
        yield (
            f"{folder(of)}/profile_export_aiperf.json",
            orjson.dumps(_json(of, figures, totals), option=orjson.OPT_INDENT_2),
        )
        yield f"{folder(of)}/profile_export_aiperf.csv", _csv(figures, totals).encode()
        yield (
            f"{folder(of)}/profile_export.jsonl",
            b"".join(orjson.dumps(x) + b"\n" for x in _records(of, values, gaps)),
        )


def _values(of: Source) -> dict[str, Floats]:
    """Return the figures of each valid request, in display units."""
    log = of.log
    visible, answer = span(log, ANSWER - frozenset({"reasoning"})), span(log, ANSWER)
    n, reasoning = of.column(of.found.n), np.nan_to_num(of.column(log.n_reasoning))
    ttft, latency, itl = (of.per_request(name) for name in ("ttft", "e2e_latency", "itl"))
    streamed = of.column(log.streamed)
    first = np.where(streamed, of.column(visible.first_us), np.nan) / 1e3
    second = np.where(streamed, of.column(answer.second_us - answer.first_us), np.nan) / 1e3
    return {
        "e2e_output_token_throughput": _per(n, latency), "input_sequence_length": of.column(log.n_in),
        "inter_token_latency": itl * 1e3, "output_sequence_length": n, "output_token_count": n - reasoning,
        "output_token_throughput_per_user": _per(np.ones(len(itl)), itl),
        "prefill_throughput_per_user": _per(of.column(log.n_in), ttft),
        "reasoning_token_count": of.column(log.n_reasoning), "request_latency": latency * 1e3,
        "time_to_first_output_token": first, "time_to_first_token": ttft * 1e3, "time_to_second_token": second,
    }  # fmt: skip


def _totals(of: Source, values: dict[str, Floats]) -> dict[str, float]:
    rows = of.rows[of.ok]
    out = {"request_count": float(len(rows))}
    if failed := int(of.figures.failed[of.rows].sum()):
        out["error_request_count"] = float(failed)
    if not len(rows):
        return out
    start = of.log.start_us[rows]
    seconds = float((start / 1e6 + of.found.window_end[rows]).max() - start.min() / 1e6)
    out["benchmark_duration"] = seconds
    for name, key in (("total_isl", "input_sequence_length"), ("total_osl", "output_sequence_length"),
                      ("total_output_tokens", "output_token_count")):  # fmt: skip
        if not np.isnan(values[key]).any():
            out[name] = float(values[key].sum())
    if seconds > 0:
        out["request_throughput"] = len(rows) / seconds
        if "total_osl" in out:
            out["output_token_throughput"] = out["total_osl"] / seconds
    return out


def _json(of: Source, figures: dict[str, Floats], totals: dict[str, float]) -> dict[str, Any]:
    out: dict[str, Any] = {"schema_version": "1.4", "aiperf_version": VERSION, "benchmark_id": of.run.summary["run"]}
    out |= {tag: {"unit": _TOTALS[tag][1], "avg": value} for tag, value in totals.items()}
    for tag, values in figures.items():
        if found := _full(values):
            out[tag] = {"unit": _LABELS[tag][1], **found}
    failed = of.rows[of.figures.failed[of.rows]].tolist()
    kinds = Counter((d["code"], d["type"], d["message"]) for d in (_error(of, row) for row in failed))
    cut = of.figures.counted & of.figures.cut
    out |= {
        "input_config": _config(of),
        "run_info": {"benchmark_id": of.run.summary["run"], "trial": 0, "cli_command": _command(of)},
        "was_cancelled": bool(cut.any()), "is_complete": not cut.any(),
        "error_summary": [
            {"error_details": {"code": code, "type": kind, "message": message}, "count": count}
            for (code, kind, message), count in kinds.most_common()
        ],
        "start_time": _time(of.start_us), "end_time": _time(of.start_us + round(of.seconds * 1e6)),
    }  # fmt: skip
    return out


def _load(of: Source) -> dict[str, Any]:
    users, rate, burstiness = of.asked.users, of.asked.rate, of.asked.burstiness
    if rate is None:
        return {"type": "concurrency"} | ({} if users is None else {"concurrency": users})
    if burstiness in (None, 1.0):
        return {"type": "constant" if burstiness is None else "poisson", "rate": rate}
    return {"type": "gamma", "rate": rate, "smoothness": burstiness}


def _config(of: Source) -> dict[str, Any]:
    phase = {"name": "profiling", "kind": "profiling", **_load(of), "requests": max(len(of.rows), 1)}
    lengths = {
        "isl": {"mean": of.asked.n_in, "stddev": of.asked.std_in},
        "osl": {"mean": of.asked.n_out, "stddev": of.asked.std_out},
    }
    return {
        "models": {"items": [{"name": of.model}]},
        "endpoint": {"urls": [of.address], "type": of.kind, "streaming": of.streamed},
        "datasets": [{"name": "main", "type": "synthetic", "entries": max(len(of.rows), 1), "prompts": lengths}],
        "phases": [phase],
    }  # fmt: skip


def _csv(figures: dict[str, Floats], totals: dict[str, float]) -> str:
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    columns = ("avg", "min", "max", "sum", *(f"p{p}" for p in _PERCENTILES), "std")
    rows.writerow(["Metric", *columns])
    for tag in sorted(figures):
        if found := _full(figures[tag]):
            rows.writerow([_label(*_LABELS[tag]), *(f"{found[c]:.2f}" for c in columns)])
    rows.writerow([])
    rows.writerow(["Metric", "Value"])
    rows.writerows([_label(*_TOTALS[tag]), f"{totals[tag]:.2f}"] for tag in sorted(totals))
    return out.getvalue()


def _records(of: Source, values: dict[str, Floats], gaps: dict[int, Floats]) -> Iterator[dict[str, Any]]:
    """Yield a line a request, in order of their start."""
    log, place = of.log, 0
    columns = {tag: v.tolist() for tag, v in values.items()}
    for number, row in enumerate(of.rows.tolist()):
        start_ns, turn = int(log.start_us[row]) * 1000, log.tags["turn"].at(row) if "turn" in log.tags else None
        name = log.exchange[row] or f"{log.worker.at(row)}-{int(log.seq[row])}"
        scheduled = whole_or_none(log.scheduled_us[row])
        metadata = {
            "session_num": number, "x_request_id": name, "x_correlation_id": name, "conversation_id": name,
            "turn_index": int(turn) if turn and turn.isdecimal() else 0,
            "credit_issued_ns": start_ns if scheduled is None else scheduled * 1000,
            "request_start_ns": start_ns, "request_end_ns": start_ns + int(log.end_us[row]) * 1000,
            "worker_id": log.worker.at(row) or "", "record_processor_id": "locust-llm", "benchmark_phase": "profiling",
            "was_cancelled": False,
        }  # fmt: skip
        if not np.isnan(log.headers_us[row]):
            metadata["request_ack_ns"] = start_ns + int(log.headers_us[row]) * 1000
        metrics: dict[str, Any] = {}
        valid = bool(of.found.valid[row])
        if valid:
            metrics = {tag: {"value": v, "unit": _LABELS[tag][1]} for tag, c in columns.items() if (v := c[place]) == v}
            if row in gaps:
                metrics["inter_chunk_latency"] = {"value": (gaps[row] * 1e3).tolist(), "unit": "ms"}
            place += 1
        failed = bool(of.figures.failed[row])
        if valid or failed:
            yield {"metadata": metadata, "metrics": metrics, "error": _error(of, row) if failed else None}


def _error(of: Source, row: int) -> dict[str, Any]:
    log = of.log
    message = log.error_message.at(row) or log.outcome.at(row) or ""
    return {
        "code": whole_or_none(log.status[row]),
        "type": log.error_kind.at(row) or log.outcome.at(row),
        "message": message,
    }


def _full(values: Floats) -> dict[str, float]:
    found = statistics(values, _PERCENTILES)
    if not found:
        return {}
    known = values[~np.isnan(values)]
    order = ("avg", *(f"p{p}" for p in _PERCENTILES), "min", "max", "std")
    return {**{name: found[name] for name in order}, "count": len(known), "sum": float(known.sum())}


def _label(name: str, unit: str) -> str:
    return name if unit in ("requests", "count") else f"{name} ({unit})"


def _command(of: Source) -> str:
    command = of.run.card.get("command")
    return " ".join(map(str, command)) if isinstance(command, list) else "locust-llm run"


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).replace(tzinfo=None).isoformat()


def _per(above: Floats, below: Floats) -> Floats:
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)
