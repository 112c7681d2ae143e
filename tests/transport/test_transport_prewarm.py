"""Connections opened before the load: found by the first exchanges, checked before use, failures one line."""

from __future__ import annotations

import pytest
from authority import Authority
from exchanges import ask, target_at, until
from loopback import Peer, Server, native, sleep, whole

from locust_llm.exchange import OK
from locust_llm.load import prewarm as prewarming
from locust_llm.load.prewarm import prewarm


def keep(peer: Peer) -> None:
    for _ in peer.requests():
        peer.send(whole())


def test_first_exchanges_find_them_and_connect_no_more() -> None:
    with Server(keep) as server:
        target = target_at(server.port)
        told = prewarm(target.transport, 50)
        attempts = [ask(target) for _ in range(60)]
    assert (told.asked, told.opened, told.error) == (50, 50, "")
    assert {attempt.judge()[0] for attempt in attempts} == {OK}
    assert all(attempt.transfer.reused for attempt in attempts)
    assert {attempt.transfer.tcp_ns for attempt in attempts} == {None}
    assert server.accepted == 50


def test_one_that_the_server_has_closed_meanwhile_is_not_used() -> None:
    def impatient(peer: Peer) -> None:
        if peer.number < 10:
            sleep(0.05)
        else:
            keep(peer)

    with Server(impatient) as server:
        target = target_at(server.port)
        assert prewarm(target.transport, 10).opened == 10
        until(lambda: len(target.transport._pool) == 0)
        attempt = ask(target)
    assert attempt.judge()[0] == OK
    assert (attempt.transfer.reused, attempt.transfer.resent) == (False, 0)


def test_where_nobody_listens_it_ends_after_the_first_few_and_says_why() -> None:
    with native["socket"]() as unused:
        unused.bind(("127.0.0.1", 0))
        told = prewarm(target_at(unused.getsockname()[1]).transport, 500)
    assert (told.asked, told.opened) == (500, 0)
    assert "Connection refused" in told.error


def test_a_short_listen_queue_is_not_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that finds the queue full is tried again by the kernel a second later."""
    monkeypatch.setattr(prewarming, "BREATH_S", 0.02)
    seconds = []
    while len(seconds) < 3 and (not seconds or seconds[-1] >= 0.9):  # again, where the machine stood still meanwhile
        with Server(keep) as server:
            server._listener.listen(prewarming.AT_ONCE)
            told = prewarm(target_at(server.port).transport, 10 * prewarming.AT_ONCE)
        assert told.opened == told.asked
        seconds.append(told.seconds)
    assert min(seconds) < 0.9


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def test_tls_is_ready_too(authority: Authority) -> None:
    with Server(keep, tls=authority.server("127.0.0.1")) as server:
        target = target_at(server.port, scheme="https", ca_file=authority.file)
        assert prewarm(target.transport, 20).opened == 20
        attempts = [ask(target) for _ in range(20)]
    assert {attempt.judge()[0] for attempt in attempts} == {OK}
    assert all(attempt.transfer.reused and attempt.transfer.tls_ns is None for attempt in attempts)
    assert server.accepted == 20


def test_a_server_whose_certificate_is_not_trusted_is_one_line(authority: Authority) -> None:
    with Server(keep, tls=authority.server("127.0.0.1")) as server:
        told = prewarm(target_at(server.port, scheme="https").transport, 100)
        server.errors.clear()  # it was told why
    assert told.opened == 0
    assert "certificate refused" in told.error
    assert "\n" not in told.error
