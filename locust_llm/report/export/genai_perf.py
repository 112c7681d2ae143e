"""GenAI-Perf's summary files, in the layout of 0.0.16 and in the older nanosecond rows of 24.06.

The one thing to know: both stand in the tree ``artifacts/<model>-openai-<endpoint>-concurrency<N>/``. The 24.06 rows
are what NVIDIA's guide reads by position: TTFT, ITL, latency, output, input, then throughputs under their own header.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..columns import Floats
from ..definitions import VISIBLE
from ..events import span
from ..runs import Run
from .common import Files, Source, source, statistics

_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
_COLUMNS = ("avg", "min", "max", "p99", "p95", "p90", "p75", "p50", "p25", "p10", "p5", "p1")
_OLD_COLUMNS = _COLUMNS[:9]
_STREAMED = ("time_to_first_token", "time_to_second_token", "inter_token_latency", "output_token_throughput_per_user")
_ROWS = (
    ("time_to_first_token", "Time To First Token", "ms"),
    ("time_to_second_token", "Time To Second Token", "ms"),
    ("request_latency", "Request Latency", "ms"),
    ("inter_token_latency", "Inter Token Latency", "ms"),
    ("output_token_throughput_per_user", "Output Token Throughput Per User", "tokens/sec/user"),
    ("output_sequence_length", "Output Sequence Length", "tokens"),
    ("input_sequence_length", "Input Sequence Length", "tokens"),
)
_OLD_ROWS = (
    ("time_to_first_token", "Time To First Token (ns)", 1e6),
    ("inter_token_latency", "Inter Token Latency (ns)", 1e6),
    ("request_latency", "Request Latency (ns)", 1e6),
    ("output_sequence_length", "Num Output Token", 1.0),
    ("input_sequence_length", "Num Input Token", 1.0),
)


def files(runs: Sequence[Run]) -> Files:
    """Return JSON and CSV of each run, as 0.0.16 writes them."""
    for run in runs:
        of = source(run, "genai-perf")
        figures, rates = _figures(of), _rates(of)
        yield f"{folder(of)}/profile_export_genai_perf.json", json.dumps(_json(of, figures, rates), indent=2).encode()
        yield f"{folder(of)}/profile_export_genai_perf.csv", _csv(of, figures, rates).encode()


def files_2406(runs: Sequence[Run]) -> Files:
    """Return the CSV of each run, as 24.06 writes it, named by the lengths: the files that NVIDIA's guide reads."""
    for run in runs:
        of = source(run, "genai-perf")
        name = f"{folder(of)}/{of.asked.n_in}_{of.asked.n_out}_genai_perf.csv"
        yield name, _old_csv(_figures(of), _rates(of)).encode()


def folder(of: Source) -> str:
    """Return the folder of a run in the tree; without a number of users or a rate there is none in its name."""
    load = f"-concurrency{of.asked.users}" if of.asked.users is not None else ""
    if of.asked.rate is not None:
        load = f"-request_rate{of.asked.rate:g}"
    model = of.model.replace("/", "_").replace("\\", "_").lstrip(".") or "model"
    return f"artifacts/{model}-openai-{of.kind}{load}"


def _figures(of: Source) -> dict[str, Floats]:
    """Return the values of each figure of the valid requests, in ms and tokens."""
    at = span(of.log, VISIBLE)
    itl = of.per_request("itl") * 1e3
    second = of.column(np.where(of.log.streamed, at.second_us - at.first_us, np.nan)) / 1e3
    return {
        "request_latency": of.per_request("e2e_latency") * 1e3,
        "time_to_first_token": of.per_request("ttft") * 1e3,
        "time_to_second_token": second,
        "inter_token_latency": itl,
        "output_token_throughput_per_user": np.where(itl > 0, 1e3 / np.maximum(itl, 1e-12), np.nan),
        "output_sequence_length": of.column(of.found.n),
        "input_sequence_length": of.column(of.log.n_in),
    }


