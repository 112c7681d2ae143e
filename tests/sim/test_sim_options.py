"""Options of the simulator: one definition for the k=v list, the flags and the child."""

from __future__ import annotations

import argparse
from dataclasses import fields

import pytest

from locust_llm.errors import UsageError
from locust_llm.sim.command import add_arguments
from locust_llm.sim.options import SimOptions


def test_an_empty_list_gives_the_defaults() -> None:
    assert SimOptions.parse("") == SimOptions.parse(" , ") == SimOptions()


def test_a_list_is_read_with_units() -> None:
    text = "ttft=80ms, itl=500us,fail_first=1.5s,error_rate=0.01,reject=ignore_eos+min_tokens,prefix_cache=true,slots=4"
    options = SimOptions.parse(text)
    assert options.ttft == pytest.approx(0.08)
    assert options.itl == pytest.approx(0.0005)
    assert options.fail_first == 1.5
    assert options.error_rate == 0.01
    assert options.reject == ("ignore_eos", "min_tokens")
    assert options.prefix_cache is True
    assert options.slots == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ttfft=50ms", ["ttfft", "known:", "ttft", "truth_log"]),
        ("ttft", ["NAME=VALUE", "ttft"]),
        ("ttft=50", ["ttft", "50ms", '"50"']),
        ("ttft=-1ms", ["ttft", "duration"]),
        ("ttft=nanms", ["ttft", "duration"]),
        ("ttft=infs", ["ttft", "duration"]),
        ("ttft=5 parsecs", ["ttft", "duration"]),
        ("ttft=1ms,ttft=2ms", ["ttft", "twice"]),
        ("error_rate=2", ["error_rate", "0 to 1"]),
        ("error_rate=some", ["error_rate", '"some"']),
        ("error_kind=http_418", ["error_kind", "http_500, http_429, in_band"]),
        ("tokens=0", ["tokens", "1 or more"]),
        ("slots=-1", ["slots", "0 or more"]),
        ("slots=1.5", ["slots", "whole number"]),
        ("jitter=nan", ["jitter", "number"]),
        ("close=maybe", ["close", "true or false"]),
        ("model=", ["model", "empty"]),
        ("usage=sometimes", ["usage", "continuous, final, off"]),
    ],
)
def test_a_bad_list_is_one_line_that_names_the_option_and_the_remedy(text: str, said: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        SimOptions.parse(text)
    assert "\n" not in str(error.value)
    for part in said:
        assert part in str(error.value)


def test_values_given_in_code_are_checked_too() -> None:
    with pytest.raises(UsageError, match="error_rate"):
        SimOptions(error_rate=1.5)


def test_every_option_is_a_flag_with_help() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    text = " ".join(parser.format_help().split())
    for spec in fields(SimOptions):
        assert "--" + spec.name.replace("_", "-") in text
    assert "(default: 50ms)" in text
