"""First contact: one short exchange before the load, from where the load runs, outside all figures.

It finds the model, which optional fields the server takes, whether it streams and reports usage, and how many tokens it
counts per word; and it turns a failure into one line with its remedy while nothing has been measured yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent
import orjson

from .credentials import SECRET_HEADERS
from .errors import UsageError
from .exchange import CONNECTION, EMPTY, HTTP_STATUS, IN_BAND_ERROR, OK, PREFLIGHT, TIMEOUT, Exchange
from .recording import Draft
from .run import Run
from .settings import Settings
from .target import Facts, Target
from .wire.api import Call
from .wire.models import listed_models
from .workload.calibration import Probe, calibrate, probe_prompts
from .workload.prompts import Prompt

RETRY_S = 2.0
# While these last, a server may still be loading its model.
_NOT_YET_STATUS = frozenset({404, 408, 425, 429, 500, 502, 503, 504, 529})


def first_contact(run: Run, target: Target, model: str, seed: int, say: Callable[[str], None]) -> Facts:
    """Try a target and return what was found; its records (``phase=preflight``) go to the run's log.

    Args:
        model: what the user named; "" takes the first that the server lists.
        seed: the run's, so that no prompt of another run is repeated.
        say: takes lines for the console.

    Raises:
        UsageError: the server cannot serve this load; one line with the remedy.
    """
    wait_s = target.settings.wait_ready_s
    deadline = time.monotonic() + wait_s
    told = False
    while True:
        try:
            return _contact(run, target, model, seed)
        except _NotYet as problem:
            if time.monotonic() + RETRY_S > deadline:
                waited = f" (waited {wait_s:g} s)" if wait_s else ""
                raise UsageError(f"{problem}{waited}") from None
            if not told:
                say(f"waiting up to {wait_s:g} s until {target.address.url()} can generate: {problem}")
                told = True
            gevent.sleep(RETRY_S)


def find_model(target: Target, model: str) -> Facts:
    """Return the facts that need no generation: the model's name and what the server says of it.

    Raises:
        UsageError: no model was named and the server lists none.
    """
    facts = _look_around(target, model)
    if not facts.model:
        path = target.api.models_path
        where = f"{target.address.url(path)} lists no model" if path else f"--llm-api {target.api.name} lists no models"
        raise UsageError(f"{where}; name one with --llm-model")
    return facts


def describe(target: Target, facts: Facts) -> str:
    """Return what was found as a line for people."""
    parts = [f"{target.address.url()} ({target.api.name})", f"model {facts.model}"]
    if facts.context_length:
        parts.append(f"context {facts.context_length}")
    if facts.streamed is not None:
        parts.append("streamed" if facts.streamed else "not streamed")
    if facts.usage is not None:
        parts.append("tokens from usage" if facts.usage else "no usage: tokens unknown without --llm-tokenizer")
    if facts.connect_ms is not None:
        parts.append(f"connect {facts.connect_ms:.1f} ms")
    if facts.ttft_ms is not None:
        parts.append(f"TTFT {facts.ttft_ms:.1f} ms")
    if facts.server:
        parts.append(f"server {facts.server}")
    parts += [f"refused: {learned}" for learned in facts.learned]
    return ", ".join(parts)


class _NotYet(UsageError):
    """A failure that waiting may mend."""


def _contact(run: Run, target: Target, model: str, seed: int) -> Facts:
    facts = find_model(target, model)
    target.learn(facts)
    chat = target.api.request_type == "CHAT"
    settings = target.settings
    probes = probe_prompts(settings.input_tokens, seed=seed, chat=chat)
    # Without usage there is nothing to calibrate by; with a tokenizer or own prompts no need to.
    wanted = probes if not settings.tokenizer and not settings.prompts else probes[:1]
    records = [_try(run, target, facts.model, probe) for probe in wanted]
    first = records[0]
    facts.streamed = first.streamed
    facts.usage = first.out_source == "usage"
    if first.tcp_us is not None:
        facts.connect_ms = (first.connected_us or 0) / 1000
    facts.ttft_ms = None if first.ttft is None else 1000 * first.ttft
    if len(records) == 2:
        counts = [record.n_in if record.in_source == "usage" else None for record in records]
        calibration = calibrate(probes, counts, chat=chat)
        if calibration.reason is None:
            facts.tokens_per_word, facts.overhead = calibration.tokens_per_word, calibration.overhead
    return facts


def _look_around(target: Target, model: str) -> Facts:
    facts = Facts(model=model)
    if target.api.models_path is None:
        return facts
    transfer, body = target.get(target.address.root + target.api.models_path)
    if transfer.status is None:
        raise _no_connection(target, transfer.end.kind, transfer.end.detail, transfer.end.message)
    if transfer.status in (401, 403):
        raise UsageError(_refused_key(target, transfer.status))
    if transfer.status == 200:
        listed = listed_models(body)
        facts.models = [entry.id for entry in listed][:50]
        chosen = next((entry for entry in listed if model in ("", entry.id)), None)
        if chosen is not None:
            facts.model, facts.context_length = chosen
    elif not model:
        problem = f"{target.address.url(target.api.models_path)} answers {transfer.status}"
        if transfer.status in _NOT_YET_STATUS and transfer.status != 404:
            raise _NotYet(f"{problem}; --llm-wait-ready 10m waits for it")
        raise UsageError(f"{problem}; check the path of --host, or name the model with --llm-model")
    if transfer.connected_ns is not None and not transfer.reused:
        facts.connect_ms = (transfer.connected_ns - transfer.start_ns) / 1e6
    facts.server = transfer.headers.get("server")
    facts.version = _version(target)
    return facts


def _try(run: Run, target: Target, model: str, probe: Probe) -> Exchange:
    """Send a probe as the load would send it, until nothing is learned any more; raise what went wrong."""
    prompt = probe.prompt
    call = call_for(target.settings, prompt, model, target.settings.extra, exact=not target.settings.natural_stop)
    draft = Draft(run, target, call, name="preflight", user_class="", tags={}, prompt=prompt.text, phase=PREFLIGHT)
    number = 1
    while True:
        attempt = target.attempt(call)
        attempt.run()
        record = draft.record(attempt, number)
        run.log(record)
        if record.outcome == HTTP_STATUS and number < 8 and target.learn_from(attempt):
            number += 1
            continue
        break
    if record.outcome == OK or (record.outcome == EMPTY and record.status == 200 and record.finish_reason):
        return record
    raise _failure(target, target.url(call), model, record)


def call_for(settings: Settings, prompt: Prompt, model: str, extra: dict[str, Any], exact: bool) -> Call:
    """Return the call that sends a prompt of the workload as the settings say."""
    return Call(
        model=model,
        messages=prompt.messages,
        prompt=None if prompt.messages else prompt.text,
        max_tokens=prompt.max_tokens or settings.max_tokens or None,
        stream=settings.stream,
        usage=settings.usage,
        exact_length=exact,
        extra=extra,
    )


def _failure(target: Target, url: str, model: str, record: Exchange) -> UsageError:
    error, status = record.error, record.status
    message = error.message if error else record.outcome
    if record.outcome == HTTP_STATUS:
        if status in (401, 403):
            return UsageError(_refused_key(target, status, message))
        if status == 404:
            listed = target.facts.models
            if listed and model not in listed:
                return UsageError(f"--llm-model {model}: the server lists {', '.join(listed[:5])} ({message})")
            return UsageError(
                f"{url} answers 404 ({message}); check --host, or name the path with --llm-endpoint, "
                f"the model with --llm-model, the API with --llm-api"
            )
        text = f"{url} answers {status}: {message}"
        if status in _NOT_YET_STATUS:
            return _NotYet(f"{text}; --llm-wait-ready 10m waits until it can generate")
        return UsageError(f"{text}; --llm-no-preflight starts all the same")
    if record.outcome in (CONNECTION, TIMEOUT) and status is None and error is not None:
        return _no_connection(target, record.outcome, error.kind, error.message)
    if record.outcome == IN_BAND_ERROR:
        return _NotYet(f"{url}: the server says: {message}")
    return UsageError(
        f"{url}: the trial exchange ended as {record.outcome} ({message}); is this a {target.api.name} server? "
        f"(--llm-no-preflight starts all the same)"
    )


def _no_connection(target: Target, outcome: str, kind: str, message: str) -> UsageError:
    url = target.address.url()
    if kind == "refused":
        return _NotYet(f"no server at {url}: {message}; start it, or mend --host (--llm-wait-ready 10m waits for it)")
    if kind == "dns":
        return _NotYet(f"{url}: {message}; check --host")
    if kind == "tls":
        return UsageError(f"{url}: {message}")
    if outcome == TIMEOUT:
        return _NotYet(f"{url}: {message}; check --host, or raise --llm-{kind.replace('_', '-')}-timeout")
    return _NotYet(f"{url}: {message}; is this an HTTP server?")


def _refused_key(target: Target, status: int, message: str = "") -> str:
    sent = any(name.lower() in SECRET_HEADERS for name, _ in target.headers)
    remedy = "it does not accept the API key that was sent" if sent else "it wants an API key: set LOCUST_LLM_API_KEY"
    if target.signs:
        remedy = f"it refuses what the AWS credentials of this machine ask for ({message})"
    return f"{target.address.url()} answers {status}: {remedy}"


def _version(target: Target) -> str | None:
    transfer, body = target.get(target.address.at_server("/version"))
    if transfer.status != 200:
        return None
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return str(data["version"])[:100] if isinstance(data, dict) and "version" in data else None
