"""What Prometheus is told: each metric's name, meaning and buckets, once, and how samples are made from tallies.

The one thing to know: where OpenTelemetry's conventions for generative AI have a name it is used, with their labels and
buckets, in Prometheus' spelling (dots become underscores, the unit is a suffix). Everything else is ``locust_llm_…``.
A series never falls within a run: what was counted of a stream that failed later stays (``Rising``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.utils import floatToGoString

from ..errors import UsageError
from ..exchange import OUTCOMES
from ..wire import registry
from .delta import Key
from .histogram import Histogram
from .tally import Tally

MOST_ROWS = 50
"""So many names (with API and model) have labels of their own; the exchanges of all others are counted as ``other``."""
OTHER: Key = ("other", "other", "other")

_US = 1e6
_DURATION_S = tuple(0.01 * 2**i for i in range(14))
_FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_PER_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(float(4**i) for i in range(14))
_FINE_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Timing:
    """A histogram of seconds.

    Attributes:
        name: without the unit, which is a suffix.
        figure: the tally's.
        bounds_s: upper ends of its buckets.
    """

    name: str
    figure: str
    bounds_s: tuple[float, ...]
    help: str

    @property
    def conventional(self) -> bool:
        """Whether name and labels are OpenTelemetry's."""
        return self.name.startswith("gen_ai_")


TIMINGS = (
    Timing("gen_ai_client_operation_duration", "stream_end", _DURATION_S, "start to end of the answer, of successes"),
    Timing(
        "gen_ai_client_operation_time_to_first_chunk",
        "ttft",
        _DURATION_S,
        "TTFT: start to first event with a token",
    ),
    Timing("gen_ai_client_operation_time_per_output_chunk", "icl", _DURATION_S, "ICL: gaps between token events"),
    # The client's names are the right ones; these two are what dashboards of model servers look for (docs/live.md).
    Timing("gen_ai_server_time_to_first_token", "ttft", _FIRST_TOKEN_S, "TTFT, as the client sees it"),
    Timing("gen_ai_server_time_per_output_token", "tpot", _PER_TOKEN_S, "TPOT, as the client sees it"),
    Timing("locust_llm_ttfvt", "ttfvt", _FIRST_TOKEN_S, "time to the first visible token"),
    Timing("locust_llm_itl", "itl", _FINE_S, "inter-token latency, one value a token"),
    Timing("locust_llm_e2e_latency", "e2e_latency", _DURATION_S, "start to last token"),
    Timing("locust_llm_schedule_lag", "schedule_lag", _FINE_S, "open loop: due to started"),
    Timing("locust_llm_client_lag", "client_lag", _FINE_S, "longest wait of an exchange's bytes for the client"),
)
LABELS = ("name", "api", "model")
CONVENTIONAL_LABELS = ("name", "gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")

_PROVIDERS = {
    "anthropic": "anthropic", "azure-openai": "azure.ai.openai", "azure-openai-v1": "azure.ai.openai",
    "bedrock": "aws.bedrock", "bedrock-invoke": "aws.bedrock", "cohere": "cohere", "gemini": "gcp.gen_ai",
    "openai-chat": "openai", "openai-completions": "openai", "openai-responses": "openai",
}  # fmt: skip
"""The conventions' names for what an API is the format of; other APIs stand under their own."""


class Rising:
    """Greatest values of each series so far, so that none falls before ``since`` changes."""

    def __init__(self) -> None:
        self._since: object = None
        self._values: dict[tuple[Any, ...], float] = {}

    def begin(self, since: object) -> None:
        """Start again if ``since`` (run, number of resets) is another one."""
        if since != self._since:
            self._since, self._values = since, {}

    def __call__(self, value: float, *series: Any) -> float:
        """Return ``value``, or what the series has been before, if that was more."""
        self._values[series] = value = max(value, self._values.get(series, value))
        return value


def of_exchanges(
    rows: Mapping[Key, Tally], rising: Rising, pause: Callable[[], None] = lambda: None
) -> Iterator[Metric]:
    """Yield the counters and histograms of exchanges.

    Args:
        rows: what was counted by name, API and model.
        pause: called after each row of a histogram.
    """
    rows = dict(rows)
    for timing in TIMINGS:
        yield _timing(timing, rows, rising, pause)
    yield _token_usage(rows, rising, pause)
    exchanges = CounterMetricFamily("locust_llm_exchanges", "exchanges that are over", labels=(*LABELS, "outcome"))
    tokens = CounterMetricFamily("locust_llm_tokens", "tokens of exchanges that are over", labels=(*LABELS, "type"))
    traffic = CounterMetricFamily("locust_llm_bytes", "bytes on the wire", labels=(*LABELS, "direction"))
    for key, row in rows.items():
        for outcome in OUTCOMES:
            if row.number(outcome):
                exchanges.add_metric((*key, outcome), rising(row.number(outcome), "exchanges", key, outcome))
        for kind in ("input", "output", "reasoning", "cached"):
            if row.number(f"knows_{kind}"):
                tokens.add_metric((*key, kind), rising(row.number(f"tokens_{kind}"), "tokens", key, kind))
        for way in ("in", "out"):
            traffic.add_metric((*key, way), rising(row.number(f"bytes_{way}"), "bytes", key, way))
    yield from (exchanges, tokens, traffic)


