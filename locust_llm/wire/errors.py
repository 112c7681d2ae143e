"""What a server says went wrong: error objects in all spellings, inside a 2xx answer and as the body of another status.

OpenAI's ``{"error": {…}}``, a plain string there, the flat ``{"object": "error", …}``, ``error_type`` beside
``error_message``, Groq's ``x_groq.error``, FastAPI's ``detail``, lists of errors, HTML pages, plain text, and any of
them framed as SSE.
"""

from __future__ import annotations

import html
import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from .answer import ServerError
from .jsontext import as_text, parse, well_formed
from .sse import SseFraming

MESSAGE_CHARS = 1000
_PAGE_CHARS = 200
_MESSAGE_NAMES = ("message", "Message", "msg", "error_message", "detail", "description", "reason", "error", "errors")
_CODE_NAMES = ("code", "http_status_code", "status_code", "error_code", "status")
_TYPE_NAMES = ("type", "error_type", "status")


def error_in(value: object, certain: bool = False) -> ServerError | None:
    """Return the error that a decoded JSON value reports, None if it reports none.

    Args:
        value: an event of a stream or a whole body.
        certain: it is known from elsewhere that this is an error (HTTP status, event name): any shape is taken.
    """
    if isinstance(value, list) and value and isinstance(value[0], dict) and "error" in value[0]:
        value = value[0]
    if not isinstance(value, dict):
        return _error(value, {}) if certain and value else None
    if value.get("error"):
        return _error(value["error"], value)
    groq = value.get("x_groq")
    if isinstance(groq, dict) and groq.get("error"):
        return _error(groq["error"], {})
    if certain or (not value.get("choices") and _is_flat_error(value)):
        return _error(value, value)
    return None


def server_error(body: bytes, content_type: str | None, name: str | None = None) -> ServerError:
    """Read the body of an answer that is not 2xx.

    Args:
        body: as received, content encoding removed; it may be cut.
        content_type: of the answer; only its charset is used, for the body's first bytes tell better what it is.
        name: of the error, where a header gives it (AWS's ``x-amzn-errortype``); used if the body has none.
    """
    error = _body_error(body, content_type)
    if name and error.code is None:
        # "ValidationException:http://…"
        error.code = as_text(name.partition(":")[0].strip())
        error.type = error.type or error.code
    return error


def retry_after_s(value: str | None, now: float) -> float | None:
    """Return the seconds of a ``Retry-After`` header (RFC 9110, 10.2.3), None if it is absent or no such thing.

    Args:
        value: seconds, or an HTTP date.
        now: wall clock, epoch seconds. What is past is 0.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
            # "-0000" gives a date without a zone; HTTP dates are GMT.
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


# ---- helpers


def _body_error(body: bytes, content_type: str | None) -> ServerError:
    text = body.strip()
    if not text:
        return ServerError("the answer has no body")
    if text[:1] in b'{["':
        try:
            error = error_in(parse(text), certain=True)
            if error is not None:
                return error
        except ValueError:
            pass
    else:
        framed = _framed_error(text)
        if framed is not None:
            return framed
    return ServerError(_shorten(_page_text(_decode(text, content_type)), _PAGE_CHARS) or "a body without text")


def _is_flat_error(value: dict[str, Any]) -> bool:
    if value.get("object") == "error" or value.get("type") == "error" or value.get("success") is False:
        return True
    if any(value.get(name) for name in ("error_type", "error_message", "detail", "errors")):
        return True
    return isinstance(value.get("message"), str) and any(value.get(name) for name in _CODE_NAMES)


def _error(value: object, outer: dict[str, Any]) -> ServerError:
    """Make an error of the value of an ``error`` member; what it does not say is looked for in ``outer``."""
    inner = value if isinstance(value, dict) else {}
    details = inner.get("detail", value)
    item = details[0] if isinstance(details, list) and details and isinstance(details[0], dict) else {}
    param = _named("param", inner, outer) or _last_name(item.get("loc"))
    types = (_named(name, inner, outer, item) for name in _TYPE_NAMES)
    kind = next((kind for kind in types if kind and kind != "error" and not kind.isdigit()), None)
    code = next((code for name in _CODE_NAMES if (code := _named(name, inner, outer))), None)
    if code is None and outer.get("type") == "error":
        code = kind  # Anthropic has no codes but the type
    return ServerError(
        message=_shorten(_message(value) or "", MESSAGE_CHARS) or "an error without a message",
        type=kind,
        code=code,
        param=param.removeprefix("body.") if param else None,
        retry_after_s=_retry_after_s(inner),
    )


def _retry_after_s(error: dict[str, Any]) -> float | None:
    """Return the wait that Google's ``RetryInfo`` among the details of an error asks for (``"34.5s"``)."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and delay.endswith("s"):
            return retry_after_s(delay[:-1], 0)
    return None


def _message(value: object, depth: int = 4) -> str | None:
    text = as_text(value)
    if text is not None or depth == 0:
        return text
    if isinstance(value, list):
        parts = [part for item in value[:5] if (part := _message(item, depth - 1))]
        return "; ".join(parts) or None
    if isinstance(value, dict):
        message = next((m for name in _MESSAGE_NAMES if (m := _message(value.get(name), depth - 1))), None)
        where = value.get("loc")
        if message and isinstance(where, list):
            return f"{'.'.join(str(as_text(name)) for name in where[:8])}: {message}"
        return message
    return None


def _named(name: str, *objects: dict[str, Any]) -> str | None:
    return next((text for value in objects if (text := as_text(value.get(name)))), None)


def _last_name(where: object) -> str | None:
    """Return the field that a FastAPI ``loc`` ends in, such as ``max_tokens`` of ``["body", "max_tokens"]``."""
    names = [name for name in where if isinstance(name, str) and name != "body"] if isinstance(where, list) else []
    return as_text(names[-1]) if names else None


def _framed_error(body: bytes) -> ServerError | None:
    sse = SseFraming()
    for name, data in [*sse.feed(body), *sse.eof()]:
        try:
            value = parse(data)
        except ValueError:
            value = data.decode("utf-8", "replace") if name == "error" else None
        error = error_in(value, certain=name == "error")
        if error is not None:
            return error
    return None


def _decode(body: bytes, content_type: str | None) -> str:
    charset = re.search(r"charset=[\"']?([\w.:-]+)", content_type or "", re.I)
    try:
        return body.decode(charset[1] if charset else "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def _page_text(text: str) -> str:
    """Return what a reader sees of an HTML page: its title, else its text; other text as it is."""
    if not text.startswith("<"):
        return text
    text = text[:8000]
    title = re.search(r"<title[^>]*>(.*?)</title>", text, re.I | re.S)
    if title is None or not title[1].strip():
        text = re.sub(r"<(script|style)\b.*?(</\1>|$)", " ", text, flags=re.I | re.S)
    return html.unescape(re.sub(r"<[^>]*>", " ", title[1] if title and title[1].strip() else text))


def _shorten(text: str, chars: int) -> str:
    text = " ".join(well_formed(text).split())
    return text if len(text) <= chars else text[: chars - 1] + "…"
