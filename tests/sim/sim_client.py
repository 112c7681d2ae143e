"""A plain HTTP client on one socket, which says exactly what came back and whether its framing was complete."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool
    """The framing said that the body is over (a body that ends by close counts as complete)."""

    def json(self) -> Any:
        return json.loads(self.body)

    def payloads(self) -> list[str]:
        """The data of each server-sent event."""
        events = self.body.decode().split("\n\n")
        assert events[-1] == "", "the stream does not end with a blank line"
        assert all(event.startswith("data: ") for event in events[:-1])
        return [event.removeprefix("data: ") for event in events[:-1]]

    def events(self) -> list[dict[str, Any]]:
        """The JSON events, without [DONE]."""
        return [json.loads(payload) for payload in self.payloads() if payload != "[DONE]"]

    def deltas(self, choice: int = 0) -> list[dict[str, Any]]:
        return [c["delta"] for event in self.events() for c in event.get("choices", []) if c["index"] == choice]

    def texts(self, choice: int = 0) -> list[str]:
        """The non-empty pieces of answer text, chat or completions."""
        pieces = [
            c["delta"].get("content", "") if "delta" in c else c["text"]
            for event in self.events()
            for c in event.get("choices", [])
            if c["index"] == choice
        ]
        return [piece for piece in pieces if piece]

    def finish_reasons(self) -> list[str]:
        return [c["finish_reason"] for e in self.events() for c in e.get("choices", []) if c["finish_reason"]]

    def usages(self) -> list[dict[str, Any]]:
        return [event["usage"] for event in self.events() if event.get("usage")]


class Client:
    """One connection to a simulator."""

    def __init__(self, port: int, timeout: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.buffer = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def get(self, path: str, **headers: str) -> Response:
        self.send(request("GET", path, **headers))
        return self.read()

    def post(self, path: str, body: Any, **headers: str) -> Response:
        self.send(request("POST", path, body, **headers))
        return self.read()

    def chat(self, prompt: str = "one two three", **fields: Any) -> Response:
        return self.post("/v1/chat/completions", chat_body(prompt, **fields))

    def more(self) -> bool:
        """Wait for bytes; False at the end of the connection."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self.buffer += data
        return bool(data)

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            assert self.more(), f"connection closed before {mark!r}; got {self.buffer!r}"
        head, _, self.buffer = self.buffer.partition(mark)
        return head

    def closed(self) -> bool:
        """Whether the server closes now, with nothing left to read."""
        return not self.buffer and not self.more()

    def read_head(self) -> tuple[int, dict[str, str]]:
        lines = self.read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        return int(lines[0].split()[1]), headers

    def read(self) -> Response:
        status, headers = self.read_head()
        if headers.get("transfer-encoding") == "chunked":
            body, complete = self.read_chunks()
        elif "content-length" in headers:
            body, complete = self._read_exactly(int(headers["content-length"]))
        else:
            while self.more():
                pass
            body, complete, self.buffer = self.buffer, True, b""
        return Response(status, headers, body, complete)

    def _read_exactly(self, length: int) -> tuple[bytes, bool]:
        while len(self.buffer) < length and self.more():
            pass
        data, self.buffer = self.buffer[:length], self.buffer[length:]
        return data, len(data) == length

    def read_chunks(self) -> tuple[bytes, bool]:
        body = bytearray()
        while True:
            while b"\r\n" not in self.buffer:
                if not self.more():
                    return bytes(body), False
            size = int(self.read_until(b"\r\n"), 16)
            data, whole = self._read_exactly(size + 2)
            if not whole:
                return bytes(body), False
            if not size:
                return bytes(body), True
            body += data[:-2]


def request(method: str, path: str, body: Any = None, **headers: str) -> bytes:
    """The bytes of a request; ``body`` is bytes or an object to encode as JSON."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def chat_body(prompt: str = "one two three", **fields: Any) -> dict[str, Any]:
    return {"model": "sim", "messages": [{"role": "user", "content": prompt}], **fields}
