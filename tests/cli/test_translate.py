"""Everybody's option names become Locust's and ours; contradictions and what cannot be followed are one clear line."""

from __future__ import annotations

import orjson
import pytest
from translating import URL, argv, error

from locust_llm.commands.names import BY_FLAG, NAMES, Kind
from locust_llm.commands.translate import translate

# One example for each flag of another tool: value, and what it becomes.
EXAMPLES: dict[str, tuple[str | None, list[str]]] = {
    **dict.fromkeys(["--url", "--base-url", "--target", "--api-base"], (URL, [f"--host={URL}"])),
    **dict.fromkeys(["--model", "-m", "--model-names", "--api-model-name"], ("org/qwen3", ["--llm-model=org/qwen3"])),
    **dict.fromkeys(["--endpoint-type", "--backend", "--backend-type"], ("openai", ["--llm-api=openai-completions"])),
    "--request-type": ("text_completions", ["--llm-api=openai-completions"]),
    "--api-backend": ("vllm", ["--llm-api=openai-chat"]),
    **dict.fromkeys(["--endpoint", "--custom-endpoint"], ("/v1/chat/completions", ["--llm-api=openai-chat"])),
    "--streaming": (None, ["--llm-stream"]),
    **dict.fromkeys(["--no-streaming", "--disable-stream"], (None, ["--llm-no-stream"])),
    "--header": ("X-Tenant:blue", ["--llm-header=X-Tenant: blue"]),
    "--insecure": (None, ["--llm-insecure"]),
    **dict.fromkeys(
        ["--concurrency", "--max-concurrency", "--num-concurrency", "--num-concurrent-requests"], ("8", ["--users=8"])
    ),
    **dict.fromkeys(
        [
            "--num-prompts", "--request-count", "--num-requests", "--max-requests", "--max-num-completed-requests",
            "--max-requests-per-run",
        ],
        ("500", ["--llm-requests=500"]),
    ),
    **dict.fromkeys(["--duration", "--max-seconds", "--benchmark-duration"], ("90", ["--run-time=90"])),
    "--max-time-per-run": ("2", ["--run-time=120"]),
    **dict.fromkeys(
        [
            "--isl", "--input-len", "--random-input-len", "--random-input", "--synthetic-input-tokens-mean",
            "--prompt-input-tokens-mean", "--mean-input-tokens",
        ],
        ("1024", ["--llm-input-tokens=1024"]),
    ),
    **dict.fromkeys(
        [
            "--isl-stddev", "--synthetic-input-tokens-stddev", "--prompt-input-tokens-stddev", "--stddev-input-tokens",
        ],
        ("20", ["--llm-input-tokens=550,20"]),
    ),
    **dict.fromkeys(
        [
            "--osl", "--output-len", "--random-output-len", "--random-output", "--output-tokens-mean",
            "--prompt-output-tokens-mean", "--mean-output-tokens",
        ],
        ("128", ["--llm-output-tokens=128"]),
    ),
    **dict.fromkeys(
        ["--osl-stddev", "--output-tokens-stddev", "--prompt-output-tokens-stddev", "--stddev-output-tokens"],
        ("5.5", ["--llm-output-tokens=150,5.5"]),
    ),
    "--data": (
        "prompt_tokens=256,prompt_tokens_stdev=10,output_tokens=128",
        ["--llm-input-tokens=256,10", "--llm-output-tokens=128"],
    ),
    "--traffic-scenario": ("N(480,240)/(300,150)", ["--llm-input-tokens=480,240", "--llm-output-tokens=300,150"]),
    **dict.fromkeys(["--tokenizer", "--processor", "--model-tokenizer"], ("./qwen3", ["--llm-tokenizer=./qwen3"])),
    **dict.fromkeys(["--seed", "--random-seed"], ("0", ["--llm-seed=0"])),
    "--extra-inputs": ("temperature:0.7", ['--llm-extra={"temperature":0.7}']),
    **dict.fromkeys(
        ["--extra-body", "--extra-request-body", "--additional-sampling-params", "--additional-request-params"],
        ('{"top_p": 1}', ['--llm-extra={"top_p":1}']),
    ),
    "--temperature": ("0", ['--llm-extra={"temperature":0}']),
    "--top-p": ("0.9", ['--llm-extra={"top_p":0.9}']),
    "--top-k": ("40", ['--llm-extra={"top_k":40}']),
    "--min-p": ("0.1", ['--llm-extra={"min_p":0.1}']),
    "--frequency-penalty": ("0.5", ['--llm-extra={"frequency_penalty":0.5}']),
    "--presence-penalty": ("-0.5", ['--llm-extra={"presence_penalty":-0.5}']),
    "--repetition-penalty": ("1.1", ['--llm-extra={"repetition_penalty":1.1}']),
    "--disable-ignore-eos": (None, ["--llm-natural-stop"]),
    "--ignore-eos": (None, []),
    **dict.fromkeys(
        [
            "--result-dir", "--results-dir", "--artifact-dir", "--output-artifact-dir", "--output-dir",
            "--experiment-base-dir",
        ],
        ("results", ["--llm-out=results"]),
    ),
    **dict.fromkeys(["--label", "--experiment-folder-name"], ("baseline", ["--llm-name=baseline"])),
    "--metadata": ("gpu=H100", ["--llm-meta=gpu=H100"]),
    "--goodput": ("ttft:500", ["--llm-goodput=ttft:500"]),
    "--request-timeout-seconds": ("30", ["--llm-total-timeout=30"]),
    **dict.fromkeys(["--wait-for-model-timeout", "--ready-check-timeout-sec"], ("600", ["--llm-wait-ready=600"])),
    "--benchmark-grace-period": ("0", ["--llm-drain=0"]),
    "--dataset-name": ("random", []),
    "--random-range-ratio": ("0.0", []),
    "--request-rate": ("2.5", ["--llm-rate=2.5"]),
    "--rate": ("5", ["--llm-rate=5"]),
    **dict.fromkeys(
        ["--request-rate-mode", "--arrival-pattern", "--rate-type"], ("constant", ["--llm-arrivals=constant"])
    ),
    **dict.fromkeys(["--burstiness", "--arrival-smoothness"], ("0.5", ["--llm-burstiness=0.5"])),
    **dict.fromkeys(
        ["--num-warmups", "--warmup-requests", "--warmup-request-count", "--num-warmup-requests"],
        ("5", ["--llm-warmup=5"]),
    ),
    "--warmup-duration": ("30", ["--llm-warmup=30s"]),
    "--service-kind": ("openai", []),
    "--task": ("text-to-text", []),
}  # fmt: skip


