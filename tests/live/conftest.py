"""The report's makers of records serve here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "report"))
