"""Requests to Bedrock carry a signature that a server can check, or a key; what is missing is said before any load."""

from __future__ import annotations

import hashlib
import hmac
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from exchanges import Consumer, ask, call, target_at
from frames import event, exception
from loopback import LAST_CHUNK, Peer, Server, chunk, plain

from locust_llm.aws import region_of
from locust_llm.errors import UsageError
from locust_llm.exchange import HTTP_STATUS, IN_BAND_ERROR, OK

pytest.importorskip("botocore")

MODEL = "us.anthropic.claude-x-v1:0"
SECRET = "wJalrXUtnFEMI/K7MDENG"  # made up
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWER = (
    event("messageStart", role="assistant"),
    event("contentBlockDelta", contentBlockIndex=0, delta={"text": "Hello"}),
    event("messageStop", stopReason="end_turn"),
    event("metadata", usage={"inputTokens": 3, "outputTokens": 1}),
)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


class Bedrock(Server):
    """Answers every request with ``data``; keeps the ``requests`` it was sent."""

    def __init__(self, data: bytes = HEAD + b"".join(map(chunk, ANSWER)) + LAST_CHUNK) -> None:
        super().__init__(self._serve)
        self._data = data
        self.requests: list[bytes] = []

    def _serve(self, peer: Peer) -> None:
        for request in peer.requests():
            self.requests.append(request)
            peer.send(self._data)


@pytest.fixture
def server() -> Iterator[Bedrock]:
    with Bedrock() as running:
        yield running


def signature_is_right(request: bytes) -> bool:
    """Make the signature of a request anew from what was sent (AWS Signature Version 4) and compare."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    fields = dict(part.split("=", 1) for part in headers["authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(", "))
    _, date, region, service, end = fields["Credential"].split("/")
    signed = fields["SignedHeaders"].split(";")
    canonical = "\n".join(
        (
            method, path.replace("%", "%25"), "",
            *(f"{name}:{headers[name]}" for name in signed), "",
            ";".join(signed), hashlib.sha256(body).hexdigest(),
        )
    )  # fmt: skip
    scope = f"{date}/{region}/{service}/{end}"
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{SECRET}".encode()
    for part in (date, region, service, end, text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex() == fields["Signature"] and "host" in signed and "x-amz-date" in signed


def test_each_request_is_signed_for_itself_and_its_answer_read(server: Bedrock) -> None:
    consumer = Consumer(target_at(server.port, api="bedrock"))
    for prompt_tokens in (5, 6):
        consumer.client.send(call(model=MODEL, max_tokens=prompt_tokens), name="x")
    assert [(r.outcome, r.text, r.n_out, r.n_in) for r in consumer.records] == [(OK, "Hello", 1, 3)] * 2
    assert all(map(signature_is_right, server.requests))
    one, two = server.requests
    assert one.startswith(b"POST /model/us.anthropic.claude-x-v1%3A0/converse-stream HTTP/1.1\r\n")
    assert b"/eu-west-3/bedrock/aws4_request" in one
    signatures = {request.partition(b"Signature=")[2].partition(b"\r\n")[0] for request in (one, two)}
    assert len(signatures) == 2


def test_temporary_credentials_bring_their_token(server: Bedrock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "temporary")
    ask(target_at(server.port, api="bedrock"), model=MODEL)
    assert b"\r\nX-Amz-Security-Token: temporary\r\n" in server.requests[0]
    assert signature_is_right(server.requests[0])


def test_a_bedrock_key_stands_in_for_the_signature(server: Bedrock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUST_LLM_API_KEY", "the-key")
    monkeypatch.setitem(sys.modules, "botocore.auth", None)  # not even needed
    target = target_at(server.port, api="bedrock")
    ask(target, model=MODEL)
    assert b"\r\nAuthorization: Bearer the-key\r\n" in server.requests[0]
    assert b"x-amz-date" not in server.requests[0].lower()
    assert not target.signs


@pytest.mark.parametrize(
    ("unset", "remedy"),
    [
        (["AWS_REGION"], "set AWS_REGION"),
        (["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "no AWS credentials: set AWS_ACCESS_KEY_ID"),
    ],
)
def test_what_signing_lacks_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, unset: list[str], remedy: str
) -> None:
    for name in unset:
        monkeypatch.delenv(name)
    with pytest.raises(UsageError, match=remedy):
        target_at(1, api="bedrock")


def test_without_botocore_the_extra_and_the_key_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(UsageError, match=r"pip install 'locust-llm\[bedrock\]'.*LOCUST_LLM_API_KEY"):
        target_at(1, api="bedrock")


def test_a_profile_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(UsageError, match=r"AWS credentials: .*nobody"):
        target_at(1, api="bedrock")


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("bedrock-runtime.us-east-1.amazonaws.com", "us-east-1"),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("bedrock-runtime.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("vpce-0a-b.bedrock-runtime.eu-central-1.vpce.amazonaws.com", "eu-central-1"),
        ("127.0.0.1", None),
        ("gateway.example", None),
    ],
)
def test_the_region_is_read_from_the_address(host: str, region: str | None) -> None:
    assert region_of(host) == region


def test_refusals_and_exceptions_are_recorded_under_their_own_names() -> None:
    name = "x-amzn-ErrorType: ThrottlingException:http://internal.amazon.com/"
    with Bedrock(plain(429, b'{"message":"Too many tokens"}', name)) as refusing:
        consumer = Consumer(target_at(refusing.port, api="bedrock"))
        consumer.client.send(call(model=MODEL), name="x")
    with Bedrock(HEAD + chunk(exception("throttlingException", message="slow")) + LAST_CHUNK) as failing:
        other = Consumer(target_at(failing.port, api="bedrock"))
        other.client.send(call(model=MODEL), name="x")
    (refused,), (failed,) = consumer.records, other.records
    assert refused.error is not None
    assert failed.error is not None
    assert (refused.outcome, refused.error.code) == (HTTP_STATUS, "ThrottlingException")
    assert (failed.outcome, failed.error.code) == (IN_BAND_ERROR, "throttlingException")
