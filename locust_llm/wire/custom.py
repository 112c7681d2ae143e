"""An API of the user's own, described by where things stand in its JSON.

    from locust_llm import JsonPathApi, register_api

    register_api(JsonPathApi("mine", "/v2/write", text="output.text", finish="output.why", output_tokens="counts.out"))

and ``--llm-api mine``. What this cannot say, an object with the members of ``api.Api`` can; its decoder may build on
``jsonevents.JsonEvents`` as the modules beside this one do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from ..errors import UsageError
from .answer import CONTENT, EMPTY, FINISH, OTHER, REASONING, Usage
from .api import Call
from .body import Framing
from .errors import error_in
from .jsonevents import JsonEvents
from .ndjson import NdjsonFraming
from .openai import bearer
from .usage import count

Steps = tuple[str | int, ...]
Template = dict[str, Any]

_PLACES = ("prompt", "messages", "model", "max_tokens", "stream")
_PLACE = re.compile(r"\{(" + "|".join(_PLACES) + r")\}")
_PROMPT: Template = {"prompt": "{prompt}", "max_tokens": "{max_tokens}", "stream": "{stream}"}
_CHAT: Template = {"model": "{model}", "messages": "{messages}", "max_tokens": "{max_tokens}", "stream": "{stream}"}


class JsonPathApi:
    """An API whose events (or whose one document) are JSON objects with the text at a fixed place; see ``api.Api``.

    A place is a path of names and indices: ``choices.0.delta.content``; negative indices count from the end.

    Args:
        name: what ``--llm-api`` calls it.
        path: endpoint, under the path of ``--host``.
        text: place of an event's piece of answer text.
        build: the request body: a function from the ``Call`` to it (which then places ``call.extra``, too), or a
            template in which the texts ``{prompt}``, ``{messages}``, ``{model}``, ``{max_tokens}`` and ``{stream}``
            stand for values, alone or inside longer texts. Members without a value are left out.
        request_type: ``COMPLETION`` (prompts) or ``CHAT`` (messages).
        framing: ``sse``, ``ndjson`` (a JSON text a line), or ``document``: not streamed. A body that is one JSON object
            is read as a document under ``sse``, too.
        reasoning: place of a piece of reasoning.
        finish: place of the finish reason. ``done``: place of a value that is true (or not empty) at the end. Either is
            an end mark, and so is ``[DONE]``; if neither is given, the end of the body is.
        output_tokens, input_tokens: places of the counts; the last of an answer wins.
        error: place of an error message, beside the usual ones, which are found without it.
        cumulative: texts repeat what was said before.
        models_path: where the server lists its models as OpenAI does; None if it does not (then give ``--llm-model``).
        key_header: header for the API key alone; empty sends ``Authorization: Bearer KEY``.

    Raises:
        UsageError: what was given describes no API.
    """

    def __init__(
        self,
        name: str,
        path: str,
        *,
        text: str,
        build: Callable[[Call], dict[str, Any]] | Template | None = None,
        request_type: Literal["COMPLETION", "CHAT"] = "COMPLETION",
        framing: Literal["sse", "ndjson", "document"] = "sse",
        reasoning: str = "",
        finish: str = "",
        done: str = "",
        output_tokens: str = "",
        input_tokens: str = "",
        error: str = "",
        cumulative: bool = False,
        models_path: str | None = None,
        key_header: str = "",
    ) -> None:
        if framing not in ("sse", "ndjson", "document"):
            raise UsageError(f"JsonPathApi {name}: framing must be sse, ndjson or document (got {framing!r})")
        if not path.startswith("/"):
            raise UsageError(f"JsonPathApi {name}: path must begin with a slash (got {path!r})")
        if not text:
            raise UsageError(f"JsonPathApi {name}: text must say where the text stands, such as choices.0.text")
        self.name = name
        self.request_type = request_type
        self.root = ""
        self.models_path = models_path
        self.framing = framing
        self.cumulative = cumulative
        self.places = {
            what: _steps(place)
            for what, place in {
                "text": text,
                "reasoning": reasoning,
                "finish": finish,
                "done": done,
                "output_tokens": output_tokens,
                "input_tokens": input_tokens,
                "error": error,
            }.items()
            if place
        }
        self._path = path
        self._build = build or (_CHAT if request_type == "CHAT" else _PROMPT)
        self._key_header = key_header

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body."""
        if callable(self._build):
            return self._build(call)
        messages = call.messages
        if messages is None and isinstance(call.prompt, str):
            messages = [{"role": "user", "content": call.prompt}]
        values = {
            "prompt": call.prompt,
            "messages": messages,
            "model": call.model,
            "max_tokens": call.max_tokens,
            "stream": call.stream,
        }
        return {**_filled(self._build, values), **call.extra}

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return self._path

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the header that carries the key."""
        if self._key_header:
            return [(self._key_header, key)] if key else []
        return bearer(key)

    def decoder(self, stream: bool) -> JsonPathDecoder:
        """Return a fresh decoder."""
        return JsonPathDecoder(self.places, self.framing, self.cumulative)


class JsonPathDecoder(JsonEvents):
    """Reads one answer; see ``api.Decoder``."""

    def __init__(self, places: dict[str, Steps], framing: str, cumulative: bool) -> None:
        super().__init__()
        self._places = places
        self._kind_of_framing = framing
        self._cumulative = cumulative
        self._marked = "finish" in places or "done" in places
        self._before = ""

    def _open(self, start: bytes) -> Framing | None:
        if self._kind_of_framing == "document":
            return None
        if self._kind_of_framing == "ndjson" and start[:1] in b"{[":
            return NdjsonFraming()
        return super()._open(start)

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        self._add(at_ns, self._read(value) or OTHER)

    def _document(self, value: Any, at_ns: int) -> bool:
        if isinstance(value, list) and len(value) == 1:
            (value,) = value
        kind = self._read(value) if isinstance(value, dict) else None
        if kind is None:
            return self.answer.error is not None or self._error_document(value, at_ns)
        return self._whole(at_ns, kind)

    def _end(self) -> None:
        if self._ending and not self._marked and self.answer.kinds:
            self.answer.ended = True
        super()._end()

    def _read(self, value: dict[str, Any]) -> str | None:
        """Take in an object; return the kind of its event, None if nothing is where it should be."""
        self._fail(error_in(value))
        error = self._at("error", value)
        if error:
            self._fail(error_in({"error": error}))
        self._identify(value)
        n_out, n_in = count(self._at("output_tokens", value)), count(self._at("input_tokens", value))
        if n_out is not None or n_in is not None:
            self._count({"output_tokens": n_out, "input_tokens": n_in}, Usage(n_in, n_out))
        thought = self._reasoning(self._at("reasoning", value))
        text = self._at("text", value)
        said = self._text(self._new(text) if self._cumulative and isinstance(text, str) else text)
        finished = self._finish(self._at("finish", value)) or bool(self._at("done", value))
        if finished:
            self.answer.ended = True
        if said or thought:
            return CONTENT if said else REASONING
        if finished:
            return FINISH
        return EMPTY if text is not None else None

    def _new(self, text: str) -> str:
        """Return what a text adds to the one before."""
        before, self._before = self._before, text
        if not text.startswith(before):
            return text
        self.answer.repeated += len(before)
        return text[len(before) :]

    def _at(self, what: str, value: object) -> Any:
        steps = self._places.get(what)
        if steps is None:
            return None
        for step in steps:
            try:
                value = value[step]  # type: ignore[index]
            except (LookupError, TypeError):
                return None
        return value


# ---- helpers


def _steps(place: str) -> Steps:
    return tuple(int(step) if re.fullmatch(r"-?\d+", step) else step for step in place.split("."))


def _filled(template: Any, values: dict[str, Any]) -> Any:
    """Return a template with its places filled; members of objects that stay without a value are left out."""
    if isinstance(template, dict):
        filled = {name: _filled(value, values) for name, value in template.items()}
        return {name: value for name, value in filled.items() if value is not None or template[name] is None}
    if isinstance(template, list):
        return [_filled(value, values) for value in template]
    if not isinstance(template, str):
        return template
    alone = _PLACE.fullmatch(template)
    if alone:
        return values[alone[1]]
    return _PLACE.sub(lambda match: str(values[match[1]] if values[match[1]] is not None else ""), template)
