"""Fields that a server refuses: left out once and remembered, each attempt a record, one Locust event."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from exchanges import Consumer, call, target_at
from loopback import Peer, Server, plain, whole

from locust_llm.dialect import LIMIT, OTHER_LIMIT, Dialect
from locust_llm.exchange import HTTP_STATUS, OK
from locust_llm.wire.answer import ServerError
from locust_llm.wire.errors import server_error

EXACT: dict[str, Any] = {"exact_length": True, "usage": "continuous"}


class Picky(Server):
    """Refuses bodies by ``complain(body)``, which returns an error's text or None; keeps the ``bodies`` it was sent."""

    def __init__(self, complain: Callable[[dict[str, Any]], str | None], status: int = 400) -> None:
        super().__init__(self._serve)
        self._complain = complain
        self._status = status
        self.bodies: list[dict[str, Any]] = []

    def _serve(self, peer: Peer) -> None:
        for request in peer.requests():
            body = json.loads(request.partition(b"\r\n\r\n")[2])
            self.bodies.append(body)
            said = self._complain(body)
            if said is None:
                peer.send(whole())
            else:
                peer.send(plain(self._status, json.dumps({"error": {"message": said}}).encode()))


def refuse(*names: str) -> Callable[[dict[str, Any]], str | None]:
    """Return a server's view: fields of these names, at the top or in ``stream_options``, are unknown to it."""

    def complain(body: dict[str, Any]) -> str | None:
        present = {**body, **(body.get("stream_options") or {})}
        return next((f"Unrecognized request argument supplied: {name}" for name in names if name in present), None)

    return complain


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("name", ["ignore_eos", "min_tokens", "stream_options", "continuous_usage_stats"])
def test_an_optional_field_that_is_refused_is_left_out_and_stays_out(name: str, status: int) -> None:
    with Picky(refuse(name), status) as server:
        consumer = Consumer(target_at(server.port))
        replies = [consumer.client.send(call(**EXACT), name="x") for _ in range(2)]
    refused, repeated, later = consumer.records
    assert [(r.outcome, r.attempt) for r in consumer.records] == [(HTTP_STATUS, 1), (OK, 2), (OK, 1)]
    assert refused.exchange == repeated.exchange != later.exchange
    assert refused.seq != repeated.seq
    assert [reply.outcome for reply in replies] == [OK, OK]
    assert len(consumer.fired) == 2
    assert all(event["exception"] is None for event in consumer.fired)
    assert consumer.client.target.facts.dropped == [name]
    assert consumer.client.target.facts.learned == [f"{name} left out"]
    first, second, third = server.bodies
    assert name in {**first, **first["stream_options"]}
    assert second == third
    assert name not in {**second, **(second.get("stream_options") or {})}
    untouched = {"ignore_eos", "min_tokens", "max_tokens", "stream"} - {name}
    assert untouched <= second.keys()


def test_max_tokens_is_sent_by_its_other_name() -> None:
    def complain(body: dict[str, Any]) -> str | None:
        if LIMIT not in body:
            return None
        return (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )

    with Picky(complain) as server:
        consumer = Consumer(target_at(server.port))
        for _ in range(2):
            consumer.client.send(call(max_tokens=77), name="x")
    assert [record.outcome for record in consumer.records] == [HTTP_STATUS, OK, OK]
    assert [body.get(OTHER_LIMIT) for body in server.bodies] == [None, 77, 77]
    assert LIMIT not in server.bodies[1]
    assert consumer.client.target.facts.max_tokens_field == OTHER_LIMIT


def test_several_refused_fields_are_learned_within_one_exchange() -> None:
    with Picky(refuse("min_tokens", "ignore_eos", "stream_options")) as server:
        consumer = Consumer(target_at(server.port))
        reply = consumer.client.send(call(**EXACT), name="x")
    assert reply.outcome == OK
    assert [record.attempt for record in consumer.records] == [1, 2, 3, 4]
    assert len({record.exchange for record in consumer.records}) == 1
    assert len(consumer.fired) == 1


def test_users_who_were_refused_at_the_same_time_all_succeed() -> None:
    with Picky(refuse("ignore_eos")) as server:
        consumer = Consumer(target_at(server.port))
        users = [gevent.spawn(consumer.client.send, call(**EXACT), name="x") for _ in range(30)]
        gevent.joinall(users, timeout=20, raise_error=True)
    assert {user.get().outcome for user in users} == {OK}
    assert consumer.client.target.facts.learned == ["ignore_eos left out"]


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 16. This model supports at most 8 completion tokens.",
        "Invalid 'max_tokens': integer above maximum value. Expected a value <= 8, but got 16 instead.",
        "'max_tokens' of 16 is not supported by this model",
        "max_tokens must be less than 8",
        "This model's maximum context length is 8 tokens. Please reduce max_tokens.",
        "Unknown model m",
    ],
)
def test_a_complaint_about_a_value_is_no_lesson(message: str) -> None:
    with Picky(lambda body: message) as server:
        consumer = Consumer(target_at(server.port))
        consumer.client.send(call(**EXACT), name="x")
    (record,) = consumer.records
    assert (record.outcome, record.attempt) == (HTTP_STATUS, 1)
    assert len(server.bodies) == 1
    assert consumer.client.target.facts.learned == []
    assert len(consumer.fired) == 1


