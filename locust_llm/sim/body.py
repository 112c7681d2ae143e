"""What a request body asks for: JSON in, a checked ``Generation`` out, or the 4xx a strict server would give.

Fields that change nothing here (temperature, tools, …) are accepted unread, as most servers do; those that change the
answer are checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from .http import HttpError
from .options import SimOptions
from .text import TEMPLATE_TOKENS

MAX_CHOICES = 1024


@dataclass(frozen=True, slots=True)
class Generation:
    """One checked request.

    Attributes:
        prompts: the words of each prompt; chat has one, a completions batch several. Token ids stand for words.
        n: answers to each prompt.
        max_tokens: limit of each answer, None if the client set none.
        include_usage, continuous_usage: usage in the stream, as asked.
    """

    chat: bool
    stream: bool
    prompts: list[list[str]]
    n: int
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stop: list[str]
    include_usage: bool
    continuous_usage: bool

    @property
    def prompt_tokens(self) -> int:
        """Words of all prompts and the template."""
        return sum(map(len, self.prompts)) + TEMPLATE_TOKENS


def read_generation(body: bytes, chat: bool, options: SimOptions) -> Generation:
    """Check the body of a generation request.

    Raises:
        HttpError: bad JSON, a rejected field, an unknown model, a bad value, or a request longer than the context.
    """
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as e:
        raise HttpError(400, f"the body is not JSON: {e}") from None
    if not isinstance(fields, dict):
        raise HttpError(400, "the body must be a JSON object")
    for name in options.reject:
        if name in fields:
            raise HttpError(400, f"Unrecognized request argument supplied: {name}", "invalid_request_error", name)
    _check_model(fields.get("model"), options)
    stream = _flag(fields, "stream")
    include_usage, continuous_usage = _stream_options(fields, stream)
    max_name = "max_completion_tokens" if fields.get("max_completion_tokens") is not None else "max_tokens"
    max_tokens = _integer(fields, max_name, 1)
    min_tokens = _integer(fields, "min_tokens", 0) or 0
    if max_tokens is not None and min_tokens > max_tokens:
        raise _bad("min_tokens", f"must be at most {max_name}={max_tokens}, got {min_tokens}")
    generation = Generation(
        chat=chat,
        stream=stream,
        prompts=[_messages(fields.get("messages"))] if chat else _prompts(fields.get("prompt")),
        n=_integer(fields, "n", 1) or 1,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=_flag(fields, "ignore_eos"),
        stop=_stop(fields.get("stop")),
        include_usage=include_usage,
        continuous_usage=continuous_usage,
    )
    if len(generation.prompts) * generation.n > MAX_CHOICES:
        raise _bad("n", f"gives more than {MAX_CHOICES} answers in one request")
    _check_context(generation, options)
    return generation


def _bad(name: str, what: str) -> HttpError:
    return HttpError(400, f"{name} {what}", param=name)


def _check_model(name: Any, options: SimOptions) -> None:
    if name is not None and not isinstance(name, str):
        raise _bad("model", "must be a string")
    if options.strict_model and name != options.model:
        raise HttpError(404, f"The model `{name}` does not exist. There is: {options.model}.", "NotFoundError", "model")


def _check_context(generation: Generation, options: SimOptions) -> None:
    longest = max(map(len, generation.prompts)) + TEMPLATE_TOKENS
    need = longest + (generation.max_tokens or 1)
    if need > options.max_model_len:
        name = ("messages" if generation.chat else "prompt") if longest >= options.max_model_len else "max_tokens"
        raise HttpError(
            400,
            f"This model's maximum context length is {options.max_model_len} tokens. However, {longest} input tokens "
            f"and {need - longest} output tokens were asked for. Reduce the length of the prompt or of the answer.",
            param=name,
        )


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise _bad(name, f"must be true or false, got {value!r}")
    return bool(value)


def _integer(fields: dict[str, Any], name: str, least: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _bad(name, f"must be an integer, got {value!r}")
    if value < least:
        raise _bad(name, f"must be at least {least}, got {value}")
    return value


def _stream_options(fields: dict[str, Any], stream: bool) -> tuple[bool, bool]:
    value = fields.get("stream_options")
    if value is None:
        return False, False
    if not isinstance(value, dict):
        raise _bad("stream_options", "must be an object")
    if not stream:
        raise _bad("stream_options", "needs stream=true")
    include = _flag(value, "include_usage")
    return include, include and _flag(value, "continuous_usage_stats")


def _stop(value: Any) -> list[str]:
    if value is None:
        return []
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise _bad("stop", "must be a string or a list of strings")
    return [stop for stop in stops if stop]


def _messages(value: Any) -> list[str]:
    if not isinstance(value, list) or not value:
        raise _bad("messages", "must be a list of at least one message")
    words: list[str] = []
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _bad("messages", "must hold objects with a role")
        content = message.get("content")
        if isinstance(content, list):
            parts = [part.get("text") for part in content if isinstance(part, dict) and "text" in part]
        else:
            parts = [] if content is None else [content]
        for part in parts:
            if not isinstance(part, str):
                raise _bad("messages", "must have text or a list of parts as content")
            words += part.split()
    return words


def _prompts(value: Any) -> list[list[str]]:
    """A text, a list of texts, a list of token ids, or a list of such lists."""
    items = value if isinstance(value, list) and value and not isinstance(value[0], int) else [value]
    prompts: list[list[str]] = []
    for item in items:
        if isinstance(item, str):
            prompts.append(item.split())
        elif isinstance(item, list) and item and all(isinstance(token, int) for token in item):
            prompts.append([str(token) for token in item])
        else:
            raise _bad("prompt", "must be a text, a list of texts, or token ids")
    return prompts
