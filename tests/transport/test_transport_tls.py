"""TLS: verified unless told otherwise, as well measured as plain HTTP, and mix-ups of http and https say so."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import gevent
import pytest
from authority import Authority
from exchanges import Consumer, ask, call, target_at
from loopback import DONE, FINISH, LAST_CHUNK, STREAM_HEAD, Peer, Server, chunk, event, plain, sleep, whole

from locust_llm.errors import UsageError
from locust_llm.exchange import CONNECTION, FAILURES, OK
from locust_llm.transport.connection import Connection
from locust_llm.transport.dial import dial


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def keep(peer: Peer) -> None:
    for _ in peer.requests():
        peer.send(whole())


def paced(peer: Peer) -> None:
    for _ in peer.requests():
        peer.send(STREAM_HEAD)
        for piece in ("a", "b", "c"):
            sleep(0.03)
            peer.send(chunk(event(piece)))
        peer.send(chunk(FINISH + DONE) + LAST_CHUNK)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_trusted_server_is_spoken_to_and_its_connection_kept(authority: Authority, host: str) -> None:
    with Server(keep, tls=authority.server("127.0.0.1", "localhost")) as server:
        consumer = Consumer(target_at(server.port, scheme="https", host=host, ca_file=authority.file))
        for _ in range(5):
            consumer.client.send(call(), name="x")
    assert [record.outcome for record in consumer.records] == [OK] * 5
    assert [record.reused for record in consumer.records] == [False] + [True] * 4
    assert (consumer.records[0].tls_us or 0) > 0
    assert consumer.records[1].tls_us is None
    assert server.accepted == 1


@pytest.mark.skipif(sys.platform != "linux", reason="kernel stamps are Linux's")
def test_encrypted_streams_have_kernel_stamps_and_true_gaps(authority: Authority) -> None:
    with Server(paced, tls=authority.server("127.0.0.1")) as server:
        consumer = Consumer(target_at(server.port, scheme="https", ca_file=authority.file))
        for _ in range(2):
            consumer.client.send(call(), name="x")
    record = consumer.records[-1]
    assert record.stamp == "kernel"
    first, *gaps = record.event_gaps_us
    unsure = record.uncertain_us_max + 1000
    assert first > 30_000 - unsure
    assert all(gap > 30_000 - unsure for gap in gaps[:2])


def test_an_unknown_authority_is_refused_in_one_line_with_its_remedy(authority: Authority) -> None:
    with Server(keep, tls=authority.server("127.0.0.1")) as server:
        outcome, error = ask(target_at(server.port, scheme="https")).judge()
    assert outcome == CONNECTION
    assert error is not None
    assert error.kind == "tls"
    assert "certificate refused" in error.message
    assert "--llm-ca-file" in error.message
    assert "--llm-insecure" in error.message
    assert "\n" not in error.message


def test_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    with Server(keep, tls=authority.server("127.0.0.1")) as server:
        outcome, error = ask(target_at(server.port, scheme="https", ca_file=other.file)).judge()
    assert (outcome, error and error.kind) == (CONNECTION, "tls")


def test_a_certificate_of_another_name_is_refused(authority: Authority) -> None:
    with Server(keep, tls=authority.server("other.example")) as server:
        outcome, error = ask(target_at(server.port, scheme="https", ca_file=authority.file)).judge()
    assert (outcome, error and error.kind) == (CONNECTION, "tls")
    assert error is not None
    assert "127.0.0.1" in error.message


def test_insecure_takes_any_certificate(authority: Authority) -> None:
    with Server(keep, tls=authority.server("other.example")) as server:
        assert ask(target_at(server.port, scheme="https", insecure=True)).judge()[0] == OK


def test_a_ca_file_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no certificate")
    (tmp_path / "empty").write_text("")
    for name in ("text", "empty", "missing"):
        path = str(tmp_path / name)
        with pytest.raises(UsageError, match=f"--llm-ca-file {path}: ") as failure:
            target_at(1, scheme="https", ca_file=path)
        assert "\n" not in str(failure.value)


def test_session_tickets_that_come_while_a_connection_is_idle_do_not_end_it(authority: Authority) -> None:
    """A TLS 1.3 server sends tickets when the handshake is over: here nobody has asked for anything yet."""
    context = authority.server("127.0.0.1")
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 4
    with Server(keep, tls=context) as server:
        target = target_at(server.port, scheme="https", ca_file=authority.file)
        pool = target.transport._pool
        pool.give(Connection(dial(target.transport.route, 5)))
        gevent.sleep(0.1)
        assert len(pool) == 1
        attempt = ask(target)
    assert (attempt.judge()[0], attempt.transfer.reused) == (OK, True)
    assert server.accepted == 1


def test_a_tls_server_that_dies_before_any_byte_of_the_answer_is_resent_to(authority: Authority) -> None:
    """What TLS itself said meanwhile (tickets, the end of the session) is no byte of an answer."""

    def die_on_second(peer: Peer) -> None:
        peer.request()
        peer.send(whole())
        if peer.number == 0:
            peer.request()
            peer.sock.end()  # close_notify, then FIN
            return
        keep(peer)

    with Server(die_on_second, tls=authority.server("127.0.0.1")) as server:
        target = target_at(server.port, scheme="https", ca_file=authority.file)
        ask(target)
        attempt = ask(target)
    assert (attempt.judge()[0], attempt.transfer.resent) == (OK, 1)


def test_the_proper_end_of_tls_ends_a_body_without_length(authority: Authority) -> None:
    def until_close(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event("Hi") + FINISH + DONE)
        peer.sock.end()

    with Server(until_close, tls=authority.server("127.0.0.1")) as server:
        target = target_at(server.port, scheme="https", ca_file=authority.file)
        attempts = [ask(target), ask(target)]
    assert [attempt.judge()[0] for attempt in attempts] == [OK, OK]


def test_broken_records_are_a_tls_failure_that_keeps_what_came_before(authority: Authority) -> None:
    def break_record(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM_HEAD + chunk(event("Hi")))
        peer.sock.raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        sleep(0.1)

    with Server(break_record, tls=authority.server("127.0.0.1")) as server:
        attempt = ask(target_at(server.port, scheme="https", ca_file=authority.file))
    outcome, error = attempt.judge()
    assert (outcome, error and error.kind) == (CONNECTION, "tls")
    assert attempt.answer.text() == "Hi"


def test_https_to_an_http_server_says_so() -> None:
    def answer_garbage(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.send(plain(400, b"Bad request version"))
        peer.wait_for_end()

    def hang_up(peer: Peer) -> None:
        peer.sock.recv(1000)

    for script in (answer_garbage, hang_up):
        with Server(script) as server:
            outcome, error = ask(target_at(server.port, scheme="https")).judge()
        assert (outcome, error and error.kind) == (CONNECTION, "tls")
        assert error is not None
        assert "is this an http:// server?" in error.message, error.message


def test_http_to_an_https_server_says_so_where_the_server_gives_a_sign(authority: Authority) -> None:
    def alert(peer: Peer) -> None:
        peer.request()
        peer.send(b"\x15\x03\x01\x00\x02\x02\x46")

    with Server(alert) as server:
        _, error = ask(target_at(server.port)).judge()
    assert error is not None
    assert "is this an https:// server?" in error.message

    with Server(keep, tls=authority.server("127.0.0.1")) as server:
        outcome, _ = ask(target_at(server.port)).judge()
    assert outcome in FAILURES


def test_a_handshake_that_stalls_is_a_connect_timeout_that_says_where() -> None:
    with Server(lambda peer: peer.wait_for_end()) as server:
        outcome, error = ask(target_at(server.port, scheme="https", connect=0.3)).judge()
    assert (outcome, error and error.kind) == ("timeout", "connect")
    assert error is not None
    assert "TLS handshake" in error.message


def test_large_requests_and_answers_pass(authority: Authority) -> None:
    def echo_size(peer: Peer) -> None:
        for request in peer.requests():
            peer.send(whole(str(len(request)), *["x" * 50_000] * 20))

    with Server(echo_size, tls=authority.server("127.0.0.1")) as server:
        target = target_at(server.port, scheme="https", ca_file=authority.file)
        attempt = target.attempt(call(extra={"padding": "y" * 3_000_000}))
        attempt.run()
    assert attempt.judge()[0] == OK
    assert attempt.answer.text() == str(attempt.transfer.bytes_out) + "x" * 1_000_000


@pytest.mark.usefixtures("every_name_is_here")
def test_a_name_that_no_certificate_can_have_is_a_failure_not_a_traceback(authority: Authority) -> None:
    with Server(keep, tls=authority.server("127.0.0.1")) as server:
        outcome, error = ask(target_at(server.port, scheme="https", host=".bad")).judge()
    assert (outcome, error and error.kind) == (CONNECTION, "tls")