def test_a_server_that_refuses_both_names_of_the_limit_is_asked_twice() -> None:
    with Picky(refuse(LIMIT, OTHER_LIMIT)) as server:
        consumer = Consumer(target_at(server.port))
        reply = consumer.client.send(call(), name="x")
    assert reply.outcome == HTTP_STATUS
    assert len(server.bodies) == 2
    assert len(consumer.fired) == 1


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_another_status_that_names_a_field_is_no_lesson(status: int) -> None:
    with Picky(refuse("ignore_eos"), status) as server:
        consumer = Consumer(target_at(server.port))
        consumer.client.send(call(**EXACT), name="x")
    assert [record.outcome for record in consumer.records] == [HTTP_STATUS]


def test_a_field_that_the_user_asked_for_is_never_taken_back() -> None:
    with Picky(refuse("ignore_eos")) as server:
        consumer = Consumer(target_at(server.port))
        reply = consumer.client.send(call(extra={"ignore_eos": True}), name="x")
    assert reply.outcome == HTTP_STATUS
    assert len(server.bodies) == 1
    assert consumer.client.target.facts.learned == []


def learned(error: ServerError | bytes, **body: Any) -> str | None:
    """Return what a fresh dialect learns from an error, or from an error body."""
    if isinstance(error, bytes):
        error = server_error(error, None)
    sent = {"model": "m", LIMIT: 16, "min_tokens": 16, "ignore_eos": True, "stream_options": {"include_usage": True}}
    return Dialect().learn(400, error, {**sent, **body}, {})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (  # FastAPI
            b'{"detail": [{"type": "extra_forbidden", "loc": ["body", "ignore_eos"], '
            b'"msg": "Extra inputs are not permitted", "input": true}]}',
            "ignore_eos left out",
        ),
        (  # FastAPI, echoing all that it was sent: the fields in there are not what it complains of
            b'{"detail": [{"type": "missing", "loc": ["body", "prompt"], "msg": "Field required", '
            b'"input": {"ignore_eos": true, "min_tokens": 16}}]}',
            None,
        ),
        (  # Rust's serde: what would be right follows
            b"Failed to deserialize the JSON body into the target type: unknown field `ignore_eos`, "
            b"expected one of `model`, `min_tokens`, `stream_options` at line 1 column 9",
            "ignore_eos left out",
        ),
        (
            b'{"error": {"message": "Unrecognized request arguments supplied: ignore_eos, min_tokens"}}',
            "ignore_eos left out",
        ),
        (
            b'{"error": {"message": "bad request", "param": "min_tokens", "code": "unknown_parameter"}}',
            "min_tokens left out",
        ),
        (
            b'{"error": {"message": "not here", "param": "max_tokens", "code": "unsupported_parameter"}}',
            "max_tokens sent as",
        ),
        (b'{"detail": [{"loc": ["body", "max_tokens"], "msg": "extra fields not permitted"}]}', "max_tokens sent as"),
        (b'{"error": {"message": "stream_options requires stream"}}', "stream_options left out"),
        (b'{"error": {"message": "my_min_tokens_field is unknown"}}', None),
        (b"", None),
    ],
)
def test_what_different_servers_say(body: bytes, expected: str | None) -> None:
    found = learned(body)
    assert found == expected or (expected and found and found.startswith(expected)), found


def test_an_option_of_an_option_goes_before_its_owner() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    error = ServerError("stream_options.continuous_usage_stats: unknown field")
    assert learned(error, stream_options=options) == "continuous_usage_stats left out"
    assert learned(error) == "stream_options left out"


def test_the_dialect_leaves_the_users_own_fields_alone() -> None:
    dialect = Dialect(["ignore_eos", "continuous_usage_stats"], OTHER_LIMIT)
    theirs = {"ignore_eos": False, LIMIT: 5}
    body = {"ignore_eos": False, LIMIT: 5, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    assert dialect.apply(dict(body), theirs) == {
        "ignore_eos": False,
        LIMIT: 5,
        "stream_options": {"include_usage": True},
    }
    assert dialect.apply({"ignore_eos": True, LIMIT: 5}, {}) == {OTHER_LIMIT: 5}
