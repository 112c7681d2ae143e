"""No head comes twice: not for two users, two workers or two runs."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locust_llm.workload.corpus import HEAD_VOCABULARY
from locust_llm.workload.pieces import PROBE_WORKER, WORD_BITS, Heads, all_asked_words, asked_words, compose, units


def test_heads_never_repeat_within_a_run_nor_between_runs() -> None:
    seen: set[tuple[int, ...]] = set()
    for seed, worker in product((1, 2), (0, 1)):
        heads = Heads(seed, worker)
        seen.update(tuple(heads.next()) for _ in range(10_000))
    assert len(seen) == 40_000


def test_already_the_first_word_differs_as_much_as_it_can() -> None:
    heads = Heads(5, 3)
    firsts = [heads.next()[0] for _ in range(10_000)]
    assert len(set(firsts)) == HEAD_VOCABULARY == 1 << WORD_BITS
    # 10,000 draws from 1,024: about 10 each; a pattern would show as a heap.
    assert max(firsts.count(word) for word in range(HEAD_VOCABULARY)) < 35


def test_neighbouring_prompts_workers_and_seeds_share_no_more_than_chance_would() -> None:
    sequences = [[tuple(heads.next()) for _ in range(2000)] for heads in (Heads(1, 0), Heads(1, 1), Heads(2, 0))]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        pairs = list(zip(sequences[one], sequences[other], strict=True))
        assert sum(a[0] == b[0] for a, b in pairs) < 15  # by chance 2
    steps = list(zip(sequences[0], sequences[0][1:], strict=False))
    assert sum(a[0] == b[0] for a, b in steps) < 15


def test_the_workloads_of_two_user_classes_of_one_worker_share_no_heads() -> None:
    chat, completion = Heads(1, 0, "ChatUser"), Heads(1, 0, "CompletionUser")
    assert not {tuple(chat.next()) for _ in range(1000)} & {tuple(completion.next()) for _ in range(1000)}


def test_the_same_seed_and_worker_give_the_same_heads_again() -> None:
    one, again = Heads(9, 4), Heads(9, 4)
    assert [one.next() for _ in range(100)] == [again.next() for _ in range(100)]


@pytest.mark.parametrize("worker", [-1, PROBE_WORKER + 1])
def test_a_worker_index_that_would_run_into_another_is_refused(worker: int) -> None:
    with pytest.raises(ValueError, match="worker index"):
        Heads(1, worker)


def test_a_punctuation_mark_counts_as_a_word() -> None:
    assert units('the bank has failed." By three, it') == 10
    assert units("a\n\nb  c") == 3
    assert units("") == 0


@given(st.integers(1, 10_000_000))
def test_more_words_are_asked_for_than_tokens_are_allowed(max_tokens: int) -> None:
    assert asked_words(max_tokens) >= 2 * max_tokens
    assert asked_words(max_tokens) in all_asked_words()


def test_a_prompt_begins_with_its_head_and_ends_with_its_request() -> None:
    assert compose("six words", "some prose", "\n\nWrite.") == "six words: some prose\n\nWrite."
    assert compose("six words", "", "") == "six words:"
