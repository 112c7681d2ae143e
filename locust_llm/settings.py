"""What a run uses of its options: values parsed once, validated, frozen.

Locust rebuilds options as plain values (workers get the master's, the form gives strings), so settings are made at each
``test_start``, never earlier.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from .address import mask_url
from .credentials import read_header, read_variable
from .errors import UsageError
from .load.arrivals import POISSON, checked_burstiness, read_rate
from .load.cancel import NOBODY, Cancel
from .load.warmup import NO_WARMUP, Warmup
from .options import BY_DEST, MAX_BODY_BYTES, Option
from .report.limits import DEFAULTS, Limits, read_limits
from .report.objectives import Goal, parse_goal
from .sim.options import SimOptions
from .wire import registry
from .wire.api import UsageMode
from .workload.lengths import LONGEST, Length

MOST_RETRIES = 20


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines in seconds; 0 is none. ``idle`` counts only after the first token."""

    connect: float = 10.0
    first_token: float = 600.0
    idle: float = 120.0
    total: float = 21600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """One run's settings, validated. Made by :func:`settings_from`; see ``OPTIONS`` for what each means."""

    api: str = "openai-chat"
    model: str = ""
    endpoint: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    max_tokens: int = 0
    stream: bool = True
    usage: UsageMode = "final"
    input_tokens: Length = field(default_factory=lambda: Length(550, 150))
    output_tokens: Length = field(default_factory=lambda: Length(150, 20))
    natural_stop: bool = False
    prompts: str = ""
    tokenizer: str = ""
    seed: int = -1
    save_text: bool = False
    api_key_file: str = ""
    api_key_env: str = ""
    insecure: bool = False
    ca_file: str = ""
    timeouts: Timeouts = Timeouts()
    retries: int = 0
    prewarm: bool = False
    max_bytes: int = MAX_BODY_BYTES
    rate: float = 0.0
    """Arrivals per second of all workers; 0 is closed loop."""
    arrivals: str = POISSON
    burstiness: float = 1.0
    warmup: Warmup = NO_WARMUP
    cancel: Cancel = NOBODY
    requests: int = 0
    stop_after_failures: int = 0
    drain_s: float = 60.0
    wait_ready_s: float = 0.0
    preflight: bool = True
    server_metrics: str = ""
    read_server_metrics: bool = True
    out: str = "reports"
    name: str = ""
    meta: dict[str, str] = field(default_factory=dict)
    console: str = "compact"
    goal: Goal = field(default_factory=Goal)
    limits: Limits = DEFAULTS
    junit: str = ""
    markdown: str = ""
    simulate: bool = False
    simulate_options: SimOptions = field(default_factory=SimOptions)
    run_state: str = ""
    run_time_s: float = 0.0


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Validate option values (``vars(parsed_options)``; missing ones take their defaults) into settings.

    Raises:
        UsageError: the first bad value, named with its option and the remedy.
    """

    def value(flag: str) -> Any:
        option = BY_DEST[flag.removeprefix("--").replace("-", "_")]
        given = values.get(option.dest)
        if given is None:
            given = option.default
        return _typed(option, given)

    variable = value("--llm-api-key-env")
    extra = _json_object("--llm-extra", value("--llm-extra"))
    if "stream" in extra:
        raise UsageError("--llm-extra: stream is not a field to set there; use --llm-stream or --llm-no-stream")
    if value("--llm-api-key-file") and variable:
        raise UsageError("--llm-api-key-file and --llm-api-key-env: give one of them, not both")
    return Settings(
        api=registry.api(value("--llm-api")).name,
        model=value("--llm-model").strip(),
        endpoint=value("--llm-endpoint").strip(),
        headers=tuple(read_header(text) for text in value("--llm-header")),
        extra=extra,
        max_tokens=_within("--llm-max-tokens", value("--llm-max-tokens"), 0, LONGEST),
        stream=value("--llm-stream"),
        usage=value("--llm-usage"),
        input_tokens=Length.parse(value("--llm-input-tokens"), "--llm-input-tokens"),
        output_tokens=Length.parse(value("--llm-output-tokens"), "--llm-output-tokens"),
        natural_stop=value("--llm-natural-stop"),
        prompts=value("--llm-prompts"),
        tokenizer=value("--llm-tokenizer"),
        seed=_within("--llm-seed", value("--llm-seed"), -1),
        save_text=value("--llm-save-text"),
        api_key_file=value("--llm-api-key-file"),
        api_key_env=variable and read_variable("--llm-api-key-env", variable),
        insecure=value("--llm-insecure"),
        ca_file=value("--llm-ca-file"),
        timeouts=Timeouts(
            connect=_within("--llm-connect-timeout", value("--llm-connect-timeout"), 0),
            first_token=_within("--llm-first-token-timeout", value("--llm-first-token-timeout"), 0),
            idle=_within("--llm-idle-timeout", value("--llm-idle-timeout"), 0),
            total=_within("--llm-total-timeout", value("--llm-total-timeout"), 0),
        ),
        retries=_within("--llm-retries", value("--llm-retries"), 0, MOST_RETRIES),
        prewarm=value("--llm-prewarm"),
        max_bytes=_within("--llm-max-bytes", value("--llm-max-bytes"), 1024),
        requests=_within("--llm-requests", value("--llm-requests"), 0),
        stop_after_failures=_within("--llm-stop-after-failures", value("--llm-stop-after-failures"), 0),
        rate=read_rate("--llm-rate", value("--llm-rate")),
        arrivals=value("--llm-arrivals"),
        burstiness=checked_burstiness("--llm-burstiness", value("--llm-burstiness")),
        warmup=Warmup.parse(value("--llm-warmup"), parse_duration),
        cancel=Cancel.parse(value("--llm-cancel")),
        drain_s=_within("--llm-drain", value("--llm-drain"), 0),
        wait_ready_s=parse_duration("--llm-wait-ready", value("--llm-wait-ready")),
        preflight=not value("--llm-no-preflight"),
        server_metrics=_metrics_url(value("--llm-server-metrics"), value("--llm-no-server-metrics")),
        read_server_metrics=not value("--llm-no-server-metrics"),
        out=value("--llm-out") or "reports",
        name=value("--llm-name"),
        meta=_key_values("--llm-meta", value("--llm-meta")),
        console=value("--llm-console"),
        goal=parse_goal(
            value("--llm-slo"),
            value("--llm-goodput"),
            _within("--llm-exit-undecided", value("--llm-exit-undecided"), 0, 255),
        ),
        limits=read_limits(value("--llm-limits")),
        junit=value("--llm-junit"),
        markdown=value("--llm-markdown"),
        simulate=value("--llm-simulate"),
        simulate_options=_sim_options(value("--llm-simulate-options")),
        run_state=value("--llm-run-state"),
        run_time_s=_within("--llm-run-time", value("--llm-run-time"), 0),
    )


def parse_duration(flag: str, text: str | float) -> float:
    """Read ``90``, ``90s``, ``500ms``, ``10m`` or ``1h30m`` as seconds.

    Raises:
        UsageError: anything else; the message names ``flag``.
    """
    text = str(text).strip()
    if re.fullmatch(_DECIMAL, text):
        return float(text)
    match = re.fullmatch(rf"(?:({_DECIMAL})h)?(?:({_DECIMAL})m)?(?:({_DECIMAL})s)?(?:({_DECIMAL})ms)?", text)
    if not match or not text:
        raise UsageError(f"{flag} must be a time such as 90, 90s, 10m or 1h30m (got {text!r})")
    hours, minutes, seconds, millis = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds + millis / 1000


# ---- helpers

_DECIMAL = r"\d+(?:\.\d+)?"


def _typed(option: Option, given: Any) -> Any:
    """Give a value back its option's type: the form and config files may hand over strings."""
    kind: Any = type(option.default)
    if kind is bool:
        return given if isinstance(given, bool) else _switch(option.flag, str(given).strip().lower())
    if kind is list:
        items = given if isinstance(given, list | tuple) else [given]
        return [str(item) for item in items if str(item).strip()]
    if kind is str:
        text = str(given)
        if option.values and text not in option.values:
            raise UsageError(f"{option.flag} must be one of {', '.join(option.values)} (got {text!r})")
        return text
    try:
        number = kind(str(given).strip() or option.default)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"{option.flag} must be {what} (got {str(given)!r})") from None
    if isinstance(number, float) and not math.isfinite(number):
        raise UsageError(f"{option.flag} must be a finite number (got {str(given)!r})")
    return number


