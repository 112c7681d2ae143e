"""``report.html``: one file, self-contained and escaped; it says what is absent, whatever log it is made from."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import orjson
import pytest
from report_logs import T0_S, ms, record, stream, write_log

from locust_llm.errors import UsageError
from locust_llm.exchange import ExchangeError
from locust_llm.report.html import page
from locust_llm.report.page import parts
from locust_llm.report.page.card import META
from locust_llm.report.page.numbers import log_ticks
from locust_llm.report.page.timelines import _largest, _middle
from locust_llm.report.runs import load_run

CARD = {
    "run": "r1",
    "events": [
        {"t": T0_S + at, "event": event} for at, event in ((0, "test_start"), (1.0, "ramp_complete"), (4.0, "stop"))
    ],
}  # fmt: skip


class Page(HTMLParser):
    """Reads a page back: texts, the tags that are open at the end, scripts that are run, addresses that are fetched."""

    VOID = ("meta", "br", "img", "link", "input")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.data: dict[str, dict] = {}
        self._id = None
        self.feed(html)
        self.text = re.sub(r"\s+", " ", " ".join(self.texts))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.fetched += [v for k, v in attrs if k in ("src", "href") and v]
        self._id = given.get("id") if tag == "script" else None
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self._id = None

    def handle_data(self, data):
        if "script" in self.open:
            if self._id:
                self.data[self._id.removesuffix("-data")] = orjson.loads(data)
        elif "style" not in self.open:
            self.texts.append(data)


def page_of(folder: Path, *records, card=CARD, **options) -> Page:
    folder.mkdir(exist_ok=True)
    write_log(folder / "events.jsonl", records)
    if card is not None:
        (folder / "run.json").write_bytes(orjson.dumps(card))
    run = load_run([folder], **options)
    html = page(run.analysis, run.summary)
    assert "NaN" not in html.replace(parts.plotly_js(), "")
    found = Page(html)
    assert found.open == []
    assert not re.search(r"\bnan\b|\bNone\b", found.text)
    return found


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch):
    """The script itself is 5 MB and not ours: one test takes the real one."""
    monkeypatch.setattr(parts, "plotly_js", lambda: "/* plotly */")


STREAMS = [stream(i, i * 0.1, ttft_ms=50 + i, n_in=100 + 7 * (i % 11), tokens=5 + i % 3) for i in range(50)]


def test_the_page_is_one_file_that_fetches_nothing(tmp_path):
    found = page_of(tmp_path / "run", *STREAMS)
    assert found.fetched == []
    assert "link" not in found.tags
    assert "img" not in found.tags


def test_the_page_with_the_real_script_is_below_6_mb_whatever_the_log(tmp_path, monkeypatch):
    monkeypatch.undo()
    script = parts.plotly_js()
    records = [
        stream(i, i * 0.01, ttft_ms=50 + i % 97, tokens=40, name=f"n{i % 30}", n_in=i % 700) for i in range(4000)
    ]
    write_log(tmp_path / "events.jsonl", records)
    run = load_run([tmp_path])
    html = page(run.analysis, run.summary)
    assert script in html
    assert len(html.encode()) < 6_000_000
    assert html.count("<script") == html.count("</script>")


def test_the_verdict_stands_before_every_figure(tmp_path):
    found = page_of(tmp_path / "run", *STREAMS)
    order = ("The measurement is sound", "What was tested", "What came out", "In time", "Failures")
    assert [found.text.index(words) for words in order] == sorted(found.text.index(words) for words in order)


def test_what_to_distrust_is_said_with_the_figures_it_touches(tmp_path):
    late = [stream(i, i * 0.1, sent_us=ms(40)) for i in range(50)]
    found = page_of(tmp_path / "run", *late)
    assert "do not trust the latencies" in found.text
    assert "the client read or sent too late" in found.text


def test_charts_have_units_and_the_steady_window_is_shaded(tmp_path):
    found = page_of(tmp_path / "run", *STREAMS)
    time = found.data["over-time"]["layout"]
    assert time["shapes"][0]["type"] == "rect"
    assert time["shapes"][0]["x1"] == pytest.approx(4.0)
    titles = [axis["title"]["text"] for key, axis in time.items() if key.startswith("yaxis")]
    assert titles == ["output<br>tokens/s", "TTFT<br>ms", "TPOT<br>ms", "in flight<br>exchanges"]
    assert found.data["latencies"]["layout"]["xaxis"]["type"] == "log"
    assert "ms" in found.data["latencies"]["layout"]["xaxis"]["title"]["text"]


def test_every_chart_has_its_numbers_behind_it_and_an_svg_button(tmp_path):
    found = page_of(tmp_path / "run", *STREAMS)
    assert set(found.data) == {"over-time", "latencies", "ttft-by-input", "slowest"}
    assert found.tags.count("figure") == len(found.data)
    assert found.text.count("the numbers") == len(found.data)
    assert found.tags.count("button") == len(found.data)


def test_lines_differ_by_dash_and_mark_not_by_colour_alone(tmp_path):
    lines = [t for t in page_of(tmp_path / "run", *STREAMS).data["latencies"]["data"] if t["mode"] == "lines"]
    assert len({t["line"]["dash"] for t in lines}) == len(lines) == 3


def test_ticks_between_decades_say_their_whole_number():
    assert log_ticks(6.0, 900.0)["ticktext"] == [
        "1",
        "2",
        "5",
        "10",
        "20",
        "50",
        "100",
        "200",
        "500",
        "1000",
        "2000",
        "5000",
    ]
    assert log_ticks(0.05, 900.0)["ticktext"] == ["0.01", "0.1", "1", "10", "100", "1000"]


def test_the_largest_come_first_and_of_equal_ones_the_first():
    values = np.random.default_rng(5).integers(0, 30, 400)
    for number in (1, 7, 60, 500):
        assert _largest(values, number).tolist() == np.argsort(-values, kind="stable")[:number].tolist()
    assert _middle(values.astype(float)) == np.argsort(values, kind="stable")[200]


def test_a_space_that_does_not_break_is_a_character():
    assert parts.text("?\u00a0undecided\x1b") == "?\u00a0undecided\ufffd"


def test_one_sees_the_stall_in_the_slowest_exchanges(tmp_path):
    times = [*range(50, 100, 10), *range(900, 950, 10)]
    stalled = record(60, 2.0, [(t, "content") for t in times], n_out=10, out_source="usage")
    data = page_of(tmp_path / "run", *STREAMS, stalled).data["slowest"]["data"]
    stall = next(t for t in data if t["name"] == "stall")
    assert stall["x"] == [90.0, 900.0]
    ticks = next(t for t in data if t["name"] == "token events")
    assert [x for x, y in zip(ticks["x"], ticks["y"], strict=True) if y == stall["y"][0]] == times


def test_failures_stand_in_time_with_samples(tmp_path):
    error = ExchangeError("overloaded", "too many requests")
    failed = [
        record(100 + i, 1.5 + i * 0.01, end_ms=20, outcome="http_status", status=429, error=error, reused=True)
        for i in range(7)
    ]
    found = page_of(tmp_path / "run", *STREAMS, *failed)
    assert found.data["failures"]["data"][0]["y"] == [7]
    assert "too many requests" in found.text
    assert "429" in found.text


def test_a_run_without_failures_says_so(tmp_path):
    assert "No exchange of the run failed." in page_of(tmp_path / "run", *STREAMS).text


@pytest.mark.parametrize(
    "evil", ["<script>alert(1)</script>", "</script><b>x", "<img src=x onerror=y>", "a\x1b[31mb", "{{x}}&amp;"]
)
def test_names_models_and_messages_are_text(tmp_path, evil):
    error = ExchangeError(evil, evil)
    records = [
        *(stream(i, i * 0.1, name=evil, model=evil) for i in range(30)),
        *(stream(30 + i, i * 0.1, name="other", model=evil) for i in range(30)),
        record(90, 1.2, end_ms=5, outcome="rejected", error=error, name=evil, model=evil),
    ]
    card = CARD | {"name": evil, "meta": {evil: evil, "gpu": evil}, "command": ["run", evil], "host": evil}
    found = page_of(tmp_path / "run", *records, card=card)
    assert "img" not in found.tags
    assert "b" not in found.tags
    assert found.tags.count("script") == len(found.data) + 2
    shown = re.sub(r"\s+", " ", evil.replace("\x1b", "\ufffd"))
    assert shown in found.text


def test_the_run_card_shows_every_cell_of_the_template_known_or_not(tmp_path):
    meta = {"gpu": "4 x A10G", "framework": "vLLM", "max_batch_size": "16", "rack": "B7"}
    found = page_of(tmp_path / "run", *STREAMS, card=CARD | {"meta": meta})
    for value in meta.values():
        assert value in found.text
    for key in set(META) - set(meta):
        assert f"not given (--llm-meta {key}=…)" in found.text
    assert "GPU utilisation not measured" in found.text


def test_facts_of_the_server_stand_in_the_card(tmp_path):
    targets = {
        "http://h:1/v1 openai-chat": {
            "server": "uvicorn",
            "version": "0.9.1",
            "context_length": 4096,
            "dropped": ["min_tokens"],
        }
    }
    text = page_of(tmp_path / "run", *STREAMS, card=CARD | {"targets": targets}).text
    assert "uvicorn 0.9.1" in text
    assert "4096 tokens" in text
    assert "min_tokens" in text


FAILED = [record(i, i * 0.1, end_ms=9, outcome="connection", error=ExchangeError("refused", "no")) for i in range(30)]
NOT_STREAMED = [
    record(i, i * 0.1, end_ms=400, streamed=False, n_out=7, out_source="usage", n_in=9, in_source="usage")
    for i in range(30)
]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (FAILED, "no exchange succeeded"),
        (NOT_STREAMED, "the answers were not streamed"),
        ([stream(i, i * 0.1, tokens=1) for i in range(30)], "no answer had two token events"),
        ([stream(i, i * 0.1, n_out=None, out_source=None) for i in range(30)], "no usage and no tokenizer"),
        ([stream(i, i * 0.1, n_in=None, in_source=None) for i in range(30)], "input tokens are unknown"),
        ([stream(0)], "too few values"),
        ([record(0, end_ms=0, outcome="cancelled")], "no exchange succeeded"),
        ([*STREAMS, *(stream(i, i, run="r2") for i in range(3))], "the log mixes 2 runs"),
    ],
    ids=["all failed", "not streamed", "one token", "no usage", "no input", "one exchange", "cancelled", "mixed runs"],
)
@pytest.mark.parametrize("card", [CARD, None], ids=["card", "no card"])
def test_a_page_comes_out_that_says_what_is_absent(tmp_path, records, said, card):
    assert said in page_of(tmp_path / "run", *records, card=card).text


@pytest.mark.parametrize(
    "card",
    [
        {}, {"meta": None, "load": [], "targets": 3, "events": {}, "command": "x", "machine": 1, "git": "g"},
        {"meta": {"gpu": 4, "price_hour": None}, "targets": {"a": None}, "load": {"users": "many"}, "name": 7},
        {"machine": {"packages": []}, "git": {"commit": None}, "targets": {"a": {"dropped": None}}},
    ],
)  # fmt: skip
def test_a_run_card_of_any_shape_is_read(tmp_path, card):
    assert "What was tested" in page_of(tmp_path / "run", *STREAMS, card=card).text


def test_records_of_an_older_schema_are_read(tmp_path):
    old = orjson.loads(stream(0).encode())
    kept = {k: old[k] for k in ("run", "worker", "seq", "name", "api", "model", "outcome", "start_us", "end_us")}
    lines = [orjson.dumps({**kept, "seq": i, "start_us": kept["start_us"] + i * 10_000, "schema": 0}) for i in range(5)]
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    run = load_run([tmp_path])
    assert "no token event" in page(run.analysis, run.summary) or run.summary["total"]["absent"]


def test_filters_are_named_at_the_head(tmp_path):
    found = page_of(tmp_path / "run", *STREAMS, where=["worker=w1"])
    assert "Only exchanges with worker=w1" in found.text


def test_without_plotly_one_line_says_how_to_go_on(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(parts, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--no-html"):
        parts.document("t", parts.text("x"), charts=True)
