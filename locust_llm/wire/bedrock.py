"""Amazon Bedrock: ``ConverseStream`` for all models, and ``InvokeModelWithResponseStream`` in the model's own form.

Both answer in AWS's binary frames; errors come as frames of their own inside a 200. Converse ends with ``metadata``,
which brings the counts after ``messageStop``. What Invoke wraps is read as it is: events of Anthropic, of Nova, or the
plain objects of Llama, Titan, Mistral and models of the OpenAI form. Requests are signed (``locust_llm.aws``) unless a
Bedrock API key is given. Exact lengths are not known here.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any
from urllib.parse import quote

from ..errors import UsageError
from . import anthropic, converse
from .answer import CONTENT, EMPTY, FINISH, OTHER, REASONING, TOOL, ServerError, Usage, first_kind
from .api import Call, Sign
from .body import Framing
from .delta import finish_reason, read_delta
from .errors import error_in
from .eventstream import EventStreamFraming
from .jsonevents import error_event
from .messages import messages_of
from .openai import bearer
from .usage import count, find_usage, read_usage

ANTHROPIC_VERSION = "bedrock-2023-05-31"
# Model families whose own request is a chat of the OpenAI form.
_OPENAI_FORM = ("openai.", "qwen.", "deepseek.", "mistral.", "moonshot", "minimax.", "google.", "nvidia.", "zai.")


class BedrockConverse:
    """See ``api.Api`` and ``api.Signs``."""

    name = "bedrock"
    request_type = "CHAT"
    root = ""
    models_path: str | None = None

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body; the model stands in the path, sampling fields in ``inferenceConfig``.

        Raises:
            UsageError: the call has neither messages nor one prompt.
        """
        return converse.build_body(call, self.name)

    def path(self, call: Call) -> str:
        """Return the endpoint of the model."""
        return _path(call, "converse-stream" if call.stream else "converse")

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return a Bedrock API key; without one requests are signed."""
        return bearer(key)

    def signer(self, host: str) -> Sign:
        """Return what signs requests to a host; see ``locust_llm.aws``."""
        from ..aws import signer

        return signer(host)

    def decoder(self, stream: bool) -> BedrockDecoder:
        """Return a fresh decoder; the answer itself shows what it is."""
        return BedrockDecoder()


class BedrockInvoke(BedrockConverse):
    """See ``api.Api``: ``InvokeModel`` in the form of the model's family."""

    name = "bedrock-invoke"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body of the model's family, told by the model's id.

        Raises:
            UsageError: no messages, no ``max_tokens`` where they are wanted, or a family that is not known.
        """
        model = call.model
        if "anthropic." in model:
            fields = anthropic.message_fields(call, self.name)
            return {"anthropic_version": ANTHROPIC_VERSION, **fields, **anthropic.own_fields(call)}
        if "amazon.nova" in model:
            return {"schemaVersion": "messages-v1", **converse.build_body(call, self.name)}
        if any(family in model for family in _OPENAI_FORM):
            limit = {} if call.max_tokens is None else {"max_tokens": call.max_tokens}
            return {"messages": messages_of(call, self.name), **limit, **call.extra}
        raise UsageError(f"--llm-api bedrock-invoke does not know the form of {model}; --llm-api bedrock takes all")

    def path(self, call: Call) -> str:
        """Return the endpoint of the model."""
        return _path(call, "invoke-with-response-stream" if call.stream else "invoke")


class BedrockDecoder(anthropic.AnthropicDecoder, converse.ConverseDecoder):
    """Reads one answer of either operation; see ``api.Decoder``."""

    def _open(self, start: bytes) -> Framing | None:
        # The first byte of a length below 150 MB; no text starts so.
        return EventStreamFraming() if start[0] < 9 else super()._open(start)

    def _frame(self, event: str | None, data: bytes, at_ns: int) -> None:
        if not isinstance(self._framing, EventStreamFraming) or event is None:
            super()._frame(event, data, at_ns)
            return
        kind, _, name = event.partition(":")
        if kind == "fault":
            self._unreadable(data.decode(), b"")
        elif kind == "cut":
            self._cut = True
        elif kind == "event":
            super()._frame(name, data, at_ns)
        elif self.answer.done_ns is None:
            said = error_event(data)
            self._fail(ServerError(said.message, type=name, code=name))
            self._add(at_ns, OTHER)

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        if event == "chunk":
            self._chunk(value.get("bytes"), at_ns)
        elif event in converse.EVENTS:
            self._converse(event, value, at_ns)
        else:
            self._fail(error_in(value))
            self._add(at_ns, OTHER)

    def _document(self, value: Any, at_ns: int) -> bool:
        if isinstance(value, dict):
            if isinstance(value.get("output"), dict):
                return self._converse_document(value, at_ns)
            if isinstance(value.get("content"), list):
                return anthropic.AnthropicDecoder._document(self, value, at_ns)
            kind = self._plain(value)
            if kind != OTHER:
                return self._whole(at_ns, kind)
        return self._error_document(value, at_ns)

    # ---- events of the model's own

    def _chunk(self, data: object, at_ns: int) -> None:
        """Take in the base64 that a ``chunk`` holds."""
        try:
            value = self._parse(b64decode(data if isinstance(data, str) else ""))
        except ValueError:  # binascii.Error is one
            value = None
        if isinstance(value, dict):
            self._model_event(value, at_ns)
        else:
            self._unreadable("a chunk that holds no JSON object", b"")

    def _model_event(self, value: dict[str, Any], at_ns: int) -> None:
        metrics = value.get("amazon-bedrock-invocationMetrics")
        if isinstance(metrics, dict):
            self.answer.timings = metrics
            if self.answer.usage is None or self.answer.usage.n_out is None:
                usage = Usage(count(metrics.get("inputTokenCount")), count(metrics.get("outputTokenCount")))
                self._count(metrics, usage)
        name = next((name for name in value if name in converse.EVENTS), None)
        if name is not None:
            inner = value[name]
            self._converse(name, inner if isinstance(inner, dict) else {}, at_ns)
        elif isinstance(value.get("type"), str):
            anthropic.AnthropicDecoder._event(self, None, value, at_ns)
        else:
            self._fail(error_in(value))
            self._add(at_ns, self._plain(value))

    def _plain(self, value: dict[str, Any]) -> str:
        """Take in an object that holds text, perhaps a reason and counts; return its kind."""
        kinds = []
        for place in (value, *_objects(value.get("results")), *_objects(value.get("outputs"))):
            for name in ("generation", "outputText", "completion", "text"):
                if name in place:
                    kinds.append(CONTENT if self._text(place[name]) else EMPTY)
            for name in ("stop_reason", "completionReason", "finish_reason"):
                if self._finish(place.get(name)):
                    kinds.append(FINISH)
        for choice in _objects(value.get("choices")):
            kinds.append(self._choice(choice))
        if self.answer.finish_reasons:
            self.answer.ended = True
        raw = find_usage(value)
        usage = read_usage(raw) if raw is not None else _plain_usage(value)
        if usage.n_in is not None or usage.n_out is not None:
            self._count(raw if raw is not None else value, usage)
        return first_kind(kinds, OTHER)

    def _choice(self, choice: dict[str, Any]) -> str:
        delta = choice.get("delta") or choice.get("message")
        said = read_delta(delta) if isinstance(delta, dict) else read_delta({"content": choice.get("text")})
        kinds = []
        if self._reasoning(said.reasoning):
            kinds.append(REASONING)
        if self._text(said.text):
            kinds.append(CONTENT)
        if isinstance(delta, dict) and self._tools.take(0, delta, self._mender):
            kinds.append(TOOL)
        if self._finish(finish_reason(choice)):
            kinds.append(FINISH)
        return first_kind(kinds, EMPTY)


def _plain_usage(value: dict[str, Any]) -> Usage:
    """Read the counts of Llama and Titan, which stand beside the text."""
    results = _objects(value.get("results"))
    n_out = [count(value.get("generation_token_count")), count(value.get("totalOutputTextTokenCount"))]
    n_out += [count(result.get("tokenCount")) for result in results]
    n_in = [count(value.get("prompt_token_count")), count(value.get("inputTextTokenCount"))]
    return Usage(next((n for n in n_in if n is not None), None), next((n for n in n_out if n is not None), None))


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _path(call: Call, operation: str) -> str:
    return f"/model/{quote(call.model, safe='')}/{operation}"
