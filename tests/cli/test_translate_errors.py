"""Contradictions, values that cannot be read, and mix-ups with Locust's own options are one clear line each."""

from __future__ import annotations

import pytest
from translating import URL, argv, error


class TestConflicts:
    @pytest.mark.parametrize(
        ("words", "both"),
        [
            (["--concurrency", "4", "--max-concurrency", "8"], ["--concurrency 4", "--max-concurrency 8"]),
            (["-u", "4", "--concurrency", "8"], ["-u 4", "--concurrency 8"]),
            (["--concurrency", "8", "-u4"], ["-u 4", "--concurrency 8"]),
            (["--users=4", "--concurrency", "8"], ["--users 4", "--concurrency 8"]),
            (["-t", "1m", "--duration", "90"], ["-t 60", "--duration 90"]),
            (["-H", "h:1", "--url", "h:2"], ["-H http://h:1", "--url http://h:2"]),
            (["--llm-requests", "5", "--num-prompts", "6"], ["--llm-requests 5", "--num-prompts 6"]),
            (["--streaming", "--llm-no-stream"], ["--streaming", "--llm-no-stream"]),
            (["--ignore-eos", "--llm-natural-stop"], ["--ignore-eos", "--llm-natural-stop"]),
            (["--isl", "5", "--input-len", "6"], ["--isl 5", "--input-len 6"]),
            (["--isl", "5", "--llm-input-tokens", "6,1"], ["--isl 5", "--llm-input-tokens 6"]),
            (["--isl-stddev", "5", "--llm-input-tokens", "6,1"], ["--isl-stddev 5", "--llm-input-tokens 1"]),
        ],
    )
    def test_two_different_values_for_one_thing_are_an_error_naming_both(
        self, words: list[str], both: list[str]
    ) -> None:
        message = error(*words)
        assert all(name in message for name in both), message

    @pytest.mark.parametrize(
        "words",
        [
            ["--concurrency", "4", "-u", "4"],
            ["-t", "1m30s", "--duration", "90"],
            ["-H", "http://h:1/", "--url", "h:1"],
            ["--llm-requests", "5", "--num-prompts", "5"],
            ["--temperature", "0", "--extra-inputs", "temperature:0"],
        ],
    )
    def test_the_same_value_twice_is_no_conflict_and_stands_once(self, words: list[str]) -> None:
        assert len(argv(*words)) in (1, 2)

    def test_a_list_of_values_is_an_error_for_one_run_has_one_load(self) -> None:
        assert "one run has one load" in error("--concurrency", "1,8,32")
        assert "given twice" in error("--num-concurrency", "1", "--num-concurrency", "8")
        assert "given twice" in error("--url", "a:1", "--url", "b:1")

    @pytest.mark.parametrize(
        ("short", "full"),
        [
            ("--llm-req", "--llm-requests"),
            ("--llm-in=5", "--llm-input-tokens or --llm-insecure"),
            ("--llm-no-st", "--llm-no-stream"),
        ],
    )
    def test_an_option_of_ours_must_be_written_in_full_for_a_conflict_to_be_seen(self, short: str, full: str) -> None:
        assert error("--num-prompts", "6", short, "5") == f"{short.partition('=')[0]}: write it in full: {full}"

    def test_an_option_of_the_locustfiles_own_passes_though_it_begins_like_ours(self) -> None:
        assert argv("--llm-requests-file", "x") == ["--llm-requests-file", "x"]

    def test_a_password_in_an_address_is_not_shown(self) -> None:
        assert "sekret" not in error("--url", "http://me:sekret@h:1", "-H", "h:2")


class TestValues:
    @pytest.mark.parametrize("flag", ["--concurrency", "--num-prompts"])
    @pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "", "9" * 20])
    def test_a_count_is_a_whole_number_from_one(self, flag: str, value: str) -> None:
        assert error(f"{flag}={value}").startswith(f"{flag} must be a whole number")

    def test_a_seed_may_be_nought_but_not_negative(self) -> None:
        assert argv("--seed", "0") == ["--llm-seed=0"]
        assert error("--seed", "-1").startswith("--seed must be")

    @pytest.mark.parametrize(
        ("value", "seconds"), [("60", 60), ("60.0", 60), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("3000ms", 3)]
    )
    def test_a_duration_is_seconds_or_has_units(self, value: str, seconds: int) -> None:
        assert argv("--duration", value) == [f"--run-time={seconds}"]

    @pytest.mark.parametrize("value", ["0", "-5", "0.5", "soon", "", "inf", "30,60"])
    def test_a_duration_that_is_none_is_an_error(self, value: str) -> None:
        assert error(f"--duration={value}").startswith("--duration must be")

    def test_an_address_without_a_scheme_gets_http(self) -> None:
        assert argv("--url", "localhost:8000") == ["--host=http://localhost:8000"]
        assert argv("--url", "https://h/v1/") == ["--host=https://h/v1"]

    def test_a_value_that_starts_with_a_minus_is_a_value_only_if_it_is_a_number(self) -> None:
        assert argv("--presence-penalty", "-1.5") == ['--llm-extra={"presence_penalty":-1.5}']
        assert error("--model", "-x") == "--model needs a value"

    def test_only_one_value_of_some_is_what_happens_anyway(self) -> None:
        assert "--llm-prompts" in error("--dataset-name", "sharegpt")
        assert argv("--request-rate", "inf") == []
        for text in ("0", "-1", "many"):
            assert error("--request-rate", text).startswith("--request-rate ")
        assert "one rate" in error("--rate", "1,2")
        assert "--concurrency" in error("--rate-type", "throughput")
        assert error("--burstiness", "0").startswith("--burstiness must be")
        assert "--isl-stddev" in error("--random-range-ratio", "0.2")
        assert error("--service-kind", "triton").startswith("--service-kind triton: ")


class TestMixUps:
    @pytest.mark.parametrize(
        "words",
        [
            ["-u", URL],
            [f"-u{URL}"],
            ["-u", "localhost:8000"],
            [f"--users={URL}"],
            ["-u", "[::1]:80"],
            ["-u", "10.0.0.1:80"],
        ],
    )
    def test_an_address_after_u_gets_a_hint(self, words: list[str]) -> None:
        assert "-u is the number of users" in error(*words).replace("--users", "-u")
        assert "-H" in error(*words)

    def test_the_hint_shows_no_password(self) -> None:
        assert "sekret" not in error("-u", "http://me:sekret@h:1")

    def test_a_header_after_h_gets_a_hint_that_does_not_repeat_it(self) -> None:
        message = error("-H", "X-Key: sekret")
        assert "--llm-header" in message
        assert "sekret" not in message

    @pytest.mark.parametrize("value", ["localhost:8000", "http://h", "https://h:1/v1", "h", "h:8000/v1", "[::1]:8000"])
    def test_an_address_after_h_is_no_header(self, value: str) -> None:
        assert argv("-H", value) == ["-H", value]

    def test_a_number_of_users_that_is_none_is_left_to_locust(self) -> None:
        assert argv("-u", "many") == ["-u", "many"]
        assert argv("-u") == ["-u"]
