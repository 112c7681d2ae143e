"""Makes frames of AWS's event stream, independently of the reader that is tested."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Return one frame with string headers."""
    packed = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    return packed_frame(packed, payload)


def packed_frame(headers: bytes, payload: bytes) -> bytes:
    """Return one frame with headers as they are."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return body + struct.pack(">I", zlib.crc32(body))


def event(name: str, **payload: Any) -> bytes:
    """Return an event of Converse."""
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps(payload).encode())


def exception(name: str, **payload: Any) -> bytes:
    """Return an exception."""
    return frame({":exception-type": name, ":message-type": "exception"}, json.dumps(payload).encode())


def chunk(**inner: Any) -> bytes:
    """Return an event of Invoke that wraps an object of the model's own."""
    return event("chunk", bytes=base64.b64encode(json.dumps(inner).encode()).decode(), p="abc")
