"""Read LLMPerf's own result files: ``*_individual_responses.json`` and ``*_summary.json``.

The one thing to know: individual responses give every statistic; a summary alone gives the quantiles that it holds.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from .columns import Floats

TPS, TTFT = "request_output_throughput_token_per_s", "ttft_s"
_STATISTICS = {"p50": "quantiles_p50", "mean": "mean", "min": "min", "max": "max", "p25": "quantiles_p25",
               "p75": "quantiles_p75", "p95": "quantiles_p95", "p99": "quantiles_p99"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LlmPerf:
    """One result: the summary's members ({} without one), and per-request tokens/s and TTFT (s), None without them."""

    name: str
    summary: dict[str, Any]
    tps: Floats | None
    ttft_s: Floats | None

    def statistics(self, metric: str) -> dict[str, float]:
        """Return ``p50 mean min …`` of the summary, those that it has as numbers."""
        found = {s: _number(self.summary.get(f"results_{metric}_{key}")) for s, key in _STATISTICS.items()}
        return {s: v for s, v in found.items() if v is not None}


def find(path: Path) -> list[LlmPerf]:
    """Return the LLMPerf results that a folder holds or a file is; [] if it is none.

    Raises:
        UsageError: the file cannot be read.
    """
    if path.is_dir():
        files = [*path.glob("*_individual_responses.json"), *path.glob("*_summary.json")]
        stems = dict.fromkeys(
            sorted(f.name.removesuffix("_individual_responses.json").removesuffix("_summary.json") for f in files)
        )
        return [found for stem in stems if (found := _pair(path, stem))]
    if path.suffix != ".json":
        return []
    data = _load(path)
    if isinstance(data, list) and data and isinstance(data[0], dict) and TTFT in data[0]:
        stem = path.name.removesuffix("_individual_responses.json")
        beside = path.with_name(f"{stem}_summary.json")
        summary = _load(beside) if beside != path and beside.is_file() else {}
        return [_result(stem.removesuffix(".json"), summary if isinstance(summary, dict) else {}, data)]
    if isinstance(data, dict) and f"results_{TTFT}_mean" in data:
        beside = path.with_name(path.name.replace("_summary.json", "_individual_responses.json"))
        responses = _load(beside) if beside != path and beside.is_file() else None
        return [_result(path.stem.removesuffix("_summary"), data, responses if isinstance(responses, list) else None)]
    return []


def _pair(folder: Path, stem: str) -> LlmPerf | None:
    for name in (f"{stem}_summary.json", f"{stem}_individual_responses.json"):
        if (folder / name).is_file() and (found := find(folder / name)):
            return found[0]
    return None


def _result(name: str, summary: dict[str, Any], responses: list[Any] | None) -> LlmPerf:
    if responses is None:
        return LlmPerf(name, summary, None, None)
    ok = [r for r in responses if isinstance(r, dict) and r.get("error_code") is None]
    columns = [np.array([v for r in ok if (v := _number(r.get(key))) is not None]) for key in (TPS, TTFT)]
    return LlmPerf(name, summary, columns[0], columns[1])


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())  # not orjson: LLMPerf writes NaN
    except OSError as e:
        raise UsageError(f"{path}: cannot be read ({e.strerror})") from None
    except ValueError as e:
        raise UsageError(f"{path}: not JSON ({e})") from None


def _number(value: Any) -> float | None:
    """Return a finite number, also one that was written as text (LLMPerf does), else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
