"""What model servers count themselves (``/metrics``): the names each one uses, and a reading of them.

The one thing to know: no I/O here. A server is known by the names it exports; a figure is the sum of its samples over
all labels (engines, models, reasons), because that is what a load meets. Names as of vLLM 0.32 (and before 0.10),
SGLang 0.5, llama.cpp of October 2026, TGI 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Names = tuple[str, ...]

STARTED = "process_start_time_seconds"
_MOST_MODELS = 10
_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Engine:
    """How one kind of server names what it counts. Several names: the first that is there counts.

    Attributes:
        counters: figure → names of counters. ``prompt_tokens`` are those of whole prompts, ``computed_prompt_tokens``
            those that were not found in the cache; ``requests`` are over, whatever came of them.
        means: figure → names of histograms (or summaries) in seconds; the mean is sum over count.
    """

    title: str
    counters: Mapping[str, Names]
    means: Mapping[str, Names]


ENGINES: Mapping[str, Engine] = {
    "vllm": Engine(
        "vLLM",
        {
            "prompt_tokens": ("vllm:prompt_tokens_total",),
            "generation_tokens": ("vllm:generation_tokens_total",),
            "requests": ("vllm:request_success_total",),
            "cache_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
            "cache_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
            "preemptions": ("vllm:num_preemptions_total",),
        },
        {
            "ttft": ("vllm:time_to_first_token_seconds",),
            "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
            "e2e_latency": ("vllm:e2e_request_latency_seconds",),
            "queue_time": ("vllm:request_queue_time_seconds",),
        },
    ),
    "sglang": Engine(
        "SGLang",
        {
            "prompt_tokens": ("sglang:prompt_tokens_total",),
            "generation_tokens": ("sglang:generation_tokens_total",),
            "requests": ("sglang:num_requests_total",),
            "cache_hits": ("sglang:cached_tokens_total",),
        },
        {
            "ttft": ("sglang:time_to_first_token_seconds",),
            "itl": ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
            "e2e_latency": ("sglang:e2e_request_latency_seconds",),
            "queue_time": ("sglang:queue_time_seconds",),
        },
    ),
    "llama.cpp": Engine(
        "llama.cpp",
        {
            "computed_prompt_tokens": ("llamacpp:prompt_tokens_total",),
            "cache_hits": ("llamacpp:prompt_tokens_cached_total",),
            "generation_tokens": ("llamacpp:tokens_predicted_total",),
        },
        {},
    ),
    "tgi": Engine(
        "TGI",
        {
            "prompt_tokens": ("tgi_request_input_length_sum",),
            "generation_tokens": ("tgi_request_generated_tokens_sum",),
            "requests": ("tgi_request_success", "tgi_request_success_total"),
        },
        {"e2e_latency": ("tgi_request_duration",), "queue_time": ("tgi_request_queue_duration",)},
    ),
}


class NotMetrics(Exception):
    """A body that holds no counters this tool knows; the message says why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters of a server at one moment.

    Attributes:
        engine: key of ``ENGINES``.
        samples: name → value, summed over all labels; those of ``ENGINES`` that are there.
        started: what changes with each start of the server, if it says so.
        models: model names among the labels.
    """

    engine: str
    samples: dict[str, float]
    started: float | None
    models: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the reading as plain data."""
        members = {"engine": self.engine, "samples": self.samples, "started": self.started, "models": self.models}
        return {name: value for name, value in members.items() if value not in (None, [])}


def read_metrics(body: bytes) -> Reading:
    """Read Prometheus' text format.

    Only lines that are wanted are parsed: an answer may have a hundred thousand others.

    Raises:
        NotMetrics: it is not that format, or has none of the names.
    """
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in body.splitlines() if _name(line) in _WANTED]
    if not lines:
        if b"# TYPE" in body[:_HEAD_BYTES] or b"# HELP" in body[:_HEAD_BYTES]:
            raise NotMetrics("none of its counters is one that this tool knows")
        raise NotMetrics("the answer is not in Prometheus' text format")
    samples: dict[str, float] = {}
    models: dict[str, None] = {}
    try:
        for family in text_string_to_metric_families(b"\n".join([*lines, b""]).decode("utf-8", "replace")):
            for sample in family.samples:
                samples[sample.name] = samples.get(sample.name, 0.0) + float(sample.value)
                if model := sample.labels.get("model_name"):
                    models[model] = None
    except (ValueError, KeyError, IndexError) as e:
        raise NotMetrics(f"the answer cannot be read: {' '.join(str(e).split())[:100]}") from None
    samples = {name: value for name, value in samples.items() if value == value and abs(value) < 1e300}
    started = samples.pop(STARTED, None)
    for key, engine in ENGINES.items():
        wanted = _names_of(engine)
        own = {name: value for name, value in samples.items() if name in wanted}
        if own:
            return Reading(key, own, started, list(models)[:_MOST_MODELS])
    raise NotMetrics("its counters have no numbers")


def counter(engine: Engine, figure: str, samples: Mapping[str, float]) -> float | None:
    """Return a counter's value, None if this server does not have it."""
    return next((samples[name] for name in engine.counters.get(figure, ()) if name in samples), None)


def sum_and_count(engine: Engine, figure: str, samples: Mapping[str, float]) -> tuple[float, float] | None:
    """Return sum (s) and count of a histogram, None if this server does not have it."""
    for name in engine.means.get(figure, ()):
        if f"{name}_sum" in samples and f"{name}_count" in samples:
            return samples[f"{name}_sum"], samples[f"{name}_count"]
    return None


def _names_of(engine: Engine) -> frozenset[str]:
    single = [name for names in engine.counters.values() for name in names]
    return frozenset(single + [f"{n}_{end}" for names in engine.means.values() for n in names for end in _ENDS])


_ENDS = ("sum", "count")
_WANTED = frozenset(name.encode() for engine in ENGINES.values() for name in (*_names_of(engine), STARTED))


def _name(line: bytes) -> bytes:
    """Return the name of a sample's line; of a comment something that is no name."""
    return line.partition(b"{")[0].partition(b" ")[0].partition(b"\t")[0]
