"""The cases of ``cases.jsonl``: how real servers stream, with invented payloads and what a client must make of them.

One JSON object a line. ``chunks`` are socket writes, each after its delay; ``framing`` says how they become HTTP:
``chunked`` (one HTTP chunk each), ``content-length``, ``close`` (HTTP/1.0, no length) or ``raw`` (the writes are the
HTTP bytes). Counts of ``expect`` are numbers of events with a non-empty piece of that channel; ``ttft_chunk_index`` is
the index of the write that completes the first token event. In an ``arguable`` case other outcomes are defensible too.
``load`` reads them, ``body`` strips HTTP from a case, ``observe`` and ``differences`` compare an answer with what is
expected; tests over sockets use the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from httpbytes import ResponseReader, decompressor

from locust_llm.exchange import OK, ExchangeError
from locust_llm.outcome import TransportEnd, judge
from locust_llm.wire import registry
from locust_llm.wire.answer import TOKEN_KINDS, TOOL, VISIBLE_KINDS, Answer
from locust_llm.wire.api import Decoder
from locust_llm.wire.errors import server_error

FILE = Path(__file__).with_name("cases.jsonl")
MS = 1_000_000
NOW = 1_800_000_000.0


@dataclass(frozen=True)
class Write:
    """One socket write: wait, then send. Empty data means: only wait."""

    delay_ms: float
    data: bytes


@dataclass(frozen=True)
class Case:
    """One line of the file."""

    id: str
    title: str
    api: str
    stream: bool
    request: dict[str, Any]
    status: int
    headers: dict[str, str]
    framing: str
    writes: tuple[Write, ...]
    close: str
    close_delay_ms: float
    client: dict[str, Any]
    expect: dict[str, Any]
    arguable: bool

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers.items() if k.lower() == name.lower()), None)


@dataclass(frozen=True)
class Outcome:
    """What a client made of a case."""

    answer: Answer
    outcome: str
    error: ExchangeError | None
    param: str | None
    start_ns: int
    write_of: dict[int, int]
    """Index of the write by the time of its bytes."""


def load(*apis: str) -> list[Case]:
    """Return the cases of some APIs (default: all)."""
    cases = []
    for line in FILE.read_text(encoding="ascii").splitlines():
        raw = json.loads(line)
        if apis and raw["api"] not in apis:
            continue
        writes = tuple(
            Write(
                w["delay_ms"], base64.b64decode(w["b64"]) if "b64" in w else w["text"].encode("utf-8", "surrogatepass")
            )
            for w in raw["chunks"]
        )
        cases.append(
            Case(
                id=raw["id"],
                title=raw["title"],
                api=raw["api"],
                stream=raw["stream"],
                request=raw.get("request", {}),
                status=raw["status"],
                headers=raw["headers"],
                framing=raw["framing"],
                writes=writes,
                close=raw["close"],
                close_delay_ms=raw.get("close_delay_ms", 0),
                client=raw.get("client", {}),
                expect=raw["expect"],
                arguable=raw.get("arguable", False),
            )
        )
    return cases


def body(case: Case) -> list[tuple[int, int, bytes]]:
    """Return the body of a case as (index of the write, ns since the request, bytes), HTTP and encoding removed."""
    reader = ResponseReader() if case.framing == "raw" else None
    inflate = decompressor(case.header("content-encoding") or "")
    pieces = []
    now = 0.0
    for index, write in enumerate(case.writes):
        now += write.delay_ms
        data = reader.feed(write.data) if reader else write.data
        data = inflate(data)
        # Writes of the same ms stay apart by one ns each, so that a time names its write.
        pieces.append((index, round(now * MS) + index, data))
    return pieces


def transport_end(case: Case) -> TransportEnd:
    """Return how a right transport ends in this case."""
    idle_ms = case.client.get("idle_timeout_ms")
    if idle_ms is not None and case.close_delay_ms > idle_ms:
        return TransportEnd("timeout", "idle", f"no byte for {idle_ms} ms")
    if case.close == "reset":
        return TransportEnd("connection", "reset", "connection reset by peer")
    if case.close == "eof" and case.framing != "close":
        return TransportEnd("connection", "framing", "the body ended before its framing said so")
    return TransportEnd("complete")


def decode(case: Case, pieces: list[tuple[int, int, bytes]] | None = None, decoder: Decoder | None = None) -> Outcome:
    """Decode a case without any socket. ``pieces``: its body, if cut in another way than the writes."""
    pieces = body(case) if pieces is None else pieces
    decoder = decoder or registry.api(case.api).decoder(case.stream)
    end = transport_end(case)
    answer = decoder.answer
    if 200 <= case.status < 300:
        for _, at_ns, data in pieces:
            if data:
                decoder.feed(data, at_ns)
        if end.kind == "complete":
            decoder.eof((pieces[-1][1] if pieces else 0) + MS)
    else:
        answer.error = server_error(b"".join(data for _, _, data in pieces), case.header("content-type"))
    outcome, error = judge(answer, case.status, end, case.header("retry-after"), now=NOW)
    param = answer.error.param if answer.error else None
    return Outcome(answer, outcome, error, param, 0, {at_ns: index for index, at_ns, _ in pieces})


def observe(seen: Outcome) -> dict[str, Any]:
    """Return what came out, in the words of ``expect``."""
    answer = seen.answer
    tokens = [i for i, kind in enumerate(answer.kinds) if kind in TOKEN_KINDS]
    visible = [i for i in tokens if answer.kinds[i] in VISIBLE_KINDS]
    usage = answer.usage

    def write_of(event: list[int]) -> int | None:
        return seen.write_of.get(answer.times_ns[event[0]]) if event else None

    return {
        "ok": seen.outcome == OK,
        "error_kind": None if seen.outcome == OK else seen.outcome,
        "error_code": seen.error.code if seen.error else None,
        "error_message": answer.error.message if answer.error else None,
        "error_param": seen.param,
        "retry_after_s": seen.error.retry_after_s if seen.error else None,
        "text": answer.text(),
        "texts": {str(index): "".join(pieces) for index, pieces in answer.texts.items()},
        "content_chunks": sum(map(len, answer.texts.values())),
        "reasoning_chunks": len(answer.reasoning),
        "refusal_chunks": len(answer.refusal),
        "tool_chunks": answer.kinds.count(TOOL),
        "token_events": len(tokens),
        "ttft_chunk_index": write_of(tokens),
        "first_answer_chunk_index": write_of(visible),
        "ttft_ms_nominal": (answer.times_ns[tokens[0]] - seen.start_ns) // MS if tokens else None,
        "gaps_ms_nominal": [round((answer.times_ns[b] - answer.times_ns[a]) / MS) for a, b in pairwise(tokens)],
        "output_tokens": usage.n_out if usage and seen.outcome == OK else None,
        "server_output_tokens": usage.n_out if usage else None,
        "reasoning_tokens": usage.n_reasoning if usage else None,
        "prompt_tokens": usage.n_in if usage else None,
        "cached_tokens": usage.n_cached if usage else None,
        "token_weights": [answer.tokens[i] for i in tokens],
        "finish_reason": answer.finish_reason,
    }


def differences(case: Case, seen: Outcome) -> dict[str, tuple[Any, Any]]:
    """Return where an outcome is not as expected: name → (expected, seen)."""
    found = observe(seen)
    expect = {k: v for k, v in case.expect.items() if k in found}
    if case.expect["text"] is None:
        text = found["text"]
        expect["text"] = (case.expect["text_len"], case.expect["text_sha256"])
        found["text"] = (len(text), hashlib.sha256(text.encode()).hexdigest())
    if "error_code" in expect:
        expect["error_code"] = str(expect["error_code"])
    for name in ("tool_chunks", "refusal_chunks"):
        expect.setdefault(name, 0)
    slack = expect.get("ttft_chunk_index") is not None and case.expect.get("ttft_tolerance_chunks", 0)
    if slack and found["ttft_chunk_index"] is not None:
        near = abs(expect["ttft_chunk_index"] - found["ttft_chunk_index"]) <= slack
        if near:
            del expect["ttft_chunk_index"]
            expect.pop("ttft_ms_nominal", None)
            expect.pop("gaps_ms_nominal", None)
    return {name: (value, found[name]) for name, value in expect.items() if found[name] != value}
