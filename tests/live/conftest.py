"""The report's makers of records serve here too, and the processes of the tests of a run's life."""

import sys
from pathlib import Path

for _folder in ("report", "run"):
    sys.path.append(str(Path(__file__).parent.parent / _folder))
