"""The usual client of Python's LLM benchmarks: aiohttp, a line at a time, JSON and a time stamp for each event.

``with_aiohttp.py PORT STREAMS TOKENS SECONDS``
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import aiohttp  # type: ignore[import-not-found,unused-ignore]


async def stream(session: aiohttp.ClientSession, url: str, tokens: int, until: float, stamps: list[float]) -> None:
    body = {
        "model": "gt", "stream": True, "max_tokens": tokens, "messages": [{"role": "user", "content": "hello"}],
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    while time.monotonic() < until:
        async with session.post(url, json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                event = json.loads(line[6:])
                if event["choices"] and event["choices"][0]["delta"].get("content"):
                    stamps.append(time.perf_counter())


async def run(port: int, streams: int, tokens: int, seconds: int) -> int:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    until, stamps = time.monotonic() + seconds, list[float]()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=1 << 18) as session:
        await asyncio.gather(*(stream(session, url, tokens, until, stamps) for _ in range(streams)))
    return len(stamps)


if __name__ == "__main__":
    print(asyncio.run(run(*map(int, sys.argv[1:]))))
