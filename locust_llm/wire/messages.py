"""A chat as locustfiles write it, the OpenAI form, taken apart for servers that want it in another.

Only what is unmistakably of that form is converted; parts, tools and fields of the server's own form pass through
unchanged, so a locustfile may use either.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import UsageError
from .api import Call
from .jsontext import as_text

SYSTEM_ROLES = frozenset({"system", "developer"})


class Media(NamedTuple):
    """An image, a sound or a file of a message: inline (``data``, base64) or by address (``url``)."""

    kind: str
    """``image``, ``audio`` or ``file``."""
    media_type: str
    """Such as ``image/png``; empty where only an address is known."""
    data: str
    url: str

    @property
    def format(self) -> str:
        """The second half of the media type: ``png``."""
        return self.media_type.partition("/")[2]


class ToolUse(NamedTuple):
    """A call that the assistant made in an earlier turn."""

    id: str
    name: str
    arguments: Any
    """The decoded object; the text itself if it is no JSON."""


def messages_of(call: Call, api: str) -> list[dict[str, Any]]:
    """Return the messages of a call; one prompt becomes one user message.

    Raises:
        UsageError: the call has neither messages nor one prompt.
    """
    if call.messages is not None:
        return call.messages
    if isinstance(call.prompt, str):
        return [{"role": "user", "content": call.prompt}]
    several = api if api != "openai-chat" else "a chat"
    raise UsageError(f"{several} takes messages or one prompt; for several prompts use --llm-api openai-completions")


def split_system(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the parts of all system and developer messages, and the other messages."""
    parts: list[dict[str, Any]] = []
    others = []
    for message in messages:
        if message.get("role") in SYSTEM_ROLES:
            parts += parts_of(message.get("content"))
        else:
            others.append(message)
    return parts, others


def parts_of(content: object) -> list[dict[str, Any]]:
    """Return a content as parts: a text is one text part, nothing is none."""
    if isinstance(content, list):
        return [part if isinstance(part, dict) else {"type": "text", "text": str(part)} for part in content]
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else []


def text_of(content: object) -> str:
    """Return the text of a content, other parts left out."""
    return "".join(str(part.get("text") or "") for part in parts_of(content))


def media_of(part: dict[str, Any]) -> Media | None:
    """Return what an ``image_url``, ``input_audio`` or ``file`` part holds; None for any other part."""
    kind = part.get("type")
    inner = part.get(kind) if isinstance(kind, str) else None
    if kind == "image_url":
        return _by_url("image", inner.get("url") if isinstance(inner, dict) else inner)
    if kind == "input_audio" and isinstance(inner, dict):
        return Media("audio", f"audio/{inner.get('format') or 'wav'}", str(inner.get("data") or ""), "")
    if kind == "file" and isinstance(inner, dict) and inner.get("file_data"):
        return _by_url("file", inner["file_data"])
    return None


def tool_uses(message: dict[str, Any]) -> list[ToolUse]:
    """Return the ``tool_calls`` of an assistant message."""
    calls = message.get("tool_calls")
    found = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments") or {}
            if isinstance(arguments, str):
                with contextlib.suppress(ValueError):
                    arguments = json.loads(arguments)
            found.append(ToolUse(as_text(call.get("id")) or "", as_text(function.get("name")) or "", arguments))
    return found


def function_of(tool: object) -> dict[str, Any] | None:
    """Return the ``function`` of a tool of the OpenAI chat form; None if it is of another."""
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    return function if isinstance(function, dict) else None


def renamed(extra: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """Return a user's fields with some of them under the server's name: ``users_name="servers_name"``."""
    return {names.get(name, name): value for name, value in extra.items()}


def _by_url(kind: str, url: object) -> Media:
    address = str(url or "")
    if not address.startswith("data:"):
        return Media(kind, "", "", address)
    head, _, data = address.removeprefix("data:").partition(",")
    return Media(kind, head.partition(";")[0], data, "")
