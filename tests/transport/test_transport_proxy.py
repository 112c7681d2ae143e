"""Proxies from the environment: used for both schemes, with their password, never for this machine."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any

import pytest
from authority import Authority
from exchanges import ask, target_at
from loopback import Peer, Server, native, plain, start_thread, whole

from locust_llm.errors import UsageError
from locust_llm.exchange import CONNECTION, HTTP_STATUS, OK
from locust_llm.transport.proxy import is_loopback

HOST = "model.example"

pytestmark = pytest.mark.usefixtures("every_name_is_here")


class Proxy(Server):
    """Answers plain requests itself; joins tunnels to a server's port. ``asked``: the head of each request."""

    def __init__(self, tunnel_to: int = 0, refuse: bytes = b"") -> None:
        super().__init__(self._serve)
        self._tunnel_to = tunnel_to
        self._refuse = refuse
        self.asked: list[bytes] = []

    def _serve(self, peer: Peer) -> None:
        for request in peer.requests():
            self.asked.append(request.partition(b"\r\n\r\n")[0])
            if self._refuse:
                peer.send(self._refuse)
            elif request.startswith(b"CONNECT "):
                peer.send(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
                self._join(peer)
                return
            else:
                peer.send(whole())

    def _join(self, peer: Peer) -> None:
        server = native["socket"]()
        server.connect(("127.0.0.1", self._tunnel_to))
        start_thread(relay, (server, peer.sock))
        relay(peer.sock, server)


def relay(source: Any, sink: Any) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.close()


def keep(peer: Peer) -> None:
    for _ in peer.requests():
        peer.send(whole())


def proxy_url(proxy: Server, credentials: str = "") -> str:
    return f"http://{credentials}127.0.0.1:{proxy.port}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def test_plain_requests_go_to_the_proxy_with_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy() as proxy:
        monkeypatch.setenv("http_proxy", proxy_url(proxy))
        target = target_at(8000, host=HOST)
        attempts = [ask(target), ask(target)]
    assert [(a.judge()[0], a.transfer.reused) for a in attempts] == [(OK, False), (OK, True)]
    line, *fields = proxy.asked[0].split(b"\r\n")
    assert line == b"POST http://model.example:8000/v1/chat/completions HTTP/1.1"
    assert b"Host: model.example:8000" in fields
    assert not any(field.lower().startswith(b"proxy-authorization") for field in fields)


def test_tls_goes_through_a_tunnel_and_is_verified_end_to_end(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(keep, tls=authority.server(HOST)) as server, Proxy(server.port) as proxy:
        monkeypatch.setenv("https_proxy", proxy_url(proxy))
        target = target_at(8443, scheme="https", host=HOST, ca_file=authority.file)
        attempts = [ask(target), ask(target)]
        outcome, error = ask(target_at(8443, scheme="https", host="other.example", ca_file=authority.file)).judge()
    assert [(a.judge()[0], a.transfer.reused) for a in attempts] == [(OK, False), (OK, True)]
    assert proxy.asked[0].split(b"\r\n")[:2] == [b"CONNECT model.example:8443 HTTP/1.1", b"Host: model.example:8443"]
    assert (outcome, error and error.kind) == (CONNECTION, "tls")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_password_of_the_environment_goes_to_the_proxy_only(
    scheme: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    def look(peer: Peer) -> None:
        for request in peer.requests():
            seen.append(request)
            peer.send(whole())

    with Server(look, tls=authority.server(HOST)) as server, Proxy(server.port) as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", proxy_url(proxy, "us%40er:p%3Aw@"))
        assert ask(target_at(8000, scheme=scheme, host=HOST, ca_file=authority.file)).judge()[0] == OK
    wanted = b"Proxy-Authorization: Basic " + base64.b64encode(b"us@er:p:w")
    assert wanted in proxy.asked[0].split(b"\r\n")
    assert not any(b"proxy-authorization" in request.lower() for request in seen)


def test_a_proxy_that_refuses_says_so_without_the_password(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(refuse=plain(407, b"", "Proxy-Authenticate: Basic")) as proxy:
        monkeypatch.setenv("http_proxy", proxy_url(proxy, "user:secret@"))
        monkeypatch.setenv("https_proxy", proxy_url(proxy, "user:secret@"))
        by_plain = ask(target_at(8000, host=HOST))
        by_tunnel = ask(target_at(8443, scheme="https", host=HOST, ca_file=authority.file))
    assert (by_plain.judge()[0], by_plain.transfer.status) == (HTTP_STATUS, 407)
    outcome, error = by_tunnel.judge()
    assert (outcome, error and error.kind) == (CONNECTION, "proxy")
    assert error is not None
    assert "407" in error.message
    assert "secret" not in error.message


@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\n"], ids=["nothing", "garbage", "cut"])
def test_a_proxy_that_talks_nonsense_is_a_proxy_failure(
    answer: bytes, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    def talk(peer: Peer) -> None:
        peer.request()
        peer.send(answer)

    with Server(talk) as proxy:
        monkeypatch.setenv("https_proxy", proxy_url(proxy))
        outcome, error = ask(target_at(8443, scheme="https", host=HOST, ca_file=authority.file)).judge()
    assert (outcome, error and error.kind) == (CONNECTION, "proxy")


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy() as proxy:
        monkeypatch.setenv("http_proxy", proxy_url(proxy))
    outcome, error = ask(target_at(8000, host=HOST)).judge()
    assert (outcome, error and error.kind) == (CONNECTION, "proxy")
    assert error is not None
    assert "proxy 127.0.0.1" in error.message


def test_a_proxy_that_stalls_is_a_connect_timeout_that_says_where(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(lambda peer: peer.wait_for_end()) as proxy:
        monkeypatch.setenv("https_proxy", proxy_url(proxy))
        target = target_at(8443, scheme="https", host=HOST, ca_file=authority.file, connect=0.3)
        outcome, error = ask(target).judge()
    assert (outcome, error and error.kind) == ("timeout", "connect")
    assert error is not None
    assert "tunnel" in error.message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "api.localhost"])
def test_this_machine_is_never_reached_by_a_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with Server(keep) as server:
        assert ask(target_at(server.port, host=host)).judge()[0] == OK


def test_what_is_loopback_and_what_only_looks_like_it() -> None:
    assert all(map(is_loopback, ("LOCALHOST", "localhost.", "127.0.0.1", "127.255.0.1", "::1", "0:0:0:0:0:0:0:1")))
    assert not any(
        map(is_loopback, ("localhost.example", "localhosts", "127.example", "::12", "10.0.0.1", "fe80::1%lo"))
    )


@pytest.mark.parametrize("entry", [HOST, ".example", "*", f"{HOST}:8000"])
def test_no_proxy_is_obeyed(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(keep) as server:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", entry.replace("8000", str(server.port)))
        assert ask(target_at(server.port, host=HOST)).judge()[0] == OK


def test_all_proxy_stands_in_for_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy() as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy_url(proxy))
        assert ask(target_at(8000, host=HOST)).judge()[0] == OK
    assert proxy.asked


@pytest.mark.parametrize("url", ["socks5://user:secret@p:1080", "https://p:1", "http://p:notaport", "http://"])
def test_a_proxy_of_another_kind_is_a_usage_error_that_keeps_the_secret(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", url)
    with pytest.raises(UsageError, match="NO_PROXY") as failure:
        target_at(8000, host=HOST)
    assert "secret" not in str(failure.value)
