"""The end of a local run: streams finish, or are cut and said to be; what has ended is in the log, whatever ended it"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable

from run_processes import CHAT, NOTED, SHORT, SPAWNED, Live, Plan, Runs

LONG = ["--llm-input-tokens", "40,0", "--llm-output-tokens", "300,0"]
"""Exchanges of three seconds."""
ENDLESS = ["--llm-input-tokens", "40,0", "--llm-output-tokens", "3000,0"]
"""Exchanges of half a minute, to be cut."""


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    host = ["-H", simulator()]
    load = [*host, "-u", "3", "-r", "3"]
    slow, endless = [*load, *LONG], [*load, *ENDLESS]
    return {
        "time is over": Plan([*slow, "-t", "1s"]),
        "failures": Plan(
            ["-H", simulator(error_rate=0.5), *load[2:], *SHORT, "--llm-requests", "24", "--llm-no-preflight",
             "--llm-model", "sim"]
        ),
        "SIGINT": Plan(slow, act=press(signal.SIGINT)),
        "SIGINT twice": Plan(endless, act=press(signal.SIGINT, signal.SIGINT)),
        "SIGTERM": Plan(slow, act=press(signal.SIGTERM)),
        "SIGTERM twice": Plan(endless, act=press(signal.SIGTERM, signal.SIGTERM)),
        "SIGINT at once": Plan(["-H", simulator(fail_first=600.0), "--llm-wait-ready", "5m"], act=press_while_waiting),
        "no drain": Plan([*endless, "-t", "1s", "--llm-drain", "0"]),
        "short drain": Plan([*endless, "-t", "1s", "--llm-drain", "0.5"]),
        "kill": Plan([*load, *SHORT], NOTED, act=kill),
        "stop timeout": Plan([*load, *SHORT, "-t", "1s", "--stop-timeout", "100"]),
        "quit by a user": Plan([*load, *SHORT], QUITTER),
        "slow to start": Plan([*SLOW_TO_START, "-u", "3", "-r", "3", "-t", "2s", *SHORT]),
    }  # fmt: skip


SLOW_TO_START = ["--llm-simulate", "--llm-simulate-options", "fail_first=3s", "--llm-wait-ready", "60s"]
QUITTER = (
    CHAT
    + """
        if self.environment.stats.total.num_requests >= 6:
            self.environment.runner.quit()
