"""The reader of OpenAI-shaped answers, chat and completions alike, streamed or whole.

Nearly all events of a stream are alike: one choice, a piece of text, nothing else. The API's ``plain_piece`` recognises
those and ``_frame`` appends them in about 2 us, or ``feed`` in half of one where they are the same bytes but for the
text (``alike``); all others go the careful way (``_event``), which gives the same result for the plain ones. The end
mark is ``[DONE]``, or a finish reason for each choice seen; what follows
``[DONE]`` is ignored. After a hole (an event that cannot be read) nothing more is believed but an error. How tokens are
counted: see ``counts``.
"""

from __future__ import annotations

from typing import Any

import orjson

from .alike import Alike, PlainPiece, alike, needs_escapes
from .answer import CONTENT, KIND_ORDER, REASONING
from .api import Call
from .counts import Counts
from .delta import finish_reason, known_tokens, read_delta
from .errors import error_in
from .jsonevents import JsonEvents
from .sse import SseFraming

# A pattern is of use if so many events came while it was there; after so many searches in a row that gave no such
# pattern there are no more.
_USEFUL, _MOST_USELESS = 4, 4

ODD_IN_CHUNK = frozenset({"error", "prompt_progress", "timings", "token_ids", "x_groq"})
"""Members with which no event is a plain one."""

_CONTENT, _TOOL, _REFUSAL, _REASONING, _FINISH, _USAGE, _ROLE, _EMPTY, _OTHER = range(len(KIND_ORDER))


def bearer(key: str) -> list[tuple[str, str]]:
    """Return the header that carries a key, nothing without one."""
    return [("Authorization", f"Bearer {key}")] if key else []


def common_fields(call: Call) -> dict[str, Any]:
    """Return the body fields that chat and completions share, without model, prompt and ``call.extra``."""
    body: dict[str, Any] = {}
    if call.max_tokens is not None:
        body["max_tokens"] = call.max_tokens
        if call.exact_length:
            body["ignore_eos"] = True
            body["min_tokens"] = call.max_tokens
    body["stream"] = call.stream
    if call.stream and call.usage != "off":
        body["stream_options"] = {"include_usage": True}
        if call.usage == "continuous":
            body["stream_options"]["continuous_usage_stats"] = True
    return body


