"""What must hold of an answer whatever a server sent, for tests and for the fuzz run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from locust_llm.exchange import OUTCOMES, Exchange, run_lengths
from locust_llm.outcome import TransportEnd, judge
from locust_llm.wire.answer import Answer
from locust_llm.wire.api import Decoder


def sse(events: list[Any]) -> bytes:
    return b"".join(
        event if isinstance(event, bytes) else b"data: %b\n\n" % json.dumps(event).encode() for event in events
    )


def run(make: Callable[[], Decoder], pieces: list[bytes]) -> Answer:
    decoder = make()
    for at_ns, piece in enumerate(pieces):
        decoder.feed(piece, at_ns)
    decoder.eof(len(pieces))
    return decoder.answer


def facts(answer: Answer, times: bool = False) -> dict[str, Any]:
    skip = () if times else ("times_ns", "done_ns")
    found = {name: getattr(answer, name) for name in Answer.__slots__ if name not in skip}
    found["texts"] = {index: pieces for index, pieces in answer.texts.items() if pieces}
    # NaN is not itself, so what is compared is how it looks.
    return {name: repr(value) for name, value in found.items()}


def check_sound(answer: Answer) -> None:
    """The promises of ``Answer``, and that a record of it can be written."""
    assert len(answer.times_ns) == len(answer.kinds) == len(answer.tokens)
    assert answer.times_ns == sorted(answer.times_ns)
    assert min(answer.tokens, default=0) >= -1
    assert answer.pings >= 0
    for end in (TransportEnd("complete"), TransportEnd("connection", "reset"), TransportEnd("timeout", "idle")):
        outcome, error = judge(answer, 200, end, None)
        assert outcome in OUTCOMES
        assert error is None or error.message
    kind_names, kind_runs = run_lengths(answer.kinds)
    usage = answer.usage
    record = Exchange(
        run="r", worker="w", seq=1, exchange="e", name="n", user_class="u", api="a", model="m",
        outcome=outcome, error=error, finish_reason=answer.finish_reason, start_us=0, end_us=1,
        kind_names=kind_names, kind_runs=kind_runs, n_out=usage and usage.n_out, n_in=usage and usage.n_in,
        response_id=answer.response_id, text=answer.text(), prompt=answer.model,
        tags={str(i): "".join(p) for i, p in enumerate([answer.reasoning, answer.refusal])},
    )  # fmt: skip
    assert record.encode()
    assert orjson.dumps(answer.tool_calls)