def test_there_is_an_example_for_each_name_of_the_table() -> None:
    peers = {flag for name in NAMES if name.kind is Kind.PEER for flag in name.flags}
    assert peers == set(EXAMPLES)


def test_no_flag_stands_in_two_rows() -> None:
    flags = [flag for name in NAMES for flag in name.flags]
    assert len(flags) == len(set(flags)) == len(BY_FLAG)


@pytest.mark.parametrize("flag", EXAMPLES)
def test_a_name_of_another_tool_becomes_ours(flag: str) -> None:
    value, expected = EXAMPLES[flag]
    assert argv(*([flag] if value is None else [flag, value])) == expected


@pytest.mark.parametrize("flag", [flag for flag, (value, _) in EXAMPLES.items() if value and flag.startswith("--")])
def test_the_spelling_with_an_equals_sign_is_the_same(flag: str) -> None:
    value, expected = EXAMPLES[flag]
    assert argv(f"{flag}={value}") == expected


@pytest.mark.parametrize("flag", EXAMPLES)
def test_a_name_without_its_value_or_with_one_too_many_is_an_error_that_names_it(flag: str) -> None:
    takes_none = EXAMPLES[flag][0] is None
    words = [flag + "=1"] if takes_none else [flag, "--llm-save-text"]
    assert error(*words) == (f"{flag} takes no value" if takes_none else f"{flag} needs a value")