class OpenAIShaped:
    """What OpenAI's APIs have in common, of all that ``api.Api`` asks for."""

    root = "/v1"
    models_path: str | None = "/models"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the bearer token."""
        return bearer(key)


class OpenAIDecoder(JsonEvents):
    """Reads one answer; see ``api.Decoder``."""

    def __init__(self, plain_piece: PlainPiece) -> None:
        super().__init__()
        self._plain_piece = plain_piece
        self._smooth = False  # a token of the only choice has come and nothing odd: plain events are appended directly
        self._index = 0  # that choice
        self._pieces: list[str] = []  # its text
        self._choices: set[int] = set()
        self._channel: int | None = None  # rank of the last token event
        self._events = 0  # events when the careful way was last left; more now: plain ones came since
        self._counts = Counts(self.answer)
        self._alike: Alike | None = None
        self._recognised = False  # the last bytes were one event of that pattern, so the next begin an event, too
        self._alike_since = 0  # events when that pattern was found
        self._useless = 0  # patterns that were, in a row

    @property
    def at_event_end(self) -> bool:
        """See ``body.BodyDecoder.at_event_end``."""
        return self._recognised or super().at_event_end

    def feed(self, data: bytes, at_ns: int) -> None:
        """See ``body.BodyDecoder.feed``."""
        pattern = self._alike
        between = self._recognised or self._is_between()
        if between and pattern is not None:
            text = pattern.text(data)
            if text is not None:
                self._recognised = True
                if at_ns < self._at_ns:
                    at_ns = self._at_ns
                self._at_ns = at_ns
                answer = self.answer
                answer.times_ns.append(at_ns)
                answer.kinds.append(pattern.kind)
                answer.tokens.append(-1)
                (self._pieces if pattern.kind == CONTENT else answer.reasoning).append(text)
                return
        self._recognised = False
        kinds = self.answer.kinds
        events = len(kinds)
        super().feed(data, at_ns)
        if between and self._smooth and len(kinds) == events + 1 and self._useless < _MOST_USELESS:
            self._look_for_pattern(data, events)

    def _is_between(self) -> bool:
        """Whether the bytes to come begin an event of a smooth stream."""
        framing = self._framing
        return self._smooth and isinstance(framing, SseFraming) and framing.idle and framing.at_frame_end

    def _look_for_pattern(self, data: bytes, events: int) -> None:
        """``data`` was one event, after so many others, that the pattern at hand, if any, did not recognise."""
        kind = self.answer.kinds[-1]
        pieces = self._pieces if kind == CONTENT else self.answer.reasoning if kind == REASONING else ()
        if not pieces or needs_escapes(pieces[-1]) or (self._alike is not None and self._alike.fits(data)):
            return  # another time
        useful = self._alike is not None and events - self._alike_since > _USEFUL
        self._useless = 0 if useful else self._useless + 1
        self._alike = alike(data, pieces[-1], self._plain_piece, self._index)
        self._alike_since = events

    def _frame(self, event: str | None, data: bytes, at_ns: int) -> None:
        if event is None and self._smooth and data.startswith(b"{"):
            try:
                chunk = orjson.loads(data)
            except ValueError:
                pass
            else:
                piece = self._plain_piece(chunk, self._index)
                if piece is None:
                    self._value(event, chunk, data, at_ns)
                    return
                kind, text = piece
                answer = self.answer
                answer.times_ns.append(at_ns)
                answer.kinds.append(kind)
                answer.tokens.append(-1)
                (self._pieces if kind == CONTENT else answer.reasoning).append(text)
                return
        super()._frame(event, data, at_ns)

    def _document(self, value: Any, at_ns: int) -> bool:
        answer = self.answer
        if not isinstance(value, dict) or value.get("choices") is None:
            return self._error_document(value, at_ns)
        self._event(None, value, at_ns)
        if answer.has_tokens():
            answer.tokens[-1] = (answer.usage and answer.usage.n_out) or -1
        answer.ended = True
        return True

    def _end(self) -> None:
        self._smooth = False
        self._counts.close(self._choices)
        super()._end()

    # ---- the careful way

    def _event(self, event: str | None, chunk: dict[str, Any], at_ns: int) -> None:
        answer, counts = self.answer, self._counts
        error = error_in(chunk)
        if error is not None:
            self._fail(error)
        if len(answer.kinds) != self._events:
            self._channel = KIND_ORDER.index(answer.kinds[-1])
            counts.text_without_count()
        first = self._channel is None
        if first:
            self._identify(chunk)

        rank, tokens = _OTHER, 0
        choices = _choices(chunk)
        for choice in choices:
            its_rank, its_tokens = self._choice(choice, first)
            rank = min(rank, its_rank)
            tokens = -1 if its_tokens < 0 or tokens < 0 else tokens + its_tokens
        if tokens <= 0 and isinstance(chunk.get("token_ids"), list):
            tokens = len(chunk["token_ids"])
        usage = counts.take(chunk)
        grown = counts.growth(usage, rank <= _REASONING, len(self._choices)) if choices else 0

        if rank <= _REASONING:
            self._channel = rank
            tokens = tokens if tokens > 0 else grown or -1
        elif tokens > 0 or grown > 0:
            # A token without text (part of a character, a special token): only counts can tell.
            rank = self._channel = self._channel or _CONTENT
            tokens = tokens if tokens > 0 else grown
        elif usage is not None and usage.n_out:
            rank = min(rank, _USAGE)
        elif "prompt_progress" in chunk and rank > _USAGE:
            rank = _OTHER
        self._add(at_ns, KIND_ORDER[rank], tokens)
        if choices:
            answer.ended = len(answer.finish_reasons) == len(self._choices)
            self._smooth = self._channel is not None and self._mender is None and len(self._choices) == 1
            if self._smooth:
                (self._index,) = self._choices
                self._pieces = answer.texts.setdefault(self._index, [])

    def _choice(self, choice: dict[str, Any], first: bool) -> tuple[int, int]:
        """Take in one choice; return the rank of its kind and its tokens (-1: it has some, number unknown).

        ``first``: no token has come so far, so that a whole message is not a repetition.
        """
        index = choice.get("index")
        if type(index) is not int:
            index = 0
        self._choices.add(index)
        if choice.get("error"):
            self._fail(error_in({"error": choice["error"]}))
        delta = choice.get("delta")
        if delta is None:
            if "text" in choice:
                delta = {"content": choice["text"]}
            elif first:
                delta = choice.get("message")
        elif isinstance(delta, str):
            delta = {"content": delta}
        rank = _OTHER if delta is None and "delta" not in choice else _EMPTY
        if isinstance(delta, dict) and delta:
            rank = self._say(index, delta)
        tokens = known_tokens(choice)
        if rank <= _REASONING:
            self._counts.text()
            tokens = tokens or -1
        else:
            tokens = max(tokens, 0)
        if self._finish(finish_reason(choice), index):
            self._counts.finish(index)
            rank = min(rank, _FINISH)
        return rank, tokens

    def _say(self, index: int, delta: dict[str, Any]) -> int:
        """Take in a delta or message; return the rank of its kind."""
        said = read_delta(delta)
        rank = _ROLE if delta.get("role") else _EMPTY
        if self._reasoning(said.reasoning, index):
            rank = _REASONING
        if self._refusal(said.refusal, index):
            rank = _REFUSAL
        if ("tool_calls" in delta or "function_call" in delta) and self._tools.take(index, delta, self._mender):
            rank = _TOOL
        return _CONTENT if self._text(said.text, index) or said.other else rank

    def _add(self, at_ns: int, kind: str, tokens: int = 0) -> None:
        self.answer.add(at_ns, kind, tokens)
        self._events = len(self.answer.kinds)

    def _unreadable(self, why: str, data: bytes) -> None:
        self._smooth = False
        super()._unreadable(why, data)


def _choices(chunk: dict[str, Any]) -> list[dict[str, Any]]:
    choices = chunk.get("choices")
    return [choice for choice in (choices if isinstance(choices, list) else [choices]) if isinstance(choice, dict)]
