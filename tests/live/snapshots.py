"""Snapshots of a desk as the contract of docs/architecture.md has them, for tests of what is made from one."""

from __future__ import annotations

from typing import Any


def figure(p50: float = 50.4, count: int = 57) -> dict[str, float]:
    return {
        "count": count, "mean": p50, "min": p50 - 1, "max": p50 + 9, "p50": p50, "p90": p50 + 0.4, "p95": p50 + 0.54,
        "p99": p50 + 1.39,
    }  # fmt: skip


def row(name: str = "", failed: int = 0, **more: Any) -> dict[str, Any]:
    """Return a row of a name, or in total."""
    place = {"name": name, "api": "openai-chat", "model": "sim"} if name else {}
    counts = {"exchanges": 57, "ok": 57 - failed} | ({"timeout": failed} if failed else {})
    return {
        **place, "counts": counts, "failed": failed, "error_rate": failed / 57,
        "tokens": {"input": 31000, "output": 8300}, "bytes": {"in": 1, "out": 2}, "requests_per_s": 4.9,
        "system_output_tps": 736.3, "ttft": figure(), "itl": figure(10.0), "e2e_latency": figure(1520.0), **more,
    }  # fmt: skip


def snapshot(names: tuple[str, ...] = ("chat",), failed: int = 0, **more: Any) -> dict[str, Any]:
    """Return a snapshot of a running test."""
    head = {
        "of": "last 10 s", "output_tps": 778.3, "requests_per_s": 5.06, "ttft_p50_ms": 50.4, "ttft_p95_ms": 50.94,
        "itl_p50_ms": 10.0, "itl_p95_ms": 10.21, "in_flight": 8, "decoding": 7, "users": 8, "error_rate": failed / 57,
    }  # fmt: skip
    return {
        "schema": 1, "version": 7, "epoch": 0, "run": "20261129T201500Z-x", "state": "running", "now": 1764441234.5,
        "started": 1764441224.5, "elapsed_s": 10.0, "progress": {"ended": 57, "run_time_s": 60, "remaining_s": 50.0},
        "head": head, "verdict": {"state": "sound", "reasons": []}, "total": row(failed=failed),
        "names": [row(name, failed) for name in names], "errors": [], "objectives": [], "incomplete": [], **more,
    }  # fmt: skip