def _within(flag: str, number: Any, least: int, most: int | None = None) -> Any:
    if number < least:
        raise UsageError(f"{flag} must be at least {least} (got {number})")
    if most is not None and number > most:
        raise UsageError(f"{flag} must be at most {most} (got {number})")
    return number


def _json_object(flag: str, text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise UsageError(f"{flag} must be a JSON object such as '{{\"top_p\": 0.9}}': {e}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{flag} must be a JSON object such as '{{\"top_p\": 0.9}}' (got a {type(data).__name__})")
    return data


def _metrics_url(url: str, off: bool) -> str:
    """Return the address of counters, with its path; "" for the server's own."""
    url = url.strip()
    if url and off:
        raise UsageError("--llm-server-metrics and --llm-no-server-metrics: give one of them, not both")
    if url and not re.fullmatch(r"https?://[^/?#@\s]+(/[^?#@\s]*)?", url):
        raise UsageError(
            f"--llm-server-metrics must be an address such as http://localhost:8000/metrics (got {mask_url(url)!r})"
        )
    return f"{url.rstrip('/')}/metrics" if url.count("/") - url.endswith("/") == 2 else url


def _sim_options(text: str) -> SimOptions:
    try:
        return SimOptions.parse(text)
    except UsageError as e:
        raise UsageError(f"--llm-simulate-options: {e}") from None


def _key_values(flag: str, texts: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise UsageError(f"{flag} must be KEY=VALUE, such as gpu=H100 (got {text!r})")
        if pairs.setdefault(key, value) != value:
            raise UsageError(f"{flag}: {key} is given twice, as {pairs[key]!r} and {value!r}")
    return pairs


def _switch(flag: str, word: str) -> bool:
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off", ""):
        return False
    raise UsageError(f"{flag} must be true or false (got {word!r})")
