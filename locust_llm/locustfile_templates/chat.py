# Options: `locust-llm run --help` or docs/options.md; `locust --help` is answered before this file is read.
#
#   locust-llm run -f chat.py -H http://localhost:8000 -u 8 -t 60s
#   locust -f chat.py                                      the web page, as always
#   locust-llm run -f chat.py --llm-simulate -u 8 -t 10s   no server needed

from locust import task

from locust_llm import ChatUser


class Chat(ChatUser):
    """Asks, reads the streamed answer to its end, asks again: as many answers are in flight as there are users."""

    # wait_time = between(1, 5)                  # from locust import between: time to think between two questions
    # model = "meta-llama/Llama-3.1-8B-Instruct"  # instead of --llm-model
    # headers = {"X-Tenant": "blue"}             # sent with each request
    # extra_body = {"temperature": 0.2}          # merged into each request body
    # workload = ["One question.", "Another."]   # prompts of your own, in turn; or --llm-prompts FILE.jsonl

    @task(20)
    def ask(self):
        """The next prompt of the workload: --llm-input-tokens long, answered in --llm-output-tokens."""
        self.chat()

    @task(1)
    def haiku(self):
        """A prompt of your own. The task's name is its row in the tables; `name="…"` gives another."""
        self.chat("Write a haiku about a queue that never empties.", max_tokens=60)

    @task(1)
    def continue_chat(self):
        """A conversation, and a check: an answer that does not pass is counted as rejected."""
        messages = [
            {"role": "system", "content": "You answer in one sentence."},
            {"role": "user", "content": "What is a load test?"},
        ]
        with self.chat(messages=messages, max_tokens=80, catch_response=True) as reply:
            if not reply.text.strip():
                reply.failure("said nothing")
            # Also there: reply.reasoning, reply.tool_calls, reply.finish_reason, reply.usage, reply.ttft (seconds),
            # reply.e2e_latency, and reply.record with every event of the stream and its time.
