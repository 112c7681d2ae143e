"""The wire's plain HTTP reader serves here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "wire"))
