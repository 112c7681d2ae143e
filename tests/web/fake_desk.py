"""A desk without a run behind it: its snapshots follow the contract of ``live.desk.Desk`` and a clock of its own."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from locust_llm.errors import UsageError

STARTED = 1_764_441_234.0


class FakeDesk:
    """Attributes: ``t`` is the age of the run in seconds, None is no run yet; ``more`` goes over all else."""

    def __init__(self, t: float | None = 0.0, state: str = "running", folder: Path | None = None) -> None:
        self.t, self.state, self.run_folder = t, state, folder
        self.epoch = 0
        self.names: list[str] = ["chat", "summarise"]
        self.rates: list[dict[str, Any]] = []
        self.more: dict[str, Any] = {}
        self.asked: list[tuple[float, str]] = []
        self.sinces: list[int] = []
        self.clock: Callable[[], float] | None = None

    def run_by_clock(self, speed: float = 1.0) -> None:
        begun = time.monotonic()
        self.clock = lambda: (time.monotonic() - begun) * speed

    def set_rate(self, rate: float, stream: str = "") -> None:
        if not self.rates:
            raise UsageError("no test with arrivals is on: start one with --llm-rate R")
        self.asked.append((rate, stream))
        for one in self.rates:
            if one["stream"] == stream:
                one["rate"] = rate

    def on_run(self, begin: Callable[[Any], None], end: Callable[[Any], None]) -> None:
        pass

    def snapshot(self, since: int = 0) -> dict[str, Any]:
        self.sinces.append(since)
        if self.clock is not None and self.state == "running":
            self.t = self.clock()
        if self.t is None:
            return {"schema": 1, "version": 0, "state": "ready", "epoch": 0, "now": STARTED, "head": {},
                    "verdict": {"state": "unknown", "reasons": []}, "total": {"counts": {"exchanges": 0}}, "names": [],
                    "models": [], "errors": [], "marks": [], "objectives": [], "rates": [], "workers": [],
                    "incomplete": [], "server": {}, "series": {"step_s": 1, "started": STARTED, "layout": 0,
                                                               "points": []}} | self.more  # fmt: skip
        n = int(self.t)
        step = 1
        while n // step > 1800:
            step *= 2
        points = [_point(i, step, self.rates) for i in range(max(0, since // step - 3), n // step)]
        rows = [_row(self.t, k + 1) | {"name": name, "api": "openai-chat", "model": "Qwen3-8B"}
                for k, name in enumerate(self.names)]  # fmt: skip
        last = points[-1] if points else {}
        head = {k: v for k, v in last.items() if k in _HEAD} | {
            "error_rate": 0.012, "of": "last 10 s" if self.state == "running" else "whole run"
        }  # fmt: skip
        return {
            "schema": 1, "version": n, "run": f"20261129T201500Z-fake{self.epoch}", "state": self.state,
            "epoch": self.epoch, "now": STARTED + self.t, "started": STARTED, "elapsed_s": self.t,
            "progress": {"requests_asked": 500, "ended": min(500, n * 8), "remaining_s": max(0, 62 - self.t)},
            "head": head, "verdict": {"state": "sound", "reasons": [
                {"code": "simulated", "effect": "the server was the simulated one: its timings are made up",
                 "level": "note"}]},
            "total": _row(self.t, 3), "names": rows, "models": [], "errors": _errors(self.t),
            "series": {"step_s": step, "started": STARTED, "layout": step, "points": points},
            "marks": [{"t": STARTED + at, "text": text} for at, text in _MARKS if at < self.t],
            "objectives": [
                {"text": "ttft:p95<=500ms", "state": "pass", "value": "61 ms", "margin": "439 ms", "scope": "total"},
                {"text": "itl:p99<=20ms", "state": "fail", "value": "24.1 ms", "margin": "−4.1 ms", "scope": "total"},
                {"text": "error_rate<=1%", "state": "undecided", "value": "1.2 %", "scope": "total"}],
            "rates": self.rates, "workers": [], "incomplete": [], "server": {},
        } | self.more  # fmt: skip


_HEAD = ("output_tps", "input_tps", "requests_per_s", "ttft_p50_ms", "ttft_p95_ms", "itl_p50_ms", "itl_p95_ms",
         "in_flight", "decoding", "users")  # fmt: skip
_MARKS = [(4.0, "ramp complete, 64 users"), (40.0, "load changed, 96 users"), (71.0, "rate 20/s → 40/s")]


def _point(i: int, step: int, rates: list[dict[str, Any]]) -> dict[str, Any]:
    draw = random.Random(i * 7 + step)
    users = min(64, 16 * (i + 1)) if i < 40 else 96
    slow = 1 + 0.25 * math.sin(i / 9) + draw.random() * 0.1
    point: dict[str, Any] = {
        "i": i, "output_tps": users * 78 * (1 - 0.1 * draw.random()),
        "input_tps": users * 260 * (0.6 + 0.5 * draw.random()),
        "requests_per_s": users * 0.6 * (0.8 + 0.4 * draw.random()),
        "ttft_p50_ms": 52 * slow, "ttft_p95_ms": 88 * slow, "ttft_p99_ms": 140 * slow * (1 + draw.random()),
        "itl_p50_ms": 10.2 * slow, "itl_p95_ms": 13 * slow, "itl_p99_ms": 19 * slow * (1 + 0.4 * draw.random()),
        "e2e_latency_p50_ms": 1560 * slow, "e2e_latency_p95_ms": 1890 * slow,
        "in_flight": users, "decoding": int(users * (0.8 + 0.15 * draw.random())), "users": users,
    }  # fmt: skip
    if draw.random() < 0.2 and i > 20:
        point["errors"] = {"timeout: first_token": 1} | ({"status 503": 2} if draw.random() < 0.4 else {})
    if rates:
        point |= {"schedule_lag_p99_ms": 2 + draw.random(), "rate_asked": rates[0]["rate"]}
    return point


def _row(t: float, share: int) -> dict[str, Any]:
    n = int(t * 8 * share / 3)
    return {
        "counts": {"exchanges": n, "ok": n - n // 90, "timeout": n // 90}, "failed": n // 90, "error_rate": 0.012,
        "tokens": {"input": n * 550, "output": n * 150}, "bytes": {"in": n * 9000, "out": n * 2400},
        "requests_per_s": 8.0 * share / 3, "system_output_tps": 1200.0 * share / 3,
        "ttft": _block(52, n), "ttfvt": _block(52, n), "itl": _block(10, n * 150), "tpot": _block(10, n),
        "e2e_latency": _block(1560, n), "stream_end": _block(1562, n), "output_tps_per_user": _block(97, n),
        "absent": {"icl": "every chunk held one token"},
    }  # fmt: skip


def _block(middle: float, n: int) -> dict[str, float]:
    return {"count": n, "mean": middle * 1.02, "min": middle * 0.8, "max": middle * 2.4, "p50": middle,
            "p90": middle * 1.2, "p95": middle * 1.4, "p99": middle * 1.9}  # fmt: skip


def _errors(t: float) -> list[dict[str, Any]]:
    if t < 20:
        return []
    return [
        {"kind": "timeout: first_token", "count": int(t / 6), "name": "chat", "example": "no token within 600 s"},
        {"kind": "status 503", "count": int(t / 14), "name": "summarise", "example": "model is overloaded"},
    ]
