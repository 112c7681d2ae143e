"""A run with a bit of everything, and its exports: for the tests of the layouts and of the command."""

from __future__ import annotations

from pathlib import Path

import orjson
from report_logs import record, stream, write_log

from locust_llm.exchange import ExchangeError
from locust_llm.report.export.command import export

USERS, COUNT = 4, 40


def make_run(target: Path) -> Path:
    """Streams of equal pace and growing TTFT, one of one token, one not streamed, two failures and one that was cut."""
    target.mkdir()
    records = [
        stream(i, i * 0.2, 50 + i, 10, 20 + i % 5, model="meta/llama3-8b", n_in=200 + i, asked_in=200, asked_out=20)
        for i in range(COUNT)
    ]
    common = {"model": "meta/llama3-8b"}
    failure = ExchangeError("overloaded", "too many")
    records += [
        stream(100, 8.0, 60, 10, 1, **common),
        record(
            101, 8.1, end_ms=300, streamed=False, n_out=9, out_source="usage", n_in=210, in_source="usage", **common
        ),
        record(102, 8.2, end_ms=20, outcome="http_status", status=429, error=failure, **common),
        record(103, 8.3, [(50, "content")], end_ms=90, outcome="truncated", status=200, error=failure, **common),
        record(104, 8.4, [(50, "content")], end_ms=90, outcome="unfinished", **common),
    ]
    write_log(target / "events.jsonl", records)
    card = {
        "run": "r1", "host": "http://h:8000", "load": {"users": USERS}, "meta": {"framework": "vLLM"}, "events": [],
        "lengths": {"input_tokens": "200,0", "output_tokens": "20,5"}, "command": ["locust-llm", "run"],
    }  # fmt: skip
    (target / "run.json").write_bytes(orjson.dumps(card))
    return target


def written(folder: Path, to: str, tmp_path: Path) -> dict[str, bytes]:
    """Export and return {name below the output folder: content}."""
    out = tmp_path / to
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in export([str(folder)], to, str(out))[0]}
