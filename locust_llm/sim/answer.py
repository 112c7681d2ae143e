"""The answers being given: a job that sends its events one by one, and one that sends a whole body at the end.

A request can have several choices (``n``, a batch of prompts); each step carries the next event of every choice that
has not ended. Each event is stamped in the truth log and written by itself, so that what the log says is what left.
"""

from __future__ import annotations

import random
import time
from typing import Protocol

from .body import Generation
from .engine import Job
from .http import LAST_CHUNK, HttpError, chunk
from .metrics import Metrics
from .options import SimOptions
from .plan import Fate, draw_fate, plan_choice
from .shapes import DONE, Count, EventShape, WholeChoice, error_object, event_end, whole_answer
from .text import words
from .truth import TruthLog

IN_BAND = HttpError(500, "simulated failure", "InternalServerError")


class Sink(Protocol):
    """The connection an answer goes to."""

    def write(self, data: bytes) -> None:
        """Send bytes of a stream."""

    def end_stream(self) -> None:
        """The stream is complete."""

    def send_whole(self, body: bytes) -> None:
        """Send an answer that is not streamed."""

    def cut(self) -> None:
        """Close the connection in the middle of the answer."""


class _Choice:
    """One answer text: ``length`` tokens of the endless text from ``offset``, the first ``reasoning`` of them as
    reasoning."""

    __slots__ = ("finish_reason", "length", "offset", "parts", "reasoning", "sent", "text_parts")

    def __init__(self, offset: int, length: int, finish_reason: str, reasoning: int) -> None:
        self.offset = offset
        self.length = length
        self.finish_reason = finish_reason
        self.reasoning = min(reasoning, length)
        self.sent = 0
        self.parts = self.text_parts = (
            b"",
            b"",
        )  # what stands around the text of an event: now, and after the reasoning

    def next_tokens(self, most: int) -> int:
        """Tokens of the next event: never reasoning and answer in one."""
        end = self.reasoning if self.sent < self.reasoning else self.length
        return min(most, end - self.sent)


class Answer(Job):
    """What both kinds of answer share: the choices, the counts, the truth log.

    Args:
        number: the request's number; the answer's id is ``sim-<number>``.
        cached: prompt words found in the prefix cache.
        fails: the answer carries an error in its body.
        read_ns: when the request was read (wall clock).
    """

    __slots__ = (
        "_cached",
        "_choices",
        "_created",
        "_fails",
        "_first_ns",
        "_first_tokens",
        "_generation",
        "_last_ns",
        "_metrics",
        "_most",
        "_number",
        "_options",
        "_read_ns",
        "_sink",
        "_tokens",
        "_truth",
    )

    def __init__(
        self,
        number: int,
        generation: Generation,
        cached: int,
        fails: bool,
        rng: random.Random,
        options: SimOptions,
        truth: TruthLog,
        metrics: Metrics,
        read_ns: int,
        sink: Sink,
    ) -> None:
        super().__init__(generation.prompt_tokens - cached, rng)
        self._number = number
        self._generation = generation
        self._cached = cached if options.prefix_cache else None
        self._fails = fails
        self._options = options
        self._truth = truth
        self._metrics = metrics
        self._read_ns = read_ns
        self._first_ns = self._last_ns = self._first_tokens = 0
        self._sink = sink
        self._created = int(time.time())
        self._most = options.tokens_per_event
        self._tokens = 0
        self._choices: list[_Choice] = []
        for prompt in generation.prompts:
            for _ in range(generation.n):
                offset = number + 7 * len(self._choices)
                reasoning = options.reasoning if generation.chat else 0
                length, finish_reason = plan_choice(generation, prompt, offset, options, rng)
                self._choices.append(_Choice(offset, length, finish_reason, reasoning))

    @property
    def _id(self) -> str:
        return f"sim-{self._number}"

    def _longest(self) -> int:
        return max(choice.length for choice in self._choices)

    def _prefilled(self, now_ns: int, tokens: int) -> None:
        """The first tokens are there: count the prompt."""
        metrics, prompt_tokens = self._metrics, self._generation.prompt_tokens
        self._first_ns, self._first_tokens = now_ns, tokens
        metrics.prompt_tokens += prompt_tokens
        if self._cached is not None:
            metrics.cache_queries += prompt_tokens
            metrics.cache_hits += self._cached
        metrics.ttft.add(now_ns - self._read_ns)

    def _finished(self, reason: str) -> None:
        """The server is through with this request."""
        metrics = self._metrics
        metrics.finished[reason] += 1
        if self._first_ns:
            metrics.itl.add(self._last_ns - self._first_ns, self._tokens - self._first_tokens)
            metrics.e2e.add(self._last_ns - self._read_ns)

    def _count(self) -> Count:
        reasoning = None
        if self._options.reasoning and self._generation.chat:
            reasoning = sum(min(choice.sent, choice.reasoning) for choice in self._choices)
        return Count(self._generation.prompt_tokens, self._tokens, self._cached, reasoning)


