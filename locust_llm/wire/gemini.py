"""Google's Gemini API, of AI Studio and of Vertex AI: ``POST /models/MODEL:streamGenerateContent``.

Asked for with ``alt=sse`` it streams SSE, else one growing JSON array; both are read. Every event is a whole response
with the parts that are new. Its ``usageMetadata`` is cumulative: where it grows with every event it tells the tokens
of each. Thinking is counted beside the answer (``thoughtsTokenCount``), streamed or not. The end mark is the finish
reason of each candidate. A prompt that is blocked gives no candidate but a reason: an error of the server's.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from .answer import (
    CONTENT,
    EMPTY,
    FINISH,
    OTHER,
    REASONING,
    ROLE,
    TOKEN_KINDS,
    TOOL,
    USAGE,
    ServerError,
    Usage,
    first_kind,
)
from .api import Call
from .body import Framing
from .counts import Counts
from .errors import error_in
from .fields import listed, merge_fields, same_names
from .jsonarray import JsonArrayFraming
from .jsonevents import JsonEvents
from .jsontext import as_text
from .messages import function_of, media_of, messages_of, parts_of, split_system, text_of, tool_uses
from .tools import as_arguments
from .usage import count

_CONFIG = same_names(
    "temperature seed",
    max_tokens="maxOutputTokens",
    max_completion_tokens="maxOutputTokens",
    top_p="topP",
    top_k="topK",
    n="candidateCount",
    stop="stopSequences",
    presence_penalty="presencePenalty",
    frequency_penalty="frequencyPenalty",
)
# The model or the server failed. Those of a filter (SAFETY, RECITATION, …) are ends of an answer.
_FAILED = frozenset(
    {
        "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "OTHER", "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
    }
)  # fmt: skip


class Gemini:
    """See ``api.Api``. On Vertex the API root is ``/v1/projects/P/locations/L/publishers/google``."""

    name = "gemini"
    request_type = "CHAT"
    root = "/v1beta"
    models_path: str | None = None

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body: system messages in ``systemInstruction``, sampling fields in ``generationConfig``.

        The API knows no exact length.

        Raises:
            UsageError: the call has neither messages nor one prompt.
        """
        system, messages = split_system(messages_of(call, self.name))
        body: dict[str, Any] = {"contents": _contents(messages)}
        if system:
            body["systemInstruction"] = {"parts": [_part(part) for part in system]}
        config = {} if call.max_tokens is None else {"maxOutputTokens": call.max_tokens}
        body = merge_fields({**body, "generationConfig": config}, call.extra, "generationConfig", _CONFIG)
        config = body["generationConfig"]
        if not config:
            del body["generationConfig"]
        elif isinstance(config, dict):
            listed(config, "stopSequences")
        if isinstance(body.get("tools"), list):
            body["tools"] = _tools(body["tools"])
        return body

    def path(self, call: Call) -> str:
        """Return the endpoint of the model."""
        model = call.model if "/" in call.model else f"models/{call.model}"  # tunedModels/…, endpoints/…
        return f"/{quote(model)}:{'streamGenerateContent?alt=sse' if call.stream else 'generateContent'}"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the key; an OAuth access token (``ya29.…``), as Vertex wants it, goes as a bearer token."""
        if key.startswith("ya29."):
            return [("Authorization", f"Bearer {key}")]
        return [("x-goog-api-key", key)] if key else []

    def decoder(self, stream: bool) -> GeminiDecoder:
        """Return a fresh decoder; the answer itself shows how it is framed."""
        return GeminiDecoder()


class GeminiDecoder(JsonEvents):
    """Reads one answer; see ``api.Decoder``."""

    def __init__(self) -> None:
        super().__init__()
        self._candidates: set[int] = set()
        self._counts = Counts(self.answer)
        self._channel = CONTENT  # of the last token event

    def _open(self, start: bytes) -> Framing | None:
        return JsonArrayFraming() if start[:1] == b"[" else super()._open(start)

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        kind, tokens = self._response(value)
        self._add(at_ns, kind, tokens)

    def _document(self, value: Any, at_ns: int) -> bool:
        if not isinstance(value, dict) or value.keys().isdisjoint(("candidates", "promptFeedback", "usageMetadata")):
            return self._error_document(value, at_ns)
        kind, _ = self._response(value)
        return self._whole(at_ns, kind)

    # ---- helpers

    def _response(self, value: dict[str, Any]) -> tuple[str, int]:
        """Take in a response; return the kind of its event and by how many tokens it grew (-1: unknown)."""
        answer = self.answer
        self._fail(error_in(value))
        self._identify(value, "responseId", "modelVersion")
        candidates = value.get("candidates")
        kinds = [self._candidate(each) for each in (candidates if isinstance(candidates, list) else ())]
        if not self._candidates:
            self._blocked(value.get("promptFeedback"))
        kind = first_kind(kinds, OTHER)
        raw = value.get("usageMetadata")
        usage = read_usage(raw) if isinstance(raw, dict) else None
        if usage is not None and isinstance(raw, dict):
            self._count(raw, usage)
        grown = self._counts.growth(usage, kind in TOKEN_KINDS, len(self._candidates)) if kinds else 0
        if kind in TOKEN_KINDS:
            self._channel = kind
        elif grown:
            kind = self._channel  # a token without text: only the counts can tell
        elif usage is not None and usage.n_out:
            kind = first_kind((kind,), USAGE)
        if kinds:
            answer.ended = len(answer.finish_reasons) == len(self._candidates)
        return kind, grown or -1

    def _candidate(self, candidate: object) -> str:
        if not isinstance(candidate, dict):
            return OTHER
        index = candidate.get("index")
        choice = index if type(index) is int else 0
        self._candidates.add(choice)
        content = candidate.get("content")
        content = content if isinstance(content, dict) else {}
        parts = content.get("parts")
        kinds = [self._part(part, choice) for part in (parts if isinstance(parts, list) else ())]
        reason = candidate.get("finishReason")
        if reason != "FINISH_REASON_UNSPECIFIED" and self._finish(reason, choice):
            if isinstance(reason, str) and reason in _FAILED:
                message = as_text(candidate.get("finishMessage")) or f"finish reason {reason}"
                self._fail(ServerError(message, type=reason, code=reason))
            kinds.append(FINISH)
        return first_kind(kinds, ROLE if content.get("role") else EMPTY)

    def _part(self, part: object, choice: int) -> str:
        if not isinstance(part, dict):
            return OTHER
        call = part.get("functionCall")
        if isinstance(call, dict):
            # Each is a call of its own, unless its arguments come in pieces: those have no name.
            number = len(self.answer.tools) - (not call.get("name"))
            said = self._tool(number, call.get("id"), call.get("name"), as_arguments(call.get("args")), choice)
            return TOOL if said or call.get("partialArgs") else EMPTY
        if part.get("thought") is True:
            return REASONING if self._reasoning(part.get("text"), choice) else EMPTY
        if self._text(part.get("text"), choice) or part.get("inlineData") or part.get("executableCode"):
            return CONTENT
        return EMPTY

    def _blocked(self, feedback: object) -> None:
        reason = as_text(feedback.get("blockReason")) if isinstance(feedback, dict) else None
        if reason is not None and isinstance(feedback, dict):
            message = as_text(feedback.get("blockReasonMessage")) or f"the prompt was blocked: {reason}"
            self._fail(ServerError(message, type=reason, code=reason))
            self.answer.ended = True


def read_usage(raw: dict[str, Any]) -> Usage:
    """Read a ``usageMetadata``. Thinking is output, what tools returned is input, cached input part of the prompt."""
    said, thought = count(raw.get("candidatesTokenCount")), count(raw.get("thoughtsTokenCount"))
    prompt, results = count(raw.get("promptTokenCount")), count(raw.get("toolUsePromptTokenCount"))
    return Usage(_sum(prompt, results), _sum(said, thought), thought, count(raw.get("cachedContentTokenCount")))


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


# ---- the request


def _contents(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names: dict[str, str] = {}  # of functions, by the id of the call
    contents = []
    for message in messages:
        if "parts" in message:
            contents.append(message)  # of this API's own form
            continue
        if message.get("role") == "tool":
            name = names.get(str(message.get("tool_call_id")), "")
            response = {"name": name, "response": {"result": text_of(message.get("content"))}}
            contents.append({"role": "user", "parts": [{"functionResponse": response}]})
            continue
        parts = [_part(part) for part in parts_of(message.get("content"))]
        for use in tool_uses(message):
            names[use.id] = use.name
            parts.append({"functionCall": {"name": use.name, "args": use.arguments}})
        contents.append({"role": "model" if message.get("role") == "assistant" else "user", "parts": parts})
    return contents


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"text": part.get("text")}
    media = media_of(part)
    if media is None:
        return part
    if media.url:
        return {"fileData": {"fileUri": media.url}}
    return {"inlineData": {"mimeType": media.media_type, "data": media.data}}


def _tools(tools: list[Any]) -> list[Any]:
    """Return tools with those of the OpenAI form together in one entry, as this API wants them."""
    functions = [function for tool in tools if (function := function_of(tool)) is not None]
    others = [tool for tool in tools if function_of(tool) is None]
    return ([{"functionDeclarations": functions}] if functions else []) + others