@pytest.mark.parametrize("flag", [flag for name in NAMES if name.kind is Kind.REFUSED for flag in name.flags])
def test_what_cannot_be_followed_says_what_to_do_instead(flag: str) -> None:
    for words in ([flag, "sekret"], [f"{flag}=sekret"], [flag]):
        message = error(*words)
        assert message.startswith(f"{flag}: ")
        assert len(message) > len(flag) + 20
        assert "sekret" not in message


@pytest.mark.parametrize("flag", [flag for name in NAMES if name.kind is Kind.GIVEN for flag in name.flags])
def test_what_is_so_anyway_is_accepted_and_said(flag: str) -> None:
    value = ["99"] if BY_FLAG[flag].takes == "one" else []
    translation = translate([flag, *value, "-u", "3"])
    assert translation.argv == ["-u", "3"]
    assert [note.split()[0] for note in translation.notes] == [flag]


class TestWhatIsNotOurs:
    def test_passes_through_untouched_and_in_order(self) -> None:
        words = [
            "-f",
            "my.py",
            "-u5",
            "--host=x:1",
            "-t",
            "1m30s",
            "-T",
            "a",
            "b",
            "--csv=out",
            "--own",
            "Chat",
            "Other",
        ]
        assert argv(*words) == words

    def test_translated_options_come_first_so_user_classes_keep_their_place(self) -> None:
        assert argv("Chat", "--concurrency", "4", "Other") == ["--users=4", "Chat", "Other"]

    def test_after_two_dashes_nothing_is_read(self) -> None:
        assert argv("--", "--concurrency", "4") == ["--", "--concurrency", "4"]

    def test_ours_are_kept_as_they_are_meant(self) -> None:
        words = ["--llm-input-tokens", "550,150", "--llm-model", "", "--llm-seed", "-1", "--llm-no-stream"]
        assert sorted(argv(*words)) == [
            "--llm-input-tokens=550,150",
            "--llm-model=",
            "--llm-no-stream",
            "--llm-seed=-1",
        ]

    def test_of_ours_and_of_locusts_the_last_one_counts_as_everywhere_in_locust(self) -> None:
        assert argv("--llm-input-tokens", "9,3", "--llm-input-tokens", "8") == ["--llm-input-tokens=8"]
        assert argv("-u", "1", "-u", "2") == ["-u", "1", "-u", "2"]


class TestLengths:
    def test_mean_and_deviation_meet_in_one_option_in_either_order(self) -> None:
        expected = ["--llm-input-tokens=512,64"]
        assert argv("--isl", "512", "--isl-stddev", "64") == expected
        assert argv("--stddev-input-tokens=64", "--mean-input-tokens=512") == expected

    def test_a_deviation_of_another_tool_completes_our_mean(self) -> None:
        assert argv("--llm-output-tokens", "100", "--osl-stddev", "9") == ["--llm-output-tokens=100,9"]
        assert argv("--osl-stddev", "9", "--llm-output-tokens", "100") == ["--llm-output-tokens=100,9"]

    def test_large_lengths_keep_all_their_digits(self) -> None:
        assert argv("--isl", "1000000") == ["--llm-input-tokens=1000000"]

    @pytest.mark.parametrize("flag", ["--isl", "--osl", "--mean-input-tokens", "--random-output-len"])
    @pytest.mark.parametrize("value", ["0", "-5", "abc", "1e3", "", "99999999999", "1,2", "nan"])
    def test_an_absurd_mean_is_an_error(self, flag: str, value: str) -> None:
        assert error(f"{flag}={value}").startswith(flag)

    @pytest.mark.parametrize("value", ["-5", "abc", "", "1,2", "inf"])
    def test_an_absurd_deviation_is_an_error(self, value: str) -> None:
        assert error(f"--isl-stddev={value}").startswith("--isl-stddev")

    @pytest.mark.parametrize(
        "value", ["prompts.jsonl", "wikitext", "prompt_tokens=a", "prompt_tokens", "prompt_tokens_min=1"]
    )
    def test_guidellms_data_that_is_not_lengths_points_to_prompt_files(self, value: str) -> None:
        assert error("--data", value).startswith("--data")

    def test_guidellms_synthetic_text_is_lengths(self) -> None:
        assert argv("--data", "kind=synthetic_text,prompt_tokens=10,output_tokens=20") == [
            "--llm-input-tokens=10", "--llm-output-tokens=20",
        ]  # fmt: skip

    def test_genai_bench_scenarios(self) -> None:
        assert argv("--traffic-scenario", "D(100,1000)") == ["--llm-input-tokens=100,0", "--llm-output-tokens=1000,0"]
        assert "U(50,100)" in error("--traffic-scenario", "U(50,100)/(200,250)")


