"""One call = one exchange: send it, decode it, close its record, tell the consumers.

The consumers are Locust's request event (exactly one per finished exchange), the event log, and whoever the run has
subscribed. Users call it through ``LLMUser.client`` or the ``chat`` and ``complete`` methods of their class.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import gevent
from locust.exception import InterruptTaskSet, RescheduleTask, RescheduleTaskImmediately, StopTest, StopUser

from .credentials import hide
from .dialect import REFUSED
from .exchange import CANCELLED, FAILURES, HTTP_STATUS, OK, REJECTED, UNFINISHED, Exchange, ExchangeError
from .load.hanging_up import HangingUp, HangUp
from .load.resting import Rest
from .recording import Draft, describe
from .retrying import may_retry, wait_s
from .target import Attempt, Target
from .tokens import TOKENIZER
from .wire.api import Call

if TYPE_CHECKING:
    from .run import Run


# What Locust's own control flow raises says nothing about the answer.
_CONTROL_FLOW = (InterruptTaskSet, RescheduleTask, RescheduleTaskImmediately, StopTest, StopUser)
# Requests of one exchange, if the server refuses optional fields one by one.
_MOST_LESSONS = 8
_LOOK_AGAIN_S = 0.2


class LLMError(Exception):
    """What Locust shows for a failed exchange: the outcome and a short message, the same for like failures."""


class Reply:
    """What a call gives back, failed or not.

    Attributes:
        outcome: one of ``exchange.OUTCOMES``.
        text, reasoning: what the model said (so far, for a failure). ``texts``: by choice.
        tool_calls: each ``{"id", "name", "arguments"}``.
        finish_reason, usage: as the server gave them; ``usage`` is its own object.
        status: HTTP status, None if no answer came.
        ttft, e2e_latency: seconds; None where there is none.
        record: the exchange's record; final once the ``with`` block (``catch_response=True``) has ended.
    """

    _open = False  # until there is something to close

    def __init__(self, client: LLMClient, attempt: Attempt, record: Exchange, catch_response: bool) -> None:
        answer = attempt.answer
        self.record = record
        self.text = answer.text()
        self.texts = {choice: "".join(pieces) for choice, pieces in answer.texts.items()}
        self.reasoning = "".join(answer.reasoning)
        self.refusal = "".join(answer.refusal)
        self.tool_calls = answer.tool_calls
        self.usage = answer.usage_raw
        self.timings = answer.timings
        self._client = client
        self._open = catch_response
        self._said: bool | str | None = None

    @property
    def outcome(self) -> str:
        return self.record.outcome

    @property
    def ok(self) -> bool:
        return self.record.outcome == OK

    @property
    def error(self) -> ExchangeError | None:
        return self.record.error

    @property
    def status(self) -> int | None:
        return self.record.status

    @property
    def finish_reason(self) -> str | None:
        return self.record.finish_reason

    @property
    def ttft(self) -> float | None:
        return self.record.ttft

    @property
    def e2e_latency(self) -> float | None:
        return self.record.e2e_latency

    def failure(self, message: object) -> None:
        """Reject the answer (inside ``with … catch_response=True``): its outcome becomes ``rejected``.

        An exchange that has already failed keeps its outcome; the message is what Locust shows.
        """
        self._must_be_open("failure")
        self._said = hide(str(message), self._client.target.secrets) or "rejected"

    def success(self) -> None:
        """Show the exchange as a success in Locust's statistics; its outcome in the log does not change."""
        self._must_be_open("success")
        self._said = True

    def __enter__(self) -> Self:
        self._must_be_open("with")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if isinstance(value, Exception) and not isinstance(value, _CONTROL_FLOW) and self._said is None:
            self._said = hide(f"{type(value).__name__}: {value}", self._client.target.secrets)
        if isinstance(self._said, str) and self.record.outcome == OK:
            self.record = replace(self.record, outcome=REJECTED, error=ExchangeError("rejected", self._said[:500]))
        self._client.close(self.record, self._said)

    def __del__(self) -> None:
        """A ``with`` block that was never entered: the exchange is over when nobody can look at its answer any more."""
        if self._open:
            self._open = False
            self._client.close(self.record, None)

    def _must_be_open(self, what: str) -> None:
        if not self._open:
            raise LLMError(f"reply.{what} needs a call with catch_response=True, inside its with block")


