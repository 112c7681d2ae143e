"""A body whose form shows only when it comes: an SSE stream, or one JSON document though a stream was asked for.

The first byte that is not blank decides, never the content type: ``{`` and ``[`` open a document, all else is read as
SSE. An API module fills in what a frame and a document mean to it.
"""

from __future__ import annotations

from typing import Any

from .answer import Answer
from .jsontext import parse
from .sse import SseFraming

_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_GLIMPSE_BYTES = 160


class BodyDecoder:
    """Base of the decoders that read SSE or JSON; see ``api.Decoder`` for what they promise."""

    def __init__(self) -> None:
        self.answer = Answer()
        self._sse: SseFraming | None = None
        self._held: list[bytes] = []  # the body so far: of a document, or while its form is not known
        self._blank = False  # past a possible BOM, with nothing but blanks so far
        self._at_ns = 0
        self._ending = False  # the body is over: a frame now was not closed by its sender

    @property
    def at_event_end(self) -> bool:
        """The last byte so far is the one that completed the last event."""
        return self._sse is not None and self._sse.at_frame_end

    def feed(self, data: bytes, at_ns: int) -> None:
        """Take body bytes (any split) that arrived at ``at_ns``; events they complete get that time."""
        sse = self._sse
        if sse is None:
            self._feed_other(data, at_ns)
            return
        if at_ns < self._at_ns:
            at_ns = self._at_ns
        self._at_ns = at_ns
        comments = sse.comments
        for event, payload in sse.feed(data):
            self._frame(event, payload, at_ns)
        if sse.comments != comments:
            self.answer.pings += sse.comments - comments

    def eof(self, at_ns: int) -> None:
        """The body ended and its HTTP framing was intact. What is left over has the time of its own last bytes."""
        self._ending = True
        answer, sse = self.answer, self._sse
        if sse is not None:
            comments = sse.comments
            for event, payload in sse.eof():
                self._frame(event, payload, self._at_ns)
            answer.pings += sse.comments - comments
            if not sse.known and sse.stray is not None:
                self._unreadable("neither an event stream nor JSON", sse.stray)
        elif answer.whole:
            body = b"".join(self._held)
            self._held.clear()
            try:
                value = parse(body.removeprefix(_BOM))
            except ValueError:
                self._unreadable("not valid JSON", body.strip())
            else:
                if not self._document(value, self._at_ns):
                    self._unreadable("JSON that is no answer", body.strip())
        self._end()

    # ---- what an API module fills in

    def _frame(self, event: str | None, data: bytes, at_ns: int) -> None:
        """One SSE frame."""
        raise NotImplementedError

    def _document(self, value: Any, at_ns: int) -> bool:
        """The one JSON value that the whole body is; return whether it is an answer or an error of this API."""
        raise NotImplementedError

    def _end(self) -> None:
        """Nothing more will come; the HTTP framing was intact."""
        raise NotImplementedError

    # ---- helpers

    def _unreadable(self, why: str, data: bytes) -> None:
        if self.answer.malformed is None:
            more = "…" if len(data) > _GLIMPSE_BYTES else ""
            self.answer.malformed = f"{why}: {data[:_GLIMPSE_BYTES].decode('utf-8', 'replace')}{more}"

    def _feed_other(self, data: bytes, at_ns: int) -> None:
        self._held.append(data)
        if self.answer.whole:
            if data.strip():
                self._at_ns = max(self._at_ns, at_ns)
            return
        if self._blank:
            rest = data.lstrip(_BLANK)
        else:
            head = b"".join(self._held)
            if len(head) < len(_BOM) and _BOM.startswith(head):
                return
            self._blank = True
            rest = head.removeprefix(_BOM).lstrip(_BLANK)
        if not rest:
            return
        self._at_ns = max(self._at_ns, at_ns)
        if rest[:1] in b"{[":
            self.answer.whole = True
            return
        held = b"".join(self._held)
        self._held.clear()
        self._sse = SseFraming()
        self.feed(held, at_ns)
