"""Replicate's predictions API, and the containers it runs (Cog).

One exchange is one prediction: ``POST /predictions`` creates it and answers with the address of its stream
(``urls.stream``), which the client then gets (``Answer.follow``); both requests are inside the exchange, TTFT included.
A prediction that is complete already (``Prefer: wait``) is read as it is. A container streams in the answer itself. A
stream does not count its tokens.

Events: ``output`` has plain text, never JSON, whose blanks and line breaks live in the SSE framing (Cog's, after a
``start`` event, are JSON with a ``chunk``); ``done`` and ``completed`` end the answer.
"""

from __future__ import annotations

from typing import Any

from .answer import CONTENT, DONE, EMPTY, OTHER, ServerError, Usage
from .api import Call
from .errors import error_in
from .fields import merge_fields, one_prompt
from .jsonevents import JsonEvents
from .jsontext import as_text
from .openai import bearer
from .usage import count

# Fields of the request itself; all others are inputs of the model.
_OUTER = frozenset({"input", "stream", "version", "webhook", "webhook_events_filter"})
_FAILED = frozenset({"aborted", "canceled", "error", "failed"})


class Replicate:
    """See ``api.Api``."""

    name = "replicate"
    request_type = "COMPLETION"
    root = "/v1"
    models_path: str | None = None

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body. Inputs are the model's own; the names here are those of the language models.

        Raises:
            UsageError: the call has not one prompt.
        """
        inputs: dict[str, Any] = {"prompt": one_prompt(call.prompt, self.name)}
        if call.max_tokens is not None:
            inputs["max_tokens"] = call.max_tokens
            if call.exact_length:
                inputs["min_tokens"] = call.max_tokens
        body: dict[str, Any] = {"input": inputs, "stream": call.stream}
        if not call.model.startswith("deployments/"):
            body["version"] = call.model
        return merge_fields(body, call.extra, "input", {name: name for name in call.extra if name not in _OUTER})

    def path(self, call: Call) -> str:
        """Return the endpoint; a model ``deployments/OWNER/NAME`` is a deployment."""
        return f"/{call.model}/predictions" if call.model.startswith("deployments/") else "/predictions"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the bearer token."""
        return bearer(key)

    def decoder(self, stream: bool) -> ReplicateDecoder:
        """Return a fresh decoder; the answer itself shows what it is."""
        return ReplicateDecoder()


class Cog(Replicate):
    """See ``api.Api``. A container with one model, whose name is only for the records."""

    name = "cog"
    root = ""

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body.

        Raises:
            UsageError: the call has not one prompt.
        """
        body = super().build_body(call)
        return {name: value for name, value in body.items() if name not in ("stream", "version")}

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/predictions"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the headers; ``Accept`` is what asks for a stream."""
        return [*bearer(key), ("Accept", "text/event-stream")]


class ReplicateDecoder(JsonEvents):
    """Reads the answer to the creation, then what it says to follow; see ``api.Decoder``."""

    def __init__(self) -> None:
        super().__init__()
        self._cog = False

    def _frame(self, event: str | None, data: bytes, at_ns: int) -> None:
        if event == "output" and not self._cog and self.answer.done_ns is None and self.answer.malformed is None:
            said = self._text(data.decode("utf-8", "replace"))
            self._add(at_ns, CONTENT if said else EMPTY)
        elif event in ("log", "logs"):
            if self.answer.done_ns is None:
                self._add(at_ns, OTHER)
        else:
            super()._frame(event, data if data.strip() or event != "done" else b"{}", at_ns)

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        if event == "output":
            self._add(at_ns, CONTENT if self._text(value.get("chunk")) else EMPTY)
        elif event in ("done", "completed"):
            said = self.answer.has_tokens()
            self._prediction(value)
            kind = CONTENT if not said and self._text(_joined(value.get("output"))) else DONE
            self._stop(value.get("reason"), value)
            self._add(at_ns, kind)
            self._done(at_ns)
        else:
            self._cog = self._cog or event == "start"
            self._fail(error_in(value))
            self._add(at_ns, OTHER)

    def _document(self, value: Any, at_ns: int) -> bool:
        answer = self.answer
        if not isinstance(value, dict) or "status" not in value or not ("id" in value or "output" in value):
            return self._error_document(value, at_ns)
        self._prediction(value)
        urls = value.get("urls")
        stream = urls.get("stream") if isinstance(urls, dict) else None
        if value["status"] in ("starting", "processing"):
            self._add(at_ns, OTHER)
            if isinstance(stream, str) and answer.follow is None:
                answer.follow = stream
                self._restart()
            return True
        self._stop(value["status"] if value["status"] != "succeeded" else None, value)
        return self._whole(at_ns, CONTENT if self._text(_joined(value.get("output"))) else EMPTY)

    def _restart(self) -> None:
        """Be ready for the body that is to follow."""
        self.answer.whole = False
        self._framing = None
        self._blank = self._ending = False

    def _prediction(self, value: dict[str, Any]) -> None:
        self._identify(value)
        metrics = value.get("metrics")
        if isinstance(metrics, dict):
            self._count(
                metrics, Usage(count(metrics.get("input_token_count")), count(metrics.get("output_token_count")))
            )

    def _stop(self, reason: object, value: dict[str, Any]) -> None:
        """Take in why a prediction ended: a ``reason`` of its stream, or its status."""
        error, status = as_text(value.get("error")), as_text(value.get("status"))
        name = as_text(reason) or (status if status in _FAILED else None)
        if name in _FAILED or error:
            self._fail(ServerError(error or f"the prediction ended as {name}", type=name))
        self._finish(name)


def _joined(output: object) -> str:
    if isinstance(output, list):
        return "".join(piece for piece in output if isinstance(piece, str))
    return output if isinstance(output, str) else ""
