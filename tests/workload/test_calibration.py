"""Two preflight prompts tell how the server counts."""

from __future__ import annotations

from itertools import accumulate
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locust_llm.tokens import APPROXIMATE, CALIBRATED, Tokenizer, load_tokenizer
from locust_llm.workload.calibration import (
    PROBE_START,
    Probe,
    approximate,
    calibrate,
    fit,
    probe_prompts,
)
from locust_llm.workload.corpus import prose
from locust_llm.workload.costs import calibrated_costs
from locust_llm.workload.lengths import Length
from locust_llm.workload.pieces import units
from locust_llm.workload.prompts import Prompt
from locust_llm.workload.synthetic import SyntheticWorkload


def server_count(tokenizer: Tokenizer, prompt: Prompt) -> int:
    """What a server with this tokenizer reports as prompt_tokens."""
    if prompt.messages is None:
        return tokenizer.count_completion(prompt.text)
    return tokenizer.count_chat(prompt.messages)


@given(per_word=st.floats(0.8, 4), template=st.integers(0, 2000), average=st.floats(1, 100_000))
def test_the_fit_finds_the_slope_and_the_template_of_a_server_that_counts_a_line(
    per_word: float, template: int, average: float
) -> None:
    probes = probe_prompts(Length(average), seed=3)
    counts = [round(per_word * probe.words + template) for probe in probes]
    found = calibrate(probes, counts)
    assert found.source == CALIBRATED
    assert found.reason is None
    assert found.tokens_per_word == pytest.approx(per_word, abs=1 / (probes[1].words - probes[0].words))
    assert found.overhead == pytest.approx(template, abs=2)


@pytest.mark.parametrize("chat", [True, False])
def test_lengths_scaled_by_a_calibration_are_what_such_a_server_counts(chat: bool) -> None:
    def count(words: int) -> int:
        return round(1.37 * words + 23)

    length = Length(550, 150)
    probes = probe_prompts(length, seed=3, chat=chat)
    costs = calibrated_costs(calibrate(probes, [count(probe.words) for probe in probes], chat=chat))
    workload = SyntheticWorkload(length, Length(150, 20), costs=costs, seed=3, chat=chat)
    assert workload.source == CALIBRATED
    prompts = [workload.next() for _ in range(500)]
    errors = [count(units(prompt.text)) - (prompt.asked_in or 0) for prompt in prompts]
    assert mean(errors) == pytest.approx(0, abs=1)
    assert max(map(abs, errors)) <= 3
    assert workload.template_tokens == pytest.approx(23, abs=2)


# A vocabulary of 1,500 tokens spells most words out, so it differs more from place to place than a model's does.
@pytest.mark.parametrize(
    ("folder", "tolerance"), [("chat_folder", 0.05), ("deepseek_folder", 0.015), ("mistral_folder", 0.015)]
)
def test_a_calibrated_run_delivers_its_mean(folder: str, tolerance: float, request: pytest.FixtureRequest) -> None:
    tokenizer = load_tokenizer(str(request.getfixturevalue(folder)))
    length = Length(550, 150)
    probes = probe_prompts(length, seed=3)
    calibration = calibrate(probes, [server_count(tokenizer, probe.prompt) for probe in probes])
    assert calibration.source == CALIBRATED
    workload = SyntheticWorkload(length, Length(150), costs=calibrated_costs(calibration), seed=4)
    prompts = [workload.next() for _ in range(300)]
    asked = mean(prompt.asked_in or 0 for prompt in prompts)
    assert mean(server_count(tokenizer, prompt) for prompt in prompts) == pytest.approx(asked, rel=tolerance)


@pytest.mark.parametrize("folder", ["deepseek_folder", "mistral_folder"])
def test_the_prose_of_the_probes_is_about_as_dense_as_all_of_it(folder: str, request: pytest.FixtureRequest) -> None:
    tokenizer = load_tokenizer(str(request.getfixturevalue(folder)))
    words = prose().words
    tokens = list(accumulate((tokenizer.count(f"is {w}") - tokenizer.count("is") for w in words * 2), initial=0))
    lengths = list(accumulate((units(w) for w in words * 2), initial=0))
    whole = tokens[len(words)] / lengths[len(words)]
    for size in (150, 400, 825, 1500):
        end = PROBE_START + size
        here = (tokens[end] - tokens[PROBE_START]) / (lengths[end] - lengths[PROBE_START])
        assert here == pytest.approx(whole, rel=0.015)


def test_probes_share_no_beginning_with_each_other_nor_with_the_prompts_of_the_run() -> None:
    probes = probe_prompts(Length(550), seed=3)
    costs = calibrated_costs(approximate("test"))
    run = SyntheticWorkload(Length(550), Length(150), costs=costs, seed=3)
    texts = [probe.prompt.text for probe in probes] + [run.next().text for _ in range(2000)]
    assert len({" ".join(text.split()[:6]) for text in texts}) == len(texts)


def test_probes_are_short_enough_for_any_server_that_can_take_the_run() -> None:
    for average in (1, 20, 550, 2000, 100_000):
        short, long = probe_prompts(Length(average), seed=3)
        assert short.words < long.words <= max(2 * average, 220)
        assert long.words < 1800
        assert short.prompt.max_tokens
        assert (short.words, long.words) == (units(short.prompt.text), units(long.prompt.text))


def test_completions_are_probed_with_text_and_chats_with_messages() -> None:
    assert probe_prompts(Length(550), seed=3, chat=False)[0].prompt.messages is None
    chat = probe_prompts(Length(550), seed=3)[0].prompt
    assert chat.messages == [{"role": "user", "content": chat.text}]


@pytest.mark.parametrize("counts", [(None, 900), (130, None), (None, None)])
def test_without_usage_lengths_are_approximate_and_say_why(counts: tuple[int | None, int | None]) -> None:
    found = calibrate(probe_prompts(Length(550), seed=3), counts)
    assert found.source == APPROXIMATE
    assert found.reason is not None
    assert "usage" in found.reason
    workload = SyntheticWorkload(Length(550), Length(150), costs=calibrated_costs(found), seed=3)
    assert workload.source == APPROXIMATE


@pytest.mark.parametrize("counts", [(0, 0), (900, 900), (900, 130), (1, 100_000), (10, 900)])
def test_counts_that_no_tokenizer_gives_are_not_believed(counts: tuple[int, int]) -> None:
    probes = [Probe(Prompt("a"), 130), Probe(Prompt("b"), 800)]
    found = calibrate(probes, counts)
    assert found.source == APPROXIMATE
    assert found.reason
    with pytest.raises(ValueError, match=r"."):
        fit(130, counts[0], 800, counts[1])


def test_one_length_twice_gives_no_line() -> None:
    with pytest.raises(ValueError, match="same length"):
        fit(100, 120, 100, 121)


def test_the_approximate_ratio_is_right_within_fifteen_percent_for_real_tokenizers(deepseek_folder: object) -> None:
    tokenizer = load_tokenizer(str(deepseek_folder))
    workload = SyntheticWorkload(
        Length(550), Length(150), costs=calibrated_costs(approximate("no usage", chat=False)), seed=3, chat=False
    )
    counts = [server_count(tokenizer, workload.next()) for _ in range(100)]
    assert mean(counts) == pytest.approx(550, rel=0.15)
