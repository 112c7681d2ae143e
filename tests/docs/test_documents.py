"""What the documents say is so: commands, option names, links, figures, the example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from locust_llm.exchange import OUTCOMES
from locust_llm.options import OPTIONS
from locust_llm.report.metrics import METRICS, RATES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), ROOT / "reports" / "README.md"]
README = (ROOT / "README.md").read_text()
METRICS_PAGE = (ROOT / "docs" / "metrics.md").read_text()


def test_ci_runs_the_two_commands_of_the_readme() -> None:
    """Line by line and in the same order; only the environment has another name."""
    main_job, tests = re.findall(r"^python3 -m venv .*$", README, re.M)
    environment, _, run = main_job.replace(".venv", ".ci-venv").split(" && ")
    same_environment, install, test = tests.replace(".venv", ".ci-venv").split(" && ")
    assert environment == same_environment
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    places = [script.index(step) for step in (environment, install, run, test)]
    assert places == sorted(places)


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for link in re.findall(r"\]\(([^)#]+)", document.read_text()):
            assert "://" in link or (document.parent / link).exists(), f"{document.name}: {link}"


def test_options_in_the_documents_exist() -> None:
    known = {flag for option in OPTIONS for flag in (option.flag, option.negative)}
    for document in DOCUMENTS:
        named = set(re.findall(r"(?<![\w-])--llm-[a-z-]*[a-z]", document.read_text()))
        assert named <= known, document.name


@pytest.mark.parametrize("name", [*METRICS, *RATES, *OUTCOMES])
def test_every_figure_and_outcome_is_defined(name: str) -> None:
    assert f"`{name}`" in METRICS_PAGE


def test_the_result_in_the_readme_is_what_the_report_prints() -> None:
    for key in ("ttft", "ttfvt", "tpot", "itl", "e2e_latency", "output_tps_per_user"):
        assert f"  {METRICS[key].label}" in README
    for key in ("system_output_tps", "requests_per_s"):
        assert RATES[key].label in README


def test_the_example_in_the_readme_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.S)
    (tmp_path / "example.py").write_text(example)
    command = [
        sys.executable, "-m", "locust_llm.cli", "run", "-f", "example.py", "--llm-simulate",
        "-u", "6", "--llm-requests", "6",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    shown = done.stdout + done.stderr
    assert "verdict" in shown, shown
    assert done.returncode in (0, 1), shown  # a simulated answer need not be a haiku
