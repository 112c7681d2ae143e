"""The block that a headless test prints: what is in it, and that it can be read in any terminal."""

from __future__ import annotations

import pytest
from snapshots import row, snapshot

from locust_llm.live.console import block

DOUBT = {"state": "doubtful", "reasons": [
    {"code": "lag", "level": "doubtful", "effect": "the client read late: 30 ms at p99"},
    {"code": "simulated", "level": "note", "effect": "timings are made up"},
]}  # fmt: skip
TIMEOUTS = {"kind": "timeout: first_token", "count": 3, "example": "no token\nwithin 10 s", "name": "chat"}
LOST = "worker w1-a was lost at 12:03:11: what it measured since its last report is missing here"
ALL_AT_ONCE = snapshot(
    ("chat", "long"), failed=3, verdict=DOUBT, errors=[TIMEOUTS], incomplete=[LOST],
    objectives=[{"text": "ttft:p95<=500ms", "state": "pass", "value": "412 ms"}],
)  # fmt: skip


def test_while_all_is_well_it_is_three_lines_of_eighty_columns() -> None:
    progress, titles, cells, end = block(snapshot(), 80).split("\n")
    assert progress.endswith("0:10 of 1:00, 57 requests, 0:50 left; last 10 s:")
    assert " ".join(titles.split()) == "in flight tok/s req/s TTFT p50 p95 ms ITL p50 p95 ms errors client"
    assert cells.split() == ["8", "778.3", "5.06", "50.40", "50.94", "10.00", "10.21", "0", "sound"]
    assert end == ""


def test_every_cell_ends_under_its_title() -> None:
    _, titles, cells, _ = block(snapshot(), 80).split("\n")
    assert titles.index("TTFT p50") + len("TTFT p50") == cells.index("50.40") + len("50.40")
    assert len(titles) == len(cells)


def test_progress_says_what_is_known_of_the_end() -> None:
    def progress(**more: object) -> str:
        return block(snapshot(**more)).splitlines()[0]

    assert "0:10, 57 requests; last" in progress(progress={"ended": 57})
    assert "57 of 500 requests, 1:18 left" in progress(
        progress={"ended": 57, "requests_asked": 500, "remaining_s": 77.7}
    )
    assert "57 requests, stopping;" in progress(state="stopping")
    assert "1:00:10 of 2:00:00" in progress(elapsed_s=3610.0, progress={"ended": 57, "run_time_s": 7200})


def test_before_the_first_token_there_are_dashes_not_noughts() -> None:
    head = {"of": "last 10 s", "in_flight": 8, "decoding": 0, "users": 8}
    cells = block(snapshot((), head=head, total={"counts": {}, "failed": 0})).split("\n")[2]
    assert cells.split() == ["8", "-", "-", "-", "-", "-", "-", "0", "sound"]
    assert block({"state": "ready", "version": 0, "now": 0.0, "verdict": {"state": "unknown", "reasons": []}})


def test_where_tokens_are_unknown_chunks_stand_under_their_own_names() -> None:
    head = {"of": "last 10 s", "output_chunks_per_s": 99.0, "icl_p50_ms": 7.0, "icl_p95_ms": 8.0}
    _, titles, cells, _ = block(snapshot(head=head)).split("\n")
    assert "chunks/s" in titles
    assert "ICL p50" in titles
    assert "ITL" not in titles
    assert cells.split()[1:2] + cells.split()[5:7] == ["99.00", "7.00", "8.00"]


def test_what_is_wrong_is_told_in_compact_too_but_no_notes() -> None:
    text = block(ALL_AT_ONCE)
    assert "3 (5.3%)" in text
    assert "errors: 3 timeout: first_token" in text
    assert "client doubtful: the client read late: 30 ms at p99 (lag)" in text
    assert "made up" not in text
    assert "objectives: ttft:p95<=500ms pass" in text
    assert "worker w1-a was lost" in text
    assert "long" not in text


def test_a_reason_is_told_once_in_compact_and_each_time_in_full() -> None:
    told = {"lag", LOST}
    assert "read late" not in block(ALL_AT_ONCE, told=told)
    assert "doubtful" in block(ALL_AT_ONCE, told=told)
    assert "was lost" not in block(ALL_AT_ONCE, told=told)
    assert "read late" in block(ALL_AT_ONCE, full=True, told=told)


def test_full_has_names_users_and_examples() -> None:
    lines = block(ALL_AT_ONCE, full=True).splitlines()
    text = "\n".join(lines)
    assert "0:50 left, 8 users, 7 decoding; last 10 s:" in text
    assert [line.split()[0] for line in lines if line.startswith(("  chat ", "  long ", "  total "))] == [
        "chat", "long", "total",
    ]  # fmt: skip
    assert "3  chat: timeout: first_token: no token within 10 s" in text
    assert "pass      ttft:p95<=500ms (412 ms)" in text
    assert "timings are made up (simulated)" in text


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("width", [100, 80, 60, 40, 10])
def test_no_line_is_longer_than_the_terminal_is_wide_and_nothing_is_lost(width: int, full: bool) -> None:
    lines = block(ALL_AT_ONCE, width, full).split("\n")
    assert max(map(len, lines)) <= max(width, 40)
    words = " ".join(lines).split()
    assert {"778.3", "50.40", "10.21", "doubtful", "(5.3%)"} <= set(words)


def test_names_from_outside_put_no_control_characters_into_a_terminal() -> None:
    errors = [{"kind": "a\x1b[2J", "count": 1, "example": "\x1b]0;x\x07", "name": "b\x07"}]
    text = block(snapshot(("c\x1b[31m" + "x" * 50,), errors=errors), full=True)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert max(map(len, text.split("\n"))) <= 100


def test_a_long_list_of_errors_is_cut_and_says_so() -> None:
    errors = [{"kind": f"http_status: {i}", "count": 100 - i, "name": "chat"} for i in range(20)]
    assert "17 more kinds" in block(snapshot(errors=errors, total=row(failed=9)))
    assert "12 more kinds" in block(snapshot(errors=errors, total=row(failed=9)), full=True)
