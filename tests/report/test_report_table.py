"""The console table: what a reader finds in it, and that it fits and never lies."""

from __future__ import annotations

import re

import pytest
from report_logs import T0_S, log_of, record, stream

from locust_llm.exchange import ExchangeError
from locust_llm.report.summary import summarise
from locust_llm.report.table import WIDTH, number, render

CARD = {"events": [{"t": T0_S, "event": "ramp_complete"}, {"t": T0_S + 30.0, "event": "stop"}]}


def table(folder, *records, card=CARD):
    return render(summarise(log_of(folder, *records), card))


def line(text, start):
    return next(row for row in text.splitlines() if row.strip().startswith(start))


def run_of(n, **members):
    return [stream(i, i * 0.1, tokens=5, **members) for i in range(n)]


def test_the_rows_are_there_with_their_numbers(tmp_path):
    text = table(tmp_path, *run_of(200))
    # the first exchange ends at 0.093 s, before the window begins
    assert line(text, "TTFT ms").split() == ["TTFT", "ms", "50.00", "50.00", "50.00", "50.00", "50.00", "199"]
    assert line(text, "TPOT (ITL in AIPerf, GuideLLM, NVIDIA) ms").split()[-6:] == ["10.00"] * 5 + ["199"]
    assert line(text, "ITL per token ms").split()[-1] == "796"
    assert line(text, "e2e latency ms").split()[-6] == "90.00"
    assert line(text, "output tokens/s per user").split()[-1] == "199"
    assert line(text, "system output tokens/s").split()[-1] != line(text, "system output tokens/s").split()[-2]
    assert "steady" in text
    assert "finish reasons: length 100.0%" in text
    assert "outcomes: ok 199; error rate 0.00%" in text
    assert "output by usage (199)" in text
    assert "connections: 0 new, 199 reused" in text
    assert text.rstrip().endswith("verdict: sound, nothing to distrust")


def test_names_have_blocks_of_their_own_before_the_total(tmp_path):
    text = table(tmp_path, *run_of(3), *(stream(3 + i, 1.0 + i, name="long", itl_ms=20) for i in range(3)))
    heads = [row for row in text.splitlines() if row.startswith(("chat (", "long (", "total"))]
    assert heads[:3] == ["chat (openai-chat, m)", "long (openai-chat, m)", "total"]
    assert text.count("  TTFT ms") == 3
    assert re.search(r"^long \(openai-chat, m\): system output tokens/s [\d.]+, requests/s [\d.]+; ok 3", text, re.M)


def test_thin_percentiles_are_marked(tmp_path):
    text = table(tmp_path, *run_of(21))
    assert re.search(r"TTFT ms +50\.00 +50\.00 +50\.00 +50\.00 +50\.00~ +20$", text, re.M)
    assert "~ too few values" in text
    assert "~" not in table(tmp_path, *run_of(200))


def test_chunks_stand_in_for_tokens_with_the_reason(tmp_path):
    text = table(tmp_path, *run_of(5, n_out=None, out_source=None))
    assert "ITL per token" in text  # only as what is missing
    assert re.search(r"^  ICL per chunk ms +10\.00", text, re.M)
    assert "no ITL per token: tokens per event are unknown for 4 of 4 exchanges" in text
    assert re.search(r"^output chunks/s +\d", text, re.M)
    assert re.search(r"^system output tokens/s +- +-$", text, re.M)
    assert "no system output tokens/s: token counts are unknown" in text


def test_an_absent_figure_is_a_reason(tmp_path):
    text = table(tmp_path, *run_of(3, outcome="timeout"))
    assert re.search(r"^  TTFT ms +- no exchange succeeded$", text, re.M)
    assert "timeout 2; error rate 100.00%" in text
    assert "nan" not in text.lower()


def test_errors_are_grouped_and_cannot_write_to_the_terminal(tmp_path):
    error = ExchangeError("rate_limit", "slow \x1b[31mdown\nplease " + "x" * 300)
    text = table(
        tmp_path, stream(0), *(stream(1 + i, 1.0, outcome="http_status", status=429, error=error) for i in range(2))
    )
    row = line(text, "2  http_status 429 rate_limit: slow ?[31mdown please xxx")
    assert len(row) == WIDTH
    assert "\x1b" not in text


def test_many_errors_end_in_a_pointer(tmp_path):
    many = [stream(1 + i, 1.0, outcome="timeout", error=ExchangeError("idle", f"e{i}")) for i in range(12)]
    text = table(tmp_path, stream(0), *many)
    assert "4 more kinds in summary.json" in text


def test_asked_and_got_stand_side_by_side(tmp_path):
    text = table(tmp_path, *(stream(i, i * 0.1, asked_out=20, asked_in=90) for i in range(10)))
    assert "output tokens, mean: asked 20.00, got 5.00 (100.0% of the answers short)" in text
    assert "input tokens, mean: asked 90.00, got 100.0" in text
    assert "short_answers (note)" in text


def test_open_loop_figures_show_when_there_was_a_schedule(tmp_path):
    text = table(tmp_path, *(stream(i, i * 0.1, scheduled_us=round((T0_S + i * 0.1) * 1e6) - 5000) for i in range(10)))
    assert line(text, "TTFT from schedule ms").split()[4] == "55.00"
    assert line(text, "schedule lag ms").split()[3] == "5.00"


def test_without_a_steady_window_the_verdict_says_what_the_figures_are_of(tmp_path):
    text = table(tmp_path, *run_of(5), card={})
    assert text.splitlines()[1].startswith(
        "whole run of 0.5 s, 2027-01-15 08:00:00 to 08:00:00 UTC; 5 exchanges started"
    )
    assert "verdict: doubtful" in text
    assert "no_steady_window (doubtful): there is no run card" in text


@pytest.mark.parametrize(
    "records",
    [
        run_of(3), run_of(3, outcome="unfinished"), [record(0, events=[], outcome="connection")],
        [stream(0, tokens=1)], [record(0, 0.0, [(9, "content")], streamed=False, n_out=3)],
        [stream(0, 0.0, name="n" * 200, model="m" * 200)], [stream(0, 0.0, tokens=0, end_ms=0)],
        [stream(i, i * 0.1, name=f"name {i}", reused=False, tcp_us=900, connected_us=1000) for i in range(4)],
    ],
)  # fmt: skip
@pytest.mark.parametrize("card", [{}, CARD])
def test_every_line_fits_and_no_number_is_made_up(tmp_path, records, card):
    text = table(tmp_path, *records, card=card)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert not re.search(r"\b(nan|inf|None)\b", text, re.I)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.00"),
        (0.1234, "0.123"),
        (1.234, "1.23"),
        (12.34, "12.34"),
        (123.45, "123.5"),
        (1234.5, "1234"),
        (123456.7, "123457"),
    ],
)
def test_numbers_have_about_four_digits(value, text):
    assert number(value) == text
