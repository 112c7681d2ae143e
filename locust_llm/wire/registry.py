"""The table from the names of ``--llm-api`` to API modules. A new API is a module and a row here.

A locustfile can add its own with ``locust_llm.register_api``: Locust reads it before it reads the options.
"""

from __future__ import annotations

import re

from ..errors import UsageError
from .anthropic import Anthropic
from .api import Api
from .azure_openai import AzureOpenAI, AzureOpenAIv1
from .bedrock import BedrockConverse, BedrockInvoke
from .cohere import Cohere
from .gemini import Gemini
from .llamacpp import LlamaCpp
from .ollama import OllamaChat, OllamaGenerate
from .openai_chat import OpenAIChat
from .openai_completions import OpenAICompletions
from .openai_responses import OpenAIResponses
from .replicate import Cog, Replicate
from .sglang import SGLang
from .tgi import TGI

_APIS: tuple[Api, ...] = (
    OpenAIChat(),
    OpenAICompletions(),
    OpenAIResponses(),
    AzureOpenAI(),
    AzureOpenAIv1(),
    Anthropic(),
    Gemini(),
    Cohere(),
    BedrockConverse(),
    BedrockInvoke(),
    TGI(),
    SGLang(),
    LlamaCpp(),
    OllamaChat(),
    OllamaGenerate(),
    Replicate(),
    Cog(),
)
_BY_NAME = {entry.name: entry for entry in _APIS}
# Servers that speak an API of another name.
_BY_NAME |= {
    "nim": _BY_NAME["openai-chat"],
    "tensorrt": _BY_NAME["openai-chat"],
    "litellm": _BY_NAME["openai-chat"],
    "vertex": _BY_NAME["gemini"],
}
_BUILT_IN = frozenset(_BY_NAME)
# Servers that have both kinds of API under two names; all others are asked for the other kind in OpenAI's way.
_OTHER_KIND = {"ollama": "ollama-generate", "ollama-generate": "ollama"}


def names() -> tuple[str, ...]:
    """Return the names that ``--llm-api`` takes."""
    return tuple(_BY_NAME)


def api(name: str) -> Api:
    """Return the API of a name.

    Raises:
        UsageError: no API has that name.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise UsageError(f'--llm-api must be one of {", ".join(_BY_NAME)} (got "{name}")') from None


def of_kind(entry: Api, request_type: str) -> Api:
    """Return the API by which a server that speaks ``entry`` takes requests of a kind (``CHAT``, ``COMPLETION``)."""
    if request_type in ("", entry.request_type):
        return entry
    otherwise = "openai-completions" if request_type == "COMPLETION" else "openai-chat"
    return api(_OTHER_KIND.get(entry.name, otherwise))


def register_api(entry: Api) -> None:
    """Make ``--llm-api NAME`` mean an API of your own. Call it at the top of a locustfile.

    Args:
        entry: a ``JsonPathApi``, or an object with the members of ``locust_llm.wire.api.Api``; its ``name`` is NAME.

    Raises:
        UsageError: it has not these members, or its name is that of a built-in API.
    """
    if isinstance(entry, type):
        raise UsageError(f"register_api takes an object, not a class: register_api({entry.__name__}(…))")
    missing = [
        name for name in ("path", "build_body", "headers", "decoder") if not callable(getattr(entry, name, None))
    ]
    missing += [name for name in ("name", "request_type", "root", "models_path") if not hasattr(entry, name)]
    if missing:
        raise UsageError(
            f"register_api: {type(entry).__name__} has no {', '.join(missing)}; see locust_llm.wire.api.Api"
        )
    name = entry.name
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise UsageError(f"register_api: the name {name!r} must be of small letters, digits, dots and dashes")
    if name in _BUILT_IN:
        raise UsageError(f"register_api: {name} is a built-in API; give yours another name")
    if entry.request_type not in ("CHAT", "COMPLETION"):
        raise UsageError(f"register_api: {name}.request_type must be CHAT or COMPLETION (got {entry.request_type!r})")
    _BY_NAME[name] = entry
