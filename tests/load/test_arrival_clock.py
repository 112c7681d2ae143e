"""The arrival clock drops no ticket: not where users are too few, not where one is killed, not where plans change."""

from __future__ import annotations

import time

import gevent
import pytest

from locust_llm.errors import UsageError
from locust_llm.exchange import Exchange, ExchangeError
from locust_llm.load.arrivals import constant, gamma, pacers_of, poisson
from locust_llm.load.clock import ArrivalClock
from locust_llm.load.open_loop import OpenLoop, from_message, hint, to_message
from locust_llm.load.schedule import Share
from locust_llm.load.stopping import Failures
from locust_llm.settings import settings_from
from locust_llm.transport.loop import poll_clock

MS = 1_000_000


def wait_due(clock: ArrivalClock, number: int) -> None:
    deadline = time.monotonic() + 10
    while clock.due < number and time.monotonic() < deadline:
        gevent.sleep(0.005)


def test_tickets_that_find_no_user_wait_and_keep_their_times() -> None:
    clock, base = ArrivalClock(), time.monotonic_ns()
    clock.plan(base, iter([0, 5 * MS, 10 * MS]))
    wait_due(clock, 3)
    assert (clock.due, clock.waiting, clock.oldest_ns) == (3, 3, base)
    assert [clock.take() - base for _ in range(3)] == [0, 5 * MS, 10 * MS]
    assert clock.waiting == 0


def test_users_that_wait_get_tickets_when_they_are_due_and_not_before() -> None:
    clock, base, got = ArrivalClock(), time.monotonic_ns(), []

    def user() -> None:
        due = clock.take()
        got.append((due - base, time.monotonic_ns() - due))

    users = [gevent.spawn(user) for _ in range(3)]
    gevent.sleep(0)
    clock.plan(base, iter([20 * MS, 30 * MS, 40 * MS]))
    gevent.joinall(users, timeout=5)
    assert [due for due, _ in got] == [20 * MS, 30 * MS, 40 * MS]
    assert all(late >= 0 for _, late in got)


def test_the_ticket_of_a_user_that_is_killed_is_somebody_elses() -> None:
    clock, base = ArrivalClock(), time.monotonic_ns()
    users = [gevent.spawn(clock.take) for _ in range(2)]
    gevent.sleep(0)
    users[0].kill()
    clock.plan(base, iter([0, MS]))
    gevent.joinall(users, timeout=5)
    assert users[1].value == base
    assert clock.take() == base + MS


def test_a_later_plan_takes_over_at_its_time() -> None:
    clock, base = ArrivalClock(), time.monotonic_ns()
    clock.plan(base, iter([0, 10 * MS, 20 * MS, 30 * MS]))
    clock.plan(base + 15 * MS, iter([0, 2 * MS]))
    wait_due(clock, 4)
    assert [clock.take() - base for _ in range(4)] == [0, 10 * MS, 15 * MS, 17 * MS]
    assert clock.due == 4


def test_a_stopped_clock_lets_nothing_more_come_due() -> None:
    clock = ArrivalClock()
    clock.plan(time.monotonic_ns(), iter([0, 2000 * MS]))
    wait_due(clock, 1)
    clock.stop()
    gevent.sleep(2.1)
    assert clock.due == 1


def test_reads_do_not_gather_over_an_arrival_and_only_that_long() -> None:
    alarms = poll_clock(gevent.get_hub().loop).gathering.alarms
    alarms.clear()  # of clocks that other tests left
    clock = ArrivalClock()
    now_ns = time.monotonic_ns()
    clock.plan(now_ns, iter([50_000_000, 60_000_000_000]))
    assert list(alarms.values()) == [now_ns + 50_000_000]
    assert clock.take() == now_ns + 50_000_000
    assert list(alarms.values()) == [now_ns + 60_000_000_000]
    clock.stop()
    assert not alarms

    clock = ArrivalClock()
    clock.plan(time.monotonic_ns(), iter([1]))
    clock.take()
    assert not alarms
    clock.stop()


