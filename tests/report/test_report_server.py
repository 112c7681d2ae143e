"""The server's counters beside ours: differences, restarts, other traffic, and what is said where there are none."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from report_logs import T0_S, log_of, record, stream, write_log
from test_report_more import report

from locust_llm.report.more_table import render_more
from locust_llm.report.summary import summarise
from locust_llm.report.table import WIDTH

URL = "http://127.0.0.1:8000/metrics"


def samples(**counts: float) -> dict[str, float]:
    return {f"vllm:{name}": float(value) for name, value in counts.items()}


def readings(grown: dict[str, float], engine: str = "vllm", **members: Any) -> dict[str, Any]:
    """Return what the run card says of one server whose counters stood at 1000 before."""
    before = dict.fromkeys(grown, 1000.0)
    after = {name: 1000.0 + value for name, value in grown.items()}
    return {
        "url": URL, "user_classes": ["ChatUser"], "settled": True,
        "before": {"t": T0_S - 1.0, "engine": engine, "samples": before},
        "after": {"t": T0_S + 9.0, "engine": engine, "samples": after},
    } | members  # fmt: skip


def compared(log, *told: dict[str, Any], **card: Any) -> list[dict[str, Any]]:
    return summarise(log, {"server_metrics": list(told), **card})["server"]


def test_what_the_server_counted_stands_beside_ours_with_the_difference(tmp_path):
    log = log_of(tmp_path, *(stream(i, i * 0.1, status=200, n_cached=16) for i in range(4)))
    grown = samples(
        prompt_tokens_total=400, generation_tokens_total=20, request_success_total=4,
        prefix_cache_hits_total=64, prefix_cache_queries_total=400,
        time_to_first_token_seconds_sum=0.18, time_to_first_token_seconds_count=4,
        inter_token_latency_seconds_sum=0.16, inter_token_latency_seconds_count=16,
        e2e_request_latency_seconds_sum=0.35, e2e_request_latency_seconds_count=4,
        request_queue_time_seconds_sum=0.004, request_queue_time_seconds_count=4,
    )  # fmt: skip
    (found,) = compared(log, readings(grown))
    assert (found["state"], found["engine"], found["seconds"], found["notes"]) == ("compared", "vLLM", 10.0, [])
    figures = found["figures"]
    for name, value in (("prompt_tokens", 400), ("generation_tokens", 20), ("requests", 4), ("cache_hits", 64)):
        assert figures[name] == {"server": value, "ours": value, "difference": 0, "difference_share": 0}
    assert found["cache_hit_share"] == pytest.approx(0.16)
    assert figures["ttft"] == {
        "server": pytest.approx(45), "ours": pytest.approx(50), "difference": pytest.approx(-5),
        "difference_share": pytest.approx(-0.1),
    }  # fmt: skip
    assert (figures["itl"]["server"], figures["itl"]["ours"]) == (pytest.approx(10), pytest.approx(10))
    assert figures["e2e_latency"]["ours"] == pytest.approx(90)
    assert figures["queue_time"] == {"server": pytest.approx(1)}


def test_more_than_ours_is_other_traffic_and_fewer_one_instance_of_several(tmp_path):
    log = log_of(tmp_path, stream(0), stream(1, 0.1))
    more, less = (
        compared(log, readings(samples(prompt_tokens_total=n, generation_tokens_total=10)))[0]["notes"]
        for n in (300, 100)
    )
    assert more == ["the server has more prompt tokens than we: that is other traffic"]
    assert less[0].startswith("the server has fewer prompt tokens than we: its counters may be those of one instance")


def test_what_lost_workers_had_in_flight_is_not_called_other_traffic(tmp_path):
    log, told = log_of(tmp_path, stream(0)), readings(samples(generation_tokens_total=9))
    (found,) = compared(log, told, workers_missing=["w1"])
    more, lost = found["notes"]
    assert more == "the server has more generated tokens than we: what is missing on our side, or other traffic"
    assert lost.startswith("workers were lost")


def test_exchanges_that_ended_without_a_count_are_named(tmp_path):
    cut = record(2, 0.2, [(50, "content")], outcome="unfinished", status=200)
    (found,) = compared(log_of(tmp_path, stream(0), cut), readings(samples(generation_tokens_total=9)))
    assert "1 exchanges of ours ended without its count" in found["notes"][0]


def test_warm_up_and_preflight_are_not_ours_for_they_lie_before(tmp_path):
    log = log_of(tmp_path, stream(0, phase="preflight"), stream(1, phase="warmup"), stream(2))
    (found,) = compared(log, readings(samples(generation_tokens_total=5)))
    assert found["figures"]["generation_tokens"]["difference"] == 0


def test_a_filter_of_the_report_does_not_bend_the_comparison(tmp_path, capsys):
    write_log(tmp_path / "events.jsonl", [stream(0, name="a"), stream(1, 0.1, name="b")])
    card = {"server_metrics": [readings(samples(generation_tokens_total=10))]}
    (tmp_path / "run.json").write_bytes(orjson.dumps(card))
    assert report(tmp_path, "--where", "name=a", "--no-html") == 0
    (found,) = orjson.loads((tmp_path / "summary.json").read_bytes())["server"]
    assert found["figures"]["generation_tokens"]["difference"] == 0
    assert "counted by the server (vLLM) in 10.00 s" in capsys.readouterr().out


def test_each_server_has_the_exchanges_of_its_own_users(tmp_path):
    log = log_of(tmp_path, stream(0, user_class="A"), stream(1, 0.1, user_class="B"), stream(2, 0.2, user_class="B"))
    grown = samples(generation_tokens_total=5)
    one, two = compared(log, readings(grown, user_classes=["A"]), readings(grown, user_classes=["B"], url="http://b/m"))
    assert one["figures"]["generation_tokens"]["ours"] == 5
    assert two["figures"]["generation_tokens"]["ours"] == 10


def test_counters_that_fall_are_a_restart_and_nothing_is_compared(tmp_path):
    told = readings(samples(prompt_tokens_total=-990, generation_tokens_total=50))
    (found,) = compared(log_of(tmp_path, stream(0)), told)
    assert found["state"] == "restarted"
    assert "vllm:prompt_tokens_total fell" in found["why"]
    assert "figures" not in found


def test_a_start_time_that_changed_is_a_restart_though_all_counters_have_grown(tmp_path):
    told = readings(samples(generation_tokens_total=50))
    told["before"]["started"], told["after"]["started"] = 1.0, 2.0
    summary = summarise(log_of(tmp_path, stream(0)), {"server_metrics": [told]})
    assert summary["server"][0]["state"] == "restarted"
    assert [r["level"] for r in summary["verdict"]["reasons"] if r["code"] == "server_restarted"] == ["doubtful"]
    assert "restarted while the load ran" in render_more(summary)


def test_llama_cpp_counts_what_it_computed(tmp_path):
    log = log_of(tmp_path, stream(0, n_cached=30), stream(1, 0.1, n_cached=30))
    grown = {"llamacpp:prompt_tokens_total": 140.0, "llamacpp:prompt_tokens_cached_total": 60.0}
    (found,) = compared(log, readings(grown, engine="llama.cpp"))
    assert {name: of["difference"] for name, of in found["figures"].items()} == {
        "computed_prompt_tokens": 0, "cache_hits": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"url": URL, "note": "answers 404"}, "answers 404"),
        ({"url": URL}, "not read to the end"),
        ({"url": URL, "before": 3, "after": []}, "not read to the end"),
        ({"url": URL, "before": {"t": "x", "engine": "vllm", "samples": {}}}, "not read to the end"),
    ],
)
def test_a_server_without_counters_says_why_and_takes_no_room_on_the_console(tmp_path, told, why):
    summary = summarise(log_of(tmp_path, stream(0)), {"server_metrics": [told]})
    assert (summary["server"][0]["state"], why in summary["server"][0]["why"]) == ("absent", True)
    assert "counted by" not in render_more(summary)


def test_the_block_on_the_console_stands_in_columns_within_its_width(tmp_path):
    told = readings({"llamacpp:tokens_predicted_total": 5.0, "llamacpp:prompt_tokens_total": 900.0}, engine="llama.cpp")
    told["after"]["t"] += 100_000
    lines = render_more(
        summarise(log_of(tmp_path, stream(0)), {"server_metrics": [told], "simulated": True})
    ).splitlines()
    head = next(line for line in lines if line.startswith("counted by the server (simulated llama.cpp) in 100010 s"))
    row = next(line for line in lines if line.startswith("  generated tokens"))
    assert max(map(len, lines)) <= WIDTH
    assert head.index("ours") + len("ours") == row.index("5", row.index("5") + 1) + 1


@pytest.mark.parametrize("told", [None, 3, "x", [], ["x"]])
def test_a_run_card_without_readings_has_no_such_part(tmp_path, told):
    assert "server" not in summarise(log_of(tmp_path, stream(0)), {"server_metrics": told})


def test_a_cache_that_is_off_is_no_figure(tmp_path):
    grown = samples(generation_tokens_total=5, prefix_cache_hits_total=0, prefix_cache_queries_total=0)
    (found,) = compared(log_of(tmp_path, stream(0)), readings(grown))
    assert list(found["figures"]) == ["generation_tokens"]


def test_the_page_has_the_table_and_says_of_the_other_server_why_not(tmp_path, capsys):
    write_log(tmp_path / "events.jsonl", [stream(0), stream(1, 0.1)])
    told = [readings(samples(prompt_tokens_total=250)), {"url": "http://b/metrics", "note": "answers 404"}]
    (tmp_path / "run.json").write_bytes(orjson.dumps({"server_metrics": told}))
    assert report(tmp_path) == 0
    page = (tmp_path / "report.html").read_text()
    assert "What the server counted" in page
    assert "+25.00%" in page
    assert "answers 404" in page
