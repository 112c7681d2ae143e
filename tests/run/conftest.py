"""Simulators shared by the tests of this folder, and files' plans started side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_processes import Runs

from locust_llm.sim.options import SimOptions
from locust_llm.sim.process import Simulator, start


@pytest.fixture(scope="session")
def simulator() -> Iterator[Callable[..., str]]:
    """Return the address of a simulator with these options; one for each set of options."""
    running: dict[str, Simulator] = {}

    def address(**options: Any) -> str:
        key = repr(sorted(options.items()))
        if key not in running:
            running[key] = start(SimOptions(**options))
        return running[key].url

    yield address
    for one in running.values():
        one.stop()


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Start what the test file's ``plans(simulator)`` returns."""
    plans = request.module.plans(request.getfixturevalue("simulator"))
    folder: Path = tmp_path_factory.mktemp(request.module.__name__)
    under_way = Runs(plans, folder)
    yield under_way
    under_way.close()
