"""How many connections each process opens before the load, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from locust_llm.load.prewarm import connections_of, sentence
from locust_llm.load.schedule import Share


def users(weight: int = 1, fixed_count: int = 0) -> Any:
    return type("Users", (), {"weight": weight, "fixed_count": fixed_count})


def test_one_server_gets_a_connection_for_each_user_of_this_process() -> None:
    found = [connections_of({"a": [users(), users(3)]}, 10, Share(i, 3))["a"] for i in range(3)]
    assert found == [4, 3, 3]


def test_several_servers_share_them_by_the_weights_of_their_classes() -> None:
    assert connections_of({"a": [users(3)], "b": [users(1)]}, 100, Share()) == {"a": 75, "b": 25}


def test_classes_of_a_fixed_count_come_first() -> None:
    targets = {"a": [users()], "b": [users(fixed_count=4)]}
    assert connections_of(targets, 10, Share()) == {"a": 6, "b": 4}
    assert connections_of(targets, 10, Share(1, 2)) == {"a": 3, "b": 2}


def test_never_more_than_users_and_none_without_users() -> None:
    targets = {"a": [users()], "b": [users(fixed_count=40)]}
    assert connections_of(targets, 5, Share()) == {"a": 0, "b": 5}
    assert connections_of(targets, 1, Share(1, 2)) == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    ("opened", "more"), [(5, ""), (3, "; the other users connect with their first exchange (why)")]
)
def test_one_line_for_all_processes(opened: int, more: str) -> None:
    told = {
        "w0": {"a": {"asked": 5, "opened": 5, "seconds": 0.5, "error": ""}},
        "w1": {"a": {"asked": 5, "opened": opened, "seconds": 1.25, "error": "" if opened == 5 else "why"}},
    }
    assert sentence(told) == f"prewarm: {5 + opened} of 10 connections opened in 1.25 s{more}"
