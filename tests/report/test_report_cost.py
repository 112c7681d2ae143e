"""Costs by the price of tokens and of the hour: the arithmetic, what is missing, and prices that are none."""

from __future__ import annotations

import pytest
from report_logs import stream, write_log

from locust_llm.errors import UsageError
from locust_llm.report.cost import cost, prices
from locust_llm.report.runs import load_run


def scope(requests_per_s=2.0, n_in=550.0, n_out=150.0):
    rates = {"requests_per_s": requests_per_s, "system_output_tps": requests_per_s * n_out}
    rates["system_total_tps"] = requests_per_s * (n_in + n_out)
    return {"rates": rates, "metrics": {"input_tokens": {"mean": n_in}, "output_tokens": {"mean": n_out}}}


def test_the_articles_typical_request_at_its_two_price_lists():
    a = cost(scope(), prices(1.0, 1.0, None))["tokens"]
    b = cost(scope(), prices(0.7, 2.8, None))["tokens"]
    assert a["per_1k_requests"] == pytest.approx(0.70)
    assert b["per_1k_requests"] == pytest.approx(0.805)
    assert b["per_request"] == pytest.approx(550 * 0.7e-6 + 150 * 2.8e-6)
    assert a["per_1m_tokens"] == pytest.approx(1.0)
    assert a["per_1k_output_tokens"] == pytest.approx(0.7 / 150)
    assert a["per_hour"] == pytest.approx(0.0007 * 2 * 3600)


def test_the_price_of_the_hour_is_shared_by_what_the_hour_did():
    found = cost(scope(), prices(None, None, 3.6))["hour"]
    assert found["per_hour"] == 3.6
    assert found["per_request"] == pytest.approx(3.6 / 7200)
    assert found["per_1m_output_tokens"] == pytest.approx(3.6 / (300 * 3600) * 1e6)
    assert found["per_1m_tokens"] == pytest.approx(3.6 / (1400 * 3600) * 1e6)


def test_what_cannot_be_divided_is_left_out_with_the_reason():
    nothing = {"rates": {}, "metrics": {}}
    found = cost(nothing, prices(1, 1, 1))
    assert set(found) == {"prices", "absent"}
    assert set(found["absent"]) == {"tokens", "hour"}
    unknown = scope()
    del unknown["metrics"]["output_tokens"], unknown["rates"]["system_output_tps"], unknown["rates"]["system_total_tps"]
    assert set(cost(unknown, prices(None, None, 1.0))["hour"]) == {"per_request", "per_1k_requests", "per_hour"}


def test_prices_come_from_the_run_card_unless_they_are_given():
    meta = {"price_input": "0.5", "price_output": "1.5", "price_hour": "9"}
    assert prices(None, None, None, meta) == prices(0.5, 1.5, 9.0)
    assert prices(2.0, None, None, meta).input == 2.0
    assert not prices(None, None, None, {})
    assert prices(0.0, 0.0, None)


@pytest.mark.parametrize(
    ("given", "meta", "said"),
    [
        ((1.0, None, None), {}, "--price-input needs --price-output"),
        ((None, 1.0, None), {}, "--price-output needs --price-input"),
        ((-1.0, 1.0, None), {}, "--price-input must be a number from 0 on"),
        ((None, None, float("nan")), {}, "--price-hour must be a number from 0 on"),
        ((None, None, None), {"price_hour": "a lot"}, "meta price_hour must be a number"),
    ],
)
def test_prices_that_are_none_are_refused(given, meta, said):
    with pytest.raises(UsageError, match=said):
        prices(*given, meta)


def test_every_scope_of_a_summary_has_its_cost(tmp_path):
    write_log(tmp_path / "events.jsonl", [stream(i, i * 0.1, name="ab"[i % 2]) for i in range(20)])
    summary = load_run([tmp_path], priced=(1.0, 2.0, None)).summary
    for of in (summary["total"], summary["total_all"], *summary["names"]):
        assert of["cost"]["tokens"]["per_request"] == pytest.approx((100 * 1.0 + 5 * 2.0) / 1e6)
    assert "cost" not in load_run([tmp_path]).summary["total"]
