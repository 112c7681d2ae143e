"""A server that plays the cases of ``wire/cases.jsonl`` over real sockets, byte for byte, with delays and endings.

A request names what is played, anywhere in its body: ``case:CASE/`` or ``case:CASE/MODE``. Modes: ``bytes`` (every
byte is a write of its own), ``crlf`` (the body's line ends become CRLF). A connection is kept as long as the case
leaves it usable, so several exchanges may follow one another. As a program it prints its port and serves until its
standard input ends. It must not run in a process that gevent has patched: it uses plain threads.
"""

from __future__ import annotations

import re
import socket
import socketserver
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("wire")))

from cases import Case, Write, load

_CASE = re.compile(r"case:([\w.-]+)/(\w*)")
RESET_AFTER_S = 0.05
REASONS = {200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 429: "Too Many Requests"}


def in_crlf(case: Case) -> tuple[Write, ...] | None:
    """Return the writes of a case with CRLF line ends; None where that would not be the same answer."""
    body = b"".join(write.data for write in case.writes)
    if case.framing == "raw" or case.header("content-encoding") or case.header("content-length") or b"\r" in body:
        return None
    return tuple(Write(write.delay_ms, write.data.replace(b"\n", b"\r\n")) for write in case.writes)


def http_writes(case: Case, writes: tuple[Write, ...]) -> list[Write]:
    """Return the writes of a case as HTTP bytes, head and last chunk included, each after its delay."""
    if case.framing == "raw":
        return list(writes)
    fields = dict(case.headers)
    if case.framing == "chunked":
        fields["Transfer-Encoding"] = "chunked"
    elif case.framing == "content-length" and case.header("content-length") is None:
        fields["Content-Length"] = str(sum(len(write.data) for write in writes))
    version = "1.0" if case.framing == "close" else "1.1"
    lines = [f"HTTP/{version} {case.status} {REASONS.get(case.status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    played = [] if case.client.get("headers_delayed") else [Write(0, head)]
    for write in writes:
        data = write.data
        if case.framing == "chunked" and data:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if case.client.get("headers_delayed") and write is writes[0]:
            data = head + data
        played.append(Write(write.delay_ms, data))
    ending = b"0\r\n\r\n" if case.framing == "chunked" and case.close == "clean" else b""
    played.append(Write(case.close_delay_ms, ending))
    return played


class Player(socketserver.BaseRequestHandler):
    """One connection."""

    request: socket.socket
    cases: dict[str, Case]

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rest = b""
        while True:
            asked, rest = self._read_request(rest)
            if asked is None:
                return
            name, mode = asked
            case = self.cases[name]
            try:
                self._play(case, mode)
            except OSError:  # the client has seen enough
                return
            if case.close == "reset":
                time.sleep(RESET_AFTER_S)
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if case.close != "clean" or case.framing == "close":
                return

    def _play(self, case: Case, mode: str) -> None:
        writes = (in_crlf(case) if mode == "crlf" else None) or case.writes
        for write in http_writes(case, writes):
            time.sleep(write.delay_ms / 1000)
            if mode == "bytes":
                for at in range(len(write.data)):
                    self.request.sendall(write.data[at : at + 1])
            elif write.data:
                self.request.sendall(write.data)

    def _read_request(self, data: bytes) -> tuple[tuple[str, str] | None, bytes]:
        """Return the case and the mode that are asked for, and what was read beyond the request."""
        while True:
            head, found, body = data.partition(b"\r\n\r\n")
            lengths = [
                line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            ]
            length = int(lengths[0]) if lengths else 0
            if found and len(body) >= length:
                name, mode = _CASE.findall(body[:length].decode())[0]
                return (name, mode), body[length:]
            try:
                more = self.request.recv(65536)
            except OSError:
                return None, b""
            if not more:
                return None, b""
            data += more


class Server(socketserver.ThreadingTCPServer):
    """The replay server; ``server_address[1]`` is its port."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self) -> None:
        cases = {case.id: case for case in load()}
        super().__init__(("127.0.0.1", 0), type("CasePlayer", (Player,), {"cases": cases}))

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        request.close()  # no FIN before the RST of a reset


if __name__ == "__main__":
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
