"""Token counts of our own, and the names that say where a count came from.

A tokenizer is used only where the user names one with ``--llm-tokenizer``: a count by another model's tokenizer can be
off by half, so the server's usage always comes first (metrics.md 3). Nothing here knows an event loop; loading takes up
to seconds and counting a long text milliseconds, so callers do both in a thread.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .errors import UsageError

# Provenance of a token count: out_source knows the first three, in_source all but CHUNKS.
USAGE = "usage"
TOKENIZER = "tokenizer"
CHUNKS = "chunks"
CALIBRATED = "calibrated"
APPROXIMATE = "approximate"

Messages = Sequence[dict[str, Any]]
Encode = Callable[[str, bool], int]
Render = Callable[[Messages], str]

_OPTION = "--llm-tokenizer"
_OTHERWISE = "name a folder with the model's tokenizer.json, or leave the option out"
_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tekken.json", "spiece.model")
_WANTED = [*_FILES, "tokenizer*.json", "*.tiktoken", "merges.txt", "special_tokens_map.json", "added_tokens.json"]
_WANTED += ["chat_template*", "config.json"]
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class Tokenizer:
    """A loaded tokenizer that counts; safe to use from several threads.

    Attributes:
        name: what the user named.
        source: the provenance of its counts.
        has_template: whether chats are counted with the model's chat template.
    """

    __slots__ = ("_encode", "_render", "has_template", "name", "source")

    def __init__(self, name: str, encode: Encode, render: Render | None = None) -> None:
        self.name = name
        self.source = TOKENIZER
        self.has_template = render is not None
        self._encode = encode
        self._render = render

    def count(self, text: str) -> int:
        """Return the tokens of ``text`` alone, no special tokens: how generated text is counted."""
        return self._encode(text, False)

    def count_completion(self, text: str) -> int:
        """Return the tokens a completions server sees for ``text``: special tokens such as BOS included."""
        return self._encode(text, True)

    def count_chat(self, messages: Messages) -> int:
        """Return the tokens a chat server sees for ``messages``, chat template and generation prompt included.

        Where the tokenizer has no template the text alone is counted.

        Raises:
            ValueError: the template refuses these messages.
        """
        if self._render is None:
            return self.count(messages_text(messages))
        try:
            text = self._render(messages)
        except Exception as e:
            raise ValueError(f"the chat template of {self.name} refuses the messages: {_line(e)}") from None
        return self._encode(text, False)


def messages_text(messages: Messages) -> str:
    """Return the text of chat messages, one message after another, without any markup."""
    texts: list[str] = []
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        texts += [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n".join(texts)


def load_tokenizer(name: str) -> Tokenizer:
    """Load the tokenizer that ``--llm-tokenizer`` names.

    Args:
        name: a folder with tokenizer files, the path of a ``tokenizer.json``, or an id on the Hugging Face hub. Only a
            hub id may use the network; ``HF_HUB_OFFLINE``, ``HF_HOME`` and ``HF_TOKEN`` are obeyed.

    Raises:
        UsageError: it is not there, cannot be fetched, or cannot be read.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads warn and may lock up after a fork
    folder = _local(name) or _fetched(name)
    if not any((folder / file).is_file() for file in _FILES) and not any(folder.glob("*.tiktoken")):
        raise UsageError(f"{_OPTION} {name}: no tokenizer files there (looked for {', '.join(_FILES)}); {_OTHERWISE}")
    fast = (folder / "tokenizer.json").is_file()
    try:
        if fast and not _has_template(folder):
            return Tokenizer(name, _raw_encode(folder))
        return _by_transformers(name, folder, fast)
    except Exception as e:
        raise UsageError(f"{_OPTION} {name}: the tokenizer cannot be loaded ({_line(e)}); {_OTHERWISE}") from None


def _local(name: str) -> Path | None:
    """Return the folder ``name`` means, or None if it can only be a hub id."""
    path = Path(name).expanduser()
    if name and path.is_dir():
        return path
    if path.is_file():
        if path.name == "tokenizer.json":
            return path.parent
        raise UsageError(f"{_OPTION} {name}: a file that is not a tokenizer.json; {_OTHERWISE}")
    if not _HUB_ID.fullmatch(name) or name.endswith(".json"):
        raise UsageError(f"{_OPTION} {name or '(nothing)'}: no such folder, and not a hub id; {_OTHERWISE}")
    return None


def _fetched(name: str) -> Path:
    """Return the folder of a hub id's tokenizer files, from the cache or the hub; never its weights."""
    from huggingface_hub import constants, errors, snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_WANTED))
    except errors.GatedRepoError:
        why = "its owner gates it: accept its terms on the hub and set HF_TOKEN"
    except errors.RepositoryNotFoundError:
        why = "the hub does not know it (or it is private: set HF_TOKEN)"
    except Exception as e:
        # What the hub's client says holds URLs and request ids; its kind is enough here.
        offline = constants.HF_HUB_OFFLINE
        why = "HF_HUB_OFFLINE is set and it is not in the cache" if offline else f"no network? {type(e).__name__}"
    raise UsageError(f"{_OPTION} {name}: no such folder, and not to be had from the hub ({why}); {_OTHERWISE}")


def _has_template(folder: Path) -> bool:
    """Whether the folder brings a chat template, wherever the library's versions have kept it."""
    if any(folder.glob("chat_template*")) or any(folder.glob("additional_chat_templates/*.jinja")):
        return True
    config = folder / "tokenizer_config.json"
    return config.is_file() and bool(json.loads(config.read_text(encoding="utf-8")).get("chat_template"))


def _raw_encode(folder: Path) -> Encode:
    """Read tokenizer.json with the ``tokenizers`` library alone: 0.05 s to import against 1 s for transformers."""
    import tokenizers

    return _encoder(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")))


def _encoder(raw: Any) -> Encode:
    # Some files pad and cut every text to one length (128 for all-MiniLM): a count that never changes.
    raw.no_padding()
    raw.no_truncation()
    return lambda text, special: len(raw.encode(text, add_special_tokens=special).ids)


def _by_transformers(name: str, folder: Path, fast: bool) -> Tokenizer:
    """Load with transformers: for its chat template renderer, and for files that are not tokenizer.json."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would ask for torch, which nobody needs here
    import transformers

    kind: Any = transformers.PreTrainedTokenizerFast if fast else transformers.AutoTokenizer
    hf = kind.from_pretrained(str(folder), local_files_only=True)
    raw = getattr(hf, "backend_tokenizer", None)
    encode = _encoder(raw) if raw is not None else _slow_encoder(hf)
    if not getattr(hf, "chat_template", None):
        return Tokenizer(name, encode)
    return Tokenizer(
        name,
        encode,
        lambda messages: str(hf.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)),
    )


def _slow_encoder(hf: Any) -> Encode:
    return lambda text, special: len(hf.encode(text, add_special_tokens=special, truncation=False, verbose=False))


def _line(error: Exception) -> str:
    """Return what an error says as one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."
