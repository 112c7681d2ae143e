"""The simulated model server: a real HTTP server in its own process that answers as an LLM does, on a schedule.

``options.SimOptions`` says how it behaves, ``process.start`` runs one that dies with its parent, ``truth.read_truth``
reads the log of what really left it and when. Nothing here imports gevent or locust, and nothing is imported before
it is needed.
"""
