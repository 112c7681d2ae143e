"""What a server says went wrong is found in every spelling, shortened, and never invented."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from locust_llm.wire.answer import ServerError
from locust_llm.wire.errors import error_in, retry_after_s, server_error


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"error":{"message":"too many","type":"requests","param":null,"code":"rate_limit_exceeded"}}',
            ServerError("too many", "requests", "rate_limit_exceeded"),
        ),
        (
            b'{"error":{"message":"no","type":"invalid_request_error","param":"temperature","code":null}}',
            ServerError("no", "invalid_request_error", None, "temperature"),
        ),
        (
            b'{"object":"error","message":"no model","type":"NotFoundError","param":null,"code":404}',
            ServerError("no model", "NotFoundError", "404"),
        ),
        (b'{"error":"plain text"}', ServerError("plain text")),
        (b'{"error":"busy","error_type":"overloaded"}', ServerError("busy", "overloaded")),
        (b'{"error":{"message":"no","http_status_code":422}}', ServerError("no", None, "422")),
        (b'{"error":{"code":429,"status":"EXHAUSTED","message":"quota"}}', ServerError("quota", "EXHAUSTED", "429")),
        (
            b'{"error":{"code":429,"message":"quota","status":"EXHAUSTED","details":[{"reason":"x"},'
            b'{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}',
            ServerError("quota", "EXHAUSTED", "429", retry_after_s=34.5),
        ),
        (b'[{"error":{"code":400,"message":"in a list"}}]', ServerError("in a list", None, "400")),
        (b'{"error":{"message":"gone","type":"None","param":"None","code":"500"}}', ServerError("gone", None, "500")),
        (b'{"error":{"error":{"message":"wrapped twice"}}}', ServerError("wrapped twice")),
        (b'{"errors":[{"message":"a"},{"message":"b"}],"success":false}', ServerError("a; b")),
        (
            b'{"type":"error","error":{"type":"overloaded_error","message":"later"}}',
            ServerError("later", "overloaded_error", "overloaded_error"),
        ),
        (b'{"type":"error","code":"server_error","message":"boom"}', ServerError("boom", None, "server_error")),
        (b'{"detail":"Not Found"}', ServerError("Not Found")),
        (
            b'{"detail":[{"type":"missing","loc":["body","messages"],"msg":"Field required"}]}',
            ServerError("body.messages: Field required", "missing", None, "messages"),
        ),
        (
            b'{"error":{"message":"bad","type":"Bad Request","param":"body.max_tokens","code":400}}',
            ServerError("bad", "Bad Request", "400", "max_tokens"),
        ),
        (b'{"message":"only this"}', ServerError("only this")),
        (b'"a JSON string"', ServerError("a JSON string")),
        (b"Internal Server Error", ServerError("Internal Server Error")),
        (b'{"error":{"message":"cut', ServerError('{"error":{"message":"cut')),
        (b"", ServerError("the answer has no body")),
        (b" \r\n", ServerError("the answer has no body")),
        (
            b"<html>\r\n<head><title>504 Gateway\r\n Time-out</title></head><body><h1>x</h1></body></html>",
            ServerError("504 Gateway Time-out"),
        ),
        (b"<!doctype html><body><style>p{}</style><p>Sign &amp; in</p><script>x()</script>", ServerError("Sign & in")),
        (
            b'data: {"error":{"message":"prompt too long","type":"invalid_request_error"}}\n\ndata: [DONE]\n\n',
            ServerError("prompt too long", "invalid_request_error"),
        ),
        (b"event: error\ndata: engine died\n\n", ServerError("engine died")),
        (b'error: {"code":400,"message":"too big","type":"x"}\n\n', ServerError("too big", "x", "400")),
    ],
)  # fmt: skip
def test_a_refusing_body_gives_its_message_type_code_and_field(body: bytes, expected: ServerError) -> None:
    assert server_error(body, None) == expected


def test_long_texts_and_pages_are_shortened() -> None:
    assert len(server_error(b"<body>" + b"word " * 5000, "text/html").message) <= 200
    assert len(server_error(b'{"error":"%b"}' % (b"x" * 5000), None).message) <= 1000


def test_the_charset_of_a_text_is_respected_and_an_unknown_one_is_no_trouble() -> None:
    assert server_error("gestört".encode("latin-1"), "text/plain; charset=ISO-8859-1").message == "gestört"
    assert server_error("gestört".encode(), "text/plain; charset=nonsense").message == "gestört"
    assert server_error("gestört".encode(), None).message == "gestört"


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"delta": {"content": "x"}}], "error": None},
        {"choices": [], "error": {}},
        {"choices": [{"delta": {"content": "x"}}], "message": "hi", "code": 200},
        {"id": "q", "object": "metadata", "note": "x"},
        {"message": "a word without a code"},
        {"x_groq": {"id": "r"}},
        [],
        None,
        "text",
        7,
    ],
)
def test_what_only_looks_like_an_error_is_none(event: object) -> None:
    assert error_in(event) is None


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"error_type": "context_length_exceeded", "error_message": "too long"}, "too long"),
        ({"x_groq": {"id": "r", "error": "stopped early"}, "choices": [{"delta": {}}]}, "stopped early"),
        ({"object": "error", "message": "flat"}, "flat"),
        ({"code": "InvalidParameter", "message": "bad", "request_id": "r"}, "bad"),
        ({"success": False, "errors": [{"message": "off"}]}, "off"),
    ],
)
def test_an_event_that_is_an_error_is_seen_as_one(event: object, message: str) -> None:
    error = error_in(event)
    assert error is not None
    assert error.message == message


NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        (" 1.5 ", 1.5),
        ("-3", 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        (format_datetime(NOW.replace(minute=1), usegmt=True), 60.0),
        ("Sun, 29 Nov 2026 12:00:30 -0000", 30.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, NOW.timestamp()) == seconds
