# Options: `locust-llm run --help` or docs/options.md; `locust --help` is answered before this file is read.
#
#   locust-llm run -f completion.py -H http://localhost:8000 -u 8 -t 60s
#   locust -f completion.py                                      the web page, as always
#   locust-llm run -f completion.py --llm-simulate -u 8 -t 10s   no server needed

from locust import task

from locust_llm import CompletionUser


class Completion(CompletionUser):
    """Sends a plain prompt (no chat template), reads the streamed completion to its end, sends the next."""

    # wait_time = between(1, 5)                  # from locust import between: a pause between two requests
    # model = "meta-llama/Llama-3.1-8B"          # instead of --llm-model
    # headers = {"X-Tenant": "blue"}             # sent with each request
    # extra_body = {"temperature": 0.2}          # merged into each request body
    # workload = ["Once upon a time", "It was"]  # prompts of your own, in turn; or --llm-prompts FILE.jsonl

    @task(20)
    def go_on(self):
        """The next prompt of the workload: --llm-input-tokens long, answered in --llm-output-tokens."""
        self.complete()

    @task(1)
    def code(self):
        """A prompt of your own. The task's name is its row in the tables; `name="…"` gives another."""
        self.complete("def fibonacci(n):", max_tokens=60, stop=["\ndef "])

    @task(1)
    def checked(self):
        """A check: an answer that does not pass is counted as rejected."""
        with self.complete("The opposite of hot is", max_tokens=5, catch_response=True) as reply:
            if not reply.text.strip():
                reply.failure("said nothing")
            # Also there: reply.finish_reason, reply.usage, reply.ttft (seconds), reply.e2e_latency, and reply.record
            # with every event of the stream and its time.
