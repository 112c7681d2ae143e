"""Real Locust processes for the tests of several folders: the simulators that they ask, and files' plans under way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from locust_llm.sim.options import SimOptions
from locust_llm.sim.process import Simulator, start

sys.path.append(str(Path(__file__).with_name("run")))
from run_processes import AT_ONCE, Runs


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


@pytest.fixture(scope="session")
def start_runs(
    simulator: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[ModuleType], Runs]]:
    """Return what starts the runs that a test file's ``plans(simulator)`` says, once, a few at a time."""
    started: dict[str, Runs] = {}

    def start_of(module: ModuleType) -> Runs:
        name = module.__name__
        if name not in started:
            started[name] = Runs(module.plans(simulator), tmp_path_factory.mktemp(name), pool)
        return started[name]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield start_of
        for runs in started.values():
            runs.close()


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, start_runs: Callable[[ModuleType], Runs]) -> Iterator[Runs]:
    """The runs of a test file; those of the next file of its folder queue behind them, so that no core is idle."""
    files = list(dict.fromkeys(item.module for item in request.session.items if hasattr(item.module, "plans")))
    files = [file for file in files if Path(file.__file__).parent == request.path.parent]
    under_way = start_runs(request.module)
    for following in files[files.index(request.module) + 1 :][:1]:
        start_runs(following)
    yield under_way
    under_way.close()
