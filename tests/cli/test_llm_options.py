"""``--llm-*`` options: a bad value is one line that names its option; values come from three places, in order."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from locust_llm import options
from locust_llm.credentials import resolve_headers
from locust_llm.errors import UsageError
from locust_llm.options import OPTIONS
from locust_llm.settings import Settings, parse_duration, settings_from
from locust_llm.wire import registry

CHAT = registry.api("openai-chat")


def settings(**values: Any) -> Settings:
    return settings_from({f"llm_{key}": value for key, value in values.items()})


def error(**values: Any) -> str:
    with pytest.raises(UsageError) as caught:
        settings(**values)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults_of_the_table_and_of_the_settings_are_the_same() -> None:
    assert settings_from({}) == Settings()


def test_every_option_reaches_the_settings() -> None:
    changed = {
        "api": ("openai-completions", "api"), "model": ("m", "model"), "endpoint": ("/x", "endpoint"),
        "header": (["A: b"], "headers"), "extra": ('{"a": 1}', "extra"), "max_tokens": (7, "max_tokens"),
        "stream": (False, "stream"), "usage": ("off", "usage"), "input_tokens": ("9,1", "input_tokens"),
        "output_tokens": ("8", "output_tokens"), "natural_stop": (True, "natural_stop"), "prompts": ("p", "prompts"),
        "tokenizer": ("t", "tokenizer"), "seed": (5, "seed"), "save_text": (True, "save_text"),
        "api_key_file": ("f", "api_key_file"), "api_key_env": ("E", "api_key_env"), "insecure": (True, "insecure"),
        "ca_file": ("c", "ca_file"), "connect_timeout": (1.5, "timeouts"), "first_token_timeout": (1.5, "timeouts"),
        "idle_timeout": (1.5, "timeouts"), "total_timeout": (1.5, "timeouts"), "requests": (3, "requests"),
        "rate": ("5", "rate"), "arrivals": ("constant", "arrivals"), "burstiness": (0.5, "burstiness"),
        "warmup": ("30s", "warmup"), "cancel": ("5%@1s", "cancel"), "stop_after_failures": (3, "stop_after_failures"),
        "retries": (2, "retries"), "max_bytes": (1 << 20, "max_bytes"), "prewarm": (True, "prewarm"),
        "server_metrics": ("http://h/m", "server_metrics"), "no_server_metrics": (True, "read_server_metrics"),
        "drain": (1.5, "drain_s"), "wait_ready": ("10m", "wait_ready_s"), "no_preflight": (True, "preflight"),
        "out": ("o", "out"), "name": ("n", "name"), "meta": (["k=v"], "meta"), "simulate": (True, "simulate"),
        "simulate_options": ("ttft=1s", "simulate_options"), "run_state": ("{}", "run_state"),
        "run_time": (9.0, "run_time_s"), "slo": ("ttft:p95<=500ms", "goal"), "goodput": ("ttft<=500ms", "goal"),
        "exit_undecided": (7, "goal"), "limits": ("cpu=80%", "limits"),
        "junit": ("j", "junit"), "markdown": ("m", "markdown"),
        "console": ("off", "console"),
    }  # fmt: skip
    assert {f"llm_{key}" for key in changed} == {option.dest for option in OPTIONS}
    assert {attribute for _, attribute in changed.values()} == {field.name for field in fields(Settings)}
    for key, (value, attribute) in changed.items():
        differing = [
            f.name for f in fields(Settings) if getattr(settings(**{key: value}), f.name) != getattr(Settings(), f.name)
        ]
        assert differing == [attribute]


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("http://h:8000", "http://h:8000/metrics"),
        ("https://h:8000/", "https://h:8000/metrics"),
        (" http://h/prometheus ", "http://h/prometheus"),
        ("http://[::1]:9/a/b", "http://[::1]:9/a/b"),
    ],
)
def test_an_address_of_counters_without_a_path_means_metrics(url: str, meant: str) -> None:
    assert settings(server_metrics=url).server_metrics == meant


@pytest.mark.parametrize(
    "url", ["h:8000/metrics", "ftp://h/metrics", "http://", "http://u:secret@h/", "http://h/?key=secret"]
)
def test_an_address_of_counters_that_is_none_is_refused_and_its_secrets_are_not_repeated(url: str) -> None:
    message = error(server_metrics=url)
    assert "--llm-server-metrics" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("api", "grpc"), ("usage", "sometimes"), ("stream", "maybe"), ("simulate", "perhaps"),
        ("max_tokens", -1), ("max_tokens", "many"), ("max_tokens", 10**9), ("requests", -1), ("requests", "1.5"),
        ("rate", "0"), ("rate", "-1"), ("rate", "inf"), ("rate", "nan"), ("rate", "many"), ("rate", "1e9"),
        ("rate", "1e-9"), ("burstiness", 0), ("burstiness", "-1"), ("burstiness", "nan"), ("arrivals", "bursty"),
        ("warmup", "-1"), ("warmup", "1.5"), ("warmup", "a while"), ("warmup", "99999999"), ("cancel", "5%"),
        ("cancel", "0%@1s"), ("cancel", "101%@1s"), ("cancel", "5%@0s"), ("cancel", "5%@1.5tokens"), ("cancel", "x"),
        ("cancel", "5%@20"), ("stop_after_failures", -1),
        ("retries", -1), ("retries", 21), ("retries", "often"), ("max_bytes", 0), ("max_bytes", "1MB"),
        ("seed", -2), ("seed", "abc"), ("drain", -1), ("drain", "nan"), ("drain", "inf"), ("drain", "a minute"),
        ("connect_timeout", -1), ("first_token_timeout", "-0.1"), ("idle_timeout", "x"), ("total_timeout", "-1"),
        ("input_tokens", "-5"), ("input_tokens", "0"), ("input_tokens", "a"), ("input_tokens", "1,2,3"),
        ("input_tokens", ""),
        ("output_tokens", "5,-1"), ("output_tokens", "99999999999"), ("wait_ready", "soon"), ("wait_ready", "-1"),
        ("extra", "{bad"), ("extra", "[1]"), ("extra", "7"), ("extra", '{"stream": false}'), ("extra", '{"x": NaN}'),
        ("meta", ["k"]), ("meta", ["=v"]), ("meta", ["k=1", "k=2"]),
        ("header", ["X"]), ("header", [": v"]), ("header", ["A B: v"]), ("header", ["A: a\r\nB: b"]),
        ("header", ["A: ü"]),
        ("header", ["Content-Length: 5"]), ("header", ["transfer-encoding: chunked"]),
        ("api_key_env", "sk-abc"), ("run_time", -1),
    ],
)  # fmt: skip
def test_a_bad_value_is_one_line_that_names_its_option(key: str, value: Any) -> None:
    assert error(**{key: value}).startswith("--llm-" + key.replace("_", "-"))


def test_a_bad_simulator_option_names_the_option() -> None:
    assert "--llm-simulate-options" in error(simulate_options="ttft=fast")


def test_values_that_come_as_strings_get_their_type_back() -> None:
    got = settings(max_tokens="7", drain="1.5", stream="false", simulate="on", header="A: b", seed=" 3 ")
    assert (got.max_tokens, got.drain_s, got.stream, got.simulate, got.seed) == (7, 1.5, False, True, 3)
    assert got.headers == (("A", "b"),)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("1.5", 1.5), ("90s", 90), ("10ms", 0.01), ("500ms", 0.5), ("10m", 600), ("1h30m", 5400),
        ("2m500ms", 120.5), ("1h", 3600), ("0", 0), (5, 5), (" 7s ", 7),
    ],
)  # fmt: skip
def test_a_duration_is_what_it_says(text: Any, seconds: float) -> None:
    assert parse_duration("--x", text) == seconds


@pytest.mark.parametrize("text", ["", "s", "ms", "1x", "-1", "1 2", "inf", "30m1h", "1h30"])
def test_what_is_no_duration_is_an_error_that_names_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="--x must be a time"):
        parse_duration("--x", text)


class TestSecrets:
    @pytest.fixture(autouse=True)
    def _no_keys_around(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LOCUST_LLM_API_KEY", "OPENAI_API_KEY"):
            monkeypatch.delenv(name, raising=False)

    @pytest.mark.parametrize("name", ["Authorization", "api-key", "X-API-Key", "cookie", "Ocp-Apim-Subscription-Key"])
    def test_a_literal_secret_header_is_refused_with_the_remedy_and_not_repeated(self, name: str) -> None:
        message = error(header=[f"{name}: sekret"])
        assert "env:" in message
        assert "sekret" not in message

    @pytest.mark.parametrize(
        "values", [{"header": ["Bearer sekret"]}, {"header": ["A: env:sek-ret"]}, {"api_key_env": "sek-ret"}]
    )
    def test_what_may_be_a_key_in_the_wrong_place_is_not_repeated(self, values: dict[str, Any]) -> None:
        message = error(**values)
        assert "sekret" not in message
        assert "sek-ret" not in message

    def test_a_header_by_reference_is_read_on_the_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = settings(header=["api-key: env:MY_KEY", "X-Tenant: blue"])
        with pytest.raises(UsageError, match="MY_KEY is not set"):
            resolve_headers(given, "h", CHAT)
        monkeypatch.setenv("MY_KEY", "k1")
        assert resolve_headers(given, "h", CHAT) == [("api-key", "k1"), ("X-Tenant", "blue")]
        assert "k1" not in repr(given)

    def test_a_key_that_no_header_can_carry_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOCUST_LLM_API_KEY", "two\nlines")
        with pytest.raises(UsageError, match="LOCUST_LLM_API_KEY"):
            resolve_headers(Settings(), "h", CHAT)

    def test_the_key_comes_from_file_then_named_variable_then_ours(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "key").write_text(" from-file \n")
        monkeypatch.setenv("LOCUST_LLM_API_KEY", "ours")
        monkeypatch.setenv("NAMED", "named")
        assert resolve_headers(Settings(), "h", CHAT) == [("Authorization", "Bearer ours")]
        assert resolve_headers(settings(api_key_env="NAMED"), "h", CHAT) == [("Authorization", "Bearer named")]
        assert resolve_headers(settings(api_key_file=str(tmp_path / "key")), "h", CHAT) == [
            ("Authorization", "Bearer from-file")
        ]

    @pytest.mark.parametrize("content", [None, "", b"\xff\xfe"])
    def test_a_key_file_that_is_missing_empty_or_no_text_is_an_error(
        self, tmp_path: Path, content: str | bytes | None
    ) -> None:
        path = tmp_path / "key"
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(UsageError, match="--llm-api-key-file"):
            resolve_headers(settings(api_key_file=str(path)), "h", CHAT)

    def test_openais_key_goes_to_openai_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "theirs")
        assert resolve_headers(Settings(), "localhost", CHAT) == []
        assert resolve_headers(Settings(), "api.openai.com.evil.example", CHAT) == []
        assert resolve_headers(Settings(), "api.openai.com", CHAT) == [("Authorization", "Bearer theirs")]

    def test_a_header_of_ones_own_replaces_the_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOCUST_LLM_API_KEY", "ours")
        monkeypatch.setenv("MINE", "Basic x")
        assert resolve_headers(settings(header=["authorization: env:MINE"]), "h", CHAT) == [
            ("authorization", "Basic x")
        ]

    def test_two_places_for_the_key_are_a_contradiction(self) -> None:
        assert "not both" in error(api_key_file="f", api_key_env="E")


# Real parsers of Locust, in a process of their own: importing Locust patches the standard library.
PARSE = """
import json, os, sys
import locust
from locust.argument_parser import get_parser
from locust_llm import options

