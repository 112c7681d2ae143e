"""After the run: from the event log to figures, a verdict, a table and ``summary.json``.

Needs nothing of a running test: neither gevent nor Locust is imported here, and a single worker's file is enough. The
order of the story is ``reading`` → ``figures`` → ``window`` → ``summary`` (with ``stats``, ``rates``, ``verdict``) →
``table`` and ``html``; ``command`` puts it behind ``locust-llm report``. What each number means is docs/metrics.md.

For notebooks: ``locust_llm.report.load(run)`` and ``locust_llm.report.metrics(run, …)`` give pandas frames
(docs/notebook.md).
"""

from .frames import Frames, load, metrics

__all__ = ["Frames", "load", "metrics"]
