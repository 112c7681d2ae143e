"""A watched process: its CPU and memory, and those of its children, as seen from outside."""

from __future__ import annotations

import subprocess
import sys
import time

from locust_llm.telemetry.watch import Watch

BURN = "import time\nwhile time.process_time() < {}: pass\n"
PARENT = f"""
import subprocess, sys
ballast = bytearray(60 << 20)
subprocess.run([sys.executable, "-c", {BURN.format(1.5)!r}])
"""


def test_the_cpu_of_a_process_and_of_its_child_is_seen() -> None:
    begin = time.time()
    process = subprocess.Popen([sys.executable, "-c", PARENT])
    with Watch(process.pid) as watch:
        process.wait()
    end = time.time()
    used = watch.cpu_s(begin, end)
    assert len(used) == 2
    assert 0.3 < max(used[pid] for pid in used if pid != process.pid) < 2.0
    assert watch.machine_cpu_s(begin, end) > 0.3
    biggest = max(rss for samples in watch.rss_bytes(begin, end).values() for _, rss in samples)
    assert biggest > 60 << 20


def test_between_two_samples_is_interpolated_and_outside_is_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", BURN.format(1.0)])
    with Watch(process.pid) as watch:
        process.wait()
    now = time.time()
    whole = sum(watch.cpu_s(now - 60, now).values())
    halves = sum(watch.cpu_s(now - 60, now - 0.6).values()) + sum(watch.cpu_s(now - 0.6, now).values())
    assert abs(whole - halves) < 1e-6
    assert sum(watch.cpu_s(now + 10, now + 20).values()) == 0


def test_a_process_that_is_gone_gives_no_samples() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    with Watch(process.pid) as watch:
        pass
    assert watch.cpu_s(0, time.time()) == {}
    assert watch.rss_bytes(0, time.time()) == {}
