"""What ``/metrics`` says: the counters of the simulator under vLLM's names, in Prometheus' text format.

Token counters are exact at any moment. Of the histograms only sum and count are kept (one bucket, ``+Inf``): that is
what a mean is made of, and a token costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Mean:
    """Sum and count of what was observed. Units: ns."""

    __slots__ = ("count", "sum_ns")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ns = 0

    def add(self, sum_ns: int, count: int = 1) -> None:
        self.sum_ns += sum_ns
        self.count += count


class Metrics:
    """Counters since the start of the server.

    Attributes:
        prompt_tokens: of prompts that have been worked through, cached ones included.
        cache_queries, cache_hits: prompt tokens looked up in the prefix cache, and found there.
        generation_tokens: made, whether or not their client was still there.
        finished: requests that are over, by reason; those whose client has gone are ``abort``.
        ttft, itl, e2e: from the moment the request was read.
    """

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.cache_queries = 0
        self.cache_hits = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter({"stop": 0, "length": 0, "abort": 0, "error": 0})
        self.ttft, self.itl, self.e2e = Mean(), Mean(), Mean()

    def render(self, model: str, running: int, waiting: int) -> bytes:
        """Return the text of ``/metrics``."""
        label = f'model_name="{_escaped(model)}"'
        lines = [
            *_single("vllm:num_requests_running", "gauge", label, running),
            *_single("vllm:num_requests_waiting", "gauge", label, waiting),
            *_single("vllm:prompt_tokens_total", "counter", label, self.prompt_tokens),
            *_single("vllm:generation_tokens_total", "counter", label, self.generation_tokens),
            *_single("vllm:prefix_cache_queries_total", "counter", label, self.cache_queries),
            *_single("vllm:prefix_cache_hits_total", "counter", label, self.cache_hits),
            "# TYPE vllm:request_success_total counter",
        ]
        lines += [
            f'vllm:request_success_total{{finished_reason="{reason}",{label}}} {count}'
            for reason, count in self.finished.items()
        ]
        lines += _histogram("vllm:time_to_first_token_seconds", label, self.ttft)
        lines += _histogram("vllm:inter_token_latency_seconds", label, self.itl)
        lines += _histogram("vllm:e2e_request_latency_seconds", label, self.e2e)
        return "\n".join([*lines, ""]).encode()


def _single(name: str, kind: str, label: str, value: int) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    yield f"{name}{{{label}}} {value}"


def _histogram(name: str, label: str, mean: Mean) -> Iterator[str]:
    yield f"# TYPE {name} histogram"
    yield f'{name}_bucket{{le="+Inf",{label}}} {mean.count}'
    yield f"{name}_sum{{{label}}} {mean.sum_ns / 1e9:.9f}"
    yield f"{name}_count{{{label}}} {mean.count}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