class LLMClient:
    """Sends calls of one user to its target and closes their records.

    Args:
        run: gives out permission to start, numbers records, takes them.
        target: the server.
        user_class: name for the records.
        user_id: unique over the run; the tag by which the steady window is found.
        request_event: Locust's ``environment.events.request``.
    """

    def __init__(self, run: Run, target: Target, user_class: str, user_id: str, request_event: Any) -> None:
        self.run = run
        self.target = target
        self.user_class = user_class
        self.user_id = user_id
        self._request_event = request_event
        self._rest = Rest()

    def send(
        self,
        call: Call,
        *,
        name: str,
        asked_in: int | None = None,
        in_source: str | None = None,
        asked_out: int | None = None,
        tags: dict[str, str] | None = None,
        prompt_text: str | None = None,
        catch_response: bool = False,
    ) -> Reply:
        """Send one call and return its reply; failures are replies too.

        Blocks while the run lets nobody start, for ever if it is over: Locust then stops the user. In a closed loop a
        user that got no connection rests first (``load.resting``).

        Args:
            call: what to send.
            name: Locust's request name.
            asked_in, in_source: input tokens that the prompt was made for, and by which count.
            asked_out: output tokens that are asked for as a length (``call.max_tokens`` alone is only a limit).
            tags: further strings for the record.
            prompt_text: kept in the record if ``--llm-save-text`` asks for it.
            catch_response: the caller closes the exchange with a ``with`` block.
        """
        run, target = self.run, self.target
        draft = Draft(
            run, target, call,
            name=name, user_class=self.user_class, tags={"user": self.user_id, **(tags or {})},
            asked_in=asked_in, in_source=in_source, asked_out=asked_out, prompt=prompt_text,
        )  # fmt: skip
        attempt = target.attempt(call)
        if (left_s := self._rest.left_s(time.monotonic())) > 0 and not run.paced(self.user_class):
            gevent.sleep(left_s)
        draft.scheduled_ns = run.begin(draft.exchange, self.user_class)
        hang_up = run.cancels()
        number = 1
        retries = 0
        while True:
            run.attempts[draft.exchange] = draft, attempt
            try:
                if hang_up:
                    with HangingUp(run.settings.cancel, attempt.watch):
                        attempt.run()
                else:
                    attempt.run()
            except HangUp:
                record = draft.record(attempt, number, killed=CANCELLED)
                break
            except BaseException:
                # Killed: the run ended first, or the load was lowered on purpose.
                self.close(draft.record(attempt, number, killed=UNFINISHED if run.ending else CANCELLED), None)
                raise
            record = draft.record(attempt, number)
            if retries < run.settings.retries and may_retry(record):
                retries += 1
                if not self._pause(record, wait_s(record, retries, random.random())):
                    break
                again = target.attempt(call)
            elif record.outcome == HTTP_STATUS and record.status in REFUSED and number - retries < _MOST_LESSONS:
                target.learn_from(attempt)
                again = target.attempt(call)
                if again.body == attempt.body:  # nothing to leave out, neither now nor since this was sent
                    break
            else:
                break
            run.log(record)
            attempt = again
            number += 1
        self._rest.after(record, time.monotonic(), random.random())
        try:
            record = self._counted(record, attempt)
        except BaseException:
            self.close(record, None)
            raise
        reply = Reply(self, attempt, record, catch_response)
        if catch_response:
            run.opened(record)
        else:
            self.close(record, None)
        return reply

    def close(self, record: Exchange, said: bool | str | None) -> None:
        """The exchange is over: write its record, fire Locust's event. ``said``: the caller's verdict, if any."""
        if not self.run.ended(record):
            return
        try:
            if record.outcome not in (CANCELLED, UNFINISHED):
                self._tell_locust(record, said)
        finally:
            self.run.landed(record)

    def _pause(self, record: Exchange, seconds: float) -> bool:
        """Wait before a retry, outside all of its times; False if the run was told to stop meanwhile."""
        until = time.monotonic() + seconds
        try:
            while not self.run.ending and (left := until - time.monotonic()) > 0:
                gevent.sleep(min(left, _LOOK_AGAIN_S))
        except BaseException:
            self.close(record, None)  # killed: what the last attempt came to is the outcome
            raise
        return not self.run.ending

    def _tell_locust(self, record: Exchange, said: bool | str | None) -> None:
        exception: Exception | None = None
        if isinstance(said, str):
            exception = LLMError(said)
        elif record.outcome in FAILURES and said is not True:
            exception = LLMError(describe(record))
        e2e = record.e2e_latency if record.outcome in (OK, REJECTED) else None
        self._request_event.fire(
            request_type=self.target.api.request_type,
            name=record.name,
            response_time=1000 * e2e if e2e is not None else record.end_us / 1000,
            response_length=record.bytes_in,
            exception=exception,
            context={"llm": record},
            start_time=record.start_us / 1e6,
            url=self.target.address.url(),
        )

    def _counted(self, record: Exchange, attempt: Attempt) -> Exchange:
        """Count the output by the named tokenizer, off the loop, where the server did not."""
        tokenizer = self.run.tokenizer
        if tokenizer is None or record.n_out is not None or not attempt.answer.has_tokens():
            return record
        answer = attempt.answer
        text = "".join(
            ["".join(answer.reasoning), *("".join(pieces) for pieces in answer.texts.values()), *answer.refusal]
        )
        text += "".join(f"{call.get('name') or ''}{call.get('arguments') or ''}" for call in answer.tool_calls)
        count = gevent.get_hub().threadpool.apply(tokenizer.count, (text,))
        return replace(record, n_out=count, out_source=TOKENIZER)
