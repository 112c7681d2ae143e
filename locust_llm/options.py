"""Every ``--llm-*`` option, once: its name, help, environment name, default, start-form field and setting.

``SECTIONS`` is the only place where an option is described; Locust's parser, ``locust-llm run --help``,
``docs/options.md`` and the web form are made from it. ``Settings`` is what a run uses: values parsed once, validated,
frozen. Locust rebuilds options as plain values (workers get the master's, the form gives strings), so settings are made
at each ``test_start``, never earlier.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from .address import mask_url
from .credentials import read_header, read_variable
from .credentials import resolve_headers as resolve_headers
from .errors import UsageError
from .load.arrivals import POISSON, PROCESSES, checked_burstiness, read_rate
from .load.cancel import NOBODY, Cancel
from .load.warmup import NO_WARMUP, Warmup
from .report.limits import DEFAULTS, Limits, read_limits
from .report.objectives import Goal, parse_goal
from .sim.options import SimOptions
from .wire import registry
from .wire.api import UsageMode
from .workload.lengths import LONGEST, Length

GROUP = "LLM"
MAX_BODY_BYTES = 256 * 1024 * 1024
MOST_RETRIES = 20
ENV_PREFIX = "LOCUST_LLM_"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``default`` is typed and never None (the start form makes None a string): "" and 0 mean unset."""

    flag: str
    default: str | int | float | bool | list[str]
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    web: str = ""
    """Its label in the start form; "" keeps it out."""
    hidden: bool = False
    negative: str | None = None
    """A second flag that switches a true default off."""

    @property
    def dest(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def values(self) -> tuple[str, ...]:
        """All values that the option takes, as far as they are known by now; empty: any."""
        return self.choices() if callable(self.choices) else self.choices

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.dest.removeprefix("llm_").upper()


SECTIONS: Mapping[str, tuple[Option, ...]] = {
    "What is asked": (
        Option("--llm-api", "openai-chat", "API the server speaks", choices=registry.names, web="API"),
        Option("--llm-model", "", "model name (default: the first under /v1/models)", "NAME", web="Model"),
        Option("--llm-endpoint", "", "path under the API root instead of the API's own", "PATH"),
        Option("--llm-header", [], "header of each request, repeatable; a value may be env:NAME", "'NAME: VALUE'"),
        Option("--llm-extra", "", "JSON object merged into each request body", "JSON"),
        Option("--llm-max-tokens", 0, "longest answer for prompts from code (0: the server decides)", "N"),
        Option("--llm-stream", True, "ask for streamed answers (the default)", negative="--llm-no-stream"),
        Option(
            "--llm-usage", "final", "token counts asked from the server: at the end, on every event, or not at all",
            choices=("final", "continuous", "off"),
        ),
    ),
    "Workload": (
        Option(
            "--llm-input-tokens", "550,150", "length of synthetic prompts in tokens, template included", "MEAN[,STD]",
            web="Input tokens",
        ),
        Option("--llm-output-tokens", "150,20", "length of answers in tokens", "MEAN[,STD]", web="Output tokens"),
        Option("--llm-natural-stop", False, "let the model stop by itself: send neither ignore_eos nor min_tokens"),
        Option("--llm-prompts", "", "prompts from a file, one JSON object a line", "FILE.jsonl"),
        Option(
            "--llm-tokenizer", "",
            "tokenizer for prompt lengths, and where the server reports no usage: a folder, or a hub id", "NAME",
        ),
        Option("--llm-seed", -1, "seed of prompts and lengths (default -1: a new one each run, printed and kept)", "N"),
        Option("--llm-save-text", False, "keep the text of prompts and answers in the log"),
    ),
    "Connection": (
        Option("--llm-api-key-file", "", "file that holds the API key (else LOCUST_LLM_API_KEY)", "FILE"),
        Option("--llm-api-key-env", "", "environment variable that holds the API key", "NAME"),
        Option("--llm-insecure", False, "do not verify the server's TLS certificate"),
        Option("--llm-ca-file", "", "certificate authorities to trust, PEM", "FILE"),
        Option("--llm-connect-timeout", 10.0, "seconds to connect, TLS included (0: no limit)", "S"),
        Option("--llm-first-token-timeout", 600.0, "seconds to the first token (0: no limit)", "S"),
        Option("--llm-idle-timeout", 120.0, "seconds without a byte after the first token (0: no limit)", "S"),
        Option("--llm-total-timeout", 21600.0, "seconds for a whole exchange (0: no limit)", "S"),
        Option("--llm-retries", 0, "send again what was refused for now (429, 503, 529) or got no connection", "N"),
        Option(
            "--llm-prewarm", False,
            "open a connection for each user before the load, so that no first request has to connect",
        ),
        Option("--llm-max-bytes", MAX_BODY_BYTES, "longest body of an answer; what is longer fails as malformed", "N"),
    ),
    "Arrivals": (
        Option(
            "--llm-rate", "",
            "exchanges started per second by all users together, open loop (default: each user starts the next when "
            "its last ends)", "R", web="Rate (requests per second)",
        ),
        Option("--llm-arrivals", POISSON, "how they are spaced", choices=PROCESSES),
        Option(
            "--llm-burstiness", 1.0, "shape of the gamma distribution of the gaps: below 1 in bursts, 1 is Poisson", "B"
        ),
        Option(
            "--llm-warmup", "", "exchanges, or a time such as 30s, before the load and outside every figure", "N"
        ),
        Option("--llm-cancel", "", "hang up a share of the exchanges: see docs/arrivals.md", "SHARE@WHEN"),
    ),
    "The run": (
        Option(
            "--llm-requests", 0, "start exactly N exchanges, let them finish, stop (0: no limit)", "N", web="Requests"
        ),
        Option("--llm-stop-after-failures", 0, "stop after K failures in a row in one process (0: never)", "K"),
        Option("--llm-drain", 60.0, "seconds that streams in flight get to finish at the end (0: cut them)", "S"),
        Option("--llm-wait-ready", "0", "wait up to this long until the server can generate, such as 10m", "TIME"),
        Option("--llm-no-preflight", False, "send no trial exchange before the load"),
        Option(
            "--llm-server-metrics", "", "where the server's counters are (default: /metrics beside the API root)", "URL"
        ),
        Option(
            "--llm-no-server-metrics", False, "do not read the server's counters (/metrics) before and after the load"
        ),
        Option("--llm-out", "reports", "where run folders go", "DIR"),
        Option("--llm-name", "", "name of the run, part of its folder's name", "NAME"),
        Option("--llm-meta", [], "fact for the run card, repeatable", "KEY=VALUE"),
        Option(
            "--llm-console", "compact", "live figures on the console of a headless test, each 10 s: see docs/live.md",
            choices=("off", "compact", "full"),
        ),
    ),
    "Objectives": (
        Option(
            "--llm-slo", "",
            'objectives, such as "ttft:p95<=500ms, e2e:p90<=8s" (docs/objectives.md); they alone decide the exit code: '
            "0 met, 3 missed, 4 undecided, 5 spoilt by an overloaded client", "OBJECTIVES", web="Objectives",
        ),
        Option(
            "--llm-goodput", "", 'what a good request meets: "ttft<=500ms tpot<=50ms", or in ms "ttft:500 tpot:50"',
            "LIMITS",
        ),
        Option("--llm-exit-undecided", 4, "exit code when nothing is missed and something undecided", "CODE"),
        Option(
            "--llm-limits", "",
            'beyond what the verdict doubts the measurement, such as "lag_p99=30ms, gc_max=20ms" (docs/metrics.md 5)',
            "NAME=VALUE,...",
        ),
        Option("--llm-junit", "", "write the objectives as JUnit XML", "FILE"),
        Option(
            "--llm-markdown", "",
            "write the result as Markdown (with objectives, to the file of $GITHUB_STEP_SUMMARY anyway)", "FILE",
        ),
    ),
    "Simulated server": (
        Option("--llm-simulate", False, "run against an embedded simulated server: no model, no GPU, made-up timings"),
        Option("--llm-simulate-options", "", "timings and faults of the simulated server", "K=V,..."),
    ),
    "Between the processes of one run": (
        Option("--llm-run-state", "", "what the master tells its workers about the run", hidden=True),
        Option("--llm-run-time", 0.0, "run time counted from the end of the ramp", "S", hidden=True),
    ),
}  # fmt: skip

OPTIONS: tuple[Option, ...] = tuple(option for section in SECTIONS.values() for option in section)
BY_DEST: Mapping[str, Option] = {option.dest: option for option in OPTIONS}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add all options to a Locust (configargparse) parser, as the group "LLM".

    Called on every view of the start page, so it does nothing else.
    """
    group = parser.add_argument_group(GROUP, "streaming LLM load tests (locust-llm)")
    for option in OPTIONS:
        kwargs: dict[str, Any] = {
            "dest": option.dest,
            "default": option.default,
            "help": argparse.SUPPRESS if option.hidden else option.help,
            "env_var": option.env,
        }
        flags = [option.flag]
        if option.negative:
            flags.append(option.negative)
            kwargs["action"] = _Switch
        elif isinstance(option.default, bool):
            kwargs["action"] = "store_true"
        elif isinstance(option.default, list):
            kwargs |= {"action": "append", "default": [], "metavar": option.metavar}
        elif option.values:
            kwargs["choices"] = option.values
        else:
            kwargs |= {"type": type(option.default), "metavar": option.metavar}
        action: Any = group.add_argument(*flags, **kwargs)
        # Locust's own keywords do not work in a group; its start form reads these attributes.
        action.include_in_web_ui = bool(option.web)
        action.is_secret = action.is_required = action.is_multiple = False


class _Switch(argparse.BooleanOptionalAction):
    """A flag and its opposite. The base class makes configargparse obey ``LOCUST_LLM_STREAM=false``."""

    def __init__(self, option_strings: Sequence[str], dest: str, default: bool, help: str) -> None:
        argparse.Action.__init__(self, option_strings, dest, nargs=0, default=default, help=help)

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, option_string == self.option_strings[0])


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


def markdown_table() -> str:
    """Return the option tables of docs/options.md, one a section."""
    parts = []
    for title, options in SECTIONS.items():
        rows = [_markdown_row(option) for option in options if not option.hidden]
        if rows:
            head = ["| option | environment | default | meaning |", "| --- | --- | --- | --- |"]
            parts.append("\n".join([f"### {title}", "", *head, *rows, ""]))
    return "\n".join(parts)


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


def _markdown_row(option: Option) -> str:
    what = "|".join(option.values) or option.metavar or ""
    flag = f"`{option.flag} {what}`" if what else f"`{option.flag}`"
    if option.negative:
        flag += f", `{option.negative}`"
    default = "on" if option.default is True else f"`{option.default}`"
    if option.default in ("", [], False):
        default = ""
    return " ".join(
        ["|", " | ".join(c.replace("|", "\\|") for c in (flag, f"`{option.env}`", default, option.help)), "|"]
    )
