"""Synthetic prompts have the length that was asked for and share nothing a cache could use."""

from __future__ import annotations

import logging
from itertools import product
from statistics import mean, stdev

import pytest

from locust_llm.tokens import TOKENIZER, Tokenizer, load_tokenizer
from locust_llm.workload.calibration import approximate
from locust_llm.workload.costs import Costs, calibrated_costs, tokenizer_costs
from locust_llm.workload.lengths import Length
from locust_llm.workload.prompts import Prompt
from locust_llm.workload.synthetic import SyntheticWorkload

USUAL = Length(550, 150)
WORDS = calibrated_costs(approximate("test"))


def workload(
    input: Length = USUAL,
    *,
    seed: int = 1,
    worker: int = 0,
    costs: Costs = WORDS,
    chat: bool = True,
    stream: str = "",
) -> SyntheticWorkload:
    return SyntheticWorkload(input, Length(150, 20), costs=costs, seed=seed, worker=worker, chat=chat, stream=stream)


def seen_by_the_model(tokenizer: Tokenizer, prompt: Prompt) -> int:
    if prompt.messages is None:
        return tokenizer.count_completion(prompt.text)
    return tokenizer.count_chat(prompt.messages)


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("length", [Length(550, 150), Length(550), Length(70, 10), Length(6000, 500)], ids=str)
def test_the_model_sees_as_many_tokens_as_were_asked_for(tokenizer: Tokenizer, length: Length, chat: bool) -> None:
    source = workload(length, costs=tokenizer_costs(tokenizer, chat=chat), chat=chat)
    assert source.source == TOKENIZER
    prompts = [source.next() for _ in range(100 if length.mean < 1000 else 20)]
    asked = [prompt.asked_in or 0 for prompt in prompts]
    seen = [seen_by_the_model(tokenizer, prompt) for prompt in prompts]
    assert mean(seen) == pytest.approx(mean(asked), abs=max(2, 0.01 * mean(asked)))
    assert max(abs(a - b) for a, b in zip(asked, seen, strict=True)) <= max(5, 0.01 * length.mean)


def test_prompts_of_two_workers_and_two_runs_never_share_their_first_eight_words() -> None:
    beginnings: set[str] = set()
    for seed, worker in product((1, 2), (0, 1)):
        source = workload(Length(60), seed=seed, worker=worker)
        beginnings.update(" ".join(source.next().text.split()[:8]) for _ in range(10_000))
    assert len(beginnings) == 40_000


def test_a_prefix_cache_finds_next_to_nothing_beyond_the_template(chat_folder: object) -> None:
    from tokenizers import Tokenizer as Raw

    raw = Raw.from_file(f"{chat_folder}/tokenizer.json")
    costs = tokenizer_costs(load_tokenizer(str(chat_folder)))
    cached: set[tuple[int, ...]] = set()
    hits = total = 0
    for worker in (0, 1):
        source = workload(Length(550), worker=worker, costs=costs)
        for _ in range(1000):
            ids = tuple(raw.encode(source.next().text, add_special_tokens=False).ids)
            hit = 0
            while ids[: hit + 1] in cached:
                hit += 1
            hits += hit
            total += len(ids)
            cached.update(ids[:n] for n in range(1, 13))
    # The vocabulary of this tokenizer is small, so first words share pieces; a model's shares fewer.
    assert hits < 0.01 * total


def test_first_tokens_differ_with_a_model_s_tokenizer(deepseek_folder: object) -> None:
    from tokenizers import Tokenizer as Raw

    raw = Raw.from_file(f"{deepseek_folder}/tokenizer.json")
    source = workload(Length(40))
    firsts = [raw.encode(source.next().text, add_special_tokens=False).ids[0] for _ in range(2000)]
    assert len(set(firsts)) > 500
    assert max(firsts.count(token) for token in set(firsts)) < 100


def test_the_same_seed_gives_the_same_prompts_and_another_seed_others() -> None:
    first, again, other = workload(seed=7), workload(seed=7), workload(seed=8)
    prompts = [first.next() for _ in range(200)]
    assert prompts == [again.next() for _ in range(200)]
    assert not {p.text for p in prompts} & {other.next().text for _ in range(200)}


