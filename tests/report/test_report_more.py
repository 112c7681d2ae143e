"""What the console shows on request: groups, effects, costs, and the server's token counts against a tokenizer's."""

from __future__ import annotations

import orjson
import pytest
from report_logs import record, stream, write_log

from locust_llm.cli import main
from locust_llm.report.table import WIDTH


def report(*argv):
    return main(["report", *(str(a) for a in argv)])


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A tokenizer whose tokens are words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    raw = Tokenizer(models.WordLevel({"[unk]": 0, "one": 1}, unk_token="[unk]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path_factory.mktemp("words")
    raw.save(str(folder / "tokenizer.json"))
    return folder


def summary(folder):
    return orjson.loads((folder / "summary.json").read_bytes())


def test_usage_is_compared_with_the_tokenizer_on_the_texts_that_are_kept(tmp_path, capsys, words):
    texts = ["one two three four", "one two three four five"]
    records = [stream(i, i * 0.1, tokens=5, text=texts[i % 2]) for i in range(20)]
    thinking = stream(30, 0.5, tokens=5, n_out=11, n_reasoning=6, text="a b c d e")
    write_log(tmp_path / "events.jsonl", [*records, thinking, stream(31, 0.6)])
    assert report(tmp_path, "--tokenizer", words) == 0
    assert "usage against the tokenizer" in capsys.readouterr().out
    found = summary(tmp_path)["total"]["token_check"]
    assert found["count"] == 21
    assert found["ratio"] == pytest.approx(21 * 5 / (10 * 4 + 10 * 5 + 5))
    assert (found["ratio_p5"], found["ratio_p95"]) == (1.0, 1.25)
    assert "over 21 answers" in (tmp_path / "report.html").read_text(errors="replace")


def test_without_texts_it_says_which_option_keeps_them(tmp_path, capsys, words):
    write_log(tmp_path / "events.jsonl", [stream(0)])
    assert report(tmp_path, "--tokenizer", words, "--no-html") == 0
    assert "--llm-save-text keeps them" in capsys.readouterr().out
    assert "token_check" in summary(tmp_path)["total"]["absent"]


def test_a_tokenizer_that_is_none_is_one_line(tmp_path, capsys):
    write_log(tmp_path / "events.jsonl", [stream(0, text="x")])
    assert report(tmp_path, "--tokenizer", tmp_path, "--no-write") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_groups_effects_and_costs_are_printed_within_the_width(tmp_path, capsys):
    records = [
        stream(
            i,
            i * 0.1,
            50 + (i * 37) % 90,
            tokens=5 + i % 7,
            n_in=100 + (i * 37) % 90,
            tags={"user": "u", "turn": f"{i % 3}\x1b"},
        )
        for i in range(60)
    ]
    write_log(tmp_path / "events.jsonl", [*records, record(90, 1.0, end_ms=3, outcome="empty", tags={"user": "u"})])
    options = ("--by", "turn", "--by", "colour", "--price-input", "1", "--price-output", "2", "--price-hour", "3")
    assert report(tmp_path, *options, "--no-html") == 0
    out = capsys.readouterr().out
    assert "a token takes: TTFT 1 ms (" in out
    assert "input tokens take as long as one output token" in out
    assert "cost by token price: " in out
    assert "cost by the price of the hour: " in out
    assert "(no turn)" in out
    assert "by colour: no record has colour" in out
    assert "\x1b" not in out
    assert max(map(len, out[: out.index("locust-llm: ")].splitlines())) <= WIDTH
    written = summary(tmp_path)
    assert [g.get("value") for g in written["by"][0]["groups"]] == ["0\x1b", "1\x1b", "2\x1b", None]
    assert set(written["total"]["cost"]) == {"prices", "tokens", "hour"}


def test_no_html_leaves_the_page_out(tmp_path, capsys):
    write_log(tmp_path / "events.jsonl", [stream(0)])
    assert report(tmp_path, "--no-html") == 0
    assert not (tmp_path / "report.html").exists()
    assert report(tmp_path) == 0
    assert (tmp_path / "report.html").stat().st_size < 6_000_000


@pytest.mark.parametrize("options", [["--price-input", "1"], ["--where", "model=x"], ["--where", "nonsense"]])
def test_bad_options_are_one_line(tmp_path, capsys, options):
    write_log(tmp_path / "events.jsonl", [stream(0)])
    assert report(tmp_path, *options) == 2
    assert capsys.readouterr().err.count("\n") == 1
