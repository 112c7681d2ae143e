"""LLMPerf-leaderboard tables of several runs: output tokens/s and TTFT by framework and model, grouped by model size.

The one thing to know: figures are LLMPerf's (tokens/s of a request is n over its whole time, ``[DONE]`` included; TTFT
is that of the answer text), over the whole run and its streamed successes, so that they stand beside LLMPerf's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .columns import Log
from .definitions import found_by
from .figures import Figures
from .llmperf_files import TPS, TTFT, LlmPerf
from .open_loop import asked_rates
from .page.card import meta_of, of_dict
from .shares import needed
from .stats import Sample, quantile, sample

STATISTICS = ("p50", "mean", "min", "max", "p25", "p75", "p95", "p99")
HEADS = ("Median", "Mean", "Min", "Max", "P25", "P75", "P95", "P99")
BOARDS = (("tps", "Output tokens per second"), ("ttft_s", "Time to first token (s)"))
NO_SIZE = "size not given"
STANDARD = "150 requests, 5 at a time, 550 tokens in, 150 out, no deviation"
"""The configuration of LLMPerf's leaderboard."""

CAVEATS = (
    "An endpoint is measured, not the software on some hardware: back ends differ from provider to provider.",
    "Results change with the hour of the day and with what else the server was doing.",
    "TTFT depends on where the client was; a server may also hold back the first token.",
    "Your prompts, lengths and load are not these; measure your own.",
)
_SIZE = re.compile(r"(?<![a-z0-9.])((?:\d+x)?\d+(?:\.\d+)?)\s*([bm])(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the boards. ``statistics``: board → statistic → value; ``thin``: (board, statistic) with few values.

    Attributes:
        config: what was run, in words. standard: whether it is LLMPerf's configuration.
    """

    framework: str
    model: str
    size: str
    statistics: dict[str, dict[str, float]]
    thin: frozenset[tuple[str, str]]
    config: str
    standard: bool
    source: str
    cost: str = ""


def of_run(log: Log, of_each: Figures, card: dict[str, Any], summary: dict[str, Any]) -> list[Entry]:
    """Return an entry for each model of a run."""
    found = found_by("llmperf", log, of_each)
    meta, entries = meta_of(card), []
    for code, model in enumerate(log.model.names):
        rows = found.valid & (log.model.codes == code)
        if not rows.any():
            continue
        tps, ttft = (sample(found.per_request[name][rows]) for name in ("output_tps_per_user", "ttft"))
        framework = " ".join(meta[k] for k in ("framework", "framework_version") if k in meta) or _server(card) or "–"
        config, standard = _config(card, int(rows.sum()))
        statistics, thin = _statistics({"tps": tps, "ttft_s": ttft})
        entries.append(
            Entry(framework, model, size_of(model, meta.get("model_size")), statistics, thin, config, standard,
                  f"locust-llm, run {summary['run']}", _cost(summary))
        )  # fmt: skip
    return entries


def of_llmperf(result: LlmPerf) -> Entry:
    """Return the entry of one of LLMPerf's results."""
    summary = result.summary
    model = str(summary.get("model") or result.name)
    if result.tps is not None and result.ttft_s is not None and len(result.tps):
        statistics, thin = _statistics({"tps": sample(result.tps), "ttft_s": sample(result.ttft_s)})
    else:
        statistics, thin = {"tps": result.statistics(TPS), "ttft_s": result.statistics(TTFT)}, frozenset()
    asked = [summary.get(k) for k in ("results_num_completed_requests", "num_concurrent_requests", "mean_input_tokens",
                                      "stddev_input_tokens", "mean_output_tokens", "stddev_output_tokens")]  # fmt: skip
    requests, users, n_in, dev_in, n_out, dev_out = (_shown(v) for v in asked)
    config = f"{requests} requests, {users} at a time, {n_in} (±{dev_in}) tokens in, {n_out} (±{dev_out}) out"
    standard = (requests, users, n_in, dev_in, n_out, dev_out) == ("150", "5", "550", "0", "150", "0")
    framework = str(summary.get("framework") or summary.get("provider") or "–")
    size = size_of(model, _text(summary.get("model_size")))
    return Entry(framework, model, size, statistics, thin, config, standard, f"LLMPerf, {result.name}")


def size_of(model: str, given: str | None = None) -> str:
    """Return the size of a model, as ``70B``: what is given, else the last such part of its name."""
    given = (given or "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", given):
        return f"{given}B"
    for text in (given,) if given else (model.rpartition("/")[2], model):
        if match := list(_SIZE.finditer(text.replace("_", "-"))):
            number, unit = match[-1].groups()
            return f"{number.lower()}{unit.upper()}"
    return given or NO_SIZE


def grouped(entries: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    """Return the entries by size, largest first, each in order of framework and model."""
    sizes = sorted({e.size for e in entries}, key=_weights, reverse=True)
    return [
        (s, sorted((e for e in entries if e.size == s), key=lambda e: (e.framework.lower(), e.model.lower())))
        for s in sizes
    ]


def cells(entry: Entry, board: str) -> list[str]:
    """Return the statistics of one line as text; "–" where one is absent, "~" where it has too few values."""
    digits = 3 if board == "ttft_s" else 1  # of TTFT one more than LLMPerf: 0.05 s would hide a difference of 10 %
    found = entry.statistics[board]
    return [
        "–" if s not in found else f"{found[s]:.{digits}f}{'~' if (board, s) in entry.thin else ''}" for s in STATISTICS
    ]  # fmt: skip


def markdown(entries: Sequence[Entry]) -> str:
    """Return the boards as Markdown, with what was run and the caveats."""
    lines = ["# LLM leaderboard", ""]
    priced = any(e.cost for e in entries)
    for board, title in BOARDS:
        lines += [f"## {title}", ""]
        for size, group in grouped(entries):
            extra = ["Cost per 1M tokens"] if priced and board == "tps" else []
            lines += [f"### {size} models" if size != NO_SIZE else f"### Models, {size}", ""]
            lines += [
                _row("Framework", "Model", *HEADS, *extra),
                "| --- | --- |" + " ---: |" * (len(HEADS) + len(extra)),
            ]
            lines += [_row(e.framework, e.model, *cells(e, board), *([e.cost or "–"] if extra else [])) for e in group]
            lines.append("")
    lines += ["## What was run", "", *(f"- {_escape(line)}" for line in configurations(entries)), ""]
    lines += ["## Read with care", "", *(f"- {line}" for line in CAVEATS)]
    if any(e.thin for e in entries):
        lines.append("- ~ marks a percentile with too few requests behind it.")
    return "\n".join([*lines, ""])


def configurations(entries: Sequence[Entry]) -> list[str]:
    """Return a line for each entry on what was run, and whether that is the leaderboard's configuration."""
    out = []
    for e in entries:
        note = "" if e.standard else f"; not the leaderboard's configuration ({STANDARD})"
        out.append(f"{e.framework} {e.model}: {e.config}{note} ({e.source})".removeprefix("– "))
    return out


def _statistics(of: dict[str, Sample]) -> tuple[dict[str, dict[str, float]], frozenset[tuple[str, str]]]:
    shares = {"p50": 0.5, "p25": 0.25, "p75": 0.75, "p95": 0.95, "p99": 0.99}
    out: dict[str, dict[str, float]] = {}
    thin = set()
    for board, values in of.items():
        out[board] = {}
        if not values.size:
            continue
        out[board] = {"mean": float((values.values * values.counts).sum()) / values.size,
                      "min": float(values.values[0]), "max": float(values.values[-1])}  # fmt: skip
        for name, q in shares.items():
            out[board][name] = quantile(values, q)
            if values.size < needed(q):
                thin.add((board, name))
    return out, frozenset(thin)


def _config(card: dict[str, Any], streamed: int) -> tuple[str, bool]:
    load, lengths = of_dict(card, "load"), of_dict(card, "lengths")
    users, requests = load.get("users"), load.get("requests")
    n_in, n_out = (str(lengths.get(f"{w}_tokens") or "?") for w in ("input", "output"))
    prompts = bool(lengths.get("prompts"))
    shown = "prompts of a file" if prompts else f"{_deviation(n_in)} tokens in"
    rate = sum(asked_rates(card).values())
    pace = f"{rate:g} a second, at most {users or '?'}" if rate else str(users or "?")
    config = f"{streamed} streamed successes, {pace} at a time, {shown}, {_deviation(n_out)} out"
    plain = [n.removesuffix(",0") for n in (n_in, n_out)]
    return config, not rate and (requests, users, *plain, prompts) == (150, 5, "550", "150", False)


def _deviation(length: str) -> str:
    mean, _, deviation = length.partition(",")
    return f"{mean} (±{deviation or 0})"


def _cost(summary: dict[str, Any]) -> str:
    costs = summary["total"].get("cost", {})
    found = [costs[by]["per_1m_tokens"] for by in ("tokens", "hour") if "per_1m_tokens" in costs.get(by, {})]
    return " / ".join(f"{value:.4g}" for value in found)


def _server(card: dict[str, Any]) -> str:
    for facts in of_dict(card, "targets").values():
        if isinstance(facts, dict) and facts.get("server"):
            return str(facts["server"])
    return ""


def _weights(size: str) -> float:
    match = _SIZE.search(size)
    if not match:
        return -1.0
    experts, _, each = match[1].lower().rpartition("x")
    return float(each) * float(experts or 1) * (1.0 if match[2].lower() == "b" else 1e-3)


def _row(*row: str) -> str:
    return "| " + " | ".join(_escape(cell) for cell in row) + " |"


def _escape(text: str) -> str:
    clean = "".join(c if c.isprintable() else " " for c in text)
    for character in "\\|<`*[]":
        clean = clean.replace(character, "\\" + character)
    return clean


def _shown(value: Any) -> str:
    return "?" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
