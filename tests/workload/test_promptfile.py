"""A prompt file is checked whole, dealt out without repeats, and its end is announced."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locust_llm.errors import UsageError
from locust_llm.workload.promptfile import PromptFile

Write = Callable[..., str]


def texts(source: PromptFile) -> list[str]:
    """One round of a worker's share."""
    return [source.next().text for _ in range(source.share)]


def test_a_line_becomes_a_prompt_with_its_name_and_length(lines_file: Write) -> None:
    path = lines_file({"prompt": "Hello", "max_tokens": 7, "name": "greeting"})
    prompt = PromptFile(path, seed=1).next()
    assert prompt.text == "Hello"
    assert prompt.messages == [{"role": "user", "content": "Hello"}]
    assert (prompt.max_tokens, prompt.name, prompt.asked_in) == (7, "greeting", None)
    assert PromptFile(path, seed=1, chat=False).next().messages is None


def test_messages_arrive_as_they_were_written(lines_file: Write) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "x"}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
        {"role": "tool", "content": "a cat", "tool_call_id": "1"},
    ]
    prompt = PromptFile(lines_file({"messages": messages}), seed=1).next()
    assert prompt.messages == messages
    assert prompt.text == "Be brief.\nWhat is this?\na cat"
    assert prompt.max_tokens is None
    assert prompt.name is None


def test_null_is_as_good_as_absent_and_blank_lines_are_no_prompts(lines_file: Write) -> None:
    path = lines_file(
        "", {"prompt": "a", "messages": None, "max_tokens": None, "name": None}, "   ", {"prompt": "b"}, ""
    )
    source = PromptFile(path, seed=1)
    assert source.lines == 2
    assert sorted(texts(source)) == ["a", "b"]


def test_a_byte_order_mark_and_carriage_returns_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "windows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "caf\xc3\xa9"}\r\n{"prompt": "b"}\r\n{"prompt": "c"}')
    assert sorted(texts(PromptFile(str(path), seed=1))) == ["b", "c", "café"]


GOOD = {"prompt": "fine"}
USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        ("{'prompt': 'x'}", "not JSON"),
        ('{"prompt": NaN}', "not JSON"),
        ("Hello", "not JSON"),
        ([GOOD], "JSON object"),
        ('"prompt"', "JSON object"),
        ({}, "neither prompt nor messages"),
        ({"max_tokens": 5}, "neither prompt nor messages"),
        ({"prompt": None}, "neither prompt nor messages"),
        ({"prompt": "a", "messages": [USER]}, "both prompt and messages"),
        ({"prompt": ""}, "prompt must be a string"),
        ({"prompt": ["a"]}, "prompt must be a string"),
        ({"prompt": 5}, "prompt must be a string"),
        ({"messages": []}, "at least one message"),
        ({"messages": "hi"}, "at least one message"),
        ({"messages": ["hi"]}, "message 1 must be an object"),
        ({"messages": [USER, {"content": "x"}]}, "message 2: role"),
        ({"messages": [{"role": "user"}]}, "message 1: content is missing"),
        ({"messages": [{"role": "user", "content": 5}]}, "message 1: content must be"),
        ({"messages": [{"role": "user", "content": []}]}, "message 1: content must be"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "message 1: content must be"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens must be a whole number"),
        ({"prompt": "a", "max_tokens": -3}, "max_tokens must be a whole number"),
        ({"prompt": "a", "max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"prompt": "a", "max_tokens": "9"}, "max_tokens must be a whole number"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens must be a whole number"),
        ({"prompt": "a", "max_tokens": 10**12}, "max_tokens must be a whole number"),
        ({"prompt": "a", "name": ""}, "name must be a string"),
        ({"prompt": "a", "name": 3}, "name must be a string"),
        ({"prompt": "a", "max_token": 5, "temp": 1}, "unknown key max_token, temp"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number_and_what_is_wrong(lines_file: Write, line: object, says: str) -> None:
    path = lines_file(GOOD, "", GOOD, line, GOOD)
    with pytest.raises(UsageError) as error:
        PromptFile(path, seed=1)
    message = str(error.value)
    assert message.startswith(f"--llm-prompts {path}, line 4: ")
    assert says in message
    assert "\n" not in message


def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n{"prompt": "caf\xe9"}\n')
    with pytest.raises(UsageError, match="line 2: not UTF-8"):
        PromptFile(str(path), seed=1)


def test_the_last_line_is_checked_as_well_as_the_first_whichever_worker_gets_it(lines_file: Write) -> None:
    path = lines_file(*[GOOD] * 500, {"prompt": 1})
    for worker in (0, 1):
        with pytest.raises(UsageError, match="line 501"):
            PromptFile(path, seed=1, worker=worker, workers=2)


def test_messages_for_a_completions_api_are_an_error_of_their_line(lines_file: Write) -> None:
    path = lines_file(GOOD, {"messages": [USER]})
    with pytest.raises(UsageError, match="line 2: messages need a chat API"):
        PromptFile(path, seed=1, chat=False)


@pytest.mark.parametrize("content", [(), ("",), ("", "  ")])
def test_an_empty_file_is_an_error(lines_file: Write, content: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"--llm-prompts .*no prompts in it"):
        PromptFile(lines_file(*content), seed=1)


def test_a_file_that_is_not_there_or_is_a_folder_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(UsageError, match=r"--llm-prompts .*cannot be read"):
            PromptFile(str(path), seed=1)


@settings(max_examples=30)
@given(lines=st.integers(1, 60), workers=st.integers(1, 9), seed=st.integers())
def test_every_line_goes_to_exactly_one_worker(
    lines: int, workers: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("split") / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"p{i}"}) + "\n" for i in range(lines)))
    shares = [texts(PromptFile(str(path), seed=seed, worker=i, workers=workers)) for i in range(workers)]
    dealt = [text for share in shares for text in share]
    assert set(dealt) == {f"p{i}" for i in range(lines)}
    assert all(shares)
    if lines >= workers:
        assert len(dealt) == lines


def test_the_order_is_the_seed_s(lines_file: Write) -> None:
    path = lines_file(*[{"prompt": str(i)} for i in range(100)])
    order = texts(PromptFile(path, seed=1))
    assert order == texts(PromptFile(path, seed=1))
    assert order != texts(PromptFile(path, seed=2))
    assert order != [str(i) for i in range(100)]


def test_beginning_again_is_announced_once(lines_file: Write, caplog: pytest.LogCaptureFixture) -> None:
    source = PromptFile(lines_file({"prompt": "a"}, {"prompt": "b"}), seed=1)
    with caplog.at_level(logging.WARNING):
        first = texts(source)
        assert source.wrapped == 0
        assert not caplog.records
        assert texts(source) + texts(source) == first * 2
    assert source.wrapped == 2
    (record,) = caplog.records
    assert "--llm-prompts" in record.getMessage()


def test_a_worker_keeps_its_own_share_only(lines_file: Write) -> None:
    source = PromptFile(lines_file(*[{"prompt": "x" * 1000}] * 100), seed=1, worker=3, workers=10)
    assert (source.lines, source.share) == (100, 10)
    assert len(source._lines) == 10


def test_a_worker_beyond_the_number_of_workers_is_refused(lines_file: Write) -> None:
    with pytest.raises(ValueError, match="worker 2 of 2"):
        PromptFile(lines_file(GOOD), seed=1, worker=2, workers=2)
