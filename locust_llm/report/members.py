"""The members of a record, by what their columns are: labels, whole numbers, numbers that may be null, truths.

The one thing to know: both ways of reading (``reading.py``, ``arrow_blocks.py``) take them from here; what is not in
``INT_DEFAULTS``, ``LABEL_DEFAULTS`` or ``BOOL_DEFAULTS`` has no default: whole numbers must be there, others are null.
"""

from __future__ import annotations

from ..exchange import MEASURE
from .columns import KINDS

LABELS = (
    "run", "worker", "name", "user_class", "api", "model", "phase", "outcome",
    "finish_reason", "out_source", "in_source", "stamp",
)  # fmt: skip
REQUIRED_LABELS = frozenset({"run", "worker", "name", "api", "model", "outcome"})
LABEL_DEFAULTS = {"phase": MEASURE, "stamp": "user"}
INTS = ("seq", "start_us", "end_us")
INT_DEFAULTS = {
    "attempt": 1, "pings": 0, "bytes_in": 0, "bytes_out": 0,
    "lag_us_max": 0, "uncertain_us_max": 0, "late_joined": 0, "resent": 0,
}  # fmt: skip
BOOL_DEFAULTS = {"streamed": True, "reused": False}
FLOATS = (
    "stage", "status", "scheduled_us", "dns_us", "tcp_us", "tls_us", "connected_us", "sent_us", "headers_us",
    "n_out", "n_reasoning", "n_in", "n_cached", "asked_in", "asked_out",
)  # fmt: skip
KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}
OTHER = KIND_CODES["other"]
