"""From a tally to what people read: a row of the table, a point of the charts, the head line.

The one thing to know: a figure that is not there is left out, never 0, null or NaN. Names are those of
``summary.json``; rules for what is absent are the report's (``report/scope.py``, ``report/rates.py``).
"""

from __future__ import annotations

from typing import Any

from ..exchange import FAILURES, OK, OUTCOMES
from ..report.metrics import METRICS
from .tally import Tally

KNOWN_SHARE = 0.95
US = 1e-3
"""From our microseconds to milliseconds."""
_TOKENS = ("input", "output", "reasoning", "cached")


def ratio_of(total: Tally) -> float:
    """Return tokens per event of the exchanges whose tokens are known; 1 as long as there is none."""
    events = total.number("ratio_events")
    return total.number("ratio_tokens") / events if events else 1.0


def finished(tally: Tally) -> float:
    """Return how many exchanges came to an end of their own."""
    return tally.number(OK) + failed(tally)


def failed(tally: Tally) -> float:
    return sum(tally.number(outcome) for outcome in FAILURES)


def exchanges(tally: Tally) -> float:
    return sum(tally.number(outcome) for outcome in OUTCOMES)


def tokens_known(total: Tally) -> bool:
    """Whether enough exchanges say how many tokens they have for rates of tokens to be given."""
    which = "ok" if total.number("arriving_ok") else "cut"
    asked, unknown = total.number(f"arriving_{which}"), total.number(f"arriving_{which}_unknown")
    return unknown <= (1 - KNOWN_SHARE) * asked


def itl_known(tally: Tally) -> bool:
    return tally.number("gives_itl") >= KNOWN_SHARE * tally.number("gives_gaps")


def row_of(tally: Tally, seconds: float, ratio: float, rates_only: bool = False) -> dict[str, Any]:
    """Return the members of a row, but for its name.

    Args:
        seconds: length of the run so far. ratio: tokens per event where they are unknown (``ratio_of``).
    """
    counts = {outcome: int(tally.number(outcome)) for outcome in reversed(OUTCOMES) if tally.number(outcome)}
    row: dict[str, Any] = {"counts": {"exchanges": int(exchanges(tally)), **counts}, "failed": int(failed(tally))}
    if ended := finished(tally):
        row["error_rate"] = failed(tally) / ended
    if retries := int(tally.number("retries")):
        row["retries"] = retries
    row["tokens"] = {name: int(tally.number(f"tokens_{name}")) for name in _TOKENS if tally.number(f"knows_{name}")}
    row["bytes"] = {"in": int(tally.number("bytes_in")), "out": int(tally.number("bytes_out"))}
    if seconds > 0:
        row["requests_per_s"] = tally.number(OK) / seconds
        row["output_chunks_per_s"] = tally.number("chunks") / seconds
    absent: dict[str, str] = {}
    if seconds > 0 and tally.number("chunks"):
        if tokens_known(tally):
            row["system_output_tps"] = (tally.number("tokens") + ratio * tally.number("chunks_unknown")) / seconds
        else:
            absent["system_output_tps"] = "token counts are unknown; see output_chunks_per_s"
    for name, metric in METRICS.items() if not rates_only else ():
        histogram = tally.histograms.get(name)
        scale = US if metric.unit == "ms" else 1.0
        if histogram is not None and histogram.n > 0 and (name != "itl" or itl_known(tally)):
            row[name] = histogram.block(scale)
        elif exchanges(tally):
            absent[name] = _why(name, tally)
    if (lag := tally.histograms.get("client_lag")) is not None and lag.n > 0:
        row["client_lag"] = lag.block(US)
    return row | ({"absent": absent} if absent else {})


def _why(name: str, tally: Tally) -> str:
    if name == "itl" and tally.number("gives_gaps") and not itl_known(tally):
        unknown = int(tally.number("gives_gaps") - tally.number("gives_itl"))
        return (
            f"tokens per event are unknown for {unknown} of {int(tally.number('gives_gaps'))} exchanges; "
            "icl stands in its place"
        )
    if name.startswith("schedule") and "schedule_lag" not in tally.histograms:
        return "closed loop: nothing was scheduled"
    if not tally.number("streamed") + tally.number("whole"):
        return "no exchange succeeded"
    if name in ("ttft", "ttfvt", "ttst", "tpot", "itl", "icl", "decode_tps_per_user", "prefill_tps", "scheduled_ttft"):
        if not tally.number("streamed"):
            return "the answers were not streamed"
        if name in ("ttst", "tpot", "itl", "icl", "decode_tps_per_user") and not tally.number("gives_gaps"):
            return "no answer had two token events"
    if name in ("tpot", "decode_tps_per_user", "output_tps_per_user", "output_tokens") and not tally.number(
        "knows_output"
    ):
        return "the server reported no usage and no tokenizer was named (--llm-tokenizer)"
    if name in ("input_tokens", "prefill_tps") and not tally.number("knows_input"):
        return "input tokens are unknown"
    return "no exchange that can give it"


def point_of(tally: Tally, seconds: float, ratio: float, total: Tally) -> dict[str, Any]:
    """Return the members of a point, but for its index. ``total``: of the run, for what is absent."""
    point: dict[str, Any] = {"requests_per_s": tally.number(OK) / seconds, "input_tps": tally.number("input") / seconds}
    point["output_chunks_per_s"] = tally.number("chunks") / seconds
    if tokens_known(total):
        point["output_tps"] = (tally.number("tokens") + ratio * tally.number("chunks_unknown")) / seconds
    for name in ("ttft", "itl", "icl", "e2e_latency"):
        histogram = tally.histograms.get(name)
        if histogram is None or histogram.n <= 0 or (name == "icl" if itl_known(total) else name == "itl"):
            continue
        shares = (0.5, 0.95) if name == "e2e_latency" else (0.5, 0.95, 0.99)
        for share, value in zip(shares, histogram.quantiles(shares), strict=True):
            point[f"{name}_p{share * 100:.0f}_ms"] = value * US
    if (lag := tally.histograms.get("schedule_lag")) is not None and lag.n > 0:
        point["schedule_lag_p99_ms"] = lag.quantiles([0.99])[0] * US
    for name in ("in_flight", "decoding", "users"):
        if name in tally.numbers:
            point[name] = round(tally.numbers[name] / seconds, 2)
    if tally.number("rate_seconds"):
        point["rate_asked"] = tally.number("rate_asked") / tally.number("rate_seconds")
    errors = {o: int(n) for o in OUTCOMES if o in FAILURES and (n := tally.number(f"error_{o}"))}
    return point | ({"errors": errors} if errors else {})


def head_of(tally: Tally, seconds: float, ratio: float, total: Tally) -> dict[str, Any]:
    """Return the rates and latencies of the head line, of a stretch of so many seconds."""
    if seconds <= 0:
        return {}
    point = point_of(tally, seconds, ratio, total)
    wanted = {"output_tps", "input_tps", "requests_per_s", "output_chunks_per_s"}
    wanted |= {f"{name}_{p}_ms" for name in ("ttft", "itl", "icl") for p in ("p50", "p95")}
    return {name: value for name, value in point.items() if name in wanted}