def test_workers_and_user_classes_get_sequences_of_their_own() -> None:
    sources = [workload(worker=0), workload(worker=1), workload(worker=0, stream="CompletionUser")]
    lengths = [[source.next().asked_in for _ in range(50)] for source in sources]
    assert lengths[0] != lengths[1] != lengths[2] != lengths[0]


def test_lengths_of_input_and_output_follow_their_distributions() -> None:
    source = workload(Length(550, 100))
    prompts = [source.next() for _ in range(5000)]
    asked_in = [prompt.asked_in or 0 for prompt in prompts]
    asked_out = [prompt.max_tokens or 0 for prompt in prompts]
    assert mean(asked_in) == pytest.approx(550, abs=6)
    assert stdev(asked_in) == pytest.approx(100, rel=0.05)
    assert mean(asked_out) == pytest.approx(150, abs=1.5)
    assert stdev(asked_out) == pytest.approx(20, rel=0.05)


def test_every_prompt_asks_for_more_words_than_the_answer_may_have_tokens() -> None:
    source = SyntheticWorkload(Length(550, 150), Length(900, 600), costs=WORDS, seed=1)
    for _ in range(200):
        prompt = source.next()
        words = int(prompt.text.rsplit("at least ", 1)[1].split()[0])
        assert words >= 2 * (prompt.max_tokens or 0)


def test_prose_begins_at_different_places() -> None:
    source = workload(Length(550))
    assert len({source.next().text.split(": ", 1)[1][:40] for _ in range(300)}) > 250


def test_a_chat_is_one_user_message_and_a_completion_is_text() -> None:
    prompt = workload().next()
    assert prompt.messages == [{"role": "user", "content": prompt.text}]
    assert workload(chat=False).next().messages is None


def test_a_prompt_longer_than_the_prose_goes_round(plain_folder: object) -> None:
    tokenizer = load_tokenizer(str(plain_folder))
    source = workload(Length(30_000), costs=tokenizer_costs(tokenizer))
    prompt = source.next()
    assert seen_by_the_model(tokenizer, prompt) == pytest.approx(30_000, rel=0.01)


def test_a_short_prompt_gives_up_its_request_before_its_unique_head(chat_folder: object) -> None:
    tokenizer = load_tokenizer(str(chat_folder))
    costs = tokenizer_costs(tokenizer)
    for tokens in range(SyntheticWorkload(Length(999), Length(1), costs=costs, seed=1).shortest, 200):
        source = workload(Length(tokens), costs=costs)
        prompts = [source.next() for _ in range(5)]
        assert len({prompt.text[:30] for prompt in prompts}) == 5
        seen = mean(seen_by_the_model(tokenizer, prompt) for prompt in prompts)
        # Near the shortest there is only the head, and heads differ by some tokens.
        assert seen == pytest.approx(tokens, abs=8)


def test_lengths_below_the_shortest_prompt_are_drawn_again() -> None:
    source = workload(Length(40, 30))
    assert min(source.next().asked_in or 0 for _ in range(2000)) >= source.shortest


def test_a_mean_that_no_prompt_can_have_is_said_once_and_stays_on_record(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        source = workload(Length(5))
        prompts = [source.next() for _ in range(20)]
    (record,) = caplog.records
    assert "--llm-input-tokens 5" in record.getMessage()
    assert str(source.shortest) in record.getMessage()
    assert {prompt.asked_in for prompt in prompts} == {5}
    assert len({prompt.text for prompt in prompts}) == 20


def test_cached_tokens_of_the_template_alone_are_known_not_to_flatter(chat_folder: object) -> None:
    tokenizer = load_tokenizer(str(chat_folder))
    source = workload(costs=tokenizer_costs(tokenizer))
    empty = tokenizer.count_chat([{"role": "user", "content": ""}])
    assert source.template_tokens == pytest.approx(empty, abs=1)


def test_making_a_prompt_tokenizes_nothing(chat_folder: object) -> None:
    counted: list[str] = []

    def encode(text: str, special: bool) -> int:
        counted.append(text)
        return len(text.split())

    source = workload(costs=tokenizer_costs(Tokenizer("counting", encode)))
    assert counted
    counted.clear()
    for _ in range(100):
        source.next()
    assert counted == []
