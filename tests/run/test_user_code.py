"""What people write in their locustfiles: answer checks, task names, class attributes, other users beside ours."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from run_processes import SHORT, Plan, RunFolder, Runs

# Each request event of Locust as a line: name, what is shown as its error, and the outcome of its record.
EVENTS = """
import json
from locust import HttpUser, SequentialTaskSet, TaskSet, constant, events, task
from locust.exception import RescheduleTask
from locust_llm import ChatUser, CompletionUser

@events.request.add_listener
def note(name, exception, context, **_):
    llm = context.get("llm")
    with open("requests.jsonl", "a") as file:
        file.write(json.dumps([name, str(exception) if exception else None, llm and llm.outcome]) + "\\n")
"""
CHECKS = (
    EVENTS
    + """
import time

class Passes(ChatUser):
    @task
    def passes(self):
        with self.chat(catch_response=True) as reply:
            assert reply.ok and reply.text and reply.ttft and reply.usage and reply.finish_reason == "length"

class Rejects(ChatUser):
    @task
    def rejects(self):
        with self.chat(catch_response=True) as reply:
            reply.failure("too dull")

class Forgives(ChatUser):
    model = "no-such-model"
    @task
    def forgives(self):
        with self.chat(catch_response=True) as reply:
            assert not reply.ok and reply.status == 404
            reply.success()

class Raises(ChatUser):
    @task
    def raises(self):
        with self.chat(catch_response=True):
            raise ValueError("boom")

class Reschedules(ChatUser):
    @task
    def reschedules(self):
        with self.chat(catch_response=True):
            raise RescheduleTask

class NeverEnters(ChatUser):
    @task
    def never_enters(self):
        self.chat(catch_response=True)

class Keeps(ChatUser):
    kept = []
    @task
    def keeps(self):
        self.kept.append(self.chat(catch_response=True))

class Sleeps(ChatUser):
    @task
    def sleeps(self):
        with self.chat(catch_response=True):
            time.sleep(1000)

class Asks(ChatUser):
    @task
    def asks(self):
        with self.chat(catch_response=True, name="outer"):
            self.chat(name="inner")

class Compares(ChatUser):
    @task
    def compares(self):
        first, second = self.chat(catch_response=True), self.chat(catch_response=True)
        with first, second:
            second.failure("worse")
"""
)
NAMES = (
    EVENTS
    + """
import functools

def logged(function):
    @functools.wraps(function)
    def wrapper(self):
        return function(self)
    return wrapper

class Names(ChatUser):
    def on_start(self):
        self.chat()

    @task
    def plain(self):
        self.helper()

    def helper(self):
        deeper = lambda: self.chat()
        deeper()

    @task
    @logged
    def decorated(self):
        self.chat()

    @task
    @logged
    def decorated_too(self):
        self.chat()

    @task
    def named(self):
        self.chat(name="my name", tags={"turn": "1"})

    @task
    class Nested(TaskSet):
        @task
        def in_task_set(self):
            self.user.chat()
            self.interrupt()

        @task
        class Deeper(SequentialTaskSet):
            @task
            def in_sequence(self):
                self.user.chat()

            @task
            def out(self):
                self.interrupt()
"""
)
CLASSES = (
    EVENTS
    + """
class ByOptions(ChatUser):
    @task
    def by_options(self):
        self.chat()

class OwnHeaders(ChatUser):
    headers = {"Authorization": "Bearer sk-right"}
    model = "sim-2"
    extra_body = {"temperature": 0.5}
    workload = ["One question.", "Another."]
    @task
    def own_headers(self):
        self.chat()

class RefusedBody(ChatUser):
    headers = {"Authorization": "Bearer sk-right"}
    extra_body = {"top_k": 1}
    @task
    def refused_body(self):
        self.chat()

class Completes(CompletionUser):
    headers = {"Authorization": "Bearer sk-right"}
    @task
    def completes(self):
        self.complete("Once upon a time", max_tokens=5)

class Conversation(ChatUser):
    headers = {"Authorization": "Bearer sk-right"}
    @task
    def conversation(self):
        messages = [{"role": "user", "content": "Hello"}]
        reply = self.chat(messages=messages, max_tokens=5)
        messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": "And?"}]
        self.chat(messages=messages, max_tokens=6, stream=False)

class Plain(HttpUser):
    wait_time = constant(0.2)
    @task
    def models(self):
        self.client.get("/v1/models", name="models")
"""
)


def plans(simulator: Callable[..., str]) -> dict[str, Plan]:
    strict = ["-H", simulator(strict_model=True), "--llm-model", "sim", "--llm-no-preflight"]
    keyed = simulator(api_key="sk-right", reject=("top_k",))
    return {
        "checks": Plan([*strict, *SHORT, "-u", "10", "-r", "10", "-t", "3s", "--llm-drain", "2"], CHECKS),
        "names": Plan(["-H", simulator(), *SHORT, "-u", "12", "-r", "12", "--llm-requests", "150"], NAMES),
        "classes": Plan(
            ["-H", keyed, *SHORT, "--llm-no-preflight", "--llm-model", "sim", "-u", "6", "-r", "6", "-t", "3s",
             "--llm-save-text"], CLASSES,
        ),
    }  # fmt: skip


def by_name(run: RunFolder, name: str) -> list[dict[str, Any]]:
    found = [record for record in run.records() if record["name"] == name]
    assert found, f"no record of {name}"
    return found


def locusts(runs: Runs, plan: str, name: str) -> Counter[tuple[str | None, str | None]]:
    """Return error and outcome of Locust's requests of a name."""
    lines = map(json.loads, (runs[plan].folder / "requests.jsonl").read_text().splitlines())
    return Counter((error, outcome) for requested, error, outcome in lines if requested == name)


