"""What `locust-llm run` runs without -f: one task that sends the workload. Options: `locust-llm run --help`."""

from locust import task

from locust_llm import ChatUser, CompletionUser


class Load(ChatUser, CompletionUser):
    request_type = ""  # neither: the API is the one that --llm-api names

    @task
    def ask(self):
        if self.client.target.api.request_type == "COMPLETION":
            self.complete(name="completion")
        else:
            self.chat(name="chat")