def test_a_segment_travels_as_plain_data() -> None:
    segment = (3, 17, {"": (2.5, Share(1, 2)), "Chat": (1.0, None)})
    assert from_message(to_message(*segment)) == segment


def test_an_open_loop_takes_its_share_of_each_segment() -> None:
    loop = OpenLoop({"": constant(1000)}, seed=1)
    loop.begin(0, time.time_ns() // 1000, {"": (1000.0, Share(0, 2))})
    with gevent.Timeout(20):
        while loop.report()["due"] <= 20:
            gevent.sleep(0.01)
    loop.stop()
    assert loop.report()["due"] > 20
    assert loop.report()["waiting"] == loop.report()["due"]


def test_the_start_says_how_many_users_a_rate_needs() -> None:
    assert "less than 2 s" in hint({"": poisson(5)}, 10, None)[0]
    (line,) = hint({"": poisson(5)}, 10, 4.0)
    assert "needs about 20: too few, give -u 40" in line


# ---- bad input


def usage_error(cls: type, **values: object) -> str:
    with pytest.raises(UsageError) as caught:
        pacers_of(settings_from({f"llm_{key}": value for key, value in values.items()}), [cls])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_rate_with_a_wait_time_in_the_class_is_refused() -> None:
    import locust

    class Chat(locust.User):
        abstract = True
        wait_time = locust.constant(1)

    class Paced(locust.User):
        abstract = True
        wait_time = poisson(5)

    class Free(locust.User):
        abstract = True

    assert "Chat has a wait_time" in usage_error(Chat, rate="5")
    assert "two rates" in usage_error(Paced, rate="5")
    assert list(pacers_of(settings_from({}), [Paced, Free, Chat])) == ["Paced"]
    assert str(pacers_of(settings_from({"llm_rate": "5", "llm_burstiness": 2}), [Free])[""]).startswith("gamma 5/s")
    assert pacers_of(settings_from({}), [Free]) == {}


@pytest.mark.parametrize("pacer", [poisson(0), constant(-1), poisson(float("nan")), gamma(5, 0), gamma(5, -2)])
def test_a_class_with_impossible_arrivals_is_refused(pacer: object) -> None:
    assert "Chat.wait_time" in usage_error(type("Chat", (), {"wait_time": pacer}))


def test_burstiness_needs_a_rate_and_arrivals_that_can_burst() -> None:
    import locust

    free = type("Free", (locust.User,), {"abstract": True})
    assert "--llm-rate" in usage_error(free, burstiness=2)
    assert "constant" in usage_error(free, burstiness=2, rate="5", arrivals="constant")


# ---- reasons to stop


def record(outcome: str, kind: str = "") -> Exchange:
    error = ExchangeError(kind, "no") if kind else None
    return Exchange(
        run="r", worker="w", seq=0, exchange="e", name="n", user_class="U", api="a", model="m", outcome=outcome,
        error=error, start_us=0, end_us=1,
    )  # fmt: skip


def test_failures_in_a_row_stop_a_run_and_a_success_begins_the_count_again() -> None:
    failures = Failures(3)
    outcomes = ["timeout", "http_status", "ok", "timeout", "cancelled", "timeout"]
    assert [failures.look(record(o)) for o in outcomes] == [None] * 6
    reason = failures.look(record("http_status"))
    assert reason is not None
    assert reason.startswith("3 failures in a row")
    assert failures.look(record("http_status")) is None


def test_a_server_that_refuses_all_connections_for_long_is_gone() -> None:
    failures = Failures(0)
    assert [failures.look(record("connection", "refused"), now_s=i) for i in range(29)] == [None] * 29
    assert failures.look(record("ok"), now_s=29) is None
    assert [failures.look(record("connection", "refused"), now_s=30 + i) for i in range(30)] == [None] * 30
    assert "gone" in str(failures.look(record("connection", "refused"), now_s=60))
