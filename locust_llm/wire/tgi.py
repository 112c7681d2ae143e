"""Text Generation Inference, its own API: ``POST /generate_stream`` and ``/generate``.

One event a token, the end token included: a special token has no text but was generated, so it is a token event. The
event with ``generated_text`` ends the answer (its text only repeats the tokens); there is no ``[DONE]``. Counts and
finish reason come only with ``details``, which is always asked for.
"""

from __future__ import annotations

from typing import Any

from .answer import CONTENT, EMPTY, FINISH, OTHER, Usage
from .api import Call
from .errors import error_in
from .fields import listed, merge_fields, one_prompt, same_names
from .jsonevents import JsonEvents
from .openai import bearer
from .usage import count

_PARAMETERS = same_names(
    "adapter_id best_of decoder_input_details details do_sample frequency_penalty grammar max_new_tokens "
    "repetition_penalty return_full_text seed stop temperature top_k top_n_tokens top_p truncate typical_p watermark",
    max_tokens="max_new_tokens",
)


class TGI:
    """See ``api.Api``."""

    name = "tgi"
    request_type = "COMPLETION"
    root = ""
    models_path: str | None = "/info"

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body. TGI knows no exact length; temperature 0, which it refuses, becomes greedy decoding.

        Raises:
            UsageError: the call has not one prompt.
        """
        parameters: dict[str, Any] = {"details": True}
        if call.max_tokens is not None:
            parameters["max_new_tokens"] = call.max_tokens
        body: dict[str, Any] = {
            "inputs": one_prompt(call.prompt, self.name),
            "parameters": parameters,
            "stream": call.stream,
        }
        body = merge_fields(body, call.extra, "parameters", _PARAMETERS)
        asked = body["parameters"]
        if isinstance(asked, dict):
            listed(asked, "stop")
            if asked.get("temperature") == 0:
                del asked["temperature"]
                asked["do_sample"] = False
        return body

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/generate_stream" if call.stream else "/generate"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the bearer token."""
        return bearer(key)

    def decoder(self, stream: bool) -> TGIDecoder:
        """Return a fresh decoder; the answer itself shows whether it is a stream."""
        return TGIDecoder()


class TGIDecoder(JsonEvents):
    """Reads one answer; see ``api.Decoder``."""

    def _event(self, event: str | None, value: dict[str, Any], at_ns: int) -> None:
        answer = self.answer
        self._fail(error_in(value))
        self._details(value.get("details"))
        whole = value.get("generated_text")
        token = value.get("token")
        kind = FINISH if whole is not None else OTHER
        if isinstance(token, dict):
            said = not token.get("special") and self._text(token.get("text"))
            kind = CONTENT if said or type(token.get("id")) is int else EMPTY
            self._add(at_ns, kind, 1)
        else:
            if not answer.texts and self._text(whole):  # a relay that streams nothing but the whole
                kind = CONTENT
            self._add(at_ns, kind)
        if whole is not None:
            self._done(at_ns)

    def _document(self, value: Any, at_ns: int) -> bool:
        if isinstance(value, list) and value and isinstance(value[0], dict) and "error" not in value[0]:
            (value, *_) = value  # the endpoint "/" wraps it
        if not isinstance(value, dict) or "generated_text" not in value:
            return self._error_document(value, at_ns)
        self._fail(error_in(value))
        self._details(value.get("details"))
        return self._whole(at_ns, CONTENT if self._text(value["generated_text"]) else EMPTY)

    def _details(self, details: object) -> None:
        if not isinstance(details, dict):
            return
        self._finish(details.get("finish_reason"))
        prefill = details.get("prefill")
        n_in = count(details.get("input_length"))
        if n_in is None and isinstance(prefill, list):
            n_in = len(prefill) or None
        self._count(details, Usage(n_in, count(details.get("generated_tokens"))))
