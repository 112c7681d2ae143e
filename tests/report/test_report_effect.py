"""What a token costs in time: least squares against known slopes, intervals that mean something, and honest gaps."""

from __future__ import annotations

import numpy as np
import pytest
from report_logs import log_of, record, stream

from locust_llm.report.effect import LEAST, input_effect
from locust_llm.report.figures import figures


def answer(seq, n_in, n_out, ttft_ms, itl_ms, every_s=0.5, **members):
    times = [(ttft_ms + i * itl_ms, "content") for i in range(n_out)]
    given = {"n_in": n_in, "in_source": "usage", "n_out": n_out, "out_source": "usage"}
    return record(seq, seq * every_s, times, **(given | members))


def effect_of(tmp_path, records):
    log = log_of(tmp_path, *records)
    return input_effect(log, figures(log), np.ones(len(log), dtype=bool))


def noisy(rng, count=400, noise_ms=2.0):
    n_in, n_out = rng.integers(100, 900, count).tolist(), rng.integers(20, 60, count).tolist()
    noise = rng.normal(0, noise_ms, count)
    return [
        answer(i, a, b, 40 + 0.1 * a + e, 10)
        for i, (a, b, e) in enumerate(zip(n_in, n_out, noise.tolist(), strict=True))
    ]


def test_the_slopes_of_an_exact_log_are_found_and_so_is_the_articles_ratio(tmp_path):
    found, absent = effect_of(tmp_path, noisy(np.random.default_rng(1), noise_ms=0.0))
    assert found["ttft"]["ms_per_input_token"]["value"] == pytest.approx(0.1, rel=1e-3)
    assert found["ttft"]["ms_per_output_token"]["value"] == pytest.approx(0, abs=1e-3)
    e2e = found["e2e_latency"]
    assert e2e["ms_per_output_token"]["value"] == pytest.approx(10, rel=1e-3)
    assert e2e["intercept_ms"] == pytest.approx(40 - 10, rel=1e-2)
    assert e2e["input_tokens_per_output_token"]["value"] == pytest.approx(100, rel=2e-3)
    assert absent == {}


def test_intervals_hold_the_true_slope_in_about_95_of_100_logs(tmp_path):
    rng = np.random.default_rng(7)
    hits = ratios = 0
    for _ in range(60):
        found, _ = effect_of(tmp_path, noisy(rng, count=120))
        slope, ratio = found["ttft"]["ms_per_input_token"], found["e2e_latency"]["input_tokens_per_output_token"]
        hits += slope["low"] <= 0.1 <= slope["high"]
        ratios += ratio["low"] <= 100 <= ratio["high"]
    assert hits >= 51
    assert ratios >= 51


def test_exchanges_that_are_disturbed_together_make_the_interval_wider(tmp_path):
    rng = np.random.default_rng(3)
    n_in = np.repeat(rng.integers(100, 900, 40), 30)
    together = np.repeat(rng.normal(0, 20, 40), 30)
    alone = rng.permutation(together)

    def width(noise):
        records = [
            answer(i, int(a), 20 + i % 40, 80 + 0.1 * a + e, 10)
            for i, (a, e) in enumerate(zip(n_in, noise, strict=True))
        ]
        found, _ = effect_of(tmp_path, records)
        assert "blocks of time" in found["ttft"]["intervals"]
        return found["ttft"]["ms_per_input_token"]["high"] - found["ttft"]["ms_per_input_token"]["low"]

    assert width(together) > 2 * width(alone)


def test_a_short_log_has_intervals_over_exchanges(tmp_path):
    records = [answer(i, 100 + i * 7, 20 + i % 5, 50 + i % 3, 10, every_s=0.01) for i in range(30)]
    found, _ = effect_of(tmp_path, records)
    assert found["ttft"]["intervals"] == "exchanges"


def test_lengths_that_are_all_alike_give_no_slope_but_the_remedy(tmp_path):
    rng = np.random.default_rng(5)
    records = [answer(i, 200, int(n), 50, 10) for i, n in enumerate(rng.integers(20, 60, 50).tolist())]
    found, absent = effect_of(tmp_path, records)
    assert "ms_per_input_token" not in found["e2e_latency"]
    assert found["e2e_latency"]["ms_per_output_token"]["value"] == pytest.approx(10, rel=1e-3)
    assert "--llm-input-tokens 550,150" in absent["input_effect.e2e_latency.ms_per_input_token"]


def test_lengths_that_go_together_cannot_be_told_apart(tmp_path):
    found, absent = effect_of(tmp_path, [answer(i, 10 * (20 + i), 20 + i, 50, 10) for i in range(50)])
    assert found == {}
    assert "go together" in absent["input_effect.ttft.ms_per_input_token"]


def test_an_input_effect_that_is_not_there_gives_no_ratio(tmp_path):
    rng = np.random.default_rng(2)
    records = [
        answer(i, int(n), 20 + i % 40, 50 + e, 10)
        for i, (n, e) in enumerate(zip(rng.integers(100, 900, 200), rng.normal(0, 2, 200), strict=True))
    ]
    found, absent = effect_of(tmp_path, records)
    assert "input_tokens_per_output_token" not in found["e2e_latency"]
    assert "cannot be told from none" in absent["input_effect.e2e_latency.input_tokens_per_output_token"]


def test_too_few_exchanges_are_not_fitted(tmp_path):
    found, absent = effect_of(tmp_path, [stream(i, i) for i in range(LEAST - 1)])
    assert found == {}
    assert set(absent) == {"input_effect.ttft", "input_effect.e2e_latency"}


def test_unknown_tokens_are_left_out(tmp_path):
    records = noisy(np.random.default_rng(1), noise_ms=0.0)
    wild = [answer(1000 + i, None, 30, 5000, 10, in_source=None) for i in range(50)]
    found, _ = effect_of(tmp_path, [*records, *wild])
    assert found["ttft"]["count"] == len(records)


def test_names_that_differ_in_level_and_length_do_not_bend_the_slopes(tmp_path):
    """Short prompts that wait long and long ones that do not: over all of them TTFT would fall with the prompt."""
    rng = np.random.default_rng(4)
    records = [
        answer(i, n_in, n_out, level + 0.1 * n_in, 10, name=name)
        for i, (name, level, n_in, n_out) in enumerate(
            (name, level, int(rng.integers(low, low + 100)), int(rng.integers(20, 60)))
            for _ in range(100)
            for name, level, low in (("short", 500, 10), ("long", 50, 900))
        )
    ]
    found, _ = effect_of(tmp_path, records)
    assert found["ttft"]["ms_per_input_token"]["value"] == pytest.approx(0.1, rel=1e-2)
    assert found["e2e_latency"]["ms_per_output_token"]["value"] == pytest.approx(10, rel=1e-3)


def test_many_request_names_and_few_exchanges_say_nothing_instead_of_failing(tmp_path):
    rng = np.random.default_rng(7)
    lengths = rng.integers(20, 60, (LEAST, 2)).tolist()
    records = [answer(i, a, b, 40 + a, 10, name=f"name {i % (LEAST // 2)}") for i, (a, b) in enumerate(lengths)]
    found, absent = effect_of(tmp_path, records)
    assert not any("ms_per_input_token" in fit for fit in found.values())
    assert "too few exchanges" in str(absent)
