"""benchmarks/: each one is documented, starts, and the page shows the results that are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import common  # noqa: E402
import page  # noqa: E402

SCRIPTS = [f"{name}.py" for name in page.ORDER]


def test_the_readme_names_every_benchmark_of_the_page() -> None:
    text = (BENCHMARKS / "README.md").read_text()
    assert set(re.findall(r"`(\w+\.py)`", text)) >= set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_benchmark_says_how_it_is_run(script: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), "--help"],
        capture_output=True, text=True, env=environment, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"python benchmarks/{script}" in done.stdout
    assert "--json" in done.stdout


def test_the_page_is_that_of_the_results() -> None:
    assert page.PAGE.read_text() == page.render(), "docs/benchmarks.md is stale: run python benchmarks/page.py"


def test_a_section_of_the_page_has_a_table_with_what_is_absent_shown_so() -> None:
    result = {
        "title": "T", "text": "words", "date": "2026-01-01", "version": "0", "options": {"streams": [1, 2]},
        "machine": {"cpu": "c", "cores": 2, "kernel": "k", "python": "3"},
        "tables": [{"title": "", "columns": [["a", "A", ".1f"], ["b", "B", ""], ["c", "C", ""]],
                    "rows": [{"a": 1.25, "b": True}, {"b": "x", "c": "y"}]}],
    }  # fmt: skip
    text = page._section("t", result)
    assert "| A | B | C |\n| ---: | --- | --- |\n| 1.2 | yes | – |\n| – | x | y |" in text
    assert "streams=1,2" in text


def test_medians_are_of_numbers_and_leave_out_what_a_run_does_not_have() -> None:
    runs: list[dict[str, object]] = [
        {"n": 5, "x": 1.0, "y": None},
        {"n": 5, "x": 9.0, "y": 2.0},
        {"n": 5, "x": 2.0, "y": None},
    ]
    assert common.medians(runs) == {"n": 5, "x": 2.0, "y": None}


def test_a_free_port_is_free() -> None:
    import socket

    with socket.create_server(("127.0.0.1", common.free_port())):
        pass
