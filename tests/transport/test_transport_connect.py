"""Connecting: any number of sockets, IPv6, and failures that say what and how to mend it."""

from __future__ import annotations

import resource

import pytest
from exchanges import ask, target_at
from gevent.pool import Pool as Greenlets
from loopback import Peer, Server, native, whole

from locust_llm.exchange import CONNECTION, OK


def keep(peer: Peer) -> None:
    for _ in peer.requests():
        peer.send(whole())


def test_connections_are_kept_when_file_descriptors_are_past_1024() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000:
        pytest.skip("this machine allows too few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    pairs = [native["socketpair"]() for _ in range(550)]
    try:
        with Server(keep) as server:
            target = target_at(server.port)
            attempts = Greenlets(20).map(lambda _: [ask(target) for _ in range(3)], range(20))
            sockets = [connection.sock.fileno() for connection in target.transport._pool._idle]
    finally:
        for pair in pairs:
            pair[0].close()
            pair[1].close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {attempt.judge()[0] for three in attempts for attempt in three} == {OK}
    assert sum(number > 1024 for number in sockets) > 10  # what other tests close meanwhile leaves low numbers
    assert server.accepted == 20


def test_too_many_open_files_is_one_line_with_its_remedy() -> None:
    with Server(keep) as server:
        target = target_at(server.port)
        ask(target_at(server.port))  # what is opened lazily is open now
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            try:
                while True:
                    taken.append(native["socket"]())
            except OSError:
                attempt = ask(target)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for sock in taken:
                sock.close()
    outcome, error = attempt.judge()
    assert (outcome, error and error.kind) == (CONNECTION, "unreachable")
    assert error is not None
    assert "ulimit -n" in error.message


def test_a_connection_refused_names_the_address() -> None:
    with Server(keep) as server:
        target = target_at(server.port)
    outcome, error = ask(target).judge()
    assert outcome == CONNECTION
    assert error is not None
    assert (error.kind, str(server.port) in error.message) == ("refused", True)


def test_a_name_that_is_none_is_a_dns_failure() -> None:
    for host in ("no-such-host.invalid", "a..b"):
        outcome, error = ask(target_at(80, host=host)).judge()
        assert (outcome, error and error.kind) == (CONNECTION, "dns"), host


def test_ipv6() -> None:
    with Server(keep, host="::1") as server:
        attempts = [ask(target) for target in [target_at(server.port, host="[::1]")] for _ in range(2)]
    assert [(attempt.judge()[0], attempt.transfer.reused) for attempt in attempts] == [(OK, False), (OK, True)]
