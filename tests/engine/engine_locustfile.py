"""Asks, and keeps what the server says of each answer (its usage and its own timings) beside our record of it."""

import json
import os

from locust import task

from locust_llm import ChatUser, CompletionUser, Reply


def keep(reply: Reply) -> None:
    said = {"exchange": reply.record.exchange, "usage": reply.usage, "timings": reply.timings}
    with open(os.environ["ENGINE_SAID"], "a", encoding="utf-8") as file:
        file.write(json.dumps(said) + "\n")


class Chat(ChatUser):
    @task
    def chat_task(self) -> None:
        keep(self.chat())


class Completion(CompletionUser):
    @task
    def completion_task(self) -> None:
        keep(self.complete())
