"""A port that is taken is one line before anything starts, with the options that mend it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from locust_llm.commands.ports import must_be_free
from locust_llm.errors import UsageError


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def look(page: bool = False, **given: Any) -> None:
    plain = {"worker": False, "master": False, "processes": None, "web_host": "127.0.0.1", "web_port": 0}
    master = {"master_bind_host": "127.0.0.1", "master_bind_port": 0}
    must_be_free(SimpleNamespace(**{**plain, **master, **given}), page)


def error(page: bool = False, **given: Any) -> str:
    with pytest.raises(UsageError) as caught:
        look(page, **given)
    return str(caught.value)


def test_the_port_of_the_page(taken: int) -> None:
    assert error(page=True, web_port=taken) == (
        f"--web-port {taken}: cannot listen there (Address already in use); choose another: --web-port PORT"
    )
    look(page=False, web_port=taken)


def test_the_port_for_workers_and_how_they_are_told(taken: int) -> None:
    assert "--master-bind-port PORT --master-port PORT" in error(processes=2, master_bind_port=taken)
    assert "--master-port PORT for the workers" in error(master=True, master_bind_port=taken)
    look(master_bind_port=taken)


def test_a_worker_listens_nowhere(taken: int) -> None:
    look(page=True, worker=True, processes=2, web_port=taken, master_bind_port=taken)


def test_a_port_that_is_none_and_a_host_that_is_not_ours() -> None:
    assert error(page=True, web_port=99999) == "--web-port must be from 0 to 65535 (got 99999)"
    for host in ("192.0.2.1", "no-such-host.invalid"):
        assert error(page=True, web_host=host).startswith(f"--web-host {host}: cannot listen there")


def test_all_addresses_of_this_machine_are_one_too() -> None:
    look(page=True, master=True, web_host="*", master_bind_host="*")
    look(page=True, web_host="")
