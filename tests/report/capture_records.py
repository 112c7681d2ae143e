"""From captures of real servers to records, so that the report can be tried on bytes as they came.

A capture is ``NAME.req``, ``NAME.http`` and ``NAME.timing.tsv`` (one row per ``recv()``: ms since the request was sent,
offset, length). The record is filled here as the client would, from the real decoders.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from httpbytes import ResponseReader
from report_logs import T0_S

from locust_llm.exchange import Exchange, run_lengths
from locust_llm.outcome import TransportEnd, judge
from locust_llm.wire import registry
from locust_llm.wire.answer import Usage

FOLDER = Path(__file__).parent.parent / "captures"
API_OF_PATH = {"/v1/chat/completions": "openai-chat", "/v1/completions": "openai-completions"}


@dataclass(frozen=True)
class Message:
    """An SSE data message of a capture (a whole answer is one), read without our decoders."""

    at_ms: float
    """Arrival of the bytes that complete it."""
    data: dict[str, Any] | None
    """None for ``[DONE]``."""

    def delta(self) -> dict[str, Any]:
        """What the first choice says: a chat's delta, or a completion's text as ``content``."""
        choices = (self.data or {}).get("choices") or [{}]
        return choices[0].get("delta") or choices[0].get("message") or {"content": choices[0].get("text")}


@dataclass(frozen=True)
class Capture:
    name: str
    record: Exchange
    messages: tuple[Message, ...]
    end_ms: float


def captures() -> list[Capture]:
    """Return the OpenAI chat and completions captures, as if each had been sent a second after the other."""
    found = []
    for file in sorted(FOLDER.glob("*/*.http")):
        api = API_OF_PATH.get(file.with_suffix(".req").read_bytes().split()[1].decode())
        if api is not None:
            found.append(_capture(file, api, len(found)))
    return found


def _capture(file: Path, api: str, seq: int) -> Capture:
    request = file.with_suffix(".req").read_bytes()
    stream = b'"stream": true' in request or b"... cut," in request  # long requests were cut when recorded
    answer_bytes = file.read_bytes()
    reader = ResponseReader()
    decoder = registry.api(api).decoder(stream)
    reads: list[tuple[float, bytes]] = []
    for row in file.with_suffix(".timing.tsv").read_text().splitlines()[1:]:
        at, offset, length = row.split("\t")
        if length == "0":
            reader.close()
        body = reader.feed(answer_bytes[int(offset) : int(offset) + int(length)])
        if body:
            decoder.feed(body, round(float(at) * 1e6))
            reads.append((float(at), body))
    end_ms = float(at)
    if reader.complete:
        decoder.eof(round(end_ms * 1e6))
    answer = decoder.answer
    end = TransportEnd("complete") if reader.complete else TransportEnd("connection", "framing", "cut")
    outcome, error = judge(answer, reader.status, end, None)
    usage = answer.usage or Usage()
    names, runs = run_lengths(answer.kinds)
    times = [t // 1000 for t in answer.times_ns]
    done_ms = answer.done_ns / 1e6 if answer.done_ns is not None else end_ms
    record = Exchange(
        run="captures", worker="w1", seq=seq, exchange=f"w1-{seq}", name=file.parent.name, user_class="User", api=api,
        model="smollm2-135m", outcome=outcome, error=error, status=reader.status, finish_reason=answer.finish_reason,
        streamed=stream and not answer.whole, start_us=round((T0_S + seq) * 1e6), end_us=round(done_ms * 1e3),
        event_gaps_us=[b - a for a, b in zip([0, *times], times, strict=False)], kind_names=names, kind_runs=runs,
        event_tokens=answer.tokens if answer.tokens and min(answer.tokens) >= 0 else None, pings=answer.pings,
        n_out=usage.n_out, n_reasoning=usage.n_reasoning, n_in=usage.n_in, n_cached=usage.n_cached,
        out_source=None if usage.n_out is None else "usage", in_source=None if usage.n_in is None else "usage",
        asked_out=None, reused=True, connected_us=0, tags={"user": "u0"},
    )  # fmt: skip
    return Capture(f"{file.parent.name}/{file.stem}", record, tuple(_messages(reads, stream)), done_ms)


def _messages(reads: list[tuple[float, bytes]], stream: bool) -> list[Message]:
    text, out = b"", []
    for at, body in reads:
        text = (text + body).replace(b"\r\n", b"\n")
        while stream and b"\n\n" in text:
            block, _, text = text.partition(b"\n\n")
            if block.startswith(b"data:"):
                data = block[5:].strip()
                out.append(Message(at, None if data == b"[DONE]" else json.loads(data)))
    if not stream and text.startswith(b"{"):
        out.append(Message(reads[-1][0], json.loads(text)))
    return out
