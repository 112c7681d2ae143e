"""Run in AIPerf's environment: read exported files with AIPerf's own classes and print what they hold as JSON."""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from aiperf.analysis.swim_lane import plot_swim_lane
from aiperf.common.models import JsonExportData
from aiperf.metrics.metric_registry import MetricRegistry
from aiperf.plot.core.data_loader import DataLoader

FIGURES = {
    "requests": ("request_count", "avg"),
    "TTFT mean, ms": ("time_to_first_token", "avg"),
    "TTFT p99, ms": ("time_to_first_token", "p99"),
    "ITL mean, ms": ("inter_token_latency", "avg"),
    "e2e latency mean, ms": ("request_latency", "avg"),
    "output tokens/s": ("output_token_throughput", "avg"),
    "requests/s": ("request_throughput", "avg"),
}


def main(folder: Path) -> None:
    data = JsonExportData.model_validate_json((folder / "profile_export_aiperf.json").read_bytes())
    assert data.schema_version == JsonExportData.SCHEMA_VERSION, data.schema_version
    loaded = DataLoader().load_run(folder)  # each line is a MetricRecordInfo
    frame = loaded.requests[loaded.requests["request_latency"].notna()]
    with tempfile.TemporaryDirectory() as work:
        plot_swim_lane(folder, Path(work) / "lanes.png")
    check_names(data, folder / "profile_export_aiperf.csv")
    records = {
        "requests": len(frame),
        "TTFT mean, ms": float(frame["time_to_first_token"].mean()),
        "TTFT p99, ms": float(np.percentile(frame["time_to_first_token"].dropna(), 99)),
        "ITL mean, ms": float(frame["inter_token_latency"].mean()),
        "e2e latency mean, ms": float(frame["request_latency"].mean()),
    }
    summary = {name: getattr(getattr(data, tag), statistic) for name, (tag, statistic) in FIGURES.items()}
    print(json.dumps({"summary": summary, "records": records}))


def check_names(data: JsonExportData, table: Path) -> None:
    """Every metric, unit and heading is one that AIPerf itself has."""
    headings = set()
    for tag, values in data.model_dump(exclude_none=True).items():
        if isinstance(values, dict) and "unit" in values:
            metric = MetricRegistry.get_class(tag)
            unit = str(metric.display_unit or metric.unit)
            assert values["unit"] == unit, (tag, values["unit"], unit)
            headings.add(metric.header if unit in ("requests", "count") else f"{metric.header} ({unit})")
    rows = [row[0] for row in csv.reader(table.open()) if row and row[0] != "Metric"]
    assert set(rows) == headings, set(rows) ^ headings


if __name__ == "__main__":
    main(next(Path(sys.argv[1]).glob("artifacts/*")))