class StreamAnswer(Answer):
    """An answer as server-sent events.

    The role event goes into the write of the first token (or out at once, ``start``), everything after the last token
    into one.

    Args:
        chunked: False for an HTTP/1.0 client.
    """

    __slots__ = ("_chunked", "_fate", "_live", "_roles", "_running_usage", "_shape")

    def __init__(
        self,
        number: int,
        generation: Generation,
        cached: int,
        fails: bool,
        rng: random.Random,
        options: SimOptions,
        truth: TruthLog,
        metrics: Metrics,
        read_ns: int,
        sink: Sink,
        chunked: bool,
    ) -> None:
        super().__init__(number, generation, cached, fails, rng, options, truth, metrics, read_ns, sink)
        self._chunked = chunked
        self._fate: Fate = draw_fate(self._longest(), fails, options, rng)
        self._running_usage = generation.continuous_usage and options.usage == "continuous"
        self._shape = EventShape(generation.chat, self._id, self._created, options.model)
        for index, choice in enumerate(self._choices):
            choice.text_parts = self._shape.token_parts(index)
            choice.parts = self._shape.token_parts(index, reasoning=choice.reasoning > 0)
        self._live = list(enumerate(self._choices))
        usage = self._count() if self._running_usage else None
        roles = [self._shape.role(index, usage) for index in range(len(self._choices))] if generation.chat else []
        self._roles = b"".join(map(self._frame, roles))

    def start(self) -> None:
        """Send what goes out before any work is done."""
        if self._options.role == "early" and self._roles:
            self._sink.write(self._roles)
            self._roles = b""

    def step(self) -> int:
        struck = self._struck()
        if struck is not None:
            return struck
        finished = b""
        for index, choice in self._live:
            if choice.sent < choice.length:
                self._send_event(choice)
            if choice.sent >= choice.length:
                usage = self._count() if self._running_usage else None
                finished += self._frame(self._shape.finish(index, choice.finish_reason, usage))
        if finished:
            self._live = [item for item in self._live if item[1].sent < item[1].length]
            if not self._live:
                return self._end(finished)
            self._sink.write(self._take_roles() + finished)
        return max([choice.next_tokens(self._most) for _, choice in self._live])

    def _send_event(self, choice: _Choice) -> None:
        tokens = choice.next_tokens(self._most)
        before, after = choice.parts
        text = words(choice.offset + choice.sent, tokens)
        choice.sent += tokens
        self._tokens += tokens
        end = event_end(self._count()) if self._running_usage else b"}\n\n"
        data = self._frame(b"%b%b%b%b" % (before, text, after, end))
        if self._roles:
            data = self._take_roles() + data
        if choice.sent == choice.reasoning:
            choice.parts = choice.text_parts
        now_ns = time.time_ns()
        if not self._first_ns:
            self._prefilled(now_ns, tokens)
        self._metrics.generation_tokens += tokens
        self._last_ns = now_ns
        self._truth.add(self._number, self._tokens, now_ns)
        self._sink.write(data)

    def _end(self, finished: bytes) -> int:
        struck = self._struck()
        if struck is not None:
            return struck
        data = self._take_roles() + finished
        if self._generation.include_usage and self._options.usage != "off":
            data += self._frame(self._shape.usage(self._count()))
        self._finished(self._choices[0].finish_reason)
        self._sink.write(data + self._last())
        self._sink.end_stream()
        return 0

    def _struck(self) -> int | None:
        """Let the answer's fate befall it if its time has come; return what ``step`` then returns."""
        if self._fate.at is None or max(choice.sent for choice in self._choices) < self._fate.at:
            return None
        if self._fate.kind == "stall":
            self.held = True
            return 1
        self._finished("error")
        if self._fate.kind == "cut":
            self._sink.cut()
        else:
            error = self._frame(b"data: " + error_object(IN_BAND) + b"\n\n")
            self._sink.write(self._take_roles() + error + self._last())
            self._sink.end_stream()
        return 0

    def _take_roles(self) -> bytes:
        roles, self._roles = self._roles, b""
        return roles

    def _last(self) -> bytes:
        return self._frame(DONE) + (LAST_CHUNK if self._chunked else b"")

    def _frame(self, event: bytes) -> bytes:
        return chunk(event) if self._chunked else event


class WholeAnswer(Answer):
    """An answer that is not streamed: the same steps in silence, then everything at the time of the last token."""

    __slots__ = ()

    def step(self) -> int:
        following, before = 0, self._tokens
        for choice in self._choices:
            tokens = choice.next_tokens(self._most)
            choice.sent += tokens
            self._tokens += tokens
            following = max(following, choice.next_tokens(self._most))
        self._metrics.generation_tokens += self._tokens - before
        if not before:
            self._prefilled(time.time_ns(), self._tokens)
        if following:
            return following
        self._last_ns = time.time_ns()
        self._finished("error" if self._fails else self._choices[0].finish_reason)
        self._truth.add(self._number, self._tokens, self._last_ns)
        self._sink.send_whole(error_object(IN_BAND) if self._fails else self._body())
        return 0

    def _body(self) -> bytes:
        thinks = self._options.reasoning > 0 and self._generation.chat
        whole = [
            WholeChoice(
                text=words(choice.offset + choice.reasoning, choice.length - choice.reasoning).decode(),
                reasoning=words(choice.offset, choice.reasoning).decode() if thinks else None,
                finish_reason=choice.finish_reason,
            )
            for choice in self._choices
        ]
        usage = None if self._options.usage == "off" else self._count()
        chat = self._generation.chat
        return whole_answer(chat, self._id, self._created, self._options.model, whole, usage)
