"""Where a user's own fields belong in a body that keeps sampling parameters in an object of their own.

Users write ``temperature=0.2`` or ``--llm-extra '{"stop": ["\\n"]}'`` the same for all servers; a few servers want such
fields one level down, or under another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UsageError


def merge_fields(
    body: dict[str, Any], extra: Mapping[str, Any], inner: str, names: Mapping[str, str]
) -> dict[str, Any]:
    """Return a body with a user's fields in it; they win over the body's own.

    Args:
        body: of the API module, its inner object included.
        extra: the user's fields. A field ``inner`` that is an object is merged last.
        inner: the object that holds the sampling parameters.
        names: the fields that belong into it: name as users write it to the server's name.
    """
    inside = {**body.get(inner, {}), **{names[name]: value for name, value in extra.items() if name in names}}
    outside = {name: value for name, value in extra.items() if name not in names and name != inner}
    theirs = extra.get(inner, {})
    if not isinstance(theirs, dict):
        return {**body, **outside, inner: theirs}
    inside.update(theirs)
    return {**body, **outside, inner: inside}


def same_names(names: str, **others: str) -> dict[str, str]:
    """Return a table for ``merge_fields``: names that stay, and ``users_name="servers name"`` for the others."""
    return {**{name: name for name in names.split()}, **others}


def listed(parameters: dict[str, Any], name: str) -> None:
    """Make a field that may be one text a list of texts."""
    if isinstance(parameters.get(name), str):
        parameters[name] = [parameters[name]]


def prompts_of(prompt: str | list[str] | None, api: str) -> str | list[str]:
    """Return the prompt of a call, or its prompts, which are a client batch.

    Raises:
        UsageError: there is none.
    """
    if prompt is None:
        raise UsageError(f"--llm-api {api} takes a prompt; for messages use --llm-api openai-chat")
    return prompt


def one_prompt(prompt: str | list[str] | None, api: str) -> str:
    """Return the one prompt of a call.

    Raises:
        UsageError: there is none, or there are several.
    """
    prompt = prompts_of(prompt, api)
    if isinstance(prompt, str):
        return prompt
    raise UsageError(f"--llm-api {api} takes one prompt a request; for several use --llm-api openai-completions")
