"""Watch a process and its children while they run: CPU seconds and memory at any moment, from the outside.

The one thing to know: a sample is taken every quarter second, children are looked for every second (that means reading
all of the machine's processes), and what lies between two samples is interpolated.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

import numpy as np
import psutil

SAMPLE_S = 0.25
CHILDREN_EVERY = 4


class Watch:
    """Samples of a process and all its descendants, taken by a thread inside the ``with`` block.

    Args:
        pid: the process; one that has ended gives no samples.
    """

    def __init__(self, pid: int) -> None:
        self._samples: dict[int, list[tuple[float, float, int]]] = {}
        """By process: (wall clock s, CPU s so far, resident bytes)."""
        self._machine: list[tuple[float, float]] = []
        """(wall clock s, CPU s that all cores have worked)."""
        self._processes: dict[int, psutil.Process] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(pid,), daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def cpu_s(self, begin: float, end: float) -> dict[int, float]:
        """Return the CPU seconds (user and system) of each process between two moments (wall clock, s)."""
        used = {}
        for pid, samples in self._samples.items():
            at, cpu, _ = zip(*samples, strict=True)
            first, last = np.interp([begin, end], at, cpu).tolist()
            used[pid] = last - first
        return used

    def machine_cpu_s(self, begin: float, end: float) -> float:
        """Return the CPU seconds that everything on this machine took between two moments."""
        at, cpu = zip(*self._machine, strict=True)
        first, last = np.interp([begin, end], at, cpu).tolist()
        return float(last - first)

    def rss_bytes(self, begin: float, end: float) -> dict[int, list[tuple[float, int]]]:
        """Return (wall clock s, resident bytes) of each process between two moments; processes without any left out."""
        found = {
            pid: [(at, rss) for at, _, rss in samples if begin <= at <= end] for pid, samples in self._samples.items()
        }
        return {pid: inside for pid, inside in found.items() if inside}

    def _run(self, pid: int) -> None:
        turn = 0
        while True:
            if turn % CHILDREN_EVERY == 0:
                self._look_for_children(pid)
            self._sample()
            turn += 1
            if self._over.wait(SAMPLE_S):
                return

    def _look_for_children(self, pid: int) -> None:
        try:
            root = self._processes.setdefault(pid, psutil.Process(pid))
            for child in root.children(recursive=True):
                self._processes.setdefault(child.pid, child)
        except psutil.Error:
            return

    def _sample(self) -> None:
        times = psutil.cpu_times()
        self._machine.append((time.time(), sum(times) - times.idle - getattr(times, "iowait", 0.0)))
        for pid, process in list(self._processes.items()):
            try:
                with process.oneshot():
                    cpu = process.cpu_times()
                    rss = process.memory_info().rss
            except psutil.Error:
                del self._processes[pid]  # it has ended; its samples stay
                continue
            self._samples.setdefault(pid, []).append((time.time(), cpu.user + cpu.system, rss))
