"""The bar while a large log is read: only where somebody watches, and gone at the end."""

from __future__ import annotations

import io

from report_logs import stream, write_log

from locust_llm.report import progress
from locust_llm.report.reading import read


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_large_log_on_a_terminal_has_a_bar_that_goes_away(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "LEAST_BYTES", 1)
    path = write_log(tmp_path / "events.jsonl", [stream(i, i) for i in range(10)])
    out = Terminal()
    with progress.bar(out) as told:
        read([path], told)
    assert "reading the log [" in out.getvalue()
    assert "100%" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


def test_a_small_log_has_none(tmp_path):
    path = write_log(tmp_path / "events.jsonl", [stream(0)])
    out = Terminal()
    with progress.bar(out) as told:
        read([path], told)
    assert out.getvalue() == ""


def test_nothing_is_drawn_into_a_file(monkeypatch):
    monkeypatch.setattr(progress, "LEAST_BYTES", 1)
    with progress.bar(io.StringIO()) as told:
        assert told is None
