"""summary.json as a whole: against numpy by hand on a random log, its shape, its absences, its verdict."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import orjson
import pytest
from report_logs import T0_S, log_of, record, stream, write_log

from locust_llm.errors import UsageError
from locust_llm.exchange import OUTCOMES, ExchangeError
from locust_llm.report import summary as summaries
from locust_llm.report.metrics import METRICS, PERCENTILES, RATES
from locust_llm.report.summary import report, summarise, to_csv, to_json, write

NUMPY = {name: q * 100 for name, q in PERCENTILES.items()}


def card(ramp=0.0, stop=1e6, **members):
    return {"events": [{"t": T0_S + ramp, "event": "ramp_complete"}, {"t": T0_S + stop, "event": "stop"}]} | members


def random_records(count=1000, seed=7):
    """Closed loop of 8 users, two names, with every kind of outcome; unknown m for some, not streamed for some."""
    rng = np.random.default_rng(seed)
    clock = {user: float(rng.uniform(0, 0.5)) for user in range(8)}
    records = []
    for i in range(count):
        user = min(clock, key=clock.get)
        k = int(rng.integers(1, 40))
        ttft, itl = rng.gamma(4, 20) + 2, rng.gamma(9, 1)
        name = "chat" if user % 2 else "long"
        outcome = rng.choice(["ok", "ok", "ok", "ok", "ok", "ok", "ok", "timeout", "cancelled"])
        n_out = k * 3 if rng.random() < 0.01 else k
        r = stream(i, clock[user], round(ttft, 3), round(itl, 3), k, name=name, outcome=str(outcome), n_out=n_out,
                   tags={"user": f"u{user}"}, n_in=int(rng.integers(10, 900)))  # fmt: skip
        if rng.random() < 0.05:
            r = replace(r, streamed=False)
        records.append(r)
        clock[user] += r.end_us / 1e6
    return records


def by_hand(records, a_us, b_us):
    """Every metric and rate of a window by plain Python over the records."""
    started = [r for r in records if a_us <= r.start_us <= b_us]
    ok = [r for r in started if r.outcome == "ok"]
    with_start = [r for r in started if r.outcome in ("ok", "cancelled") and r.streamed]
    streams = [r for r in ok if r.streamed]

    def times(r):
        return [t / 1e6 for t in r.token_times_us()]

    def ended(r):
        return times(r)[-1] if r.streamed else r.end_us / 1e6

    tpot = [(times(r)[-1] - times(r)[0]) / (r.n_out - 1) for r in streams if len(times(r)) > 1 and r.n_out > 1]
    gaps = [(r, np.diff(times(r))) for r in with_start if len(times(r)) > 1]
    metrics = {
        "ttft": [times(r)[0] for r in with_start],
        "e2e_latency": [ended(r) for r in ok],
        "stream_end": [r.end_us / 1e6 for r in ok],
        "tpot": tpot,
        "decode_tps_per_user": [1 / t for t in tpot],
        "output_tps_per_user": [r.n_out / ended(r) for r in ok],
        "prefill_tps": [r.n_in / times(r)[0] for r in with_start],
        "icl": np.concatenate([g for _, g in gaps]),
        "itl": np.concatenate([g for r, g in gaps if r.n_out == len(times(r))]),
        "output_tokens": [r.n_out for r in ok],
        "input_tokens": [r.n_in for r in ok],
    }
    seconds = (b_us - a_us) / 1e6
    arrived = 0.0
    for r in records:
        if r.outcome == "timeout":
            continue
        at = [r.start_us + r.end_us] if not r.streamed else [r.start_us + t for t in r.token_times_us()]
        arrived += r.n_out / len(at) * sum(a_us <= t <= b_us for t in at)
    came_in = sum(r.n_in for r in started if r.outcome != "timeout")
    done = sum(1 for r in records if r.outcome == "ok" and a_us <= r.start_us + r.end_us <= b_us)
    rates = {
        "system_output_tps": arrived / seconds,
        "system_total_tps": (arrived + came_in) / seconds,
        "requests_per_s": done / seconds,
        "error_rate": sum(r.outcome == "timeout" for r in started)
        / sum(r.outcome in ("ok", "timeout") for r in started),
    }
    return metrics, rates


def assert_same(scope, metrics, rates):
    for name, values in metrics.items():
        got, scale = scope["metrics"][name], METRICS[name].scale
        values = np.asarray(values) * scale
        assert got["count"] == len(values), name
        assert got["mean"] == pytest.approx(values.mean()), name
        assert got["std"] == pytest.approx(values.std(ddof=1)), name
        for stat, q in NUMPY.items():
            assert got[stat] == pytest.approx(np.percentile(values, q), abs=1e-6), (name, stat)
    for name, value in rates.items():
        assert scope["rates"][name] == pytest.approx(value), name


def test_a_random_log_agrees_with_numpy_by_hand(tmp_path):
    records = random_records()
    got = summarise(log_of(tmp_path, *records), card(ramp=3.0, stop=12.0))
    window = got["window"]
    assert window["kind"] == "steady"
    assert window["end"] == T0_S + 12.0
    bounds = round(window["start"] * 1e6), round(window["end"] * 1e6)
    assert_same(got["total"], *by_hand(records, *bounds))
    for name in got["names"]:
        assert_same(name, *by_hand([r for r in records if r.name == name["name"]], *bounds))
    everything = got["total_all"]["window"]
    assert everything["kind"] == "all"
    assert_same(got["total_all"], *by_hand(records, round(everything["start"] * 1e6), round(everything["end"] * 1e6)))


def numbers_in(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers_in(inner)
    else:
        yield value


def test_the_summary_has_its_promised_shape(tmp_path):
    records = random_records(200)
    got = json.loads(to_json(summarise(log_of(tmp_path, *records), card(ramp=1.0, stop=2.0))))
    assert (got["schema"], got["run"]) == (1, "r1")
    assert {"kind", "start", "end", "duration_s", "censored"} <= set(got["window"])
    assert got["verdict"]["state"] in ("sound", "doubtful", "overloaded")
    assert [(n["name"], n["api"], n["model"]) for n in got["names"]] == [
        ("chat", "openai-chat", "m"),
        ("long", "openai-chat", "m"),
    ]
    for scope in (got["total"], got["total_all"], *got["names"]):
        assert set(scope["metrics"]) <= set(METRICS)
        assert set(scope["rates"]) <= set(RATES)
        assert set(scope["outcomes"]) == set(OUTCOMES)
        always = {"count", "mean", "std", "min", "max", "thin", "unit", *PERCENTILES}
        assert always == set(scope["metrics"]["ttft"]) - {"ci95"}
        assert scope["tokens"]["source"] == {"usage": scope["tokens"]["source"]["usage"]}
        assert not set(scope["absent"]) & (set(scope["metrics"]) | set(scope["rates"]))
        assert not (set(METRICS) - set(scope["metrics"]) - set(scope["absent"]))
    assert all(v is None or not isinstance(v, float) or math.isfinite(v) for v in numbers_in(got))


@pytest.mark.parametrize(
    ("records", "absent"),
    [
        ([stream(0, outcome="timeout")], {"ttft": "no exchange succeeded", "itl": "no exchange succeeded"}),
        (
            [record(0, 0.0, [(9, "content")], streamed=False, n_out=3)],
            {"ttft": "not streamed", "tpot": "not streamed", "icl": "not streamed"},
        ),
        (
            [stream(0, tokens=1)],
            {
                "tpot": "two token events",
                "itl": "two token events",
                "ttst": "two token events",
                "ttft.std": "one value",
            },
        ),
        (
            [stream(0, n_out=None)],
            {
                "tpot": "--llm-tokenizer",
                "output_tokens": "--llm-tokenizer",
                "system_output_tps": "unknown",
                "itl": "icl",
            },
        ),
        ([stream(0, n_in=None)], {"input_tokens": "unknown", "prefill_tps": "unknown"}),
        (
            [stream(0)],
            {"schedule_lag": "closed loop", "scheduled_ttft": "closed loop", "scheduled_latency": "closed loop"},
        ),
        (
            [stream(0, outcome="unfinished")],
            {"e2e_latency": "no exchange succeeded", "output_tokens": "no exchange succeeded"},
        ),
        (
            [record(0, 0.0, [(5, "finish")], end_ms=9, n_out=4, n_reasoning=4, out_source="usage")],
            {"ttft": "can give it", "e2e_latency": "can give"},
        ),
        ([record(0, 0.0, [(5, "refusal"), (6, "refusal")], n_out=2)], {"ttfvt": "no answer text"}),
        ([stream(0, phase="warmup")], {"ttft": "no exchange started", "system_output_tps": "no length"}),
    ],
)
def test_a_figure_that_is_not_there_says_why(tmp_path, records, absent):
    got = json.loads(to_json(summarise(log_of(tmp_path, *records), {})))
    scope = got["total"]
    for name, why in absent.items():
        assert why in scope["absent"][name]
        assert name not in scope["metrics"]
        assert name not in scope["rates"]
    assert all(v is None or not isinstance(v, float) or math.isfinite(v) for v in numbers_in(got))


def test_itl_stands_if_95_percent_of_the_exchanges_can_give_it(tmp_path):
    known, unknown = [stream(i) for i in range(19)], stream(19, n_out=12)
    got = summarise(log_of(tmp_path, *known, unknown), {})["total"]
    assert got["metrics"]["itl"]["count"] == 19 * 4
    assert got["metrics"]["icl"]["count"] == 20 * 4
    got = summarise(log_of(tmp_path, *known[:-1], unknown), {})["total"]
    assert "itl" not in got["metrics"]
    assert got["absent"]["itl"] == "tokens per event are unknown for 1 of 19 exchanges; icl stands in its place"


def test_tokens_name_their_source(tmp_path):
    records = [
        stream(0, n_cached=30), stream(1, out_source="tokenizer", in_source="calibrated"),
        stream(2, n_out=None, out_source=None, n_reasoning=2), stream(3, outcome="timeout"),
        stream(4, n_out=5, out_source="chunks"), stream(5, tokens=0, n_out=None, outcome="cancelled", n_in=None),
    ]  # fmt: skip
    tokens = summarise(log_of(tmp_path, *records), {})["total"]["tokens"]
    assert tokens["source"] == {"usage": 1, "tokenizer": 1, "chunks": 2}
    assert tokens["input_source"] == {"usage": 3, "calibrated": 1}
    assert (tokens["output"], tokens["input"], tokens["cached"], tokens["reasoning"]) == (10, 400, 30, 2)
    assert tokens["cached_share"] == pytest.approx(0.3)


def test_errors_are_grouped_with_what_the_server_said(tmp_path):
    busy = ExchangeError("rate_limit", "slow down")
    records = [stream(i, outcome="http_status", status=429, error=busy) for i in range(3)]
    records += [
        stream(7, outcome="timeout", error=ExchangeError("idle", "nothing for 120 s")),
        stream(8, outcome="empty"),
    ]
    got = summarise(log_of(tmp_path, *records), {})["total"]["errors"]
    assert got[0] == {"outcome": "http_status", "status": 429, "kind": "rate_limit", "message": "slow down", "count": 3}
    assert {e["outcome"]: e["count"] for e in got} == {"http_status": 3, "timeout": 1, "empty": 1}


def test_many_kinds_of_error_are_summed_up_after_fifty(tmp_path):
    records = [stream(i, outcome="timeout", error=ExchangeError("idle", f"id {i}")) for i in range(60)]
    got = summarise(log_of(tmp_path, *records), {})["total"]["errors"]
    assert len(got) == 51
    assert sum(e["count"] for e in got) == 60


def test_the_connection_share_of_ttft_is_of_the_medians(tmp_path):
    records = [
        stream(0, ttft_ms=50, reused=False, connected_us=10_000, tcp_us=4_000),
        stream(1, ttft_ms=100, reused=False, connected_us=20_000, tcp_us=8_000),
        stream(2, ttft_ms=200, reused=False, connected_us=30_000, tcp_us=9_000),
    ]  # fmt: skip
    got = summarise(log_of(tmp_path, *records), {})["total"]["connection"]
    assert got == {
        "new": 3,
        "reused": 0,
        "connect_p50_ms": 20,
        "ttft_share": pytest.approx(0.2),
        "tcp_connect_p50_ms": 8,
    }


def test_two_models_under_one_name_are_two_scopes(tmp_path):
    got = summarise(log_of(tmp_path, stream(0), stream(1, model="b"), stream(2, api="openai-completions")), {})
    assert [(n["name"], n["api"], n["model"]) for n in got["names"]] == [
        ("chat", "openai-chat", "b"), ("chat", "openai-chat", "m"), ("chat", "openai-completions", "m"),
    ]  # fmt: skip
    assert sum(n["metrics"]["ttft"]["count"] for n in got["names"]) == got["total"]["metrics"]["ttft"]["count"] == 3


def test_names_that_only_preflight_or_warmup_had_are_not_shown(tmp_path):
    records = [
        stream(0, name="preflight", phase="preflight"),
        stream(1, name="chat"),
        stream(2, name="w", phase="warmup"),
    ]
    got = summarise(log_of(tmp_path, *records), {})
    assert [n["name"] for n in got["names"]] == ["chat"]
    assert (got["log"]["records"], got["log"]["preflight"], got["log"]["warmup"]) == (3, 1, 1)


def test_the_csv_has_a_row_per_scope_and_metric(tmp_path):
    got = summarise(log_of(tmp_path, *random_records(300)), card(ramp=1.0, stop=2.0))
    rows = list(csv.DictReader(io.StringIO(to_csv(got))))
    assert {(r["name"], r["window"]) for r in rows} == {
        ("chat", "steady"),
        ("long", "steady"),
        ("total", "steady"),
        ("total", "all"),
    }
    ttft = next(r for r in rows if r["name"] == "total" and r["window"] == "steady" and r["metric"] == "ttft")
    assert float(ttft["p95"]) == got["total"]["metrics"]["ttft"]["p95"]
    assert (ttft["unit"], ttft["thin"]) == ("ms", " ".join(got["total"]["metrics"]["ttft"]["thin"]))
    rate = next(r for r in rows if r["name"] == "total" and r["window"] == "all" and r["metric"] == "system_output_tps")
    assert float(rate["mean"]) == got["total_all"]["rates"]["system_output_tps"]
    assert rate["count"] == rate["p50"] == ""


def test_files_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    got = summarise(log_of(tmp_path, stream()), {})
    paths = write(got, tmp_path)
    assert [p.name for p in paths] == ["summary.json", "summary.csv"]
    assert orjson.loads(paths[0].read_bytes()) == json.loads(to_json(got))
    before = paths[0].read_bytes()

    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(summaries.os, "replace", fail)
    with pytest.raises(UsageError, match=r"summary\.json: cannot be written \(No space left"):
        write({**got, "run": "other"}, tmp_path)
    assert paths[0].read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_the_run_card_lies_beside_the_log_and_a_torn_one_is_none(tmp_path):
    write_log(tmp_path / "events.jsonl", [stream(0), stream(1, 2.0)])
    (tmp_path / "run.json").write_bytes(orjson.dumps(card(ramp=0.0, stop=9.0)))
    assert report([tmp_path])["window"]["kind"] == "steady"
    assert report([tmp_path / "events.jsonl"], "all")["window"]["kind"] == "all"
    (tmp_path / "run.json").write_bytes(b'{"run": ')
    assert report([tmp_path])["window"]["why"] == "there is no run card (run.json) beside the log"
