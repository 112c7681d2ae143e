"""Readers: the value of an option as some tool writes it, in; what it sets, out. ``names.py`` says who has which.

A reader takes the flag as typed and its text and returns settings by key (``translate.TARGETS`` says which option a key
becomes). What it cannot read is a UsageError that names the flag.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ..address import mask_url
from ..errors import UsageError
from ..settings import parse_duration
from ..workload.lengths import Length

Parts = dict[str, Any]
Reader = Callable[[str, str], Parts]

CHAT, COMPLETIONS = "openai-chat", "openai-completions"

# As --backend, --endpoint-type, --request-type and --api-backend name them. What "sglang" means differs between tools.
API_NAMES: Mapping[str, str] = {
    "chat": CHAT,
    "chat_completions": CHAT,
    "openai-chat": CHAT,
    "sglang-oai-chat": CHAT,
    "vllm-chat": CHAT,
    "completions": COMPLETIONS,
    "openai": COMPLETIONS,
    "openai-completions": COMPLETIONS,
    "sglang-oai": COMPLETIONS,
    "text_completions": COMPLETIONS,
    "vllm": COMPLETIONS,
    "huggingface_generate": "tgi",
    "responses": "openai-responses",
    "sglang-native": "sglang",
    "tgi": "tgi",
}


def fixed(**parts: Any) -> Reader:
    """A flag without a value."""
    return lambda flag, text: dict(parts)


def text(key: str) -> Reader:
    def read(flag: str, given: str) -> Parts:
        if not given.strip():
            raise UsageError(f"{flag} needs a value")
        return {key: given.strip()}

    return read


def own(key: str) -> Reader:
    """An option of ours, which ``settings.settings_from`` judges."""
    return lambda flag, given: {key: given}


def whole(key: str, least: int) -> Reader:
    def read(flag: str, given: str) -> Parts:
        if not re.fullmatch(r"\s*\d{1,12}\s*", given) or int(given) < least:
            several = "; one run has one load, so give one" if "," in given else ""
            raise UsageError(f"{flag} must be a whole number of at least {least} (got {given!r}){several}")
        return {key: int(given)}

    return read


def seconds(key: str, unit_s: float = 1, least: int = 1) -> Reader:
    """A time; a bare number is in units of ``unit_s`` seconds."""

    def read(flag: str, given: str) -> Parts:
        bare = re.fullmatch(r"\s*\d+(\.\d*)?\s*", given)
        time_s = float(given) * unit_s if bare else parse_duration(flag, given)
        if time_s != int(time_s) or time_s < least:
            raise UsageError(f"{flag} must be whole seconds, {least} or more (got {given!r})")
        return {key: int(time_s)}

    return read


def url(flag: str, given: str) -> Parts:
    given = given.strip()
    if not given:
        raise UsageError(f"{flag} needs an address, such as http://localhost:8000")
    return {"host": (given if "://" in given else "http://" + given).rstrip("/")}


def rate(flag: str, given: str) -> Parts:
    """vLLM bench's ``--request-rate``; ``inf`` is closed loop."""
    if given.strip().lower() in ("inf", "infinity"):
        return {}
    if not re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*", given) or float(given) <= 0:
        raise UsageError(f"{flag} must be a number of requests per second above 0 (got {given!r})")
    return {"rate": _plain(float(given))}


def one_rate(flag: str, given: str) -> Parts:
    """GuideLLM's ``--rate``, which may be a list."""
    if "," in given:
        raise UsageError(f"{flag} {given}: one run has one rate; give one")
    return rate(flag, given)


def arrivals(flag: str, given: str) -> Parts:
    """How arrivals are spaced; gamma is poisson with a burstiness."""
    kinds = {"constant": "constant", "poisson": "poisson", "gamma": "poisson"}
    if given not in kinds:
        raise UsageError(f"{flag} {given}: constant, poisson and gamma are read; users without a rate: --concurrency N")
    return {"arrivals": kinds[given]}


def burstiness(flag: str, given: str) -> Parts:
    if not re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*", given) or float(given) <= 0:
        raise UsageError(f"{flag} must be a number above 0 (got {given!r}); 1 is Poisson, less comes in bursts")
    return {"burstiness": _plain(float(given))}


def warmups(flag: str, given: str) -> Parts:
    """So many exchanges before the load."""
    return {"warmup": str(whole("warmup", 0)(flag, given)["warmup"])}


def warmup_time(flag: str, given: str) -> Parts:
    return {"warmup": f"{seconds('warmup')(flag, given)['warmup']}s"}