def _rates(of: Source) -> dict[str, float]:
    """Return the rates from the first request to the last response of the valid ones."""
    rows = of.rows[of.ok]
    out = {"request_count": float(len(rows))}
    if not len(rows):
        return out
    start = of.log.start_us[rows]
    seconds = float((start / 1e6 + of.found.window_end[rows]).max() - start.min() / 1e6)
    if seconds > 0:
        out["request_throughput"] = len(rows) / seconds
        tokens = of.found.n[rows]
        if not np.isnan(tokens).any():
            out["output_token_throughput"] = float(tokens.sum()) / seconds
    return out


def _json(of: Source, figures: dict[str, Floats], rates: dict[str, float]) -> dict[str, Any]:
    units = {"request_throughput": "requests/sec", "request_count": "count", "output_token_throughput": "tokens/sec"}
    order = ("request_throughput", "request_latency", "request_count", "time_to_first_token", "time_to_second_token",
             "inter_token_latency", "output_token_throughput", "output_token_throughput_per_user",
             "output_sequence_length", "input_sequence_length")  # fmt: skip
    metric_units = {key: unit for key, _, unit in _ROWS}
    out: dict[str, Any] = {}
    for key in order:
        if key in rates:
            out[key] = {"unit": units[key], "avg": rates[key]}
        elif key in figures and (found := statistics(figures[key], _PERCENTILES)):
            names = ("avg", *(f"p{p}" for p in _PERCENTILES), "min", "max", "std")
            out[key] = {"unit": metric_units[key], **{name: found[name] for name in names}}
    return out | {"input_config": _config(of)}


def _config(of: Source) -> dict[str, Any]:
    """Return what was asked for, in the sections of its configuration; its defaults stand for the rest."""
    asked = of.asked
    load = {"concurrency": asked.users} if asked.rate is None else {"request_rate": asked.rate}
    stimulus = {name: value for name, value in load.items() if value is not None}
    return {
        "model_names": [of.model],
        "endpoint": {"type": of.kind, "streaming": of.streamed, "url": of.address, "service_kind": "openai"},
        "perf_analyzer": {"stimulus": stimulus} if stimulus else {},
        "input": {
            "synthetic_tokens": {"mean": asked.n_in, "stddev": asked.std_in},
            "output_tokens": {"mean": asked.n_out, "stddev": asked.std_out},
        },
        "tokenizer": {"name": of.model},
    }


def _csv(of: Source, figures: dict[str, Floats], rates: dict[str, float]) -> str:
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["Metric", *_COLUMNS])
    for key, label, unit in _ROWS:
        if of.streamed or key not in _STREAMED:
            found = statistics(figures[key], _PERCENTILES)
            rows.writerow([f"{label} ({unit})", *(f"{found[c]:,.2f}" if c in found else "N/A" for c in _COLUMNS)])
    rows.writerow([])
    rows.writerow(["Metric", "Value"])
    for key, label in (("output_token_throughput", "Output Token Throughput (tokens/sec)"),
                       ("request_throughput", "Request Throughput (per sec)"),
                       ("request_count", "Request Count (count)")):  # fmt: skip
        rows.writerow([label, f"{rates[key]:,.2f}" if key in rates else "N/A"])
    return out.getvalue()


def _old_csv(figures: dict[str, Floats], rates: dict[str, float]) -> str:
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["Metric", *_OLD_COLUMNS])
    for key, label, scale in _OLD_ROWS:  # all five, always: they are read by position
        found = statistics(figures[key], _PERCENTILES, scale)
        rows.writerow([label, *(f"{found[c]:.0f}" if c in found else "" for c in _OLD_COLUMNS)])
    rows.writerow([])
    rows.writerow(["Metric", "Value"])
    for key, label in (("output_token_throughput", "Output Token Throughput (per sec)"),
                       ("request_throughput", "Request Throughput (per sec)")):  # fmt: skip
        rows.writerow([label, f"{rates[key]:.2f}" if key in rates else ""])
    return out.getvalue()
