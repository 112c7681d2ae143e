"""Virtual environments for what is measured beside us: made once in a folder of the user's choice, used again later.

The one thing to know: what cannot be installed is skipped with pip's own reason, never silently.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INSTALL_TIMEOUT_S = 1800


class NotInstalled(Exception):
    """Why something is skipped, in one line."""


def environment(venvs: Path, package: str) -> Path:
    """Return the ``bin`` folder of the environment that holds a package, made and filled if it is not there yet.

    Raises:
        NotInstalled: it could not be made or filled.
    """
    folder = venvs.resolve() / package
    done = folder / ".installed"
    if not done.exists():
        venvs.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(_bin(folder) / "python"), "-m", "pip", "install", "-q", package])
        done.touch()
    return _bin(folder)


def version(bin_folder: Path, package: str) -> str:
    """Return the installed version of a package."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run(
        [bin_folder / "python", "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def _bin(folder: Path) -> Path:
    return folder / ("Scripts" if sys.platform == "win32" else "bin")


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"installing was not over after {INSTALL_TIMEOUT_S} s") from None
    except subprocess.CalledProcessError as e:
        lines = [line for line in str(e.stderr).splitlines() if line.strip()]
        raise NotInstalled(lines[-1] if lines else f"exit code {e.returncode}") from None
