"""The one table of option names that ``locust-llm run`` knows besides Locust's parser: what each is called elsewhere.

A row is read top to bottom as "these flags, of these tools, become that". Names that locust-llm knows but cannot follow
yet are rows too (``Kind.REFUSED``): an error that says what to do instead beats a silently ignored option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from . import readers as r

Takes = Literal["none", "one", "many"]


class Kind(Enum):
    LOCUST = "Locust's own: stays where it is, read only to notice conflicts"
    OURS = "ours: read and written anew, so that a peer's name can add to it"
    PEER = "another tool's: becomes one of the two above"
    GIVEN = "another tool's: what it asks for is always so here"
    REFUSED = "another tool's: cannot be followed"


@dataclass(frozen=True, slots=True)
class Name:
    """One row. ``says``: the option it becomes; for GIVEN and REFUSED what to tell the user."""

    kind: Kind
    flags: tuple[str, ...]
    says: str
    read: r.Reader | None = None
    takes: Takes = "one"


def _locust(flags: str, read: r.Reader) -> Name:
    return Name(Kind.LOCUST, tuple(flags.split()), "", read)


def _ours(flags: str, read: r.Reader, takes: Takes = "one") -> Name:
    return Name(Kind.OURS, tuple(flags.split()), "", read, takes)


def _peer(says: str, flags: str, read: r.Reader, takes: Takes = "one") -> Name:
    return Name(Kind.PEER, tuple(flags.split()), says, read, takes)


def _given(says: str, flags: str, takes: Takes = "none") -> Name:
    return Name(Kind.GIVEN, tuple(flags.split()), says, None, takes)


def _refused(flags: str, says: str) -> Name:
    return Name(Kind.REFUSED, tuple(flags.split()), says)


_NO_RAMP = "a rate that grows is not there yet; one run has one rate: --request-rate R"
_NO_SHARE = "say how many, or how long: --num-warmups N, --warmup-duration S"
_NO_COOLDOWN = "the figures are of the steady window, which ends when the load is told to stop"
_NO_DATASET = "named datasets are not there yet; write the prompts into a file for --llm-prompts FILE.jsonl"
_NO_KEY = "a key on the command line is visible in the process list; put it into LOCUST_LLM_API_KEY"
_NO_PREFIX = "shared prefixes are not there yet; every prompt begins differently"
_NO_CONVERSATIONS = "conversations are not there yet"
_NO_ERROR_STOP = "failures in all or their share do not stop a run; K in a row do: --llm-stop-after-failures K"
_NO_FILE_NAME = "a run has a folder of its own: --llm-out DIR, --llm-name NAME"
_PERCENTILES = "summary.json always has p1 to p99.9 of every metric"

_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty",
)  # fmt: skip

NAMES: tuple[Name, ...] = (
    # Locust's and ours
    _locust("-H --host", r.locust_host),
    _locust("-u --users", r.locust_users),
    _locust("-t --run-time", r.locust_run_time),
    _locust("--profile", r.locust_profile),
    _ours("--llm-requests", r.own("requests")),
    _ours("--llm-api", r.own_api),
    _ours("--llm-model", r.own("model")),
    _ours("--llm-endpoint", r.own("endpoint")),
    _ours("--llm-input-tokens", r.length("input")),
    _ours("--llm-output-tokens", r.length("output")),
    _ours("--llm-tokenizer", r.own("tokenizer")),
    _ours("--llm-seed", r.own("seed")),
    _ours("--llm-extra", r.own_extra),
    _ours("--llm-stream", r.fixed(stream=True), "none"),
    _ours("--llm-no-stream", r.fixed(stream=False), "none"),
    _ours("--llm-natural-stop", r.fixed(natural_stop=True), "none"),
    _ours("--llm-insecure", r.fixed(insecure=True), "none"),
    _ours("--llm-out", r.own("out")),
    _ours("--llm-name", r.own("name")),
    _ours("--llm-total-timeout", r.own("total_timeout")),
    _ours("--llm-wait-ready", r.own("wait_ready")),
    _ours("--llm-drain", r.own("drain")),
    _ours("--llm-goodput", r.own("goodput")),
    _ours("--llm-rate", r.own("rate")),
    _ours("--llm-arrivals", r.own("arrivals")),
    _ours("--llm-burstiness", r.own("burstiness")),
    _ours("--llm-warmup", r.own("warmup")),
    # Where to and what
    _peer("-H, --host", "--url --base-url --target --api-base", r.url),
    _peer("--llm-model", "--model -m --model-names --api-model-name", r.text("model")),
    _peer("--llm-api", "--endpoint-type --request-type", r.api),
    _peer("--llm-api", "--backend --backend-type", r.backend),
    _peer("--llm-api", "--api-backend", r.service),
    _peer("--llm-api, --llm-endpoint", "--endpoint --custom-endpoint", r.endpoint),
    _peer("--llm-stream", "--streaming", r.fixed(stream=True), "none"),
    _peer("--llm-no-stream", "--no-streaming --disable-stream", r.fixed(stream=False), "none"),
    _peer("--llm-header", "--header", r.header, "many"),
    _peer("--llm-insecure", "--insecure", r.fixed(insecure=True), "none"),
    # How much
    _peer(
        "-u, --users",
        "--concurrency --max-concurrency --num-concurrency --num-concurrent-requests",
        r.whole("users", 1),
    ),
    _peer(
        "--llm-requests",
        "--num-prompts --request-count --num-requests --max-requests --max-requests-per-run "
        "--max-num-completed-requests",
        r.whole("requests", 1),
    ),
    _peer("-t, --run-time", "--duration --max-seconds --benchmark-duration", r.seconds("time")),
    _peer("-t, --run-time", "--max-time-per-run", r.seconds("time", 60)),
    _peer("--llm-rate (nothing, if inf)", "--request-rate", r.rate),
    _peer("--llm-rate", "--rate", r.one_rate),
    _peer("--llm-arrivals", "--request-rate-mode --arrival-pattern --rate-type", r.arrivals),
    _peer("--llm-burstiness", "--burstiness --arrival-smoothness", r.burstiness),
    _peer(
        "--llm-warmup N",
        "--num-warmups --warmup-requests --warmup-request-count --num-warmup-requests",
        r.warmups,
    ),
    _peer("--llm-warmup TIME", "--warmup-duration", r.warmup_time),
    # Workload
    _peer(
        "--llm-input-tokens MEAN",
        "--isl --input-len --random-input-len --random-input --synthetic-input-tokens-mean --prompt-input-tokens-mean "
        "--mean-input-tokens",
        r.mean("input"),
    ),
    _peer(
        "--llm-input-tokens ,STD",
        "--isl-stddev --synthetic-input-tokens-stddev --prompt-input-tokens-stddev --stddev-input-tokens",
        r.deviation("input"),
    ),
    _peer(
        "--llm-output-tokens MEAN",
        "--osl --output-len --random-output-len --random-output --output-tokens-mean --prompt-output-tokens-mean "
        "--mean-output-tokens",
        r.mean("output"),
    ),
    _peer(
        "--llm-output-tokens ,STD",
        "--osl-stddev --output-tokens-stddev --prompt-output-tokens-stddev --stddev-output-tokens",
        r.deviation("output"),
    ),
    _peer("--llm-input-tokens, --llm-output-tokens", "--data", r.synthetic),
    _peer("--llm-input-tokens, --llm-output-tokens", "--traffic-scenario", r.scenario),
    _peer("--llm-tokenizer", "--tokenizer --processor --model-tokenizer", r.text("tokenizer")),
    _peer("--llm-seed", "--seed --random-seed", r.whole("seed", 0)),
    _peer("--llm-extra", "--extra-inputs", r.inputs, "many"),
    _peer(
        "--llm-extra",
        "--extra-body --extra-request-body --additional-sampling-params --additional-request-params",
        r.json_object,
    ),
    *(
        _peer("--llm-extra", "--" + key.replace("_", "-"), r.field(key))
        for key in _SAMPLING
    ),
    _peer("--llm-natural-stop", "--disable-ignore-eos", r.fixed(natural_stop=True), "none"),
    _peer("(the default)", "--ignore-eos", r.fixed(natural_stop=False), "none"),
    # The run
    _peer(
        "--llm-out",
        "--result-dir --results-dir --artifact-dir --output-artifact-dir --output-dir --experiment-base-dir",
        r.text("out"),
    ),
    _peer("--llm-name", "--label --experiment-folder-name", r.text("name")),
    _peer("--llm-meta", "--metadata", r.facts, "many"),
    _peer("--llm-goodput", "--goodput", r.goodput, "many"),
    _peer("--llm-total-timeout", "--request-timeout-seconds", r.seconds("total_timeout")),
    _peer("--llm-wait-ready", "--wait-for-model-timeout --ready-check-timeout-sec", r.seconds("wait_ready", least=0)),
    _peer("--llm-drain", "--benchmark-grace-period", r.seconds("drain", least=0)),
    # One value of these is what happens anyway
    _peer("(nothing, if random)", "--dataset-name", r.only("random", _NO_DATASET)),
    _peer("(nothing, if 0)", "--random-range-ratio", r.only("0 0.0", "not there yet; use --isl-stddev, --osl-stddev")),
    _peer("(nothing, if openai)", "--service-kind", r.only("openai", "only servers with an OpenAI API yet")),
    _peer("(nothing, if text-to-text)", "--task", r.only("text-to-text", "only text-to-text is there yet")),
    # Always so
    _given("every run is kept, in its folder under --llm-out", "--save-result --save-detailed"),
    _given("there is no progress bar", "--disable-tqdm"),
    _given("the server's own count is used wherever it gives one", "--use-server-token-count"),
    _given(_PERCENTILES, "--percentile-metrics --metric-percentiles", "one"),
    # Not to be followed
    _refused("--port", "write host and port together: -H http://HOST:PORT"),
    _refused("--api-key --openai-api-key --model-api-key", _NO_KEY),
    _refused("--timeout", "LLMPerf's is the length of the run: --duration S; one request's is --llm-total-timeout S"),
    _refused("--ramp-up-strategy --ramp-up-start-rps --ramp-up-end-rps --probe-request-rate", _NO_RAMP),
    _refused("--constraint", "GuideLLM's key=value lists are not read; use --max-seconds S or --max-requests N"),
    _refused("--warmup --warmup-percent --warmup-ratio", _NO_SHARE),
    _refused("--cooldown --cooldown-percent --cooldown-ratio", _NO_COOLDOWN),
    _refused("--dataset-path --dataset-config --public-dataset --custom-dataset-type --input-file", _NO_DATASET),
    _refused("--num-dataset-entries", "every prompt is different; there is no pool of them"),
    _refused("--random-prefix-len --prefix-len --prefix-ratio --num-prefix-prompts --prefix-prompt-length", _NO_PREFIX),
    _refused("--num-sessions --num-conversations --conversation-num", _NO_CONVERSATIONS),
    _refused("--session-turns-mean --conversation-turn-mean", _NO_CONVERSATIONS),
    _refused("--max-errors --max-error-rate --max-global-error-rate --failed-request-threshold", _NO_ERROR_STOP),
    _refused("--num-workers --workers-max --max-workers", "for several processes: --processes N (-1: one a core)"),
    _refused("--no-stream", "in vLLM bench this is about loading a dataset; for whole answers --no-streaming"),
    _refused("--output-file --result-filename --output-path --outputs", _NO_FILE_NAME),
)  # fmt: skip

BY_FLAG: Mapping[str, Name] = {flag: name for name in NAMES for flag in name.flags}


def markdown_table() -> str:
    """Return the table of docs/coming-from.md: what each option of another tool becomes."""
    lead = {Kind.PEER: "", Kind.GIVEN: "changes nothing: ", Kind.REFUSED: "not followed: "}
    rows = {
        flag: f"`{name.says}`" if name.says.startswith("-") else lead[name.kind] + name.says
        for name in NAMES
        if name.kind in lead
        for flag in name.flags
    }
    lines = [f"| `{flag}` | {rows[flag]} |" for flag in sorted(rows)]
    return "\n".join(["| option elsewhere | here |", "| --- | --- |", *lines]) + "\n"
