"""The same log under the rules of other tools (metrics.md 6): AIPerf, GenAI-Perf, GuideLLM, vLLM, SGLang, LLMPerf.

The one thing to know: all tools measure whole runs, so the window is that of the measured exchanges, and the
exchanges are those we call ``ok``. A tool that would use a tokenizer is given the record's own count (usage, else
ours): the only part of a tool's rules that a log cannot repeat. Where a tool prints 0 for "none", the figure is left
out here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..wire.answer import CONTENT, DONE, EMPTY, FINISH, OTHER, REASONING, REFUSAL, ROLE, TOOL, USAGE
from .columns import KINDS, Bools, Floats, Log
from .events import span, walk
from .figures import Figures, figures
from .metrics import PERCENTILES
from .stats import Sample, quantile, sample

CHOICES = frozenset({ROLE, EMPTY, CONTENT, REASONING, REFUSAL, TOOL, FINISH})
"""Events with a non-empty ``choices``: what vLLM's client counts."""
ANSWER = frozenset({CONTENT, REASONING, TOOL})
TEXT = frozenset({CONTENT, REASONING})
VISIBLE = frozenset({CONTENT})
MESSAGES = frozenset(KINDS) - {USAGE, DONE}
"""SSE data messages of a client that asks for no usage, ``[DONE]`` left out."""
ANYTHING = frozenset({*MESSAGES, USAGE, DONE, OTHER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Figures of one tool. ``metrics``: seconds, ``count mean std min p1 … max`` each; rates per second.

    Attributes:
        why: one line on what makes its figures differ.
        tokens, window, percentiles: where its counts come from, what it divides by, how it takes percentiles.
        absent: figure → why the log cannot give it.
    """

    tool: str
    why: str
    tokens: str
    window: str
    percentiles: str
    metrics: dict[str, dict[str, Any]]
    rates: dict[str, float]
    absent: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a tool's rules make of each record (NaN: nothing), before statistics. Seconds; ends are from the start.

    Attributes:
        pooled: figures whose statistics are not over requests, instead of those of the same name.
        counts_all: whether the window reaches over failures too.
    """

    valid: Bools
    n: Floats
    window_end: Floats
    per_request: dict[str, Floats]
    pooled: dict[str, Sample] = field(default_factory=dict)
    counts_all: bool = True


@dataclass(frozen=True, slots=True)
class _Rules:
    find: Callable[[Log, Figures, Bools], Found]
    why: str
    tokens: str
    window: str
    sample_std: bool = False
    lower_percentiles: bool = False
    streams_only: bool = False


def compare(log: Log, tools: Sequence[str]) -> list[Definition]:
    """Return the figures of a log under the rules of each tool (names of ``NAMES``), over the whole run."""
    of_each = figures(log)
    return [_define(tool, RULES[tool], log, of_each) for tool in tools]


def found_by(tool: str, log: Log, of_each: Figures) -> Found:
    """Return what a tool makes of each record: its valid ones, its tokens, its figures per request."""
    rules, ok = RULES[tool], of_each.counted & of_each.ok
    return rules.find(log, of_each, ok & log.streamed if rules.streams_only else ok)


def _define(tool: str, rules: _Rules, log: Log, of_each: Figures) -> Definition:
    ok = of_each.counted & of_each.ok
    found = found_by(tool, log, of_each)
    samples = {name: sample(values[found.valid]) for name, values in found.per_request.items()} | found.pooled
    metrics = {name: _describe(s, rules) for name, s in samples.items() if s.size}
    absent = {name: _why(log, ok) for name, s in samples.items() if not s.size}
    rates: dict[str, float] = {}
    inside = of_each.counted if found.counts_all else found.valid
    if found.valid.any():
        ends = np.where(found.valid, found.window_end, log.end_us / 1e6)[inside]
        first = int(log.start_us[inside].min())
        seconds = float(((log.start_us[inside] - first) / 1e6 + ends).max())
        n = found.n[found.valid]
        if seconds > 0:
            rates["requests_per_s"] = int(found.valid.sum()) / seconds
            if np.isnan(n).any():
                absent["output_tps"] = f"output tokens are unknown for {int(np.isnan(n).sum())} of {len(n)} exchanges"
            else:
                rates["output_tps"] = float(n.sum()) / seconds
    else:
        absent |= dict.fromkeys(("requests_per_s", "output_tps"), _why(log, ok))
    return Definition(
        tool=tool, why=rules.why, tokens=rules.tokens, window=rules.window,
        percentiles="lower order statistic" if rules.lower_percentiles else "linear",
        metrics=metrics, rates=rates, absent=absent,
    )  # fmt: skip


def _describe(of: Sample, rules: _Rules) -> dict[str, Any]:
    n, mean = of.size, float(np.average(of.values, weights=of.counts))
    out: dict[str, Any] = {"count": n, "mean": mean}
    divisor = n - 1 if rules.sample_std else n
    if divisor:
        out["std"] = float(np.sqrt(np.dot(of.counts, (of.values - mean) ** 2) / divisor))
    take = _lower_quantile if rules.lower_percentiles else quantile
    out |= {"min": float(of.values[0]), **{name: take(of, q) for name, q in PERCENTILES.items()}}
    return {**out, "max": float(of.values[-1])}


def _lower_quantile(of: Sample, q: float) -> float:
    """Return the first value whose cumulative share reaches ``q``; nothing is interpolated."""
    ends = of.ends
    return float(of.values[np.searchsorted(ends, q * int(ends[-1]) - 1e-9, side="left")])


def _why(log: Log, ok: Bools) -> str:
    if not ok.any():
        return "no exchange succeeded"
    return (
        "no answer has the events or tokens it is made of"
        if log.streamed[ok].any()
        else "the answers were not streamed"
    )


# ---- the tools; formulas of research and source as of 2026


def _aiperf(log: Log, of_each: Figures, ok: Bools) -> Found:
    at = span(log, ANSWER)
    ttft = _streamed(log, at.first_us)
    latency = np.where(log.streamed, at.last_us, log.end_us) / 1e6
    valid = ok & ~np.isnan(latency)
    itl = _per(latency - ttft, of_each.n - 1)
    return Found(
        valid=valid, n=of_each.n, window_end=latency, counts_all=False,
        per_request={"ttft": ttft, "itl": itl, "e2e_latency": latency},
        pooled={"icl": _gaps(log, ANSWER, valid)},
    )  # fmt: skip


def _genai_perf(log: Log, of_each: Figures, ok: Bools) -> Found:
    at = span(log, VISIBLE)
    ttft = _streamed(log, at.first_us)
    latency = np.where(log.streamed, at.last_us, log.end_us) / 1e6
    valid = ok & ~np.isnan(latency)
    n = _visible_tokens(log, of_each)
    itl = np.round(_per(latency - ttft, n - 1) * 1e9) / 1e9
    return Found(
        valid=valid, n=n, window_end=latency, counts_all=False,
        per_request={"ttft": ttft, "itl": itl, "e2e_latency": latency},
    )  # fmt: skip


def _guidellm(log: Log, of_each: Figures, ok: Bools) -> Found:
    at = span(log, ANSWER)
    end = log.end_us / 1e6
    n = np.where(np.isnan(of_each.n) & (at.count > 0), at.count, of_each.n)
    last = np.where(log.streamed & (at.count > 0), at.last_us / 1e6, end)
    itl = _per(_streamed(log, at.last_us - at.first_us), n - 1)
    tpot = _per(last, n)
    per_request = {"ttft": _streamed(log, at.first_us), "itl": itl, "tpot": tpot, "e2e_latency": end}
    weights = np.nan_to_num(n[ok]).astype(np.int64)  # a request counts once a token there
    pooled = {"itl": sample(itl[ok], weights - 1), "tpot": sample(tpot[ok], weights)}
    return Found(valid=ok, n=n, window_end=end, per_request=per_request, pooled=pooled)


def _vllm(log: Log, of_each: Figures, ok: Bools) -> Found:
    at = span(log, CHOICES)
    ttft, latency = at.first_us / 1e6, at.last_us / 1e6
    valid = ok & (at.count > 0)
    n = np.where(np.isnan(of_each.n), 1.0, of_each.n)
    per_request = {"ttft": ttft, "tpot": _per(latency - ttft, n - 1), "e2e_latency": latency}
    end = log.end_us / 1e6
    return Found(valid=valid, n=n, window_end=end, per_request=per_request, pooled={"itl": _gaps(log, CHOICES, valid)})


def _sglang(log: Log, of_each: Figures, ok: Bools) -> Found:
    at, every = span(log, TEXT), span(log, ANYTHING)
    ttft = _streamed(log, at.first_us)
    end = log.end_us / 1e6
    latency = np.where(log.streamed & (every.count > 0), every.last_us / 1e6, end)
    asked = np.where(np.isnan(log.asked_out), of_each.n, log.asked_out)
    n = np.where(log.out_source.isin("usage") & ~np.isnan(of_each.n), of_each.n, asked)
    per_request = {"ttft": ttft, "tpot": _per(latency - ttft, n - 1), "e2e_latency": latency}
    return Found(valid=ok, n=n, window_end=end, per_request=per_request, pooled={"itl": _gaps(log, TEXT, ok)})


def _llmperf(log: Log, of_each: Figures, ok: Bools) -> Found:
    at, messages = span(log, VISIBLE), span(log, MESSAGES)
    end = log.end_us / 1e6
    n = _visible_tokens(log, of_each)
    per_request = {
        "ttft": at.first_us / 1e6,
        "itl": _per(at.last_us / 1e6, messages.count.astype(np.float64)),
        "e2e_latency": end,
        "output_tps_per_user": _per(n, end),
    }
    return Found(valid=ok, n=n, window_end=end, per_request=per_request)


RULES: dict[str, _Rules] = {
    "aiperf": _Rules(
        _aiperf,
        "ITL is one mean per request, (last - first) / (n - 1), as our TPOT; chunk gaps are its ICL",
        "record's count (as --use-server-token-count; by default it tokenizes)",
        "first request to last content of the valid ones",
    ),
    "genai-perf": _Rules(
        _genai_perf,
        "only answer text counts: reasoning and tool calls are invisible, ITL is one mean per request, rounded to ns",
        "record's count without reasoning (it tokenizes the text)",
        "first request to last content of the valid ones",
    ),
    "guidellm": _Rules(
        _guidellm,
        "TPOT includes TTFT: (last - start) / n; its ITL is our TPOT, weighted by tokens; latency ends after [DONE]",
        "usage, else chunks",
        "first request to last end",
        lower_percentiles=True,
    ),
    "vllm": _Rules(
        _vllm,
        "the first chunk with choices is TTFT, a role chunk too; ITL is gaps between chunks, finish too, not per token",
        "usage, else tokenizer, else 1",
        "start of the run to the last end, failures too",
        streams_only=True,
    ),
    "sglang": _Rules(
        _sglang,
        "latency and TPOT reach to [DONE]; tool calls have no TTFT; ITL is gaps between chunks, not per token",
        "usage, else the length asked for",
        "start of the run to the last end, failures too",
    ),
    "llmperf": _Rules(
        _llmperf,
        "ITL contains TTFT: (last content - start) / messages; only answer text counts; latency ends after [DONE]",
        "record's count without reasoning (it uses one Llama tokenizer, BOS included)",
        "start of the run to the last end, failures too",
        sample_std=True,
        streams_only=True,
    ),
}
NAMES = tuple(RULES)


# ---- helpers


def _streamed(log: Log, us: Floats) -> Floats:
    return np.where(log.streamed, us, np.nan) / 1e6


def _per(seconds: Floats, n: Floats) -> Floats:
    """Divide by a count; NaN where the count is not above zero or unknown."""
    out = np.full(len(seconds), np.nan)
    np.divide(seconds, n, out=out, where=n > 0)
    return out


def _visible_tokens(log: Log, of_each: Figures) -> Floats:
    """Output tokens of the answer text alone, as a tokenizer over it would count."""
    return np.maximum(of_each.n - np.nan_to_num(log.n_reasoning), 0.0)


def _gaps(log: Log, kinds: frozenset[str], rows: Bools) -> Sample:
    """Pool the gaps between events of ``kinds``, in seconds."""
    values, counts = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
    for events in walk(log, kinds, rows & log.streamed):
        gaps, count = np.unique(np.delete(events.gaps_us(), events.starts), return_counts=True)
        values.append(gaps / 1e6)
        counts.append(count)
    return sample(np.concatenate(values), np.concatenate(counts))
