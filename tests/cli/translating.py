"""Helpers of the tests of the translation."""

from __future__ import annotations

import pytest

from locust_llm.commands.translate import translate
from locust_llm.errors import UsageError

URL = "http://127.0.0.1:8000"


def argv(*words: str) -> list[str]:
    return translate(words).argv


def error(*words: str) -> str:
    with pytest.raises(UsageError) as caught:
        translate(words)
    message = str(caught.value)
    assert "\n" not in message
    return message
