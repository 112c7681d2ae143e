"""The one exception a user is meant to see: a usage error with its remedy.

Whoever raises it has written the whole line; whoever catches it (the command line, the Locust
plugin, the web form) only prints that line and ends with exit code 2, or answers 400.
"""

from __future__ import annotations


class UsageError(Exception):
    """Bad input or a failed first contact.

    The message is one line that names the option and how to mend it, for example
    ``--llm-input-tokens must be MEAN or MEAN,STD with MEAN >= 1 (got "-5")``.
    """
