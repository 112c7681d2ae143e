"""Names, labels and units of every figure, once; the keys of ``summary.json`` are the keys here.

The one thing to know: inside this package times are seconds; ``scale`` turns a value into the unit in which people
read it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure: its name in the table, its unit for people, the factor from ours (seconds, counts) to that, and which
    direction is good: ``LESS``, ``MORE`` or neither."""

    label: str
    unit: str
    scale: float = 1.0
    better: str = ""


LESS, MORE = "less", "more"

_MS = ("ms", 1e3, LESS)
_TPS = ("tokens/s", 1.0, MORE)

METRICS: dict[str, Metric] = {
    "ttft": Metric("TTFT", *_MS),
    "ttfvt": Metric("TTFVT (first visible token)", *_MS),
    "ttst": Metric("TTST (second token)", *_MS),
    "tpot": Metric("TPOT (ITL in AIPerf, GuideLLM, NVIDIA)", *_MS),
    "itl": Metric("ITL per token", *_MS),
    "icl": Metric("ICL per chunk", *_MS),
    "e2e_latency": Metric("e2e latency", *_MS),
    "stream_end": Metric("end of stream", *_MS),
    "output_tps_per_user": Metric("output tokens/s per user", *_TPS),
    "decode_tps_per_user": Metric("decode tokens/s per user", *_TPS),
    "prefill_tps": Metric("prefill tokens/s", *_TPS),
    "schedule_lag": Metric("schedule lag", *_MS),
    "scheduled_ttft": Metric("TTFT from schedule", *_MS),
    "scheduled_latency": Metric("e2e latency from schedule", *_MS),
    "output_tokens": Metric("output tokens", "tokens"),
    "input_tokens": Metric("input tokens", "tokens"),
}
"""Figures that have a distribution: one value per exchange, but ``itl`` and ``icl``, which pool the gaps of all."""

POOLED = ("itl", "icl")

RATES: dict[str, Metric] = {
    "system_output_tps": Metric("system output tokens/s", *_TPS),
    "system_total_tps": Metric("system tokens/s, input too", *_TPS),
    "requests_per_s": Metric("requests/s", "1/s", better=MORE),
    "requests_per_min": Metric("requests/min", "1/min", better=MORE),
    "peak_output_tps": Metric("busiest second, tokens/s", "tokens/s"),
    "hidden_reasoning_tps": Metric("hidden reasoning tokens/s", "tokens/s"),
    "estimated_output_tps": Metric("estimated tokens/s", "tokens/s"),
    "failed_output_tps": Metric("tokens/s of failed exchanges", "tokens/s"),
    "output_chunks_per_s": Metric("output chunks/s", "chunks/s"),
    "error_rate": Metric("error rate", "share", better=LESS),
    "goodput": Metric("goodput", "share", better=MORE),
    "goodput_per_s": Metric("goodput, requests/s", "1/s", better=MORE),
}
"""Figures of a window; goodput only where limits are given. Hidden and estimated tokens are part of
``system_output_tps``, those of failures are not."""

PERCENTILES: dict[str, float] = {
    "p1": 0.01, "p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75,
    "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999,
}  # fmt: skip