def mean(key: str) -> Reader:
    def read(flag: str, given: str) -> Parts:
        if "," in given:
            raise UsageError(f"{flag} must be one number of tokens (got {given!r}); one run has one load")
        return {f"{key}.mean": _plain(Length.parse(given, flag).mean)}

    return read


def deviation(key: str) -> Reader:
    def read(flag: str, given: str) -> Parts:
        return {f"{key}.std": _plain(_deviation(flag, given))}

    return read


def length(key: str) -> Reader:
    """Our own ``MEAN[,STD]``."""

    def read(flag: str, given: str) -> Parts:
        length = Length.parse(given, flag)
        return {f"{key}.mean": _plain(length.mean), f"{key}.std": _plain(length.std) if "," in given else ""}

    return read


def api(flag: str, given: str) -> Parts:
    name = API_NAMES.get(given)
    if name is None:
        raise UsageError(f"{flag} {given}: not an API that locust-llm knows by this name; see --llm-api")
    return {"api": name}


def own_api(flag: str, given: str) -> Parts:
    """``--llm-api``, a name that LLMPerf uses too: its ``openai`` is the chat API."""
    return {"api": CHAT if given == "openai" else given}


def backend(flag: str, given: str) -> Parts:
    if given.startswith("kind="):
        raise UsageError(
            f"{flag} kind=…: GuideLLM's key=value lists are not read; "
            "write --target URL --concurrency N --max-seconds S --isl N --osl N"
        )
    return {} if given == "openai_http" else api(flag, given)


def service(flag: str, given: str) -> Parts:
    """genai-bench's ``--api-backend``: which server; the API is always chat."""
    if given not in ("openai", "sglang", "vllm"):
        raise UsageError(f"{flag} {given}: not an API that locust-llm speaks yet; openai, vllm and sglang are")
    return {"api": CHAT}


def endpoint(flag: str, given: str) -> Parts:
    path = "/" + given.strip().strip("/")
    for ending, name in (("/chat/completions", CHAT), ("/completions", COMPLETIONS)):
        if path.endswith(ending):
            root = path.removesuffix(ending)
            if root != "/v1":
                raise UsageError(f"{flag} {given}: the API root goes into the address: write -H http://HOST:PORT{path}")
            return {"api": name}
    if not path.startswith("/v1/"):
        raise UsageError(f"{flag} {given}: write the API root into the address and the rest into --llm-endpoint PATH")
    return {"endpoint": path.removeprefix("/v1")}


def json_object(flag: str, given: str) -> Parts:
    try:
        data = orjson.loads(given)
    except orjson.JSONDecodeError as e:
        raise UsageError(f"{flag} must be a JSON object such as '{{\"top_p\": 0.9}}': {e}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{flag} must be a JSON object such as '{{\"top_p\": 0.9}}' (got a {type(data).__name__})")
    return {f"extra.{key}": value for key, value in data.items()}


def own_extra(flag: str, given: str) -> Parts:
    return json_object(flag, given) if given.strip() else {}


def field(key: str) -> Reader:
    """A sampling parameter: a number that goes into the body."""

    def read(flag: str, given: str) -> Parts:
        value = _json_or_text(given)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{flag} must be a number (got {given!r})")
        return {f"extra.{key}": value}

    return read


def inputs(flag: str, given: str) -> Parts:
    """AIPerf's ``NAME:VALUE`` (a JSON value, else text), or a JSON object."""
    if given.lstrip().startswith("{"):
        return json_object(flag, given)
    name, colon, value = given.partition(":")
    if not colon or not name.strip():
        raise UsageError(f"{flag} must be NAME:VALUE, such as temperature:0.7 (got {given!r})")
    return {f"extra.{name.strip()}": _json_or_text(value.strip())}


def header(flag: str, given: str) -> Parts:
    """``NAME:VALUE`` (AIPerf, GenAI-Perf) or ``NAME=VALUE`` (vLLM bench). Values are never repeated in an error."""
    match = re.fullmatch(r"\s*([^\s:=]+)\s*[:=]\s*(.*)", given, re.DOTALL)
    if not match:
        raise UsageError(f"{flag} must be NAME:VALUE, such as X-Tenant:blue")
    return {f"header.{match[1].lower()}": f"{match[1]}: {match[2]}"}


