"""After the run: from the event log to figures, a verdict, a table and ``summary.json``.

Needs nothing of a running test: neither gevent nor Locust is imported here, and a single worker's file is enough. The
order of the story is ``reading`` → ``figures`` → ``window`` → ``summary`` (with ``stats``, ``rates``, ``verdict``) →
``table``; ``command`` puts it behind ``locust-llm report``. What each number means is docs/metrics.md.
"""
