"""What is loaded when, and life without Locust's command line: library mode, a single user in a debugger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from run_processes import CHAT, SHORT, Plan, RunFolder, Runs

HEAVY = {"numpy", "transformers", "tokenizers", "torch", "pandas", "pyarrow", "plotly", "boost_histogram"}
LOCUST = {"gevent", "locust"}
BEAT = (
    CHAT
    + """
import os, time
import gevent
from locust import events

@events.init.add_listener
def watch(**_):
    gevent.spawn(beat)

def beat():
    # CPU time of this thread between two turns: what the loop did meanwhile, however busy the machine is.
    lags = []
    while True:
        before = time.thread_time()
        gevent.sleep(0.01)
        lags.append(time.thread_time() - before)
        if len(lags) % 20 == 0:
            with open(f"lags-{os.getpid()}", "w") as file:
                file.write("\\n".join(map(str, lags)))
"""
)


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    return {
        "tokenizer": Plan(
            ["-H", simulator(), *SHORT, "-u", "2", "-r", "2", "--llm-requests", "12", "--processes", "2",
             "--llm-tokenizer", "t"],
            BEAT, files=tokenizer_files(),
        ),
    }  # fmt: skip


def tokenizer_files() -> dict[str, str]:
    """Return the files of a small tokenizer with a chat template, which only transformers can render."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    from locust_llm.workload.corpus import prose

    vocabulary = {word: i for i, word in enumerate(["?", "<|user|>", *sorted(set(" ".join(prose().words).split()))])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "{% for m in messages %}<|user|> {{ m['content'] }} {% endfor %}"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?", "chat_template": template}
    return {"t/tokenizer.json": raw.to_str(), "t/tokenizer_config.json": json.dumps(config)}


def modules_after(statement: str) -> set[str]:
    """Return the top-level modules that a statement loads in a fresh interpreter."""
    code = f"{statement}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    ["", ".exchange", ".options", ".tokens", ".wire.registry", ".wire.openai_chat", ".report", ".report.command",
     ".report.summary", ".report.reading", ".cli", ".sim.server", ".workload.synthetic"],
)  # fmt: skip
def test_what_works_without_locust_does_not_load_it(module: str) -> None:
    assert modules_after(f"import locust_llm{module}").isdisjoint(LOCUST)


def test_the_extension_loads_nothing_heavy() -> None:
    for name in ("ChatUser", "Workload", "setup"):
        assert modules_after(f"from locust_llm import {name}").isdisjoint(HEAVY)


def test_locust_is_patched_before_anything_of_ours_opens_a_socket() -> None:
    code = "import warnings; warnings.simplefilter('error'); from locust_llm import ChatUser"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_the_extension_is_loaded_in_a_moment() -> None:
    def cpu_s(module: str) -> float:
        code = f"import {module}, time; print(time.process_time())"
        return float(subprocess.run([sys.executable, "-c", code], timeout=60, check=True, capture_output=True).stdout)

    assert cpu_s("locust_llm.plugin") < 3 * cpu_s("locust") + 0.5


def test_a_worker_that_loads_a_tokenizer_goes_on_reading(runs: Runs) -> None:
    ended = runs["tokenizer"]
    assert {record["in_source"] for record in ended.run.records()} == {"usage"}
    files = list(ended.folder.glob("lags-*"))
    assert len(files) == 3
    for file in files:
        lags = sorted(map(float, file.read_text().split()))
        assert lags[-1] < 1.0, "transformers takes seconds to load; not in the event loop"
        assert lags[len(lags) * 9 // 10] < 0.1
    assert ended.code == 0


LIBRARY = (
    CHAT
    + """
import sys
import gevent
from locust.env import Environment
from locust_llm import setup
from locust_llm.plugin import node_of

environment = Environment(user_classes=[Chat], host=sys.argv[1])
runner = environment.create_local_runner()
setup(environment)
setup(environment)
node = node_of(environment)
for _ in range(2):
    last = node.run
    runner.start(2, spawn_rate=2)
    while node.run is last or node.run.measured < 4:
        gevent.sleep(0.05)
    runner.stop()
runner.quit()
print("requests", environment.stats.total.num_requests)
"""
)
SINGLE = (
    CHAT
    + """
from locust import run_single_user

class Two(ChatUser):
    @task
    def twice(self):
        for _ in range(2):
            assert self.chat().ok
        raise SystemExit

if __name__ == "__main__":
    run_single_user(Two)
"""
)


def python(folder: Path, script: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    argv = [sys.executable, "script.py", *args]
    return subprocess.run(argv, cwd=folder, env=os.environ | env, capture_output=True, text=True, timeout=110)


def test_library_mode(tmp_path: Path, simulator: Callable[..., str]) -> None:
    done = python(tmp_path, LIBRARY, simulator(), LOCUST_LLM_OUTPUT_TOKENS="20,0")
    folders = [RunFolder(path) for path in sorted((tmp_path / "reports").iterdir())]
    assert len(folders) == 2
    for folder in folders:
        assert set(folder.outcomes()) == {"ok"}
    assert f"requests {len(folders[1].records())}" in done.stdout
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


def test_run_single_user(tmp_path: Path, simulator: Callable[..., str]) -> None:
    done = python(tmp_path, SINGLE, "-H", simulator(), *SHORT)
    (path,) = (tmp_path / "reports").iterdir()
    assert RunFolder(path).outcomes() == {"ok": 2}
    assert RunFolder(path).events("test_stop")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_run_single_user_says_what_is_wrong(tmp_path: Path) -> None:
    done = python(tmp_path, SINGLE, "-H", "http://127.0.0.1:9")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("locust-llm: error: no server at http://127.0.0.1:9/v1")
