"""What a server says about the models it has, in the forms of OpenAI, vLLM, llama.cpp, TGI, Ollama and hosted ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from .jsontext import as_text, parse
from .usage import count

_IDS = ("id", "model", "name", "model_id")
_LENGTHS = (
    "max_model_len", "context_length", "n_ctx", "n_ctx_train", "context_window", "max_total_tokens", "inputTokenLimit",
)  # fmt: skip


class ListedModel(NamedTuple):
    """A model that a server offers."""

    id: str
    context_length: int | None
    """Longest prompt and answer together in tokens, None where the server does not say."""


def listed_models(body: bytes) -> list[ListedModel]:
    """Return the models of a list (``data``, ``models``, or the list alone) or of the description of the only one."""
    try:
        value = parse(body)
    except ValueError:
        return []
    if isinstance(value, dict):
        value = next((value[name] for name in ("data", "models") if isinstance(value.get(name), list)), [value])
    entries = value if isinstance(value, list) else []
    return [ListedModel(name, _length(entry)) for entry in entries if isinstance(entry, dict) and (name := _id(entry))]


def _id(entry: dict[str, Any]) -> str:
    return next((name for key in _IDS if (name := as_text(entry.get(key)))), "")


def _length(entry: dict[str, Any]) -> int | None:
    meta = entry.get("meta")  # llama.cpp
    places = [entry, meta if isinstance(meta, dict) else {}]
    return next((length for key in _LENGTHS for place in places if (length := count(place.get(key)))), None)
