"""A stream of JSON objects, one a frame, and what every API that streams so shares: ends, heartbeats, errors, channels.

An API module fills in ``_event`` and ``_document`` and says there what an object means, by the methods that write a
channel (``_text``, ``_reasoning``, ``_refusal``, ``_tool``), a finish reason or an error. ``[DONE]`` is an end mark
everywhere; what follows an end mark is ignored. After a hole (an event that cannot be read) nothing more is believed
but an error. Text is never trimmed: white space is a token.
"""

from __future__ import annotations

from typing import Any

import orjson

from .answer import DONE, OTHER, TOKEN_KINDS, ServerError, Usage
from .body import BodyDecoder
from .delta import FAILED_REASONS
from .errors import error_in
from .jsontext import Mender, as_text, parse
from .ndjson import NdjsonFraming
from .tools import Piece, ToolCalls
from .usage import merge

_HEARTBEATS = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})


class JsonEvents(BodyDecoder):
    """Base of the decoders of such streams; see ``api.Decoder`` for what they promise."""

    def __init__(self) -> None:
        super().__init__()
        self._tools = ToolCalls(self.answer)
        self._mender: Mender | None = None  # once halves of characters may come
        self._cut = False  # the body ended inside an event

    # ---- what an API module fills in

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        """One decoded event. ``event``: the name its frame gave it, if any."""
        raise NotImplementedError

    # ---- frames

    def _frame(self, event: str | None, data: bytes, at_ns: int) -> None:
        answer = self.answer
        if answer.done_ns is not None:
            return
        if event == "error":
            self._fail(error_event(data))
            self._add(at_ns, OTHER)
            return
        text = data.strip()
        if text == b"[DONE]":
            self._add(at_ns, DONE)
            self._done(at_ns)
            return
        if not text or text[:1] == b":" or event in _HEARTBEATS:
            answer.pings += 1
            return
        try:
            value = self._parse(data)
        except ValueError:
            if self._ending and text[:1] == b"{":
                self._cut = True
            else:
                self._unreadable("an event that is not JSON", text)
            return
        self._value(event, value, data, at_ns)

    def _parse(self, data: bytes) -> Any:
        try:
            return orjson.loads(data)
        except ValueError:
            value = parse(data)
            self._mender = self._mender or Mender()
            return value

    def _value(self, event: str | None, value: Any, data: bytes, at_ns: int) -> None:
        """Any decoded JSON value. ``data``: its text."""
        if not isinstance(value, dict):
            if value is None:
                self._add(at_ns, OTHER)
            else:
                self._unreadable("an event that is no JSON object", data)
            return
        if self.answer.malformed is not None:
            self._fail(error_in(value))
            return
        self._event(event, value, at_ns)

    def _end(self) -> None:
        """Nothing more will come; settle what is open. More than once does no harm."""
        answer = self.answer
        if self._cut:
            answer.ended = False
            if not answer.kinds:
                answer.add(self._at_ns, OTHER)  # something came, so the body is not empty
        if self._mender is not None:
            for choice, pieces in answer.texts.items():
                if pieces:
                    pieces[-1] += self._mender.rest(("text", choice))
        usage = answer.usage
        if usage is not None and usage.n_out == 0 and answer.has_tokens():
            # Nothing for something is no count (LiteLLM where no usage was asked for).
            usage.n_out = None
            if usage.n_in == 0:
                usage.n_in = usage.n_cached = None
        if self._ending and len(answer.kinds) == 1 and isinstance(self._framing, NdjsonFraming):
            # All came in one line: nothing was streamed, whatever was asked.
            answer.whole = True
            if answer.has_tokens():
                answer.tokens[0] = (usage and usage.n_out) or -1

    # ---- writing the answer

    def _add(self, at_ns: int, kind: str, tokens: int = -1) -> None:
        """Append an event; ``tokens`` counts only for kinds that carry some (-1: how many is unknown)."""
        self.answer.add(at_ns, kind, tokens if kind in TOKEN_KINDS else 0)

    def _done(self, at_ns: int) -> None:
        """The terminal end mark has come."""
        self.answer.done_ns = at_ns
        self.answer.ended = True
        self._end()

    def _fail(self, error: ServerError | None) -> None:
        """Keep the first error."""
        if self.answer.error is None:
            self.answer.error = error

    def _finish(self, reason: object, choice: int = 0) -> bool:
        """Take in a finish reason; return whether it is one. One that means the server gave up is an error."""
        name = as_text(reason)
        if name is None:
            return False
        answer = self.answer
        answer.finish_reasons.setdefault(choice, name)
        answer.finish_reason = answer.finish_reasons[min(answer.finish_reasons)]
        if name.lower() in FAILED_REASONS:
            self._fail(ServerError(f"finish reason {name}", type=name))
        return True

    def _text(self, piece: object, choice: int = 0) -> bool:
        """Take in a piece of answer text; return whether it is one. So do the next three with theirs."""
        if not piece or not isinstance(piece, str):
            return False
        if self._mender is not None:
            piece = self._mender.mend(("text", choice), piece)
        self.answer.texts.setdefault(choice, []).append(piece)
        return True

    def _reasoning(self, piece: object, choice: int = 0) -> bool:
        if not piece or not isinstance(piece, str):
            return False
        self.answer.reasoning.append(self._mender.mend(("reasoning", choice), piece) if self._mender else piece)
        return True

    def _refusal(self, piece: object, choice: int = 0) -> bool:
        if not piece or not isinstance(piece, str):
            return False
        self.answer.refusal.append(self._mender.mend(("refusal", choice), piece) if self._mender else piece)
        return True

    def _tool(self, number: object, call_id: object, name: object, arguments: str, choice: int = 0) -> bool:
        """Take in a piece of a tool call; ``number`` or else ``call_id`` says of which."""
        piece = Piece(number if type(number) is int else None, as_text(call_id), as_text(name) or "", arguments)
        return self._tools.put(choice, piece, self._mender)

    def _count(self, raw: dict[str, Any], usage: Usage) -> None:
        """Take in a usage report: the server's own object and what it says."""
        self.answer.usage_raw = raw
        if usage.n_out is not None or usage.n_in is not None:
            self.answer.usage = merge(self.answer.usage, usage)

    def _identify(self, value: dict[str, Any], response_id: str = "id", model: str = "model") -> None:
        """Take the answer's id and model from these members, unless they are known."""
        answer = self.answer
        answer.response_id = answer.response_id or as_text(value.get(response_id))
        answer.model = answer.model or as_text(value.get(model))

    # ---- documents

    def _error_document(self, value: Any, at_ns: int) -> bool:
        """Take in a document that is no answer; return whether it is an error."""
        says = isinstance(value, dict) and isinstance(value.get("message"), str)
        self._fail(error_in(value, certain=says))
        if self.answer.error is not None:
            self._add(at_ns, OTHER)
        return self.answer.error is not None

    def _whole(self, at_ns: int, kind: str) -> bool:
        """Append the one event of a whole answer, which ends with it."""
        usage = self.answer.usage
        self._add(at_ns, kind, (usage and usage.n_out) or -1)
        self.answer.ended = True
        return True


def error_event(data: bytes) -> ServerError:
    """Return the error that an event of that name holds, in whatever form."""
    try:
        value = parse(data)
    except ValueError:
        value = data.decode("utf-8", "replace")
    return error_in(value, certain=True) or ServerError("an error event without a message")
