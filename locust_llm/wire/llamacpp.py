"""llama.cpp's server, its own API: ``POST /completion``.

Each event has a piece of text and counts all tokens so far (``tokens_predicted``), also those that wait for the rest of
a character; the one with ``stop: true`` ends its output and there is no ``[DONE]``. With several prompts each event has
the ``index`` of its prompt.
"""

from __future__ import annotations

from typing import Any

from .answer import CONTENT, EMPTY, FINISH, OTHER, Usage
from .api import Call
from .errors import error_in
from .fields import listed, prompts_of
from .jsonevents import JsonEvents
from .jsontext import as_text
from .messages import renamed
from .openai import bearer
from .usage import count, total

# How servers before 2025 said why they stopped.
_FLAGS = {"stopped_limit": "limit", "stopped_word": "word", "stopped_eos": "eos"}


class LlamaCpp:
    """See ``api.Api``."""

    name = "llamacpp"
    request_type = "COMPLETION"
    root = ""
    models_path: str | None = "/v1/models"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body; a list of prompts is a client batch.

        Raises:
            UsageError: the call has no prompt.
        """
        body: dict[str, Any] = {"model": call.model, "prompt": prompts_of(call.prompt, self.name)}
        if call.max_tokens is not None:
            body["n_predict"] = call.max_tokens
            if call.exact_length:
                body["ignore_eos"] = True
        body["stream"] = call.stream
        body |= renamed(call.extra, max_tokens="n_predict", repetition_penalty="repeat_penalty")
        listed(body, "stop")
        return body

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/completion"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the bearer token."""
        return bearer(key)

    def decoder(self, stream: bool) -> LlamaCppDecoder:
        """Return a fresh decoder; the answer itself shows whether it is a stream."""
        return LlamaCppDecoder()


class LlamaCppDecoder(JsonEvents):
    """Reads one answer; see ``api.Decoder``."""

    def __init__(self) -> None:
        super().__init__()
        self._usages: dict[int, Usage] = {}  # by prompt

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        self._fail(error_in(value))
        if "content" not in value:
            self._add(at_ns, OTHER)
            return
        kind, tokens = self._say(value, 0)
        self._add(at_ns, kind, tokens)
        if self._usages.keys() == self.answer.finish_reasons.keys():
            self._done(at_ns)

    def _document(self, value: Any, at_ns: int) -> bool:
        items = value if isinstance(value, list) else [value]
        if not items or not all(isinstance(item, dict) and "content" in item for item in items):
            return self._error_document(value, at_ns)
        kinds = set()
        for place, item in enumerate(items):
            self._fail(error_in(item))
            kinds.add(self._say(item, place)[0])
        return self._whole(at_ns, CONTENT if CONTENT in kinds else EMPTY)

    def _say(self, value: dict[str, Any], place: int) -> tuple[str, int]:
        """Take in an event or document; return its kind and by how many tokens its output grew (-1: unknown)."""
        index = value.get("index")
        index = index if type(index) is int else place
        timings = value.get("timings")
        if isinstance(timings, dict):
            self.answer.timings = timings
        self._identify(value)
        grown = self._counts(value, index)
        said = self._text(value.get("content"), index)
        finished = value.get("stop") is True
        if finished:
            old = next((name for flag, name in _FLAGS.items() if value.get(flag) is True), "stop")
            self._finish(as_text(value.get("stop_type")) or old, index)
        if said or grown > 0:
            return CONTENT, grown if grown > 0 else -1
        return FINISH if finished else EMPTY, 0

    def _counts(self, value: dict[str, Any], index: int) -> int:
        before = self._usages.get(index, Usage())
        n_out, n_in = count(value.get("tokens_predicted")), count(value.get("tokens_evaluated"))
        timings = value.get("timings")
        cached = count(timings.get("cache_n")) if isinstance(timings, dict) else None
        self._usages[index] = Usage(n_in, n_out, None, cached)
        if n_out is None:
            ids = value.get("tokens")
            return len(ids) if isinstance(ids, list) and ids else -1
        raw: dict[str, Any] = {name: value[name] for name in ("tokens_evaluated", "tokens_predicted") if name in value}
        self._count(raw, total(list(self._usages.values())))
        return max(0, n_out - (before.n_out or 0))
