"""Run in GenAI-Perf's environment: read an exported summary with GenAI-Perf's own classes and print it as JSON.

Its ``process-export-files`` reads summary and configuration; its exporter writes the CSV again, which must be ours.
(It merges raw files of perf_analyzer, too, which hold the texts; an event log has none.)
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from genai_perf.config.generate.perf_analyzer_config import PerfAnalyzerConfig
from genai_perf.config.input.config_command import ConfigCommand
from genai_perf.export_data.csv_exporter import CsvExporter
from genai_perf.metrics import LLMMetrics, Statistics
from genai_perf.record.record import RecordType
from genai_perf.subcommand.process_export_files import ProcessExportFiles

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
    found = json.loads((folder / "profile_export_genai_perf.json").read_bytes())
    config = read_by_process_export_files(folder / "profile_export_genai_perf.json")
    stats = {key: value for key, value in found.items() if key != "input_config"}
    check_names(stats)
    with tempfile.TemporaryDirectory() as work:
        written = written_again(config, stats, Path(work))
        ours = list(csv.reader((folder / "profile_export_genai_perf.csv").open(newline="")))
        assert ours == written, [pair for pair in zip(ours, written, strict=False) if pair[0] != pair[1]]
    print(json.dumps({"summary": {name: found[tag][statistic] for name, (tag, statistic) in FIGURES.items()}}))


def read_by_process_export_files(file: Path) -> ConfigCommand:
    """Return the configuration that it makes of the file's ``input_config``."""
    config = ConfigCommand({"process": {"input_path": str(file.parent.parent)}})
    reader = ProcessExportFiles(config, None)
    reader._process_gap_profile_file(file)
    reader._update_config_from_profile_data()
    assert all(reader._throughput_metrics_dict.values()), reader._throughput_metrics_dict
    PerfAnalyzerConfig(config, reader._create_objectives_based_on_stimulus())  # its command line can be made of it
    return config


def check_names(stats: dict[str, dict[str, float]]) -> None:
    """Every metric, statistic and unit is one that it has."""
    records, units = RecordType.get_all_record_types(), Statistics(LLMMetrics())
    for metric, values in stats.items():
        units._add_units(metric)
        assert values["unit"] == units.stats_dict[metric]["unit"], metric
        for statistic in values.keys() - {"unit"}:
            assert f"{metric}_{statistic}" in records, (metric, statistic)


def written_again(config: ConfigCommand, stats: dict[str, dict[str, float]], work: Path) -> list[list[str]]:
    """Return the rows that its own exporter writes of the same figures."""
    place = SimpleNamespace(get_artifact_directory=lambda: work)
    exporter = CsvExporter(
        SimpleNamespace(
            stats=stats, telemetry_stats={}, metrics=LLMMetrics(), perf_analyzer_config=place, config=config
        )
    )
    exporter._profile_export_file = Path("again.json")
    exporter.export()
    return list(csv.reader((work / "again_genai_perf.csv").open(newline="")))


if __name__ == "__main__":
    main(next(Path(sys.argv[1]).glob("artifacts/*")))
