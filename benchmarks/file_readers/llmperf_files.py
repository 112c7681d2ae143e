"""Read LLMPerf's two files: the summary by key, the single responses with pandas, as its notebook does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

FIGURES = {
    "TTFT": "ttft_s",
    "ITL": "inter_token_latency_s",
    "e2e latency": "end_to_end_latency_s",
}


def main(folder: Path) -> None:
    result = json.loads(next(folder.glob("*_summary.json")).read_text())
    responses = pd.read_json(next(folder.glob("*_individual_responses.json")))
    valid = responses[responses["error_code"].isna()]
    summary: dict[str, float] = {
        "requests": result["results_num_completed_requests"],
        "output tokens/s": result["results_mean_output_throughput_token_per_s"],
        "requests/s": result["results_num_completed_requests_per_min"] / 60,
    }
    records: dict[str, float] = {"requests": len(valid)}
    for name, key in FIGURES.items():
        for statistic, of in (("mean", "mean"), ("p50", "quantiles_p50"), ("p99", "quantiles_p99")):
            summary[f"{name} {statistic}, ms"] = result[f"results_{key}_{of}"] * 1e3
        records[f"{name} mean, ms"] = float(valid[key].mean()) * 1e3
        records[f"{name} p99, ms"] = float(valid[key].quantile(0.99)) * 1e3
    assert len(responses) - len(valid) == result["results_number_errors"]
    assert (valid["number_total_tokens"] == valid["number_input_tokens"] + valid["number_output_tokens"]).all()
    print(json.dumps({"summary": summary, "records": records}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
