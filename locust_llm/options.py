"""Every ``--llm-*`` option, once: its name, help, environment name, default and start-form field.

``SECTIONS`` is the only place where an option is described; Locust's parser, ``locust-llm run --help``,
``docs/options.md`` and the web form are made from it. What a run makes of the values is in ``settings``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .load.arrivals import POISSON, PROCESSES
from .wire import registry

GROUP = "LLM"
MAX_BODY_BYTES = 256 * 1024 * 1024
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
