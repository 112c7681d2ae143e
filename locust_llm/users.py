"""Locust User classes that stream from a model. Write tasks as for any Locust user; ``self.chat(…)`` is one exchange.

    class Chat(ChatUser):
        @task
        def ask(self):
            self.chat()                      # the next prompt of the workload
            self.chat("Why is the sky blue?", max_tokens=100)

A user streams one answer at a time. Without ``wait_time`` it asks again as soon as the last answer ended (closed loop).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any, ClassVar

import gevent
import orjson
from locust import User
from locust.env import Environment

from .client import LLMClient, Reply
from .plugin import node_of
from .settings import Settings
from .transport.loop import turns
from .wire.api import Call
from .workload.prompts import Prompt, Workload, user_message


class LLMUser(User):
    """Base of all users that talk to a model; ``self.client`` sends calls.

    Class attributes override the options of the same meaning:

    Attributes:
        model: model name (``--llm-model``).
        api: API name (``--llm-api``).
        workload: a ``Workload``, or any iterable of prompts (strings or ``Prompt``), shared by the users of this
            class in one process.
        headers: further request headers.
        extra_body: fields merged into each request body, over ``--llm-extra``.
    """

    abstract = True
    model: ClassVar[str | None] = None
    api: ClassVar[str | None] = None
    workload: ClassVar[Workload | Iterable[str | Prompt] | None] = None
    headers: ClassVar[dict[str, str]] = {}
    extra_body: ClassVar[dict[str, Any]] = {}

    request_type: ClassVar[str] = ""
    """Kind of API this class speaks (``CHAT``, ``COMPLETION``); empty takes what ``--llm-api`` says."""

    client: LLMClient

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._node = node_of(environment)
        self.client = self._node.client_for(self)
        self._task_names = _task_names(type(self))
        self._started = False

    @property
    def settings(self) -> Settings:
        """The run's settings."""
        return self.client.run.settings

    def _next_prompt(self) -> tuple[Prompt, str | None, bool]:
        """Return the next prompt, the source of its length, and whether its answer's length is asked for exactly."""
        self._start_in_turn()
        return self._node.next_prompt(self)

    def _start_in_turn(self) -> None:
        """Before its first exchange: users that start together must not keep the loop from reading answers."""
        if not self._started:
            self._started = True
            loop: Any = gevent.get_hub().loop
            turns(loop).wait()

    def _send(
        self,
        prompt: Prompt | None,
        *,
        messages: list[dict[str, Any]] | None,
        text: str | list[str] | None,
        max_tokens: int | None,
        name: str | None,
        stream: bool | None,
        tags: dict[str, str] | None,
        catch_response: bool,
        extra: dict[str, Any],
        exact: bool = False,
        in_source: str | None = None,
    ) -> Reply:
        self._start_in_turn()
        settings = self.settings
        limit = max_tokens or (prompt.max_tokens if prompt else None) or settings.max_tokens or None
        exact = exact and not max_tokens and limit is not None
        call = Call(
            model=self.model or self.client.target.facts.model,
            messages=messages,
            prompt=text,
            max_tokens=limit,
            stream=settings.stream if stream is None else stream,
            usage=settings.usage,
            exact_length=exact and not settings.natural_stop,
            extra={**settings.extra, **self.extra_body, **extra},
        )
        return self.client.send(
            call,
            name=name or (prompt.name if prompt else None) or self._task_name(),
            asked_in=prompt.asked_in if prompt else None,
            in_source=in_source,
            asked_out=limit if exact else None,
            tags=tags,
            prompt_text=_shown(prompt.text if prompt else text, messages) if settings.save_text else None,
            catch_response=catch_response,
        )

    def _task_name(self) -> str:
        """Return the name of the task that is calling, as Locust users expect their rows to be named."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            name = self._task_names.get(frame.f_code)
            if name is not None:
                return name
            frame = frame.f_back
        return type(self).__name__


class ChatUser(LLMUser):
    """A user that holds chats: messages in, a streamed answer out."""

    abstract = True
    request_type = "CHAT"

    def chat(
        self,
        prompt: str | None = None,
        *,
        messages: list[dict[str, Any]] | None = None,
        max_tokens: int | None = None,
        name: str | None = None,
        stream: bool | None = None,
        tags: dict[str, str] | None = None,
        catch_response: bool = False,
        **extra: Any,
    ) -> Reply:
        """Send one chat and read the answer to its end.

        Args:
            prompt: text of a single user message; with neither it nor ``messages`` the workload's next prompt is sent.
            messages: the whole conversation, as the API takes it.
            max_tokens: longest answer in tokens (default: ``--llm-max-tokens``, or the workload's length).
            name: name in Locust's statistics (default: the task's).
            stream: override ``--llm-stream`` for this call.
            tags: strings kept in the record, to group reports by.
            catch_response: decide about the answer in a ``with`` block: ``reply.failure("…")``.
            extra: further fields of the request body (``temperature=0.2``, ``tools=[…]``).

        Returns:
            The reply; a failure is a reply too (``reply.outcome``), as Locust's own clients do it.
        """
        drawn, source, exact = None, None, False
        if messages is None:
            if prompt is None:
                drawn, source, exact = self._next_prompt()
                messages = drawn.messages or user_message(drawn.text)
            else:
                messages = user_message(prompt)
        return self._send(
            drawn, messages=messages, text=prompt, max_tokens=max_tokens, name=name, stream=stream, tags=tags,
            catch_response=catch_response, extra=extra, exact=exact, in_source=source,
        )  # fmt: skip


class CompletionUser(LLMUser):
    """A user that sends plain prompts to a completions endpoint."""

    abstract = True
    request_type = "COMPLETION"

    def complete(
        self,
        prompt: str | list[str] | None = None,
        *,
        max_tokens: int | None = None,
        name: str | None = None,
        stream: bool | None = None,
        tags: dict[str, str] | None = None,
        catch_response: bool = False,
        **extra: Any,
    ) -> Reply:
        """Send one prompt and read the completion to its end.

        Args:
            prompt: the text, or a list of texts as one client batch; without it the workload's next prompt is sent.
            max_tokens, name, stream, tags, catch_response, extra: as in :meth:`ChatUser.chat`.
        """
        drawn, source, exact = None, None, False
        if prompt is None:
            drawn, source, exact = self._next_prompt()
            prompt = drawn.text
        return self._send(
            drawn, messages=None, text=prompt, max_tokens=max_tokens, name=name, stream=stream, tags=tags,
            catch_response=catch_response, extra=extra, exact=exact, in_source=source,
        )  # fmt: skip


# ---- helpers


def _task_names(owner: Any) -> dict[CodeType, str]:
    """Return the names of a User class's tasks by their code, those of nested TaskSets included.

    A decorated task is known by the innermost function that ``functools.wraps`` tells of: others may share the outer.
    """
    names: dict[CodeType, str] = {}
    for entry in getattr(owner, "tasks", ()):
        if isinstance(entry, type):
            names |= _task_names(entry)
            continue
        code = getattr(inspect.unwrap(entry), "__code__", None)
        if code is not None:
            names[code] = entry.__name__
    return names


def _shown(text: str | list[str] | None, messages: list[dict[str, Any]] | None) -> str | None:
    """Return a prompt as the log keeps it, if asked to: the text, or conversations and batches as JSON."""
    if isinstance(text, str):
        return text
    return orjson.dumps(messages or text, default=str).decode()
