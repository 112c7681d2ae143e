"""Real processes for the tests of arrivals: those of ``tests/run``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

RUN = Path(__file__).parents[1] / "run"
if str(RUN) not in sys.path:
    sys.path.append(str(RUN))

_spec = importlib.util.spec_from_file_location("run_conftest", RUN / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)
simulator, runs = _shared.simulator, _shared.runs