def of_run(snapshot: Mapping[str, Any], rising: Rising) -> Iterator[Metric]:
    """Yield what is said of the run as a whole, from a snapshot of the desk."""
    failures = CounterMetricFamily("locust_llm_failures", "failures by kind", labels=("error_type",))
    for error in snapshot.get("errors", []):
        failures.add_metric((error["kind"],), rising(error["count"], "failures", error["kind"]))
    yield failures
    head = snapshot.get("head", {})
    for name, key, text in (
        ("users", "users", "Locust's users"),
        ("in_flight", "in_flight", "exchanges in flight"),
        ("decoding", "decoding", "of these, exchanges that have their first token"),
        ("output_tokens_per_second", "output_tps", "output tokens that arrived, over the last 10 s of a running test"),
    ):
        yield _gauge(f"locust_llm_{name}", text, head.get(key))
    yield _gauge("locust_llm_run_start_time", "when the run began, epoch", snapshot.get("started"), unit="seconds")
    info = InfoMetricFamily("locust_llm_run", "the run whose figures these are")
    if "run" in snapshot:
        info.add_metric((), {"run": snapshot["run"]})
    yield info
    yield _states("locust_llm_state", "what the test does", ("ready", "running", "stopping", "stopped"),
                  snapshot.get("state"))  # fmt: skip
    yield _states("locust_llm_client", "whether the client keeps up", ("sound", "doubtful", "overloaded", "unknown"),
                  snapshot.get("verdict", {}).get("state"))  # fmt: skip
    objectives = StateSetMetricFamily("locust_llm_objective", "objectives, judged so far", labels=("objective",))
    for one in snapshot.get("objectives", []):
        objectives.add_metric((one["text"],), {s: s == one["state"] for s in ("pass", "fail", "undecided")})
    yield objectives
    workers = GaugeMetricFamily("locust_llm_workers", "workers by state", labels=("state",))
    states = [worker["state"] for worker in snapshot.get("workers", [])]
    for state in ("running", "lost", "left") if states else ():
        workers.add_metric((state,), states.count(state))
    yield workers


def bounded(rows: Mapping[Key, Tally]) -> Mapping[Key, Tally]:
    """Return the rows with all beyond the first ``MOST_ROWS`` put together: names may be made by a program."""
    if len(rows) <= MOST_ROWS:
        return rows
    some: dict[Key, Tally] = {}
    other = Tally()
    for key, row in rows.items():
        if len(some) < MOST_ROWS:
            some[key] = row
        else:
            other.merge(row)
    return some | {OTHER: other}


# ---- helpers


def _timing(timing: Timing, rows: Mapping[Key, Tally], rising: Rising, pause: Callable[[], None]) -> Metric:
    labels = CONVENTIONAL_LABELS if timing.conventional else LABELS
    family = HistogramMetricFamily(timing.name, timing.help, labels=labels, unit="seconds")
    bounds_us = [bound * _US for bound in timing.bounds_s]
    for key, row in rows.items():
        histogram = row.histograms.get(timing.figure)
        if histogram is not None and histogram.n > 0:
            values = _conventional(key) if timing.conventional else key
            _add(family, values, histogram, timing.bounds_s, bounds_us, _US, rising)
            pause()
    return family


def _token_usage(rows: Mapping[Key, Tally], rising: Rising, pause: Callable[[], None]) -> Metric:
    family = HistogramMetricFamily(
        "gen_ai_client_token_usage", "tokens of an exchange, of successes",
        labels=(*CONVENTIONAL_LABELS, "gen_ai_token_type"),
    )  # fmt: skip
    for key, row in rows.items():
        for kind in ("input", "output"):
            histogram = row.histograms.get(f"{kind}_tokens")
            if histogram is not None and histogram.n > 0:
                _add(family, (*_conventional(key), kind), histogram, _TOKENS, _TOKENS, 1.0, rising)
        pause()
    return family


def _add(
    family: HistogramMetricFamily, labels: tuple[str, ...], histogram: Histogram,
    bounds: tuple[float, ...], ends: Any, scale: float, rising: Rising,
) -> None:  # fmt: skip
    """Add a histogram's buckets. ``ends``: the bounds in the histogram's own unit, which ``scale`` divides."""
    series = (family.name, labels)
    counts = [rising(count, *series, i) for i, count in enumerate([*histogram.up_to(ends), histogram.n])]
    names = [*map(floatToGoString, bounds), "+Inf"]
    family.add_metric(labels, list(zip(names, counts, strict=True)), rising(histogram.total / scale, *series, "sum"))


def _conventional(key: Key) -> tuple[str, ...]:
    """Return the values of ``CONVENTIONAL_LABELS``."""
    name, api, model = key
    try:
        entry = registry.api(api)
    except UsageError:  # another process's own, or all others together
        return name, "chat", api, model
    operation = "generate_content" if entry.name == "gemini" else "chat"
    if entry.request_type == "COMPLETION":
        operation = "text_completion"
    return name, operation, _PROVIDERS.get(entry.name, entry.name), model


def _gauge(name: str, text: str, value: float | None, unit: str = "") -> Metric:
    family = GaugeMetricFamily(name, text, unit=unit)
    if value is not None:
        family.add_metric((), value)
    return family


def _states(name: str, text: str, states: tuple[str, ...], state: str | None) -> Metric:
    family = StateSetMetricFamily(name, text)
    if state is not None:
        family.add_metric((), {one: one == state for one in states})
    return family
