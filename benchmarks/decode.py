"""What one event costs the decoder: ``python benchmarks/decode.py`` prints us/event for usual shapes of a stream.

Each shape is fed one event a read (an idle client) and 64 KiB a read (a busy one). Best of several rounds, so that
other work on the machine matters little. The goal for openai-chat is 3 us/event or less.
"""

from __future__ import annotations

import time

from locust_llm.wire import registry
from locust_llm.wire.api import Decoder

EVENTS = 2000
ROUNDS = 15

_HEAD = b'"id":"chatcmpl-a4f8cae3adfed17d","object":"chat.completion.chunk","created":1795979556,"model":"a-model",'
SHAPES: dict[str, tuple[str, bytes]] = {
    "chat, OpenAI": (
        "openai-chat",
        b"{%b"
        % _HEAD
        + b'"service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" word"},'
        b'"logprobs":null,"finish_reason":null}],"usage":null}',
    ),
    "chat, vLLM": (
        "openai-chat",
        b'{%b"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}]}'
        % _HEAD,
    ),
    "chat, llama.cpp": (
        "openai-chat",
        b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" word"}}],"created":1795976780,'
        b'"id":"chatcmpl-nXNY9kjFATwy7CT3cFhW9lCWade0bInT","model":"a-model","system_fingerprint":"b0-unknown",'
        b'"object":"chat.completion.chunk"}',
    ),
    "chat, SGLang": (
        "openai-chat",
        b'{%b"choices":[{"index":0,"delta":{"role":null,"content":" word","reasoning_content":null,"tool_calls":null},'
        b'"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}' % _HEAD,
    ),
    "chat, reasoning": (
        "openai-chat",
        b'{%b"choices":[{"index":0,"delta":{"content":null,"reasoning_content":" word"},"finish_reason":null}]}'
        % _HEAD,
    ),
    "chat, log-probabilities": (
        "openai-chat",
        b'{%b"choices":[{"index":0,"delta":{"content":" word"},"logprobs":{"content":[{"token":" word","logprob":-0.1,'
        b'"bytes":[32,119,111,114,100],"top_logprobs":[]}]},"finish_reason":null}]}' % _HEAD,
    ),
    "chat, running usage": (
        "openai-chat",
        b'{%b"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}],'
        b'"usage":{"prompt_tokens":38,"total_tokens":41,"completion_tokens":@,"completion_tokens_details":null}}'
        % _HEAD,
    ),
    "completions": (
        "openai-completions",
        b'{%b"choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null}]}' % _HEAD,
    ),
}


def stream(event: bytes) -> list[bytes]:
    """Return the reads of a stream of ``EVENTS`` such events."""
    return [b"data: %b\n\n" % event.replace(b"@", b"%d" % (number + 1)) for number in range(EVENTS)]


def cost_us(api: str, reads: list[bytes]) -> float:
    """Return the best us/event over the rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        decoder: Decoder = registry.api(api).decoder(stream=True)
        feed = decoder.feed
        start = time.perf_counter_ns()
        for at_ns, read in enumerate(reads):
            feed(read, at_ns)
        best = min(best, time.perf_counter_ns() - start)
        assert len(decoder.answer.times_ns) == EVENTS, "the decoder lost events"
    return best / EVENTS / 1000


def main() -> None:
    print(f"{'us/event':24} {'1 a read':>9} {'64 KiB a read':>14}")
    for name, (api, event) in SHAPES.items():
        single = stream(event)
        joined = b"".join(single)
        busy = [joined[at : at + 65536] for at in range(0, len(joined), 65536)]
        print(f"{name:24} {cost_us(api, single):9.2f} {cost_us(api, busy):14.2f}")


if __name__ == "__main__":
    main()