def goodput(flag: str, given: str) -> Parts:
    """``NAME:MILLISECONDS``, several of them in one word too, as vLLM, AIPerf and GenAI-Perf have them."""
    parts: Parts = {}
    for pair in given.split():
        name, colon, limit = pair.partition(":")
        if not colon or not name or not limit:
            raise UsageError(f"{flag} takes NAME:MILLISECONDS, such as ttft:500 (got {pair!r})")
        parts[f"goodput.{_GOODPUT_NAMES.get(name, name)}"] = limit
    return parts


_GOODPUT_NAMES = {"time_to_first_token": "ttft", "inter_token_latency": "tpot", "request_latency": "e2e_latency"}


def facts(flag: str, given: str) -> Parts:
    """``k=v`` (vLLM bench), several of them with commas between (LLMPerf)."""
    pairs = [pair.partition("=") for pair in given.split(",")]
    if not all(key.strip() and equals for key, equals, _ in pairs):
        raise UsageError(f"{flag} must be KEY=VALUE, such as gpu=H100 (got {given!r})")
    return {f"meta.{key.strip()}": value.strip() for key, _, value in pairs}


def synthetic(flag: str, given: str) -> Parts:
    """GuideLLM's ``--data prompt_tokens=256,output_tokens=128``."""
    keys = {
        "prompt_tokens": mean("input"),
        "prompt_tokens_stdev": deviation("input"),
        "output_tokens": mean("output"),
        "output_tokens_stdev": deviation("output"),
    }
    parts: Parts = {}
    for pair in given.split(","):
        key, _, value = (piece.strip() for piece in pair.partition("="))
        if (key, value) == ("kind", "synthetic_text"):
            continue
        if key not in keys:
            raise UsageError(
                f"{flag} {given}: only {', '.join(keys)} are read; prompts of your own go into --llm-prompts FILE.jsonl"
            )
        parts |= keys[key](f"{flag} {key}", value)
    return parts


def scenario(flag: str, given: str) -> Parts:
    """genai-bench's ``D(in,out)`` and ``N(in,std)/(out,std)``."""
    if match := re.fullmatch(r"D\((\d+),(\d+)\)", given):
        return length("input")(flag, f"{match[1]},0") | length("output")(flag, f"{match[2]},0")
    if match := re.fullmatch(r"N\((\d+),(\d+)\)/\((\d+),(\d+)\)", given):
        return length("input")(flag, f"{match[1]},{match[2]}") | length("output")(flag, f"{match[3]},{match[4]}")
    raise UsageError(f"{flag} {given}: D(in,out) and N(in,std)/(out,std) are read, the other kinds not yet")


def only(accepted: str, remedy: str) -> Reader:
    """An option of which one value is what locust-llm does anyway."""

    def read(flag: str, given: str) -> Parts:
        if given.strip().lower() not in accepted.split():
            raise UsageError(f"{flag} {given}: {remedy}")
        return {}

    return read


# ---- Locust's own, which stay where they are: read only to notice conflicts and mix-ups


def locust_host(flag: str, given: str) -> Parts:
    if re.match(r"[A-Za-z][\w-]*:\s*[^\s\d/]", given) and "://" not in given:
        raise UsageError(f"{flag} is the address of the server; a header is --llm-header 'NAME: VALUE'")
    return url(flag, given)


def locust_users(flag: str, given: str) -> Parts:
    if "://" in given or re.match(r"(\[[0-9a-fA-F:.]+\]|[\w-]+(\.[\w-]+)*):\d", given):
        raise UsageError(f"{flag} is the number of users; the address goes into -H: -H {mask_url(given)} -u 8")
    return {"users": int(given)} if given.strip().isdecimal() else {}


def locust_run_time(flag: str, given: str) -> Parts:
    try:
        return seconds("time")(flag, given)
    except UsageError:
        return {}  # Locust says what it takes


def locust_profile(flag: str, given: str) -> Parts:
    strategies = ("async", "concurrent", "constant", "poisson", "sweep", "synchronous", "throughput")
    if given in strategies or given.startswith("kind="):
        raise UsageError(f"{flag} {given}: in Locust this only names the run; for GuideLLM's: --concurrency N")
    return {}


def _json_or_text(given: str) -> Any:
    try:
        return orjson.loads(given)
    except orjson.JSONDecodeError:
        return given


def _deviation(flag: str, given: str) -> float:
    if not re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*", given):
        raise UsageError(f"{flag} must be a number of tokens, 0 or more (got {given!r})")
    return float(given)


def _plain(number: float) -> str:
    """A number as ``Length.parse`` reads it: no exponent."""
    return str(int(number)) if number == int(number) else str(number)
