"""``locust-llm init`` and the locustfiles: what it writes is what the repository shows, and Locust can load it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from locust_llm import cli
from locust_llm.commands import init

ROOT = Path(__file__).parents[2]
ENV = {key: value for key, value in os.environ.items() if not key.startswith("LOCUST")} | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", init.KINDS)
def test_templates_and_locustfiles_are_the_same_files(kind: str) -> None:
    shown = (ROOT / "locustfiles" / f"{kind}.py").read_text(encoding="utf-8")
    assert shown == init.template(kind), f"copy locustfiles/{kind}.py to locust_llm/locustfile_templates/ or back"


def test_every_locustfile_begins_with_where_its_options_are() -> None:
    files = [*(ROOT / "locustfiles").glob("*.py"), *(ROOT / "locust_llm" / "locustfile_templates").glob("*.py")]
    assert len(files) >= 7
    for file in files:
        first = file.read_text(encoding="utf-8").splitlines()[0]
        assert "locust-llm run --help" in first, file
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 60, "a page long"


def test_the_default_is_a_chat_user_in_locustfile_py(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init"]) == 0
    assert (folder / "locustfile.py").read_text(encoding="utf-8") == init.template("chat")
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert "locust-llm run -f locustfile.py" in said


@pytest.mark.parametrize("kind", init.KINDS)
def test_kind_and_file_can_be_chosen(folder: Path, kind: str) -> None:
    assert cli.main(["init", kind, "my.py"]) == 0
    assert (folder / "my.py").read_text(encoding="utf-8") == init.template(kind)


def test_a_file_that_exists_is_kept_unless_forced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "locustfile.py").write_text("precious")
    assert cli.main(["init"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (folder / "locustfile.py").read_text() == "precious"
    assert cli.main(["init", "mixed", "--force"]) == 0
    assert (folder / "locustfile.py").read_text(encoding="utf-8") == init.template("mixed")


@pytest.mark.parametrize("target", ["missing/my.py", "my.txt", "my"])
def test_a_file_that_cannot_be_written_or_run_is_one_line(
    folder: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", "chat", target]) == 2
    assert capsys.readouterr().err.startswith(f"locust-llm: error: {target}: ")
    assert list(folder.iterdir()) == []


LOAD = """
import json, sys
import locust
from locust.main import merge_locustfiles_content

found = {}
for path in sys.argv[1:]:
    users, shapes, tasks, shape = merge_locustfiles_content([path])
    found[path] = {"users": {name: [t.__name__ for t in cls.tasks] for name, cls in users.items()}, "shapes": [*shapes]}
print(json.dumps(found))
"""


def test_locust_finds_in_each_locustfile_the_users_that_it_shows_and_no_base_class() -> None:
    names = ["locustfiles/chat.py", "locustfiles/completion.py", "locustfiles/mixed.py"]
    default = "locust_llm/locustfile_templates/default.py"
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *[str(ROOT / name) for name in [*names, default]]],
        capture_output=True, text=True, env=ENV, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {str(Path(path).relative_to(ROOT)): what for path, what in json.loads(done.stdout.splitlines()[-1]).items()}
    assert {name: set(found[name]["users"]) for name in found} == {
        "locustfiles/chat.py": {"Chat"},
        "locustfiles/completion.py": {"Completion"},
        "locustfiles/mixed.py": {"Chat", "Autocomplete", "Health"},
        default: {"Load"},
    }
    assert all(what["shapes"] == [] for what in found.values())
    assert set(found["locustfiles/chat.py"]["users"]["Chat"]) == {"ask", "haiku", "continue_chat"}
