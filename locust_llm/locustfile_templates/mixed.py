# Options: `locust-llm run --help` or docs/options.md; `locust --help` is answered before this file is read.
#
#   locust-llm run -f mixed.py -H http://localhost:8000 -u 20 -t 60s
#   locust -f mixed.py                                      the web page, as always
#   locust-llm run -f mixed.py --llm-simulate -u 20 -t 10s  no server needed

from locust import HttpUser, between, constant_pacing, task

from locust_llm import ChatUser, CompletionUser


class Chat(ChatUser):
    """People who chat: they read the answer and think before they ask again."""

    weight = 6
    wait_time = between(1, 5)

    @task
    def ask(self):
        self.chat()


class Autocomplete(CompletionUser):
    """An editor that asks for short completions, one after the other."""

    weight = 3

    @task
    def complete_line(self):
        self.complete("for item in sorted(", max_tokens=16, temperature=0)


class Health(HttpUser):
    """What is no model call is an ordinary Locust user: in Locust's statistics, not in the token figures."""

    weight = 1
    wait_time = constant_pacing(1)

    @task
    def health(self):
        self.client.get("/health")
