"""SGLang, its own API: ``POST /generate``.

Each event repeats the whole text so far and counts all tokens so far (``completion_tokens``): what it adds is the rest
of the text and the growth of the count. Servers started with ``--incremental-streaming-output`` send pieces instead, in
the same shape; ``_Output`` tells the two apart. With several prompts or samples each event has an ``index``.
``reasoning_tokens`` is not taken over: here reasoning is part of the text, not hidden.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .answer import CONTENT, EMPTY, FINISH, OTHER, ServerError, Usage
from .api import Call
from .delta import FAILED_REASONS
from .errors import error_in
from .fields import listed, merge_fields, prompts_of, same_names
from .jsonevents import JsonEvents
from .jsontext import as_text, well_formed
from .openai import bearer
from .usage import count, total

_PARAMETERS = same_names(
    "custom_params ebnf frequency_penalty ignore_eos json_schema logit_bias max_new_tokens min_new_tokens min_p n "
    "no_stop_trim presence_penalty regex repetition_penalty sampling_seed skip_special_tokens "
    "spaces_between_special_tokens stop stop_regex stop_token_ids structural_tag temperature top_k top_p",
    max_tokens="max_new_tokens",
    min_tokens="min_new_tokens",
    seed="sampling_seed",
)
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
# After so many texts that extend the one before, texts are taken for whole ones for good.
_SURE = 3
_TAIL = 4
_ID_BYTES = 5


class SGLang:
    """See ``api.Api``."""

    name = "sglang"
    request_type = "COMPLETION"
    root = ""
    models_path: str | None = "/v1/models"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body; a list of prompts is a client batch.

        Raises:
            UsageError: the call has no prompt.
        """
        parameters: dict[str, Any] = {}
        if call.max_tokens is not None:
            parameters["max_new_tokens"] = call.max_tokens
            if call.exact_length:
                parameters["ignore_eos"] = True
        body = {"text": prompts_of(call.prompt, self.name), "sampling_params": parameters, "stream": call.stream}
        body = merge_fields(body, call.extra, "sampling_params", _PARAMETERS)
        if isinstance(body["sampling_params"], dict):
            listed(body["sampling_params"], "stop")
        return body

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/generate"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the bearer token."""
        return bearer(key)

    def decoder(self, stream: bool) -> SGLangDecoder:
        """Return a fresh decoder; the answer itself shows whether it is a stream."""
        return SGLangDecoder()


class SGLangDecoder(JsonEvents):
    """Reads one answer; see ``api.Decoder``."""

    def __init__(self) -> None:
        super().__init__()
        self._outputs: dict[int, _Output] = {}

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        self._fail(error_in(value))
        if "meta_info" not in value and "text" not in value:
            self._add(at_ns, OTHER)
            return
        kind, tokens = self._say(value)
        self._add(at_ns, kind, tokens)
        self.answer.ended = self._outputs.keys() == self.answer.finish_reasons.keys()

    def _document(self, value: Any, at_ns: int) -> bool:
        items = value if isinstance(value, list) else [value]
        if not items or not all(isinstance(item, dict) and ("text" in item or "meta_info" in item) for item in items):
            return self._error_document(value, at_ns)
        kinds = set()
        for index, item in enumerate(items):
            self._fail(error_in(item))
            kinds.add(self._say({"index": index, **item})[0])
        return self._whole(at_ns, CONTENT if CONTENT in kinds else EMPTY)

    def _say(self, value: dict[str, Any]) -> tuple[str, int]:
        """Take in the state of one output; return the event's kind and by how many tokens it grew (-1: unknown)."""
        info = value.get("meta_info")
        info = info if isinstance(info, dict) else {}
        index = value.get("index")
        index = index if type(index) is int else 0
        output = self._outputs.setdefault(index, _Output())
        finished = self._stop(info.get("finish_reason"), index)
        self._identify(info)
        grown = self._counts(info, output)
        ids = value.get("output_ids")
        known_ids = len(ids) if isinstance(ids, list) else None
        piece = ""
        text = value.get("text")
        if text and isinstance(text, str):
            if self._mender is not None:
                text = well_formed(text)
            piece = output.take(text, grown, known_ids, finished)
            self.answer.repeated += len(text) - len(piece)
            if output.rewritten:
                self.answer.texts[index] = output.rewritten
                output.rewritten = []
            else:
                self._text(piece, index)
        self.answer.repeated += _ID_BYTES * max(0, (known_ids or 0) - max(0, grown))
        if piece or grown > 0:
            return CONTENT, grown if grown > 0 else -1
        return FINISH if finished else EMPTY, 0

    def _stop(self, reason: object, index: int) -> bool:
        if isinstance(reason, dict):
            name = as_text(reason.get("type"))
            if name and name.lower() in FAILED_REASONS:
                self._fail(
                    ServerError(
                        as_text(reason.get("message")) or f"finish reason {name}",
                        type=as_text(reason.get("err_type")) or name,
                        code=as_text(reason.get("status_code")),
                    )
                )
            reason = name
        return self._finish(reason, index)

    def _counts(self, info: dict[str, Any], output: _Output) -> int:
        """Take in the counts of one output; return by how many tokens it grew, -1 if that is not known."""
        n_in, n_out, n_cached = (count(info.get(name)) for name in _COUNTS)
        if n_in is None and n_out is None:
            return -1
        before = output.usage.n_out or 0
        output.usage = Usage(n_in, n_out, None, n_cached)
        raw: dict[str, Any] = {name: info[name] for name in _COUNTS if name in info}
        self._count(raw, total([each.usage for each in self._outputs.values()]))
        return -1 if n_out is None else max(0, n_out - before)


class _Output:
    """One output so far. Are its texts whole ones, or pieces?

    A text that begins with all that was said is taken for a whole one. The first that does not shows pieces (all are
    kept until then, so that the start can be put right: ``rewritten``), unless it only changes the end of what was
    said: the server took back a stop word or half a character. Token ids settle what texts leave open: with pieces they
    are the new ones only.
    """

    __slots__ = ("_pieces", "_seen", "_text", "rewritten", "usage")

    def __init__(self) -> None:
        self.usage = Usage()
        self.rewritten: list[str] = []
        self._text = ""  # the last text
        self._seen: list[str] = []  # all texts, until it is clear what they are
        self._pieces: bool | None = None

    def take(self, text: str, grown: int, ids: int | None, finished: bool) -> str:
        """Return what a text adds."""
        if self._pieces is None:
            self._seen.append(text)
            self._pieces = self._judge(text, grown, ids, finished)
            if self._pieces:
                self.rewritten = self._seen
            if self._pieces is not None:
                self._seen = []
        if self._pieces:
            return text
        before, self._text = self._text, text
        if text.startswith(before):
            return text[len(before) :]
        self.rewritten = [text]
        return "" if before.startswith(text) else text[-_TAIL:]

    def _judge(self, text: str, grown: int, ids: int | None, finished: bool) -> bool | None:
        """Return whether texts are pieces, None while that is open."""
        before = self._text
        if text.startswith(before):
            longer = sum(len(b) > len(a) for a, b in pairwise(self._seen))
            return False if longer >= _SURE else None
        if len(before) > 2 * _TAIL and text.startswith(before[:-_TAIL]):
            return False
        cut = before.startswith(text)
        if cut and ids is not None and grown > 0:
            return ids <= grown
        return not (cut and finished)
