"""Locustfile of ``verdict.py``: plain load, and users that make its measurement hard; the command line says which."""

from __future__ import annotations

from gevent import monkey
from locust import User, constant, task

from locust_llm import ChatUser

block = monkey.get_original("time", "sleep")  # Locust's own sleep lets the others run; this one stops everybody


class Load(ChatUser):
    """The load that is asked for."""

    @task
    def ask(self) -> None:
        self.chat()


class Blocking(User):
    """A task that blocks the process for 40 ms, twice a second, as a user's own code may."""

    fixed_count = 1
    wait_time = constant(0.5)

    @task
    def work(self) -> None:
        block(0.04)


class Long(ChatUser):
    """Answers of 2 MB: 10 000 events in two seconds, for two users."""

    fixed_count = 2
    headers = {"x-itl-us": "200"}  # noqa: RUF012

    @task
    def ask(self) -> None:
        self.chat("Tell me everything.", max_tokens=10_000)


class Burst(ChatUser):
    """Answers that come all at once, as a proxy that collects them gives them: the reads hold many events each."""

    fixed_count = 4
    headers = {"x-itl-us": "0"}  # noqa: RUF012

    @task
    def ask(self) -> None:
        self.chat()