locust.events.init_command_line_parser.add_listener(lambda parser, **_: options.add_to(parser))
home = dict(os.environ)
results = []
for case in json.load(sys.stdin):
    os.chdir(case["cwd"])
    os.environ.clear()
    os.environ.update(home | case["env"])
    try:
        given = vars(get_parser().parse_args(case["argv"]))
        results.append({key: value for key, value in given.items() if key.startswith("llm_")})
    except SystemExit as e:
        results.append({"exit": e.code})
print(json.dumps(results))
"""

FILES = {
    "locust.conf": "llm-model = from-conf\nllm-stream = false\nllm-header = [A: 1, B: 2]\nllm-max-tokens = 5\n",
    "pyproject.toml": """
[tool.locust]
llm-model = "from-toml"
llm-header = ["A: 1", "B: 2"]
llm-insecure = true
llm-drain = 7
""",
}
CASES: dict[str, tuple[str | None, dict[str, str], list[str]]] = {
    "nothing": (None, {}, []),
    "conf": ("locust.conf", {}, []),
    "toml": ("pyproject.toml", {}, []),
    "environment over file": ("locust.conf", {"LOCUST_LLM_MODEL": "from-env"}, []),
    "command line over both": ("locust.conf", {"LOCUST_LLM_MODEL": "from-env"}, ["--llm-model", "from-cli"]),
    "switch in environment": (None, {"LOCUST_LLM_STREAM": "false", "LOCUST_LLM_SAVE_TEXT": "true"}, []),
    "switch back on": ("locust.conf", {"LOCUST_LLM_STREAM": "false"}, ["--llm-stream"]),
    "switch off": (None, {}, ["--llm-no-stream"]),
    "list in environment": (None, {"LOCUST_LLM_HEADER": "A: 1"}, []),
    "repeated": (None, {}, ["--llm-header", "A: 1", "--llm-header", "B: 2", "--llm-meta", "k=v"]),
    "types": (None, {"LOCUST_LLM_MAX_TOKENS": "9"}, ["--llm-drain", "1.5"]),
    "bad choice": (None, {}, ["--llm-usage", "sometimes"]),
    "bad type": (None, {}, ["--llm-max-tokens", "many"]),
    "bad switch": (None, {"LOCUST_LLM_STREAM": "maybe"}, []),
}


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What Locust's parser makes of each case, by the case's name."""
    cases = []
    for file, env, argv in CASES.values():
        folder = tmp_path_factory.mktemp("config")
        if file:
            (folder / file).write_text(FILES[file])
        cases.append({"cwd": str(folder), "env": env, "argv": argv})
    env = {key: value for key, value in os.environ.items() if not key.startswith("LOCUST")}
    env |= {"HOME": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", PARSE],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
        check=True,
    )
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


