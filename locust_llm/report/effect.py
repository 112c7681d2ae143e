"""What a token costs in time: least squares of TTFT and e2e latency on input and output tokens (metrics.md 4).

The one thing to know: exchanges that ran side by side disturb each other alike, so the intervals are made over blocks
of time (cluster-robust, CR1) where the window holds enough of them, else over single exchanges (HC1); ``intervals``
says which. Where request names are mixed each has a level of its own: slopes are those within names. The ratio "so many
input tokens cost as much time as one output token" has Fieller's interval.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .columns import Bools, Floats, Ints, Log, numbered
from .figures import Figures
from .student import t_95

OF = ("ttft", "e2e_latency")
RATIO = "input_tokens_per_output_token"
LEAST = 20
"""Exchanges below which nothing is fitted."""
# Exchanges beyond the numbers that are fitted, one mean a request name included; fewer say nothing.
_FREEDOM = 20
_ALIKE = 0.01
_SAME = 0.999
_BLOCKS = (8, 40)
_MS = 1e3


def input_effect(log: Log, figures: Figures, rows: Bools) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the effect of tokens on the latencies of ``rows``, and why parts of it are absent.

    Returns:
        ``{figure: {"count", "intercept_ms", "ms_per_input_token", "ms_per_output_token",
        "input_tokens_per_output_token", "intervals"}}``; effects are ``{"value", "low", "high"}`` (95 %), an open end
        has no key.
    """
    found: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for name in OF:
        values = figures.values[name]
        usable = rows & ~np.isnan(values) & ~np.isnan(log.n_in) & ~np.isnan(figures.n)
        key = f"input_effect.{name}"
        if int(usable.sum()) < LEAST:
            absent[key] = f"fewer than {LEAST} exchanges have it with known input and output tokens"
            continue
        _, name_of = numbered(log.name.codes[usable] * (len(log.model.names) + 1) + log.model.codes[usable] + 1)
        fit, why = _fit(values[usable], log.n_in[usable], figures.n[usable], log.start_us[usable], name_of)
        if name == "ttft":  # what comes after the first token has no part in it
            fit.pop(RATIO, None)
            why.pop(RATIO, None)
        absent |= {f"{key}.{part}": reason for part, reason in why.items()}
        if fit:
            found[name] = fit
    return found, absent


def _fit(
    seconds: Floats, n_in: Floats, n_out: Floats, start_us: Ints, name_of: Ints
) -> tuple[dict[str, Any], dict[str, str]]:
    columns = {"ms_per_input_token": n_in, "ms_per_output_token": n_out}
    within = {name: _within(c, name_of) for name, c in columns.items()}
    varied = {name: c for name, c in within.items() if float(c.std()) > _ALIKE * max(float(columns[name].mean()), 1.0)}
    absent = {
        name: "these lengths are all alike; ask for a spread, such as --llm-input-tokens 550,150"
        for name in columns
        if name not in varied
    }
    if len(varied) == 2 and abs(float(np.corrcoef(list(varied.values()))[0, 1])) > _SAME:
        why = "input and output lengths go together, so their effects cannot be told apart"
        return {}, dict.fromkeys(columns, why)
    if not varied:
        return {}, absent
    x = np.stack(list(varied.values()), axis=1)
    scale = np.abs(x).max(axis=0)
    levels = int(name_of.max()) + 1
    if len(seconds) - x.shape[1] - levels < _FREEDOM:
        why = f"too few exchanges for {levels} request names: {len(seconds)}"
        return {}, dict.fromkeys(columns, why)
    y = _within(seconds * _MS, name_of)
    beta, covariance, t, how = _least_squares(x / scale, y, _blocks(seconds, start_us), levels)
    beta, covariance = beta / scale, covariance / np.outer(scale, scale)
    middle = sum(float(b) * float(columns[name].mean()) for b, name in zip(beta, varied, strict=True))
    fit: dict[str, Any] = {"count": len(seconds), "intercept_ms": float(seconds.mean()) * _MS - middle}
    for i, name in enumerate(varied):
        half = t * math.sqrt(max(float(covariance[i, i]), 0.0))  # rounding can leave it a hair below
        value = float(beta[i])
        fit[name] = {"value": value, "low": value - half, "high": value + half}
    if len(varied) == 2:
        ratio = _ratio(beta, covariance, t)
        if ratio:
            fit[RATIO] = ratio
        else:
            absent[RATIO] = "the effect of an input token cannot be told from none"
    return {**fit, "intervals": how}, absent


def _within(values: Floats, name_of: Ints) -> Floats:
    """Return values less the mean of their name."""
    means = np.bincount(name_of, values) / np.bincount(name_of)
    centred: Floats = values - means[name_of]
    return centred


def _blocks(seconds: Floats, start_us: Ints) -> Ints | None:
    """Return the time block of each exchange: each at least twice the median latency long; None if they are too few."""
    length = int(start_us.max() - start_us.min()) + 1
    number = min(_BLOCKS[1], int(length / max(2e6 * float(np.median(seconds)), 1.0)))
    block: Ints = (start_us - start_us.min()) * number // length
    return block if number and len(numbered(block)[0]) >= _BLOCKS[0] else None


def _least_squares(x: Floats, y: Floats, blocks: Ints | None, levels: int) -> tuple[Floats, Floats, float, str]:
    """Return coefficients, their robust covariance, the t factor of a 95 % interval, and over what it was made.

    Parameters:
        levels: how many means were taken out of ``x`` and ``y`` before.
    """
    n, columns = x.shape
    p = columns + levels
    beta: Floats = np.asarray(np.linalg.lstsq(x, y, rcond=None)[0], dtype=np.float64)
    bread = np.linalg.pinv(x.T @ x)
    scores = x * (y - x @ beta)[:, None]
    if blocks is None:
        sums, factor, freedom, how = scores, n / (n - p), n - p, "exchanges"
    else:
        _, at = numbered(blocks)
        sums = np.stack([np.bincount(at, scores[:, i]) for i in range(columns)], axis=1)
        g = len(sums)
        factor, freedom = g / (g - 1) * (n - 1) / (n - p), g - 1
        how = f"{g} blocks of time"
    covariance: Floats = bread @ (sums.T @ sums) @ bread * factor
    return beta, covariance, t_95(freedom), how


def _ratio(beta: Floats, covariance: Floats, t: float) -> dict[str, float] | None:
    """Return output effect / input effect with Fieller's 95 % interval; None if that interval is unbounded."""
    b, c = float(beta[0]), float(beta[1])
    vbb, vbc, vcc = float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1])
    if b <= 0 or (g := t * t * vbb / (b * b)) >= 1:
        return None
    r = c / b
    spread = vcc - 2 * r * vbc + r * r * vbb - g * (vcc - (vbc * vbc / vbb if vbb else 0.0))
    half = t / b * math.sqrt(max(spread, 0.0))
    middle = r - g * (vbc / vbb if vbb else 0.0)
    return {"value": r, "low": (middle - half) / (1 - g), "high": (middle + half) / (1 - g)}
