"""When each token is due: the model engine behind the HTTP server.

The engine alone decides about time. It takes jobs, queues those that find no slot, and calls ``job.step()`` whenever
a job's next tokens are due; a job only sends. This first engine gives every job the same fixed pace, whatever else
runs; another one needs the same five methods.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from heapq import heappop, heappush
from typing import Protocol

from .options import SimOptions

_BURST = 256
"""Steps before sockets get their turn again when the schedule cannot be kept."""


class Job:
    """One request's work: made by the server, paced by the engine.

    Attributes:
        prefill_tokens: prompt tokens to work through before the first token (those not cached).
        rng: the job's own random numbers, so that what befalls it does not depend on its neighbours.
        held: set by its sender while the client does not read; the job is then not stepped until ``Engine.resume``.
        due_ns, parked, state: the engine's own notes.
    """

    __slots__ = ("due_ns", "held", "parked", "prefill_tokens", "rng", "state")

    def __init__(self, prefill_tokens: int, rng: random.Random) -> None:
        self.prefill_tokens = prefill_tokens
        self.rng = rng
        self.held = False
        self.parked = False
        self.due_ns = 0
        self.state = "new"

    def step(self) -> int:
        """Send what is due now; return how many tokens come next, 0 if that was all."""
        raise NotImplementedError


class Engine(Protocol):
    """What the server needs of an engine."""

    def submit(self, job: Job, at_ns: int) -> None:
        """Take a job whose request had been read at ``at_ns`` (monotonic)."""

    def cancel(self, job: Job) -> None:
        """Forget a job whose client has gone; harmless if it has ended."""

    def resume(self, job: Job) -> None:
        """The client of a held job reads again."""

    def idle(self) -> bool:
        """Whether no job is running or waiting."""

    def load(self) -> tuple[int, int]:
        """Return how many jobs are running and how many wait."""


class FixedEngine:
    """Fixed ``ttft`` and ``itl`` for each job, at most ``slots`` jobs at once, the others in order of arrival.

    Due times are absolute: the first token at start + ttft + prefill, each next one a gap after the *due* time of the
    one before, so lateness never adds up. One heap holds the due times of all jobs and one loop timer waits for the
    earliest.
    """

    def __init__(self, options: SimOptions, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ttft_ns = round(options.ttft * 1e9)
        self._itl_ns = round(options.itl * 1e9)
        self._prefill_ns = 1e9 / options.prefill_tps if options.prefill_tps else 0.0
        self._jitter = options.jitter
        self._slots = options.slots
        self._running = 0
        self._waiting: deque[Job] = deque()
        self._heap: list[tuple[int, int, Job]] = []
        self._pushes = 0  # breaks ties in the heap: first come, first served
        self._timer: asyncio.Handle | None = None
        self._timer_ns = 0

    def submit(self, job: Job, at_ns: int) -> None:
        if self._slots and self._running >= self._slots:
            job.state = "waiting"
            self._waiting.append(job)
        else:
            self._start(job, at_ns)
            self._arm()

    def cancel(self, job: Job) -> None:
        if job.state == "running":
            self._end(job)  # its heap entry is dropped when it comes up
            self._arm()
        elif job.state == "waiting":
            job.state = "ended"
            self._waiting.remove(job)

    def resume(self, job: Job) -> None:
        job.held = False
        if job.parked and job.state == "running":
            job.parked = False
            self._push(job)
            self._arm()

    def idle(self) -> bool:
        return not self._running

    def load(self) -> tuple[int, int]:
        return self._running, len(self._waiting)

    def _start(self, job: Job, at_ns: int) -> None:
        job.state = "running"
        self._running += 1
        job.due_ns = at_ns + self._vary(job, self._ttft_ns) + round(job.prefill_tokens * self._prefill_ns)
        self._push(job)

    def _end(self, job: Job) -> None:
        job.state = "ended"
        self._running -= 1
        if self._waiting:
            self._start(self._waiting.popleft(), time.monotonic_ns())

    def _vary(self, job: Job, span_ns: int) -> int:
        if not self._jitter:
            return span_ns
        return max(0, round(span_ns * (1 + self._jitter * job.rng.gauss(0, 1))))

    def _push(self, job: Job) -> None:
        self._pushes += 1
        heappush(self._heap, (job.due_ns, self._pushes, job))

    def _arm(self) -> None:
        """Let the timer wait for the earliest due time."""
        if not self._heap:
            return
        due_ns = self._heap[0][0]
        if self._timer is not None:
            if self._timer_ns <= due_ns:
                return
            self._timer.cancel()
        self._timer_ns = due_ns
        self._timer = self._loop.call_at(due_ns / 1e9, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now_ns = time.monotonic_ns()
        heap = self._heap
        for _ in range(_BURST):
            if not heap or heap[0][0] > now_ns:
                break
            job = heappop(heap)[2]
            if job.state != "running":
                continue
            if job.held:
                job.parked = True
                continue
            tokens = job.step()
            if tokens:
                job.due_ns += self._vary(job, tokens * self._itl_ns)
                self._push(job)
            elif job.state == "running":
                self._end(job)
        self._arm()
