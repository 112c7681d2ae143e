"""Which records: ``--where KEY=VALUE`` filters, and the columns that ``--by KEY`` and they may name.

The one thing to know: a key is a label of the record (``name model worker stage …``) or else a tag. A tag that no
record has is no error for ``--by`` (the report says so), but a filter that nothing meets is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import UsageError
from .columns import Bools, Labels, Log

LABELS = (
    "name", "model", "api", "worker", "user_class", "outcome", "finish_reason", "error_kind", "out_source", "run",
)  # fmt: skip
STAGE = "stage"
_SHOWN = 12


def keys(log: Log) -> list[str]:
    """Return the keys that records of this log have, of those that can be named: labels, ``stage``, and its tags."""
    return [key for key in (*LABELS, STAGE, *sorted(log.tags)) if (column(log, key).codes >= 0).any()]


def column(log: Log, key: str) -> Labels:
    """Return the labels of a key; a tag that no record has is all null."""
    if key in LABELS:
        return _labels(getattr(log, key))
    if key == STAGE:
        known = ~np.isnan(log.stage)
        stages, codes = np.unique(log.stage[known], return_inverse=True)
        out = np.full(len(log), -1, dtype=np.int32)
        out[known] = codes
        return Labels(out, tuple(f"{stage:g}" for stage in stages.tolist()))
    return log.tags.get(key.removeprefix("tag:"), Labels(np.full(len(log), -1, dtype=np.int32), ()))


def matching(log: Log, filters: Sequence[str], measured: Bools) -> Bools:
    """Return the records that meet all filters.

    Parameters:
        filters: ``KEY=VALUE``, ``KEY=A,B`` (either), ``KEY!=VALUE``; an empty value is a record without that key.
        measured: of these at least one must remain.

    Raises:
        UsageError: a filter is none of these, or no measured record meets it.
    """
    rows = np.ones(len(log), dtype=bool)
    for text in filters:
        key, values, wanted = _parse(text)
        labels = column(log, key)
        found = labels.isin(*values)
        if "" in values:
            found |= labels.codes < 0
        rows &= found if wanted else ~found
        if not (rows & measured).any():
            raise UsageError(f"--where {text}: no measured exchange is left; {_known(log, key, labels)}")
    return rows


def _parse(text: str) -> tuple[str, tuple[str, ...], bool]:
    key, equals, value = text.partition("=")
    wanted = not key.endswith("!")
    key = key.removesuffix("!").strip()
    if not equals or not key:
        raise UsageError(f'--where must be KEY=VALUE, such as model=llama or turn=2 (got "{text}")')
    return key, tuple(v.strip() for v in value.split(",")), wanted


def _known(log: Log, key: str, labels: Labels) -> str:
    if not labels.names:
        return f"no record has {key} (there are {', '.join(keys(log))})"
    more = len(labels.names) - _SHOWN
    return f"{key} is {', '.join(labels.names[:_SHOWN])}{f' and {more} more' if more > 0 else ''}"


def _labels(value: object) -> Labels:
    assert isinstance(value, Labels)
    return value
