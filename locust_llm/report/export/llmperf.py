"""LLMPerf's result files: ``{model}_{in}_{out}_summary.json`` and ``…_individual_responses.json``.

The one thing to know: token counts are the record's (usage, else a tokenizer), where LLMPerf counts with one Llama
tokenizer. A failed request has its error and no figures. Minimum and maximum of the two token counts are text, as
LLMPerf's JSON writer makes them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..page.card import of_dict
from ..runs import Run
from .common import Files, Source, slug, source, statistics, whole_or_none

_PERCENTILES = (25, 50, 75, 90, 95, 99)
_FIGURES = (
    ("inter_token_latency_s", "itl"),
    ("ttft_s", "ttft"),
    ("end_to_end_latency_s", "e2e_latency"),
    ("request_output_throughput_token_per_s", "output_tps_per_user"),
)


def files(runs: Sequence[Run]) -> Files:
    """Return both files of each run."""
    for run in runs:
        of = source(run, "llmperf")
        base = slug(f"{of.model}_{of.asked.n_in}_{of.asked.n_out}", r"[^\w-]+", "-")
        while "--" in base:
            base = base.replace("--", "-")
        for name, data in (("summary", _summary(of, base)), ("individual_responses", _responses(of))):
            yield f"{base}_{name}.json", json.dumps(data, indent=4, ensure_ascii=False).encode()


def _summary(of: Source, base: str) -> dict[str, Any]:
    log, asked = of.log, of.asked
    failed = of.rows[of.figures.failed[of.rows]]
    completed = int(of.ok.sum())
    out: dict[str, Any] = {
        "version": "2023-08-31", "name": f"{base}_summary", "model": of.model,
        "mean_input_tokens": asked.n_in, "stddev_input_tokens": asked.std_in,
        "mean_output_tokens": asked.n_out, "stddev_output_tokens": asked.std_out,
    }  # fmt: skip
    if asked.users is not None:
        out["num_concurrent_requests"] = asked.users
    out |= dict(_flat("additional_sampling_params", _sampling(of)))
    columns = {key: of.per_request(name) for key, name in _FIGURES}
    columns |= {"number_input_tokens": of.column(log.n_in), "number_output_tokens": of.column(of.found.n)}
    for key, values in columns.items():
        found = statistics(values, _PERCENTILES, ddof=1)
        names = {f"quantiles_p{p}": f"p{p}" for p in _PERCENTILES}
        names |= {"mean": "avg", "min": "min", "max": "max", "stddev": "std"}
        counts = key.startswith("number_")
        for name, statistic in names.items():
            if statistic in found:
                text = counts and name in ("min", "max")
                out[f"results_{key}_{name}"] = str(int(found[statistic])) if text else found[statistic]
    codes = Counter(_code(of, row) for row in failed.tolist())
    out |= {
        "results_num_requests_started": len(of.rows),
        "results_error_rate": len(failed) / len(of.rows) if len(of.rows) else 0.0,
        "results_number_errors": len(failed),
        "results_error_code_frequency": str(dict(codes)),
    }
    tokens = of.column(of.found.n)
    if completed and of.seconds > 0:
        if not np.isnan(tokens).any():
            out["results_mean_output_throughput_token_per_s"] = float(tokens.sum()) / of.seconds
        out["results_num_completed_requests_per_min"] = completed / of.seconds * 60
    out["results_num_completed_requests"] = completed
    out["timestamp"] = int(of.start_us / 1e6 + of.seconds)
    return {**{k: v for k, v in of.meta.items() if k not in out}, **out}


def _sampling(of: Source) -> dict[str, Any]:
    """Return what ``--llm-extra`` put into each request body, which is where LLMPerf puts its sampling parameters."""
    try:
        extra = json.loads(of_dict(of.run.card, "options").get("--llm-extra") or "{}")
    except (TypeError, ValueError):  # a card that somebody edited
        return {}
    return extra if isinstance(extra, dict) else {}


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested objects, named by their path; an empty object leaves no key."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        yield from _flat(f"{name}_{key}", inner)


def _responses(of: Source) -> list[dict[str, Any]]:
    out = []
    for row in of.rows.tolist():
        if of.figures.failed[row]:
            message = of.log.error_message.at(row) or of.log.outcome.at(row) or ""
            out.append({"error_code": _code(of, row), "error_msg": message})
        elif of.found.valid[row]:
            out.append(_response(of, row))
    return out


def _response(of: Source, row: int) -> dict[str, Any]:
    figures = {key: float(of.found.per_request[name][row]) for key, name in _FIGURES}
    n_in, n_out = whole_or_none(of.log.n_in[row]), whole_or_none(of.found.n[row])
    counts = {
        "number_total_tokens": None if n_in is None or n_out is None else n_in + n_out,
        "number_output_tokens": n_out,
        "number_input_tokens": n_in,
    }
    known = {k: v for k, v in {**figures, **counts}.items() if v is not None and not np.isnan(v)}
    return {"error_code": None, "error_msg": "", **known}


def _code(of: Source, row: int) -> int:
    """Return the status; -1 where there is none or it says success, as LLMPerf has it."""
    status = of.log.status[row]
    return -1 if np.isnan(status) or 200 <= status < 300 else int(status)
