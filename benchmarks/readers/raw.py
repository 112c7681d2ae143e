"""The least a gevent client can do: read, take the kernel's stamp, count. ``raw.py PORT STREAMS TOKENS SECONDS``.

No HTTP parser, no JSON, no record: what locust-llm costs above this is the price of a measurement.
"""

from __future__ import annotations

import sys
import time

from gevent import monkey

monkey.patch_all()

import socket  # noqa: E402
import struct  # noqa: E402

import gevent  # noqa: E402

SO_TIMESTAMPNS = 35
BLOCK = 65536
SPACE = socket.CMSG_SPACE(16)
STAMP = struct.Struct("@ll")


def stream(port: int, request: bytes, until: float, stamps: list[int]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        while time.monotonic() < until:
            sock.sendall(request)
            data = b""
            while not data.endswith(b"0\r\n\r\n"):
                data, ancillary, _, _ = sock.recvmsg(BLOCK, SPACE)
                if not data:
                    sys.exit("the server closed the connection")
                if ancillary:
                    seconds, nanos = STAMP.unpack(ancillary[0][2])
                    at_ns = seconds * 1_000_000_000 + nanos
                else:  # the kernel begins to stamp a moment after the first socket has asked for it
                    at_ns = time.time_ns()
                stamps.extend([at_ns] * data.count(b"data: "))


def main() -> None:
    port, streams, tokens, seconds = map(int, sys.argv[1:])
    body = b'{"model":"gt","stream":true,"max_tokens": %d,"messages":[]}' % tokens
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    until, stamps = time.monotonic() + seconds, list[int]()
    gevent.joinall([gevent.spawn(stream, port, head + body, until, stamps) for _ in range(streams)], raise_error=True)
    print(len(stamps))


if __name__ == "__main__":
    main()
