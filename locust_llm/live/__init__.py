"""While a run is on: what each process has measured so far, brought together, second by second; and its records.

Data flow one way: ``collector`` (every process with users) → ``delta`` → ``board`` (local process or master) →
``desk``, through which page, console and files read a snapshot. Records go their own way: the worker's log → ``post``
→ ``mailbox`` → the master's log.
"""