"""
)


def press(*signals: int) -> Callable[[Live], None]:
    """Return what sends signals to the whole process group, the first amid streams, the others in the drain."""

    def act(live: Live) -> None:
        live.wait_for(SPAWNED)
        time.sleep(0.7)
        for i, number in enumerate(signals):
            if i:
                live.wait_for("letting 3 streams")
                time.sleep(0.5)
            live.signal_all(number)

    return act


def press_while_waiting(live: Live) -> None:
    live.wait_for("waiting up to 300 s")
    live.signal_all(signal.SIGINT)


def kill(live: Live) -> None:
    def over_s() -> float:
        ends_us = live.noted_us(live.process.pid) or [0]
        return (ends_us[-1] - ends_us[0]) / 1e6

    live.until(lambda: over_s() > 4, "exchanges that end over four seconds")
    live.signal(signal.SIGKILL)
    (live.folder / "noted").write_text(json.dumps(live.noted_us(live.process.pid)))


def test_streams_in_flight_when_the_time_is_over_are_let_finish(runs: Runs) -> None:
    ended = runs["time is over"]
    assert ended.code == 0
    assert ended.run.outcomes() == {"ok": len(ended.run.records())}
    (stop,) = ended.run.events("stop")
    assert stop["in_flight"] == 3
    in_flight = [
        r for r in ended.run.records() if r["start_us"] / 1e6 < stop["t"] < (r["start_us"] + r["end_us"]) / 1e6
    ]
    assert len(in_flight) == 3


def test_n_finished_exchanges_are_n_locust_requests_and_n_records(runs: Runs) -> None:
    ended = runs["time is over"]
    records = ended.run.records()
    assert ended.aggregated() == (len(records), 0)
    assert ended.run.card["finished"] == {"ok": len(records)}
    assert ended.run.card["records"] == len(records) + len(ended.run.records("preflight"))


def test_a_run_ends_with_its_table_and_its_folder(runs: Runs) -> None:
    ended = runs["time is over"]
    assert "TTFT ms" in ended.text
    assert f"run folder: reports/{ended.run.path.name}" in ended.text
    assert (ended.run.path / "summary.json").exists()
    assert not (ended.run.path / "run.json.partial").exists()


def test_failed_exchanges_are_failed_requests_and_exit_code_1(runs: Runs) -> None:
    ended = runs["failures"]
    failed = ended.run.outcomes()["http_status"]
    assert failed > 0
    assert ended.aggregated() == (len(ended.run.records()), failed)
    assert ended.code == 1


def test_ctrl_c_lets_streams_finish(runs: Runs) -> None:
    ended = runs["SIGINT"]
    assert ended.run.outcomes() == {"ok": 3}
    assert ended.aggregated() == (3, 0)
    assert ended.code == 0
    assert "Traceback" not in ended.text


def test_a_second_ctrl_c_cuts_them(runs: Runs) -> None:
    ended = runs["SIGINT twice"]
    assert ended.run.outcomes() == {"unfinished": 3}
    assert ended.aggregated() == (0, 0)
    (cut,) = ended.run.events("cut")
    assert cut["exchanges"] == 3
    assert "Traceback" not in ended.text


def test_what_was_cut_keeps_its_tokens(runs: Runs) -> None:
    for record in runs["SIGINT twice"].run.records():
        assert 20 < len(record["event_gaps_us"]) < 2900
        assert record["finish_reason"] is None


def test_nothing_but_cut_exchanges_is_nothing_measured(runs: Runs) -> None:
    assert runs["SIGINT twice"].code == 1
    assert "nothing was measured" in runs["SIGINT twice"].text


def test_sigterm_lets_streams_finish(runs: Runs) -> None:
    ended = runs["SIGTERM"]
    assert ended.run.outcomes() == {"ok": 3}
    assert ended.aggregated() == (3, 0)
    assert ended.code == 0
    assert "Traceback" not in ended.text
    assert "TTFT ms" in ended.text


def test_a_second_sigterm_cuts_them(runs: Runs) -> None:
    ended = runs["SIGTERM twice"]
    assert ended.run.outcomes() == {"unfinished": 3}
    assert ended.aggregated() == (0, 0)
    assert ended.text.count("Aggregated") <= 2, "Locust's tables are printed once"
    assert "Traceback" not in ended.text


def test_ctrl_c_ends_the_wait_for_a_server(runs: Runs) -> None:
    ended = runs["SIGINT at once"]
    assert ended.code == 1
    assert ended.runs == []
    assert "ended before it could start" in ended.text
    assert "Traceback" not in ended.text


def test_without_a_drain_streams_are_cut_at_once(runs: Runs) -> None:
    ended = runs["no drain"]
    assert ended.run.outcomes() == {"unfinished": 3}
    assert "letting" not in ended.text


def test_a_drain_that_takes_too_long_is_ended(runs: Runs) -> None:
    ended = runs["short drain"]
    assert ended.run.outcomes() == {"unfinished": 3}
    assert "letting 3 streams in flight finish (at most 0.5 s" in ended.text


def test_kill_9_leaves_a_readable_log_with_all_that_ended_before_the_last_seconds(runs: Runs) -> None:
    ended = runs["kill"]
    noted_us = json.loads((ended.folder / "noted").read_text())
    lines = (ended.run.path / "events.jsonl").read_bytes().splitlines(keepends=True)
    records = [json.loads(line) for line in lines if line.endswith(b"\n")]
    assert len(lines) - len(records) <= 1
    assert max(r["start_us"] + r["end_us"] for r in records) > noted_us[-1] - 2_000_000
    assert len(records) >= sum(at < noted_us[-1] - 2_000_000 for at in noted_us) > 0
    numbers = sorted(r["seq"] for r in records)
    assert numbers == list(range(len(numbers)))
    assert ended.run.card["records"] == 0, "the card of the start is there"
    assert ended.run.card["records_lost"] == 0, "what waited for its turn then was not lost"


def test_a_stop_timeout_does_not_hold_up_users_that_wait_for_the_end(runs: Runs) -> None:
    ended = runs["stop timeout"]
    assert ended.code == 0
    (stop,), (over,) = ended.run.events("stop"), ended.run.events("test_stop")
    assert over["t"] - stop["t"] < 20


def test_a_task_may_end_the_run(runs: Runs) -> None:
    ended = runs["quit by a user"]
    assert ended.code == 0
    assert ended.aggregated() == (len(ended.run.records()), 0)
    assert ended.run.outcomes()["ok"] >= 6


def test_run_time_counts_from_the_first_user_not_from_first_contact(runs: Runs) -> None:
    ended = runs["slow to start"]
    (start,), (stop,) = ended.run.events("test_start"), ended.run.events("stop")
    assert 1.9 < stop["t"] - start["t"] < 10
    assert ended.run.card["load"]["run_time_s"] == 2
    assert "No run time limit" not in ended.text
