"""The outcome of an exchange, from its answer and how its transport ended: the order of metrics.md 2.

The one thing to know: what comes after a good answer's terminal end mark (``[DONE]``) is not a failure any more. Only
``rejected``, the verdict of the user or of an answer check, is decided elsewhere.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from .exchange import (
    CANCELLED,
    CONNECTION,
    EMPTY,
    HTTP_STATUS,
    IN_BAND_ERROR,
    MALFORMED,
    OK,
    TIMEOUT,
    TRUNCATED,
    UNFINISHED,
    ExchangeError,
)
from .wire.answer import Answer, ServerError
from .wire.errors import retry_after_s


@dataclass(frozen=True, slots=True)
class TransportEnd:
    """How the transport of an exchange ended.

    Attributes:
        kind: ``complete`` (the HTTP framing is intact), ``timeout``, ``connection``, ``cancelled`` (by the test, on
            purpose) or ``unfinished`` (the run ended first).
        detail: which timeout (``connect``, ``first_token``, ``idle``, ``total``) or which fault of the connection
            (``dns``, ``refused``, ``tls``, ``reset``, ``framing``, ``proxy``).
        message: one line for people.
    """

    kind: Literal["complete", "timeout", "connection", "cancelled", "unfinished"]
    detail: str = ""
    message: str = ""


def judge(
    answer: Answer, status: int | None, end: TransportEnd, retry_after: str | None, now: float | None = None
) -> tuple[str, ExchangeError | None]:
    """Return the outcome and, for failures, the error.

    Args:
        answer: what was decoded; for a status that is not 2xx its ``error`` is the error body's.
        status: final HTTP status, None if no head came.
        end: how the transport ended.
        retry_after: value of the ``Retry-After`` header, if there was one.
        now: wall clock, epoch seconds, against which a ``Retry-After`` date is read; default: now.
    """
    said = answer.error
    if status is not None and not 200 <= status < 300:
        said = said or ServerError("the answer has no body")
        kind = said.type or f"http_{status}"
        return HTTP_STATUS, ExchangeError(kind, said.message, said.code, _wait_s(said, retry_after, now))
    if said is not None:
        return IN_BAND_ERROR, ExchangeError(
            said.type or IN_BAND_ERROR, said.message, said.code, _wait_s(said, retry_after, now)
        )
    if answer.malformed is not None:
        return MALFORMED, ExchangeError(MALFORMED, answer.malformed)

    tokens = answer.has_tokens() or bool(answer.usage and answer.usage.n_out)
    if not (answer.done_ns is not None and tokens):
        if end.kind == "cancelled":
            return CANCELLED, None
        if end.kind == "unfinished":
            return UNFINISHED, None
        if end.kind == "timeout":
            return TIMEOUT, ExchangeError(end.detail or TIMEOUT, end.message or f"{end.detail} timeout".strip())
        if end.kind == "connection" or status is None:
            return CONNECTION, ExchangeError(end.detail or CONNECTION, end.message or "the connection broke")
    if answer.kinds and not answer.ended:
        return TRUNCATED, ExchangeError(TRUNCATED, "the body ended without the protocol's end mark")
    if not tokens:
        return EMPTY, ExchangeError(
            EMPTY, "the answer holds no token and no error" if answer.kinds else "the body is empty"
        )
    return OK, None


def _wait_s(said: ServerError, retry_after: str | None, now: float | None) -> float | None:
    wait_s = retry_after_s(retry_after, time.time() if now is None else now)
    return said.retry_after_s if wait_s is None else wait_s
