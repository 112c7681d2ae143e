"""Servers that mean harm: whatever they send is held within bounds and read in time, and fails as malformed."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator

import pytest

from locust_llm.outcome import TransportEnd, judge
from locust_llm.wire import registry
from locust_llm.wire.answer import Answer
from locust_llm.wire.body import MAX_EVENT_BYTES

READ = 64 * 1024
STREAM = ["openai-chat", "tgi", "sglang", "llamacpp", "replicate"]
LINES = ["ollama", "ollama-generate"]


def endless(start: bytes, again: bytes, total: int = 3 * MAX_EVENT_BYTES) -> Iterator[bytes]:
    yield start
    piece = (again * (READ // len(again) + 1))[:READ]
    for _ in range(total // READ):
        yield piece


def read(api: str, pieces: Iterator[bytes]) -> tuple[Answer, int]:
    """Return the answer and the most bytes that were held while it was read."""
    decoder = registry.api(api).decoder(True)
    tracemalloc.start()
    for at_ns, piece in enumerate(pieces):
        decoder.feed(piece, at_ns)
    decoder.eof(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return decoder.answer, peak


def outcome(answer: Answer) -> str:
    return judge(answer, 200, TransportEnd("complete"), None)[0]


@pytest.mark.parametrize("api", STREAM)
@pytest.mark.parametrize(
    "start", [b"data: ", b"", b"event: output\ndata: ", b": "], ids=["data", "none", "named", "ping"]
)
def test_an_endless_line_is_held_to_its_bound(api: str, start: bytes) -> None:
    answer, peak = read(api, endless(start or b"x", b"abcdefgh"))
    assert answer.malformed == f"an event of more than {MAX_EVENT_BYTES >> 20} MiB"
    assert outcome(answer) == "malformed"
    assert peak < 3 * MAX_EVENT_BYTES


def test_an_event_of_endless_lines_is_held_to_its_bound() -> None:
    answer, peak = read("openai-chat", endless(b"", b"data: ab\n", MAX_EVENT_BYTES // 4))
    assert outcome(answer) == "malformed"
    assert peak < 3 * MAX_EVENT_BYTES


@pytest.mark.parametrize("api", STREAM + LINES)
@pytest.mark.parametrize("start", [b"{", b'{"a":"', b"["])
def test_an_endless_document_or_line_is_held_to_its_bound(api: str, start: bytes) -> None:
    answer, peak = read(api, endless(start, b"abcdefgh"))
    assert outcome(answer) == "malformed"
    assert "16 MiB" in str(answer.malformed)
    assert peak < 3 * MAX_EVENT_BYTES


@pytest.mark.parametrize("api", LINES)
def test_a_document_over_endless_lines_is_held_to_its_bound(api: str) -> None:
    answer, peak = read(api, endless(b"{\n", b'"a":"%b",\n' % (b"a" * 1000)))
    assert outcome(answer) == "malformed"
    assert peak < 4 * MAX_EVENT_BYTES


def test_endless_blanks_are_held_to_their_bound() -> None:
    answer, peak = read("openai-chat", endless(b"", b" \n"))
    assert outcome(answer) == "malformed"
    assert peak < 3 * MAX_EVENT_BYTES


@pytest.mark.parametrize("api", STREAM + LINES)
def test_pings_without_end_cost_nothing(api: str) -> None:
    start = b'{"a":1}\n' if api in LINES else b'data: {"a":1}\n\n'
    answer, peak = read(api, endless(start, b"\n" if api in LINES else b": ping\n\n", 4 * READ))
    assert answer.malformed is None
    assert peak < 4 * 1024 * 1024


@pytest.mark.parametrize("api", STREAM + LINES)
@pytest.mark.parametrize(
    "junk",
    [
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"choices":[' * 100_000,
        b'{"text":NaN,"meta_info":{"completion_tokens":Infinity,"prompt_tokens":-1}}',
        b'{"content":"\\ud83d","tokens_predicted":1e999,"stop":true}',
        b'{"message":{"content":"\xff\xfe\x00","tool_calls":[[]]},"done":true,"eval_count":NaN}',
        b'{"token":{"id":1e400,"text":"\\udc00"},"generated_text":["x"],"details":{"prefill":{}}}',
        b'{"status":"starting","id":1,"urls":{"stream":{"a":1}}}',
        b'{"status":"starting","id":1,"urls":{"stream":"gopher://\\n"}}',
        bytes(range(256)) * 64,
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" * 100,
        b"\x1f\x8b\x08\x00" * 1000,
    ],
    ids=lambda junk: repr(junk[:16]),
)
def test_what_no_server_should_send_ends_in_time(api: str, junk: bytes) -> None:
    begun = time.thread_time()
    for form in (b"%b", b"data: %b\n\n", b"%b\n", b"event: output\ndata: %b\n\n", b"event: error\ndata: %b\n\n"):
        answer, _ = read(api, iter([form % junk]))
        assert outcome(answer)
        assert answer.text().encode() is not None
        for name in (answer.finish_reason, answer.model, answer.malformed, answer.response_id):
            assert name is None or name.encode() is not None
    assert time.thread_time() - begun < 5


def test_ten_mib_in_one_read_is_one_event_and_right() -> None:
    long = b"x" * (10 * 1024 * 1024)
    answer, _ = read("openai-chat", iter([b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % long]))
    assert len(answer.text()) == len(long)