class TestWhereValuesComeFrom:
    def test_nothing_given_is_the_defaults(self, parsed: dict[str, dict[str, Any]]) -> None:
        assert parsed["nothing"] == {option.dest: option.default for option in OPTIONS}
        assert settings_from(parsed["nothing"]) == Settings()

    def test_no_default_is_none_for_the_start_form_would_make_it_a_string(self) -> None:
        assert all(option.default is not None for option in OPTIONS)

    def test_a_conf_file(self, parsed: dict[str, dict[str, Any]]) -> None:
        got = settings_from(parsed["conf"])
        assert (got.model, got.stream, got.headers, got.max_tokens) == ("from-conf", False, (("A", "1"), ("B", "2")), 5)

    def test_a_toml_file(self, parsed: dict[str, dict[str, Any]]) -> None:
        got = settings_from(parsed["toml"])
        assert (got.model, got.headers, got.insecure, got.drain_s) == ("from-toml", (("A", "1"), ("B", "2")), True, 7)

    def test_the_command_line_wins_over_the_environment_and_that_over_files(
        self, parsed: dict[str, dict[str, Any]]
    ) -> None:
        assert parsed["environment over file"]["llm_model"] == "from-env"
        assert parsed["command line over both"]["llm_model"] == "from-cli"

    def test_a_switch_can_be_turned_both_ways_everywhere(self, parsed: dict[str, dict[str, Any]]) -> None:
        assert parsed["switch in environment"]["llm_stream"] is False
        assert parsed["switch in environment"]["llm_save_text"] is True
        assert parsed["switch back on"]["llm_stream"] is True
        assert parsed["switch off"]["llm_stream"] is False

    def test_lists_and_types(self, parsed: dict[str, dict[str, Any]]) -> None:
        assert parsed["list in environment"]["llm_header"] == ["A: 1"]
        assert parsed["repeated"]["llm_header"] == ["A: 1", "B: 2"]
        assert parsed["types"]["llm_max_tokens"] == 9
        assert parsed["types"]["llm_drain"] == 1.5

    @pytest.mark.parametrize("case", ["bad choice", "bad type", "bad switch"])
    def test_a_bad_value_ends_with_exit_code_2(self, parsed: dict[str, dict[str, Any]], case: str) -> None:
        assert parsed[case] == {"exit": 2}


def test_every_environment_name_is_unique_and_none_is_the_keys() -> None:
    names = [option.env for option in OPTIONS]
    assert len(names) == len(set(names))
    assert "LOCUST_LLM_API_KEY" not in names
    assert all(name.startswith("LOCUST_LLM_") for name in names)


def test_help_texts_are_plain_for_any_argparse_parser() -> None:
    class Parser(argparse.ArgumentParser):
        def add_argument_group(self, *args: Any, **kwargs: Any) -> Any:
            group = super().add_argument_group(*args, **kwargs)
            add = group.add_argument
            group.add_argument = lambda *a, env_var, **k: add(*a, **k)  # type: ignore[method-assign]
            return group

    parser = Parser()
    options.add_to(parser)
    text = parser.format_help()
    assert "--llm-stream, --llm-no-stream" in text
    assert "--llm-run-state" not in text
