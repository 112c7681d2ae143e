"""The table from the names of ``--llm-api`` to API modules. A new API is a module and a row here."""

from __future__ import annotations

from ..errors import UsageError
from .api import Api
from .openai_chat import OpenAIChat
from .openai_completions import OpenAICompletions

_APIS: tuple[Api, ...] = (OpenAIChat(), OpenAICompletions())
_BY_NAME = {entry.name: entry for entry in _APIS}


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
