"""The figures of ``summary.json`` as tiles and tables: by name, by group, effects of tokens, costs.

The one thing to know: ``~`` marks a percentile with too few values behind it, and what is absent says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..cost import KEYS
from ..effect import RATIO
from ..metrics import METRICS, RATES
from ..table import number
from ..token_check import sentence
from .parts import Html, details, figure_text, join, table, tag

_COLUMNS = ("mean", "std", "p50", "p90", "p95", "p99", "p999", "max")
_ROWS = (
    "ttft", "ttfvt", "ttst", "tpot", "itl", "icl", "e2e_latency", "scheduled_ttft", "scheduled_latency", "schedule_lag",
    "output_tps_per_user", "decode_tps_per_user", "prefill_tps", "input_tokens", "output_tokens",
)  # fmt: skip
_SHOWN_NAMES = 4
_LATENCY_TILES = (("ttft", "TTFT"), ("itl", "ITL per token"), ("tpot", "TPOT"), ("e2e_latency", "e2e latency"))
_COST_LABELS = {
    "per_request": "per request",
    "per_1k_requests": "per 1 000 requests",
    "per_1k_output_tokens": "per 1k output tokens",
    "per_1m_output_tokens": "per 1M output tokens",
    "per_1m_tokens": "per 1M tokens, input too",
    "per_hour": "per hour at this load",
}


def tiles(summary: dict[str, Any]) -> Html:
    """Return the head figures."""
    total = summary["total"]
    rates, metrics, absent = total["rates"], total["metrics"], total["absent"]
    found = [_tile("output", rates.get("system_output_tps"), "tokens/s", "", absent.get("system_output_tps"))]
    found.append(_tile("requests", rates.get("requests_per_s"), "1/s", "", absent.get("requests_per_s")))
    for key, label in _LATENCY_TILES:
        which, shown = (
            (key, label) if key in metrics or key != "itl" or "icl" not in metrics else ("icl", "ICL per chunk")
        )
        found.append(_latency(shown, metrics.get(which), absent.get(which)))
    if "goodput" in rates:
        per_s = f"{number(rates['goodput_per_s'])} good requests/s" if "goodput_per_s" in rates else ""
        found.append(_tile("goodput", rates["goodput"] * 100, "%", per_s))
    user = metrics.get("output_tps_per_user", {})
    more = f"p5 {_value(user, 'p5')} tokens/s"
    found.append(_tile("per user, median", user.get("p50"), "tokens/s", more, absent.get("output_tps_per_user")))
    flight = total["concurrency"]["in_flight"]
    found.append(_tile("in flight, mean", flight["mean"], "exchanges", f"peak {flight['peak']}"))
    outcomes = total["outcomes"]
    rate = rates.get("error_rate")
    failed = sum(n for o, n in outcomes.items() if o not in ("ok", "cancelled", "unfinished"))
    found.append(
        _tile(
            "error rate",
            None if rate is None else rate * 100,
            "%",
            f"{failed} failed, {outcomes['ok']} ok",
            absent.get("error_rate"),
        )
    )
    return tag("div", *found, class_="tiles")


def _latency(label: str, of: dict[str, Any] | None, why: str | None) -> Html:
    more = "" if of is None else f"p95 {_value(of, 'p95')} · p99 {_value(of, 'p99')} ms{_between(of, 'p50')}"
    return _tile(f"{label}, median", None if of is None else of["p50"], "ms", more, why)


def _tile(name: str, value: float | None, unit: str, more: str, why: str | None = None) -> Html:
    shown = tag("div", "–") if value is None else tag("div", number(value), " ", tag("small", unit), class_="value")
    below = more if value is not None else (why or "not measured")
    return tag("div", tag("div", name, class_="name"), shown, tag("div", below, class_="more"), class_="tile")


def figures_table(summary: dict[str, Any]) -> Html:
    """Return every latency and length, of all names together and of each."""
    names = summary["names"]
    parts = [_scope_table(summary["total"])]
    if len(names) > 1:
        each = [
            details(_title(n), _scope_table(n), rates_of(n), open=len(names) <= _SHOWN_NAMES)
            for n in names
        ]  # fmt: skip
        parts += [tag("h3", "By name"), *each]
    parts.append(tag("p", "~ too few values for this percentile; std of the sample", class_="note"))
    return join(parts)


def _title(name: dict[str, Any]) -> str:
    return f"{name['name']} ({name['api']}, {name['model']})"


def _scope_table(of: dict[str, Any]) -> Html:
    head = ["", "unit", *("p99.9" if c == "p999" else c for c in _COLUMNS), "n"]
    rows = []
    for key in (k for k in _ROWS if k in of["metrics"]):
        m = of["metrics"][key]
        rows.append([METRICS[key].label, m["unit"], *(_value(m, c) for c in _COLUMNS), m["count"]])
    missing = [[METRICS[k].label, of["absent"][k]] for k in _ROWS if k in of["absent"] and not k.startswith("schedule")]
    parts = [table(head, rows, left=2)] if rows else []
    if certain := _intervals(of):
        parts.append(certain)
    if worst := of.get("failures_at_worst"):
        parts.append(_at_worst(worst))
    if missing:
        parts.append(details(f"absent: {len(missing)}", table(["", "why"], missing, left=2)))
    return join(parts)


def _intervals(of: dict[str, Any]) -> Html | None:
    """Return the 95 % intervals, or why there are none; None if nobody looked for them."""
    shown = ("mean", "p50", "p90", "p95", "p99")
    rows = []
    for key in (k for k in _ROWS if "ci95" in of["metrics"].get(k, {})):
        found = of["metrics"][key]["ci95"]
        rows.append([METRICS[key].label, METRICS[key].unit, *(_ends(found.get(s)) for s in shown)])
    if rows:
        blocks = f" over {of['blocks']} blocks of time" if isinstance(of.get("blocks"), int) else ""
        return details(f"95 % intervals{blocks}", table(["", "unit", *shown], rows, left=2))
    why = of["absent"].get("ci95")
    return tag("p", f"No intervals: {why}.", class_="note") if why else None


def _at_worst(worst: dict[str, Any]) -> Html:
    """Return the percentiles with failures at the worst end."""
    shown = ("p50", "p90", "p95", "p99")

    def cell(of: dict[str, Any], statistic: str) -> str:
        return "∞" if statistic in of.get("infinite", ()) else _value(of, statistic)

    rows = [
        [METRICS[key].label, METRICS[key].unit, *(cell(worst[key], s) for s in shown), worst[key]["count"]]
        for key in _ROWS
        if key in worst
    ]
    return details("with failures at the worst end", table(["", "unit", *shown, "n"], rows, left=2))


def _ends(found: Any) -> str:
    """Return "1.2 to 3.4"; an open end is "…"."""
    if not found:
        return "–"
    low, high = ("…" if end is None else number(end) for end in found)
    return f"{low} to {high}"


def _between(of: dict[str, Any], statistic: str) -> str:
    found = of.get("ci95", {}).get(statistic)
    return f"; median's 95 %: {_ends(found)}" if found and None not in found else ""


def rates_table(summary: dict[str, Any]) -> Html:
    """Return the rates of the headline window and of the whole run."""
    both = [summary["total"]] + ([] if summary["window"]["kind"] == "all" else [summary["total_all"]])
    kinds = [{"steady": "steady", "all": "whole run", "range": "window"}[summary["window"]["kind"]], "whole run"]
    rows: list[list[object]] = []
    for key, rate in RATES.items():
        if any(key in of["rates"] or key in of["absent"] for of in both):
            scale = 100 if rate.unit == "share" else 1
            cells = [
                figure_text(of["rates"][key] * scale) if key in of["rates"] else _absent(of["absent"].get(key))
                for of in both
            ]
            ends = summary["total"].get("rates_ci95", {}).get(key)
            certain = _ends([e if e is None else e * scale for e in ends] if ends else None)
            rows.append([rate.label, "%" if rate.unit == "share" else rate.unit, *cells, certain])
    for key, label in (
        ("in_flight", "exchanges in flight, mean / peak"),
        ("decoding", "of these decoding, mean / peak"),
    ):
        rows.append(
            [
                label,
                "exchanges",
                *(f"{number(of['concurrency'][key]['mean'])} / {of['concurrency'][key]['peak']}" for of in both),
                "–",
            ]
        )
    tcp = [of["connection"].get("tcp_connect_p50_ms") for of in both]
    if any(t is not None for t in tcp):
        rows.append(["TCP connect, median (how far away the server is)", "ms", *tcp, "–"])
    return table(["", "unit", *kinds[: len(both)], f"95 %, {kinds[0]}"], rows, left=2)


def rates_of(of: dict[str, Any]) -> Html:
    """Return one line of rates and outcomes."""
    rates = of["rates"]
    shown = [f"{RATES[k].label} {number(rates[k])}" for k in ("system_output_tps", "requests_per_s") if k in rates]
    shown += [f"error rate {number(rates['error_rate'] * 100)} %"] if "error_rate" in rates else []
    shown += [f"{outcome} {n}" for outcome, n in of["outcomes"].items() if n]
    return tag("p", " · ".join(shown), class_="soft")


def by_group(group: dict[str, Any]) -> Html:
    """Return the table of ``--by``: a row a group."""
    if "absent" in group:
        return tag("p", f"Nothing to show: {group['absent']}.", class_="absent")
    head = [
        group["key"],
        "started",
        "output tokens/s",
        "requests/s",
        "TTFT p50 ms",
        "TTFT p95 ms",
        "TPOT p50 ms",
        "e2e p50 ms",
        "e2e p95 ms",
        "in flight",
        "error rate %",
    ]
    rows = [list(_group_row(group["key"], of)) for of in group["groups"]]
    left = f" {group['left_out']} smaller groups are left out." if group.get("left_out") else ""
    return join([table(head, rows), tag("p", f"~ too few values for this percentile.{left}", class_="note")])


def _group_row(key: str, of: dict[str, Any]) -> Iterator[object]:
    yield of.get("value", f"(no {key})")
    yield sum(of["outcomes"].values())
    yield from (of["rates"].get(k) for k in ("system_output_tps", "requests_per_s"))
    for metric, statistic in (
        ("ttft", "p50"),
        ("ttft", "p95"),
        ("tpot", "p50"),
        ("e2e_latency", "p50"),
        ("e2e_latency", "p95"),
    ):
        yield _value(of["metrics"].get(metric), statistic)
    yield of["concurrency"]["in_flight"]["mean"]
    rate = of["rates"].get("error_rate")
    yield None if rate is None else rate * 100


def effects(summary: dict[str, Any]) -> list[Html]:
    """Return what input and output tokens add to the latencies; nothing where none could be fitted."""
    total = summary["total"]
    rows: list[list[object]] = []
    how: set[str] = set()
    absent: dict[str, list[str]] = {}
    for name, label in (("ttft", "TTFT"), ("e2e_latency", "e2e latency")):
        fit = total["input_effect"].get(name, {})
        for part, words in (("ms_per_input_token", "per input token"), ("ms_per_output_token", "per output token")):
            if part in fit:
                rows.append(
                    [f"{label} {words}", "ms", *(f"{fit[part][k]:.4g}" for k in ("value", "low", "high")), fit["count"]]
                )
                how.add(fit["intervals"])
            elif why := total["absent"].get(f"input_effect.{name}.{part}"):
                rows.append([f"{label} {words}", "ms", "–", "–", "–", fit.get("count")])
                absent.setdefault(why, []).append(f"{label} {words}")
    if not rows:
        return []
    sentence = ratio_sentence(total)
    note = f"Least squares over the window's successes; 95 % intervals over {' and '.join(sorted(how))}." if how else ""
    return [
        tag("p", sentence),
        table(["", "unit", "effect", "low", "high", "n"], rows, left=2),
        *(tag("p", f"{', '.join(parts)}: {why}.", class_="absent") for why, parts in absent.items()),
        tag("p", note, class_="note"),
    ]


def ratio_sentence(total: dict[str, Any]) -> str:
    """Return the article's "100 input tokens cost as one output token" as measured here."""
    ratio = total["input_effect"].get("e2e_latency", {}).get(RATIO)
    if ratio:
        return (
            f"On this server {ratio['value']:.3g} input tokens take as long as one output token "
            f"(95 %: {ratio['low']:.3g} to {ratio['high']:.3g})."
        )
    why = total["absent"].get(f"input_effect.e2e_latency.{RATIO}")
    return f"How many input tokens take as long as one output token cannot be said: {why}." if why else ""