class TestBody:
    def test_fields_from_everywhere_are_merged(self) -> None:
        [option] = argv(
            "--extra-inputs", "ignore_eos:true", "--extra-inputs", "stop:end", "--temperature", "0",
            "--extra-body", '{"chat_template_kwargs": {"enable_thinking": false}}', "--llm-extra", '{"n": 1}',
        )  # fmt: skip
        assert orjson.loads(option.removeprefix("--llm-extra=")) == {
            "ignore_eos": True, "stop": "end", "temperature": 0, "n": 1,
            "chat_template_kwargs": {"enable_thinking": False},
        }  # fmt: skip

    def test_several_inputs_may_follow_one_flag_and_user_classes_are_none(self) -> None:
        assert argv("--extra-inputs", "a:1", "b:2", "Chat") == ['--llm-extra={"a":1,"b":2}', "Chat"]

    def test_inputs_may_be_a_json_object(self) -> None:
        assert argv("--extra-inputs", '{"a": [1, null]}') == ['--llm-extra={"a":[1,null]}']

    @pytest.mark.parametrize("value", ["temperature", ":1", "{bad", "[1]x"])
    def test_inputs_that_cannot_be_read_are_an_error(self, value: str) -> None:
        assert error("--extra-inputs", value).startswith("--extra-inputs must be ")

    @pytest.mark.parametrize("value", ["[1]", "1", "{bad", "null"])
    @pytest.mark.parametrize("flag", ["--extra-body", "--llm-extra"])
    def test_a_body_must_be_a_json_object(self, flag: str, value: str) -> None:
        assert error(flag, value).startswith(f"{flag} must be a JSON object")

    @pytest.mark.parametrize("value", ["hot", "true", '"1"', "null"])
    def test_sampling_takes_numbers(self, value: str) -> None:
        assert error("--temperature", value).startswith("--temperature must be a number")

    def test_contradicting_fields_are_an_error_that_shows_no_value(self) -> None:
        message = error("--temperature", "0.1234", "--extra-body", '{"temperature": 0.5678}')
        assert "--temperature" in message
        assert "--extra-body" in message
        assert "0.1234" not in message

    def test_headers_and_metadata_of_vllm_bench(self) -> None:
        assert argv("--header", "a=1", "b=2", "--metadata", "tp=1", "v=2") == [
            "--llm-header=a: 1", "--llm-header=b: 2", "--llm-meta=tp=1", "--llm-meta=v=2",
        ]  # fmt: skip

    def test_limits_of_goodput_are_words_of_vllm_bench_or_one_text_of_aiperf(self) -> None:
        assert argv("--goodput", "ttft:500", "tpot:50", "e2el:8000") == ["--llm-goodput=ttft:500 tpot:50 e2el:8000"]
        assert argv("--goodput", "time_to_first_token:100 inter_token_latency:3.4 request_latency:250") == [
            "--llm-goodput=ttft:100 tpot:3.4 e2e_latency:250"
        ]
        assert error("--goodput", "fast").startswith("--goodput takes NAME:MILLISECONDS, such as ttft:500")
        assert "give one of them" in error("--goodput", "ttft:500", "--llm-goodput", "ttft:300")

    def test_metadata_of_llmperf_has_commas(self) -> None:
        assert argv("--metadata", "name=foo,bar=1") == ["--llm-meta=name=foo", "--llm-meta=bar=1"]
        assert error("--metadata", "foo").startswith("--metadata must be KEY=VALUE")

    def test_a_header_that_is_none_is_not_repeated_for_it_may_be_a_key(self) -> None:
        assert "sekret" not in error("--header", "sekret")


