"""The prose is rich enough, and a window of it is what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locust_llm.workload.corpus import HEAD_VOCABULARY, corpus_of, prose

SIZE = len(prose().words)


def test_the_prose_has_thousands_of_words_and_a_varied_vocabulary() -> None:
    words = prose().words
    assert len(words) >= 3000
    assert len({word.strip('.,;:"').lower() for word in words}) >= 1400
    assert all(word.isascii() for word in words)


def test_heads_have_a_thousand_different_plain_words_to_choose_from() -> None:
    vocabulary = prose().vocabulary
    assert len(set(vocabulary)) == len(vocabulary) == HEAD_VOCABULARY
    assert all(word.isalpha() and word.islower() for word in vocabulary)


@given(start=st.integers(0, SIZE - 1), length=st.integers(0, 3 * SIZE))
def test_a_window_is_the_words_from_its_start_round_and_round(start: int, length: int) -> None:
    words = prose().words
    assert prose().window(start, length).split() == [words[(start + i) % SIZE] for i in range(length)]


def test_a_text_without_enough_different_words_is_no_corpus() -> None:
    with pytest.raises(ValueError, match="different words"):
        corpus_of("the same words over and over " * 500)