def agree(runs: Runs, plan: str, name: str, outcome: str, error: str | None) -> None:
    """Locust and the log have the same number of these exchanges, all with this outcome and error."""
    records = by_name(runs[plan].run, name)
    finished = [record for record in records if record["outcome"] != "unfinished"]
    assert {record["outcome"] for record in finished} == {outcome}
    assert locusts(runs, plan, name) == {(error, outcome): len(finished)}


def test_a_block_that_says_nothing_leaves_the_outcome(runs: Runs) -> None:
    agree(runs, "checks", "passes", "ok", None)


def test_failure_makes_an_exchange_rejected_and_is_what_locust_shows(runs: Runs) -> None:
    agree(runs, "checks", "rejects", "rejected", "too dull")
    assert by_name(runs["checks"].run, "rejects")[0]["error"]["message"] == "too dull"


def test_success_changes_locusts_event_not_the_outcome(runs: Runs) -> None:
    agree(runs, "checks", "forgives", "http_status", None)


def test_an_exception_in_the_block_rejects(runs: Runs) -> None:
    agree(runs, "checks", "raises", "rejected", "ValueError: boom")


def test_locusts_own_control_flow_says_nothing_about_the_answer(runs: Runs) -> None:
    agree(runs, "checks", "reschedules", "ok", None)


def test_a_block_that_is_never_entered_is_closed_when_its_reply_is_dropped(runs: Runs) -> None:
    agree(runs, "checks", "never_enters", "ok", None)


def test_replies_that_are_kept_are_logged_at_the_end_of_the_run(runs: Runs) -> None:
    assert len(by_name(runs["checks"].run, "keeps")) >= 2
    assert {record["outcome"] for record in by_name(runs["checks"].run, "keeps")} <= {"ok", "unfinished"}


def test_an_exchange_whose_user_is_killed_inside_the_block_has_ended_well(runs: Runs) -> None:
    agree(runs, "checks", "sleeps", "ok", None)
    assert len(by_name(runs["checks"].run, "sleeps")) == 1


def test_an_exchange_inside_the_block_of_another_keeps_its_place(runs: Runs) -> None:
    agree(runs, "checks", "outer", "ok", None)
    agree(runs, "checks", "inner", "ok", None)


def test_two_answers_can_be_open_at_once(runs: Runs) -> None:
    records = by_name(runs["checks"].run, "compares")
    outcomes = Counter(record["outcome"] for record in records)
    assert abs(outcomes["ok"] - outcomes["rejected"]) <= 1
    assert outcomes["rejected"] >= 1


def test_no_record_is_written_twice(runs: Runs) -> None:
    records = runs["checks"].run.records()
    assert len({record["seq"] for record in records}) == len(records)
    assert len({record["exchange"] for record in records}) == len(records)


def test_rows_are_named_by_the_task_wherever_the_call_is(runs: Runs) -> None:
    names = {record["name"] for record in runs["names"].run.records()}
    assert names == {
        "Names", "plain", "decorated", "decorated_too", "my name", "in_task_set", "in_sequence",
    }  # fmt: skip
    assert {record["tags"]["turn"] for record in by_name(runs["names"].run, "my name")} == {"1"}


def test_class_attributes_override_options(runs: Runs) -> None:
    run = runs["classes"].run
    own = by_name(run, "own_headers")
    assert {record["model"] for record in own} == {"sim-2"}
    assert {record["outcome"] for record in own} == {"ok"}
    assert {record["prompt"] for record in own} == {"One question.", "Another."}
    assert {record["outcome"] for record in by_name(run, "by_options")} == {"http_status"}
    assert {record["status"] for record in by_name(run, "by_options")} == {401}
    assert {record["model"] for record in by_name(run, "by_options")} == {"sim"}


def test_fields_of_the_class_are_sent_and_never_dropped(runs: Runs) -> None:
    refused = by_name(runs["classes"].run, "refused_body")
    assert {(record["outcome"], record["status"]) for record in refused} == {("http_status", 400)}


def test_a_completion_class_speaks_completions(runs: Runs) -> None:
    records = by_name(runs["classes"].run, "completes")
    assert {(record["api"], record["n_out"], record["outcome"]) for record in records} == {
        ("openai-completions", 5, "ok")
    }


def test_messages_of_ones_own_streamed_or_not(runs: Runs) -> None:
    records = by_name(runs["classes"].run, "conversation")
    assert {(record["streamed"], record["n_out"]) for record in records} == {(True, 5), (False, 6)}
    assert json.loads(records[1]["prompt"])[-1] == {"role": "user", "content": "And?"}


def test_plain_locust_users_run_beside_ours(runs: Runs) -> None:
    ended = runs["classes"]
    assert sum(locusts(runs, "classes", "models").values()) >= 2
    assert {record["user_class"] for record in ended.run.records()} == {
        "ByOptions", "OwnHeaders", "RefusedBody", "Completes", "Conversation",
    }  # fmt: skip
    assert "TTFT ms" in ended.text