def checks(total: dict[str, Any]) -> Html:
    """Return the server's counts against a tokenizer's, or why that is not there; nothing if it was not asked for."""
    if "token_check" in total:
        return tag("p", sentence(total["token_check"]).capitalize() + ".")
    why = total["absent"].get("token_check")
    return tag("p", f"No usage against tokenizer: {why}.", class_="absent") if why else Html("")


def costs(summary: dict[str, Any]) -> list[Html]:
    """Return the costs at this load."""
    of = summary["total"]["cost"]
    kinds = [(k, label) for k, label in (("tokens", "by token price"), ("hour", "by price of the hour")) if k in of]
    prices = of["prices"]
    words = {"input": "per 1M input tokens", "output": "per 1M output tokens", "hour": "per hour of the deployment"}
    said = ", ".join(f"{prices[k]:g} {words[k]}" for k in words if k in prices)
    parts = [tag("p", f"Prices: {said}.", class_="soft")]
    if kinds:
        rows = [[_COST_LABELS[k], *(f"{of[kind][k]:.4g}" if k in of[kind] else "–" for kind, _ in kinds)] for k in KEYS]
        parts.append(table(["", *(label for _, label in kinds)], rows))
    parts += [tag("p", f"No cost by {kind}: {why}.", class_="absent") for kind, why in of.get("absent", {}).items()]
    return parts


def _value(of: dict[str, Any] | None, statistic: str) -> str:
    if not of or statistic not in of:
        return "–"
    return number(of[statistic]) + ("~" if statistic in of["thin"] else "")


def _absent(why: str | None) -> Html:
    return tag("span", why or "–", class_="absent")
