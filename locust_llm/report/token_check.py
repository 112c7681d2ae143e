"""The server's token counts against a tokenizer's: how far they are apart on the answers whose text is in the log.

The one thing to know: texts are kept only with ``--llm-save-text``; reasoning, which a text does not hold, is taken out
of the server's count. At most ``MOST`` answers are counted, drawn evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ..tokens import USAGE, load_tokenizer
from .page.numbers import some_of
from .scope import Measured
from .stats import quantile, sample

MOST = 2000


def token_check(of: Measured, name: str) -> tuple[dict[str, Any], str]:
    """Return the disagreement over the answers of a window, or why there is none.

    Returns:
        ``{"tokenizer", "count", "usage_mean", "tokenizer_mean", "ratio", "ratio_p5", "ratio_p50", "ratio_p95"}``; a
        ratio is usage over tokenizer, of all tokens and per answer.

    Raises:
        UsageError: the tokenizer cannot be loaded.
    """
    log, figures = of.log, of.figures
    rows = figures.counted & figures.ok & of.window.inside(log.start_us) & log.out_source.isin(USAGE)
    chosen = some_of(np.flatnonzero(rows & ~np.isnan(figures.n)), MOST)
    keys = {(log.run.at(row), log.worker.at(row), int(log.seq[row])): row for row in chosen.tolist()}
    texts = dict(_texts(log.damage.files, keys))
    if not texts:
        return {}, "the log has no texts of answers with usage (--llm-save-text keeps them)"
    count = load_tokenizer(name).count
    return _compare(of, texts, count, name)


def _compare(of: Measured, texts: dict[int, str], count: Callable[[str], int], name: str) -> tuple[dict[str, Any], str]:
    rows = np.array(sorted(texts))
    usage = of.figures.n[rows] - np.nan_to_num(of.log.n_reasoning[rows])
    counted = np.array([float(count(texts[row])) for row in rows.tolist()])
    if not counted.any():
        return {}, "the tokenizer finds no token in the texts"
    ratios = sample(usage[counted > 0] / counted[counted > 0])
    return {
        "tokenizer": name, "count": len(rows),
        "usage_mean": float(usage.mean()), "tokenizer_mean": float(counted.mean()),
        "ratio": float(usage.sum() / counted.sum()),
        **{f"ratio_{p}": quantile(ratios, q) for p, q in (("p5", 0.05), ("p50", 0.5), ("p95", 0.95))},
    }, ""  # fmt: skip


def sentence(found: dict[str, Any]) -> str:
    """Return the disagreement in words."""
    off = (found["ratio"] - 1) * 100
    return (
        f"usage against the tokenizer {found['tokenizer']}: {off:+.1f} % over {found['count']} answers "
        f"(each: p5 {(found['ratio_p5'] - 1) * 100:+.1f} %, p95 {(found['ratio_p95'] - 1) * 100:+.1f} %)"
    )


def _texts(files: Sequence[str], keys: dict[tuple[str | None, str | None, int], int]) -> Iterator[tuple[int, str]]:
    """Yield (row, text) of the wanted records that have one."""
    for file in map(Path, files):
        with open(file, "rb") as lines:
            for line in lines:
                if b'"text":"' not in line:
                    continue
                try:
                    record = orjson.loads(line)
                    row = keys.get((record["run"], record["worker"], record["seq"]))
                except (orjson.JSONDecodeError, KeyError, TypeError):
                    continue
                if row is not None and isinstance(record.get("text"), str):
                    yield row, record["text"]
