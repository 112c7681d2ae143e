"""Lengths come out as asked, and a bad one is an error that names its option."""

from __future__ import annotations

import random
from statistics import NormalDist, mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locust_llm.errors import UsageError
from locust_llm.workload.lengths import LONGEST, Length


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("550,150", Length(550, 150)),
        ("550", Length(550)),
        (" 550 , 0 ", Length(550, 0)),
        ("1", Length(1)),
        ("12.5,.5", Length(12.5, 0.5)),
        (str(LONGEST), Length(LONGEST)),
    ],
)
def test_mean_and_deviation_are_read(text: str, length: Length) -> None:
    assert Length.parse(text, "--llm-input-tokens") == length


@pytest.mark.parametrize(
    "text",
    ["", ",", "550,", ",5", "-5", "550,-1", "0", "0.5,9", "1,2,3", "nan", "inf", "550,nan", "10000001", "5,99999999",
     "many", "1e3", "1_000", "0x10", "550;150", "५५०"],
)  # fmt: skip
def test_a_bad_length_is_one_line_that_names_the_option_and_what_was_given(text: str) -> None:
    with pytest.raises(UsageError) as error:
        Length.parse(text, "--llm-output-tokens")
    message = str(error.value)
    assert message.startswith("--llm-output-tokens")
    assert f'"{text}"' in message
    assert "\n" not in message


@pytest.mark.parametrize(("average", "std"), [(0, 0), (-1, 0), (5, -1), (float("nan"), 0), (5, float("inf"))])
def test_a_length_made_in_code_is_checked_too(average: float, std: float) -> None:
    with pytest.raises(ValueError, match="must be from"):
        Length(average, std)


def test_mean_and_deviation_of_the_draws_are_those_asked_for() -> None:
    rng = random.Random(7)
    draws = [Length(550, 100).draw(rng) for _ in range(20_000)]
    assert mean(draws) == pytest.approx(550, abs=3)
    assert stdev(draws) == pytest.approx(100, rel=0.03)


def test_without_a_deviation_every_draw_is_the_mean() -> None:
    rng = random.Random(7)
    assert {Length(33).draw(rng) for _ in range(100)} == {33}


def test_draws_below_one_are_drawn_again_and_not_heaped_up_at_one() -> None:
    rng = random.Random(7)
    draws = [Length(10, 30).draw(rng) for _ in range(20_000)]
    assert min(draws) >= 1
    # The mean of a normal of which only the part above 0.5 is left.
    standard, bound = NormalDist(), (0.5 - 10) / 30
    assert mean(draws) == pytest.approx(10 + 30 * standard.pdf(bound) / (1 - standard.cdf(bound)), abs=0.7)
    assert draws.count(1) < 2 * draws.count(5)


@given(
    average=st.floats(1, 1000), std=st.floats(0, 1000), at_least=st.integers(1, 1000), seed=st.integers(0, 2**32)
)  # fmt: skip
def test_a_draw_is_never_below_the_least_and_an_unreachable_least_is_refused(
    average: float, std: float, at_least: int, seed: int
) -> None:
    length = Length(average, std)
    if average < at_least:
        with pytest.raises(ValueError, match="never reaches"):
            length.draw(random.Random(seed), at_least)
    else:
        assert length.draw(random.Random(seed), at_least) >= at_least


def test_a_length_prints_as_it_is_written() -> None:
    assert str(Length(550, 150)) == "550,150"
    assert str(Length(550)) == "550"
