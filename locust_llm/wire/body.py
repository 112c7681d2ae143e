"""A body whose form shows only when it comes: a stream of frames, or one JSON document though a stream was asked for.

The first byte that is not blank decides, never the content type: as a rule ``{`` and ``[`` open a document, all else is
read as SSE; an API whose servers frame in another way says so in ``_open``. An API module fills in what a frame and a
document mean to it. What is held for one event or document is bounded; of a server that sends more no more is kept.
"""

from __future__ import annotations

from typing import Any, Protocol

from .answer import Answer
from .jsontext import parse
from .sse import Frame, SseFraming

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Most bytes of one event, line or document. While it is parsed all other streams wait."""

_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_GLIMPSE_BYTES = 160


class Framing(Protocol):
    """Bytes of a body in, frames out, whatever the split.

    Attributes:
        comments: heartbeats that are no frames, so far.
        known: the bytes are of this framing for sure.
        stray: the first that could not be of it, None if there were none.
        at_frame_end: the last byte so far completed a frame.
        open_bytes: held for the frame that is not complete yet.
    """

    comments: int
    known: bool
    stray: bytes | None
    at_frame_end: bool
    open_bytes: int

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes of the body; return the frames that they complete."""

    def eof(self) -> list[Frame]:
        """The body ended well: return what an unclosed last frame holds."""


class BodyDecoder:
    """Base of the decoders of a body; see ``api.Decoder`` for what they promise."""

    def __init__(self) -> None:
        self.answer = Answer()
        self._framing: Framing | None = None
        self._held = bytearray()  # the body so far: of a document, or while its form is not known
        self._blank = False  # past a possible BOM, with nothing but blanks so far
        self._at_ns = 0
        self._ending = False  # the body is over: a frame now was not closed by its sender

    @property
    def at_event_end(self) -> bool:
        """The last byte so far is the one that completed the last event."""
        return self._framing is not None and self._framing.at_frame_end

    def feed(self, data: bytes, at_ns: int) -> None:
        """Take body bytes (any split) that arrived at ``at_ns``; events they complete get that time."""
        framing = self._framing
        if framing is None:
            self._feed_other(data, at_ns)
            return
        if at_ns < self._at_ns:
            at_ns = self._at_ns
        self._at_ns = at_ns
        comments = framing.comments
        for event, payload in framing.feed(data):
            self._frame(event, payload, at_ns)
        if framing.comments != comments:
            self.answer.pings += framing.comments - comments
        if framing.open_bytes > MAX_EVENT_BYTES:
            self._too_large("an event")

    def eof(self, at_ns: int) -> None:
        """The body ended and its HTTP framing was intact. What is left over has the time of its own last bytes."""
        self._ending = True
        answer, framing = self.answer, self._framing
        if framing is not None:
            comments = framing.comments
            for event, payload in framing.eof():
                self._frame(event, payload, self._at_ns)
            answer.pings += framing.comments - comments
            if not framing.known and framing.stray is not None:
                self._unreadable("neither an event stream nor JSON", framing.stray)
        elif answer.whole:
            body = bytes(self._held)
            self._held.clear()
            try:
                value = self._parse(body.removeprefix(_BOM))
            except ValueError:
                self._unreadable("not valid JSON", body.strip())
            else:
                if not self._document(value, self._at_ns):
                    self._unreadable("JSON that is no answer", body.strip())
        self._end()

    # ---- what an API module fills in

    def _open(self, start: bytes) -> Framing | None:
        """Return the framing of a body that starts so (at least one byte, not blank); None if it is one document."""
        return None if start[:1] in b"{[" else SseFraming()

    def _frame(self, event: str | None, data: bytes, at_ns: int) -> None:
        """One frame."""
        raise NotImplementedError

    def _document(self, value: Any, at_ns: int) -> bool:
        """The one JSON value that the whole body is; return whether it is an answer or an error of this API."""
        raise NotImplementedError

    def _end(self) -> None:
        """Nothing more will come; the HTTP framing was intact."""
        raise NotImplementedError

    def _parse(self, data: bytes) -> Any:
        """Return the value of a JSON text; raise ValueError if it is none."""
        return parse(data)

    # ---- helpers

    def _unreadable(self, why: str, data: bytes) -> None:
        if self.answer.malformed is None:
            more = "…" if len(data) > _GLIMPSE_BYTES else ""
            glimpse = data[:_GLIMPSE_BYTES].decode("utf-8", "replace")
            self.answer.malformed = f"{why}: {glimpse}{more}" if glimpse else why

    def _too_large(self, what: str) -> None:
        self._unreadable(f"{what} of more than {MAX_EVENT_BYTES >> 20} MiB", b"")
        self._held.clear()
        self._framing = _Shut()

    def _feed_other(self, data: bytes, at_ns: int) -> None:
        self._held += data
        if len(self._held) > MAX_EVENT_BYTES:
            self._too_large("a document" if self.answer.whole else "blanks")
            return
        if self.answer.whole:
            if data.strip():
                self._at_ns = max(self._at_ns, at_ns)
            return
        if self._blank:
            rest = data.lstrip(_BLANK)
        else:
            head = bytes(self._held)
            if len(head) < len(_BOM) and _BOM.startswith(head):
                return
            self._blank = True
            rest = head.removeprefix(_BOM).lstrip(_BLANK)
        if not rest:
            return
        self._at_ns = max(self._at_ns, at_ns)
        self._framing = self._open(rest)
        if self._framing is None:
            self.answer.whole = True
            return
        held = bytes(self._held)
        self._held.clear()
        self.feed(held, at_ns)


class _Shut:
    """Takes the place of a framing when nothing more of the body is to be kept."""

    def __init__(self) -> None:
        self.comments = self.open_bytes = 0
        self.known = True
        self.stray: bytes | None = None
        self.at_frame_end = False

    def feed(self, data: bytes) -> list[Frame]:
        return []

    def eof(self) -> list[Frame]:
        return []
