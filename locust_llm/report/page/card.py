"""The run card as a benchmark template: model, hardware, server, client, results; what is not known says so.

The one thing to know: facts come from ``--llm-meta`` under fixed keys, from first contact with the server, and from the
log; a cell nobody filled names the option that fills it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..table import number

META: dict[str, tuple[str, str]] = {
    "model_size": ("Model", "Size"),
    "framework": ("Model", "Framework"),
    "framework_version": ("Model", "Framework version"),
    "quantization": ("Model", "Quantization"),
    "gpu": ("Hardware", "GPU"),
    "gpu_count": ("Hardware", "GPU count"),
    "gpu_memory": ("Hardware", "GPU memory"),
    "tensor_parallel": ("Server", "Tensor parallel"),
    "data_parallel": ("Server", "Data parallel"),
    "pipeline_parallel": ("Server", "Pipeline parallel"),
    "expert_parallel": ("Server", "Expert parallel"),
    "replicas": ("Server", "Replicas"),
    "max_batch_size": ("Server", "Max batch size"),
    "prefix_cache": ("Server", "Prefix cache"),
    "client_location": ("Client", "Location"),
}
"""Key of ``--llm-meta`` → category and parameter; other keys stand under "Other facts"."""

PRICES = ("price_input", "price_output", "price_hour")


@dataclass(frozen=True, slots=True)
class Fact:
    """One cell: ``value`` is None where nobody knows it, then ``why`` says so."""

    category: str
    parameter: str
    value: str | None
    why: str = ""


def facts(summary: dict[str, Any], card: dict[str, Any]) -> list[Fact]:
    """Return the template's cells in order."""
    order = ("Model", "Hardware", "Server", "Client", "Results", "Other facts")
    found = [*_model(summary), *_meta(card), *_server(card), *_client(summary, card), *_results(summary)]
    return sorted(found, key=lambda fact: order.index(fact.category))


def meta_of(card: dict[str, Any]) -> dict[str, str]:
    """Return the user's facts; anything that is no text is shown as text."""
    return {str(k): str(v) for k, v in of_dict(card, "meta").items() if v is not None and str(v).strip()}


def of_dict(card: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a member of the card that should be an object, {} if it is none."""
    value = card.get(key)
    return value if isinstance(value, dict) else {}


def _model(summary: dict[str, Any]) -> Iterator[Fact]:
    models = list(dict.fromkeys(str(name["model"]) for name in summary["names"]))
    yield Fact("Model", "Name", ", ".join(models[:5]) + (" …" if len(models) > 5 else ""))


def _meta(card: dict[str, Any]) -> Iterator[Fact]:
    meta = meta_of(card)
    for key, (category, parameter) in META.items():
        yield Fact(category, parameter, meta.get(key), f"not given (--llm-meta {key}=…)")
    for key, value in meta.items():
        if key not in META and key not in PRICES:
            yield Fact("Other facts", key, value)


def _server(card: dict[str, Any]) -> Iterator[Fact]:
    for address, facts_ in of_dict(card, "targets").items():
        if not isinstance(facts_, dict):
            continue
        said = [str(facts_[key]) for key in ("server", "version") if facts_.get(key)]
        yield Fact("Server", "Address and API", str(address))
        yield Fact("Server", "Calls itself", " ".join(said) or None, "it does not say")
        if facts_.get("context_length"):
            yield Fact("Server", "Context length", f"{facts_['context_length']} tokens")
        if facts_.get("dropped"):
            yield Fact("Server", "Refuses", ", ".join(map(str, facts_["dropped"])))


def _client(summary: dict[str, Any], card: dict[str, Any]) -> Iterator[Fact]:
    load, total = of_dict(card, "load"), summary["total"]
    no_card = "there is no run card (run.json)"
    parts = []
    if load.get("users"):
        parts.append(f"{load['users']} users")
    if load.get("requests"):
        parts.append(f"{load['requests']} exchanges")
    if load.get("run_time_s"):
        parts.append(f"{load['run_time_s']} s")
    yield Fact("Client", "Load asked for", ", ".join(parts) or None, no_card)
    in_flight = total["concurrency"]["in_flight"]
    yield Fact("Client", "Concurrency (mean, peak)", f"{number(in_flight['mean'])}, {in_flight['peak']} exchanges")
    for which in ("input", "output"):
        yield Fact("Client", f"{which.capitalize()} length", *_length(which, total, card))
    machine = of_dict(card, "machine")
    if machine:
        versions = of_dict(machine, "packages")
        mine = f"locust-llm {versions['locust-llm']}, " if "locust-llm" in versions else ""
        yield Fact("Client", "Machine", f"{mine}{machine.get('cpus', '?')} CPUs, {machine.get('platform', 'unknown')}")
    git = of_dict(card, "git")
    if git.get("commit"):
        changed = " (changed since)" if git.get("dirty") else ""
        yield Fact("Client", "Locustfile", f"git {str(git['commit'])[:12]}{changed}")
    if card.get("seed") is not None:
        yield Fact("Client", "Seed", str(card["seed"]))


def _length(which: str, total: dict[str, Any], card: dict[str, Any]) -> tuple[str | None, str]:
    lengths, measured = total["lengths"].get(which), total["metrics"].get(f"{which}_tokens")
    parts = []
    asked = of_dict(card, "lengths").get(f"{which}_tokens")
    if lengths:
        parts.append(f"asked {number(lengths['asked_mean'])}")
    elif asked and not of_dict(card, "lengths").get("prompts"):
        parts.append(f"asked {asked}")
    if measured:
        parts.append(f"got {number(measured['mean'])} (p5 {number(measured['p5'])}, p95 {number(measured['p95'])})")
    return (f"{', '.join(parts)} tokens" if parts else None), "unknown"


def _results(summary: dict[str, Any]) -> Iterator[Fact]:
    total = summary["total"]
    rates, metrics, absent = total["rates"], total["metrics"], total["absent"]

    def rate(name: str, unit: str) -> tuple[str | None, str]:
        return (f"{number(rates[name])} {unit}" if name in rates else None), absent.get(name, "")

    def metric(name: str, statistic: str) -> tuple[str | None, str]:
        if name not in metrics:
            return None, absent.get(name, "")
        thin = " (too few values for it)" if statistic in metrics[name]["thin"] else ""
        return f"{number(metrics[name][statistic])} ms{thin}", ""

    yield Fact("Results", "Throughput, output", *rate("system_output_tps", "tokens/s"))
    yield Fact("Results", "Requests", *rate("requests_per_s", "1/s"))
    yield Fact("Results", "Median TTFT", *metric("ttft", "p50"))
    yield Fact("Results", "P99 e2e latency", *metric("e2e_latency", "p99"))
    yield Fact("Results", "GPU utilisation", None, "not measured")
    costs = total.get("cost", {})
    words = {"tokens": "token price", "hour": "price of the hour"}
    each = {by: costs[by]["per_1m_tokens"] for by in words if "per_1m_tokens" in costs.get(by, {})}
    shown = ", ".join(f"{number(value)} by {words[by]}" for by, value in each.items())
    yield Fact(
        "Results", "Cost per 1M tokens", shown or None, "no price given (--price-input, --price-output, --price-hour)"
    )