class TestApi:
    @pytest.mark.parametrize("value", ["chat", "openai-chat", "chat_completions", "sglang-oai-chat"])
    def test_chat(self, value: str) -> None:
        assert argv("--endpoint-type", value) == ["--llm-api=openai-chat"]

    @pytest.mark.parametrize("value", ["completions", "openai", "vllm", "text_completions", "sglang-oai"])
    def test_completions(self, value: str) -> None:
        assert argv("--backend", value) == ["--llm-api=openai-completions"]

    @pytest.mark.parametrize(
        ("value", "api"),
        [
            ("tgi", "tgi"),
            ("huggingface_generate", "tgi"),
            ("sglang-native", "sglang"),
            ("responses", "openai-responses"),
        ],
    )
    def test_servers_own_apis(self, value: str, api: str) -> None:
        assert argv("--backend", value) == [f"--llm-api={api}"]

    @pytest.mark.parametrize("value", ["embeddings", "sglang", "dynamic_grpc"])
    def test_an_api_that_is_not_spoken_is_an_error(self, value: str) -> None:
        for flag in ("--endpoint-type", "--backend", "--api-backend"):
            if (flag, value) != ("--api-backend", "sglang"):
                assert "not an API that locust-llm" in error(flag, value)

    def test_llmperfs_openai_is_chat(self) -> None:
        assert argv("--llm-api", "openai") == ["--llm-api=openai-chat"]
        assert argv("--llm-api", "nonsense") == ["--llm-api=nonsense"]  # Locust's parser says what there is

    def test_guidellms_backend_says_nothing_about_the_api(self) -> None:
        assert argv("--backend", "openai_http", "--request-type", "chat_completions") == ["--llm-api=openai-chat"]

    def test_guidellms_key_value_lists_get_a_hint(self) -> None:
        assert "--target URL" in error("--backend", "kind=openai_http,target=http://x")
        assert "--concurrency" in error("--profile", "kind=concurrent,streams=16")
        assert "--concurrency" in error("--profile=sweep")

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("/v1/chat/completions", ["--llm-api=openai-chat"]),
            ("v1/completions/", ["--llm-api=openai-completions"]),
            ("/v1/custom/chat", ["--llm-endpoint=/custom/chat"]),
        ],
    )
    def test_an_endpoint_names_the_api_or_a_path_under_its_root(self, path: str, expected: list[str]) -> None:
        assert argv("--endpoint", path) == expected

    @pytest.mark.parametrize("path", ["/gateway/v1/chat/completions", "/chat/completions", "/generate", ""])
    def test_an_endpoint_under_another_root_is_an_error_with_the_remedy(self, path: str) -> None:
        assert "address" in error(f"--endpoint={path}")

    def test_backend_and_endpoint_that_disagree_are_an_error_naming_both(self) -> None:
        message = error("--backend", "openai", "--endpoint", "/v1/chat/completions")
        assert "--backend openai-completions" in message
        assert "--endpoint openai-chat" in message
