"""Reading logs: everything that was measured comes back, and nothing that is wrong with a file passes in silence."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_logs import log_of, record, stream, write_log

from locust_llm.errors import UsageError
from locust_llm.exchange import ExchangeError
from locust_llm.report import events, reading
from locust_llm.report.columns import KINDS
from locust_llm.report.reading import read


def changed(r, **members):
    """A line of a record with members changed or, with ``...``, removed."""
    data = orjson.loads(r.encode()) | members
    return json.dumps({k: v for k, v in data.items() if v is not ...}).encode() + b"\n"


def test_a_record_comes_back_as_columns(tmp_path):
    r = stream(
        3, 1.5, tokens=2, scheduled_us=7, tcp_us=900, n_reasoning=1, tags={"user": "u1", "turn": "2"}, stage=4,
        error=ExchangeError("kind", "message"), lag_us_max=11,
    )  # fmt: skip
    log = log_of(tmp_path, r, stream(4))
    assert len(log) == 2
    assert (log.name.at(0), log.outcome.at(0), log.tags["turn"].at(0)) == ("chat", "ok", "2")
    assert log.tags["turn"].at(1) is None
    assert (log.error_kind.at(0), log.error_message.at(0), log.error_kind.at(1)) == ("kind", "message", None)
    assert (log.start_us[0], log.scheduled_us[0], log.tcp_us[0], log.stage[0]) == (r.start_us, 7, 900, 4)
    assert np.isnan(log.scheduled_us[1])
    assert log.gaps_us[log.offsets[0] : log.offsets[1]].tolist() == r.event_gaps_us
    assert [KINDS[k] for k in log.kinds[log.offsets[0] : log.offsets[1]]] == r.kinds()
    assert log.tokens is None


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 10**7), st.sampled_from(KINDS)), max_size=6), min_size=1, max_size=12),
    st.integers(1, 7),
)
def test_events_keep_their_times_whatever_the_blocks(tmp_path_factory, records, block):
    made = []
    for i, gaps in enumerate(records):
        at, with_times = 0.0, []
        for gap, kind in gaps:
            at += gap / 1000
            with_times.append((at, kind))
        made.append(record(i, events=with_times))
    log = log_of(tmp_path_factory.mktemp("log"), *made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "_BLOCK_EVENTS", block)
        seen = [
            (int(o), int(t), KINDS[k])
            for e in events.walk(log)
            for o, t, k in zip(e.owner, e.time_us, e.kinds, strict=True)
        ]
        ours = events.span(log, frozenset({"content"}))
    assert seen == [
        (i, t, k) for i, r in enumerate(made) for t, k in zip(np.cumsum(r.event_gaps_us), r.kinds(), strict=True)
    ]
    for i, r in enumerate(made):
        times = [t for t, k in zip(np.cumsum(r.event_gaps_us), r.kinds(), strict=True) if k == "content"]
        assert ours.count[i] == len(times)
        if times:
            assert (ours.first_us[i], ours.last_us[i]) == (times[0], times[-1])
        else:
            assert np.isnan(ours.first_us[i])


def test_a_log_larger_than_a_block_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_BLOCK_BYTES", 700)  # less than two lines
    made = [stream(i, i * 0.1, tokens=3 + i % 4, n_out=i) for i in range(40)]
    log = log_of(tmp_path, *made)
    assert log.n_out.tolist() == list(range(40))
    assert np.diff(log.offsets).tolist() == [len(r.event_gaps_us) for r in made]


def test_the_tail_after_the_last_newline_is_cut_and_said(tmp_path):
    path = write_log(tmp_path / "events.jsonl", [stream(0), stream(1)])
    path.write_bytes(path.read_bytes() + stream(2).encode()[:100])
    log = read([path])
    assert len(log) == 2
    assert log.damage.cut_bytes == 100
    assert log.damage.cut_files == (str(path),)
    assert log.damage.bad_lines == 0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{broken\n", "not JSON"),
        (b"\x00" * 300 + b"\n", "not JSON"),
        (b"\xff\xfe{}\n", "not JSON"),
        (b"17\n", "not a JSON object"),
        (b"[1, 2]\n", "not a JSON object"),
        (b"{}\n", "no member 'run'"),
        (changed(stream(), end_us=...), "no member 'end_us'"),
        (changed(stream(), start_us="soon"), "not an exchange record"),
        (changed(stream(), start_us=2**80), "not"),
        (changed(stream(), end_us=-1), "end_us is negative"),
        (changed(stream(), n_out="many"), "not an exchange record"),
        (changed(stream(), name=5), "5 is no string"),
        (changed(stream(), name=[5]), "not an exchange record"),
        (changed(stream(), tags=[1]), "not an exchange record"),
        (changed(stream(), tags={"user": 5}), "5 is no string"),
        (changed(stream(), error="boom"), "not an exchange record"),
        (changed(stream(), kind_runs=[1]), "do not fit each other"),
        (changed(stream(), event_gaps_us=[1, 2]), "do not fit each other"),
        (changed(stream(), event_gaps_us=[1, -2, 3, 4, 5, 6, 7, 8, 9]), "negative gap"),
        (changed(stream(), event_gaps_us=["x"] * 9), "not an exchange record"),
        (changed(stream(), event_tokens=[1]), "different lengths"),
    ],
)
def test_a_line_that_is_no_record_is_left_out_and_named(tmp_path, line, why):
    path = tmp_path / "events.jsonl"
    path.write_bytes(stream(1).encode() + line + b"\n" + stream(2).encode())
    log = read([path])
    assert log.seq.tolist() == [1, 2]
    assert log.name.names == ("chat",)
    assert log.damage.bad_lines == 1
    assert log.damage.bad_examples[0].startswith(f"{path}:2: ")
    assert why in log.damage.bad_examples[0]


def test_unknown_members_and_kinds_are_ignored_and_missing_ones_take_defaults(tmp_path):
    line = changed(
        stream(), shiny={"a": [1, "b"]}, schema=2, kind_names=["role", "hologram", "finish", "usage", "done"],
        attempt=..., streamed=..., phase=..., stamp=..., lag_us_max=None, reused=..., tags=None,
    )  # fmt: skip
    (tmp_path / "events.jsonl").write_bytes(line)
    log = read([tmp_path])
    assert log.damage.bad_lines == 0
    assert log.damage.newer_schema == 2
    assert (log.attempt[0], log.streamed[0], log.phase.at(0), log.stamp.at(0)) == (1, True, "measure", "user")
    assert KINDS[log.kinds[1]] == "other"


def test_records_that_came_twice_are_taken_once(tmp_path):
    one, two = [stream(0), stream(1)], [stream(0, worker="w2"), stream(0, run="r2")]
    write_log(tmp_path / "events.jsonl", one + two)
    write_log(tmp_path / "events-w1.jsonl", [replace(one[1], name="double"), one[0]])
    log = read([tmp_path / "events.jsonl", tmp_path / "events-w1.jsonl"])
    assert len(log) == 4
    assert log.damage.doubles == 2
    assert log.name.counts(log.seq >= 0) == {"chat": 4}


def test_the_same_file_given_twice_is_read_once(tmp_path):
    path = write_log(tmp_path / "events.jsonl", [stream(0)])
    assert read([tmp_path, path]).damage.doubles == 0


def test_skipped_numbers_of_a_worker_are_missing_records(tmp_path):
    log = log_of(tmp_path, stream(5), stream(6), stream(9), stream(2, worker="w2"))
    assert log.damage.missing == 2


def test_known_tokens_of_some_records_leave_the_others_unknown(tmp_path):
    log = log_of(tmp_path, stream(0, tokens=1, event_tokens=[0, 4, 0, 0, 0]), stream(1, tokens=1))
    assert log.tokens is not None
    assert log.tokens.tolist() == [0, 4, 0, 0, 0, -1, -1, -1, -1, -1]


def test_a_gap_of_more_than_half_an_hour_is_kept(tmp_path):
    log = log_of(tmp_path, record(events=[(5.0, "content"), (4_000_000.0, "content")]), stream(1))
    assert log.gaps_us[1] == 3_999_995_000


def test_a_selection_of_records_keeps_their_events(tmp_path):
    log = log_of(tmp_path, stream(0, tokens=2), stream(1, tokens=7, tags={"user": "other"}), stream(2, tokens=3))
    some = log.select(np.array([False, True, True]))
    assert some.seq.tolist() == [1, 2]
    assert np.diff(some.offsets).tolist() == [11, 7]
    assert some.tags["user"].at(0) == "other"
    assert some.gaps_us[some.offsets[1] :].tolist() == stream(2, tokens=3).event_gaps_us


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty log"),
        (b"\n\n", "empty log"),
        (b'{"half', "only 6 bytes of an unfinished line"),
        (b"hello\nworld\n", "not an event log"),
        (b'{"a": 1}\n', "no member 'run'"),
    ],
)
def test_a_log_without_a_record_is_a_usage_error_of_one_line(tmp_path, content, why):
    path = tmp_path / "events.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=why) as e:
        read([path])
    assert "\n" not in str(e.value)
    assert str(path) in str(e.value)


def test_a_log_that_only_a_newer_version_can_read_says_so(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(b'{"schema": 9, "run": "r", "begin": 1}\n')
    with pytest.raises(UsageError, match=r"newer locust-llm \(schema 9"):
        read([tmp_path])


@pytest.mark.parametrize("make", ["missing", "empty folder", "nothing"])
def test_a_source_that_is_not_there_is_a_usage_error(tmp_path, make):
    sources = {"missing": [tmp_path / "no.jsonl"], "empty folder": [tmp_path], "nothing": []}[make]
    with pytest.raises(UsageError, match=r"events\*\.jsonl"):
        read(sources)
