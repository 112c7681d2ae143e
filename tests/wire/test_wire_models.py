"""Servers list their models in many forms; a list that cannot be read is an empty one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from locust_llm.wire.models import ListedModel, listed_models


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"object": "list", "data": [{"id": "a"}, {"id": "b", "max_model_len": 4096}]}, [("a", None), ("b", 4096)]),
        ({"data": [{"id": "q", "meta": {"n_ctx_train": 8192}}], "models": [{"name": "q"}]}, [("q", 8192)]),
        ({"models": [{"name": "llama:latest", "model": "llama:latest", "size": 5}]}, [("llama:latest", None)]),
        ({"model_id": "org/m", "max_total_tokens": 2048, "version": "3"}, [("org/m", 2048)]),
        ([{"name": "m"}, "x", {}, {"id": None}], [("m", None)]),
        ({"data": "soon"}, []),
        ({"detail": "Not Found"}, []),
        ([], []),
        (None, []),
        ("m", []),
    ],
)
def test_the_models_of_a_server_in_its_own_form(value: Any, expected: list[tuple[str, int | None]]) -> None:
    assert listed_models(json.dumps(value).encode()) == [ListedModel(*model) for model in expected]


def test_what_is_no_json_lists_nothing() -> None:
    assert listed_models(b"<html>") == listed_models(b"") == []
