"""Simulators for the tests: real processes, ended with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sim_client import Client

from locust_llm.sim.options import SimOptions
from locust_llm.sim.process import Simulator, start

FAST: dict[str, Any] = {"ttft": 0.002, "itl": 0.0005}


@pytest.fixture(scope="module")
def plain() -> Iterator[Simulator]:
    """A fast simulator with default behaviour, shared by the tests of a module."""
    with start(SimOptions(**FAST)) as simulator:
        yield simulator


@pytest.fixture
def client(plain: Simulator) -> Iterator[Client]:
    """A connection to the plain simulator."""
    with Client(plain.port) as client:
        yield client


@pytest.fixture
def simulate() -> Iterator[Callable[..., Simulator]]:
    """Starts simulators with given options (fast unless told otherwise) and stops them after the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(start(SimOptions(**{**FAST, **options})))
