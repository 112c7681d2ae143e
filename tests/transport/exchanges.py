"""What the transport tests do with a target: ask it, run whole exchanges into records, compare with a case."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gevent
from cases import Case, Outcome, decode, observe

from locust_llm.address import parse_address
from locust_llm.client import LLMClient
from locust_llm.exchange import Exchange
from locust_llm.run import Run
from locust_llm.settings import Settings, Timeouts
from locust_llm.target import Attempt, Target
from locust_llm.wire import registry
from locust_llm.wire.api import Call

SETTINGS = Settings(save_text=True, timeouts=Timeouts(connect=5, first_token=20, idle=10, total=30))

# What depends on when bytes came; the rest of an observation must not.
TIMES = frozenset({"ttft_chunk_index", "first_answer_chunk_index", "ttft_ms_nominal", "gaps_ms_nominal"})


def target_at(
    port: int,
    *,
    api: str = "openai-chat",
    host: str = "127.0.0.1",
    scheme: str = "http",
    headers: tuple[tuple[str, str], ...] = (),
    **settings: Any,
) -> Target:
    """Return a target on this machine. ``settings``: what differs from ``SETTINGS``; deadlines by their names."""
    limits = {name: settings.pop(name) for name in Timeouts.__slots__ if name in settings}
    chosen = replace(SETTINGS, timeouts=replace(SETTINGS.timeouts, **limits), **settings)
    spoken = registry.api(api)
    return Target(parse_address(f"{scheme}://{host}:{port}", spoken.root), spoken, chosen, headers)


def call(api: str = "openai-chat", model: str = "m", **fields: Any) -> Call:
    """Return a short call that any API can send."""
    return Call(model=model, prompt="Say something.", **{"max_tokens": 16, **fields})


def ask(target: Target, **fields: Any) -> Attempt:
    """Run one attempt to its end."""
    attempt = target.attempt(call(**fields))
    attempt.run()
    return attempt


def until(condition: Callable[[], object]) -> None:
    """Let the loop run until something is so."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        gevent.sleep(0.002)


class Consumer:
    """A run and a user that records what the log and Locust are told."""

    def __init__(self, target: Target) -> None:
        self.fired: list[dict[str, Any]] = []
        self.run = Run("run", "w", target.settings, seed=1)
        self.client = LLMClient(self.run, target, "ChatUser", "w-0", self)

    def fire(self, **event: Any) -> None:
        """What ``environment.events.request`` is for the client."""
        self.fired.append(event)

    @property
    def records(self) -> list[Exchange]:
        """All records so far."""
        return self.run.held

    @property
    def has_ended(self) -> bool:
        """Whether an attempt has ended whose exchange has not, for it waits to be sent again."""
        return any(attempt.transfer.end_ns for _, attempt in self.run.attempts.values())

    @property
    def events(self) -> int:
        """How many events the attempts under way have received."""
        return sum(len(attempt.answer.times_ns) for _, attempt in self.run.attempts.values())


def call_for(case: Case, mode: str = "") -> Call:
    """Return the call that makes the replay server play a case, whatever the API."""
    return Call(model="m", prompt=f"case:{case.id}/{mode}", max_tokens=16, stream=case.stream)


def limits_of(case: Case) -> dict[str, Any]:
    """Return the deadlines a case asks for."""
    names = {"idle_timeout_ms": "idle", "total_timeout_ms": "total"}
    return {names[name]: ms / 1000 for name, ms in case.client.items() if name in names}


def outcome_of(attempt: Attempt) -> Outcome:
    """Return an attempt as the comparison of cases wants it."""
    outcome, error = attempt.judge()
    answer = attempt.answer
    param = answer.error.param if answer.error else None
    return Outcome(answer, outcome, error, param, attempt.transfer.start_ns, {})


def without_times(seen: Outcome) -> dict[str, Any]:
    """Return all that was observed but its times."""
    return {name: value for name, value in observe(seen).items() if name not in TIMES}


def by_decoder(case: Case) -> dict[str, Any]:
    """Return what the decoder alone makes of a case, without its times."""
    found = without_times(decode(case))
    location = case.header("location")
    if 300 <= case.status < 400 and location:
        found["error_message"] = f"redirects to {location}: not followed, use that address"
    return found
