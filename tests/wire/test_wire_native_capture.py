"""llama.cpp's own endpoint as it was recorded: text, counts and finish reason are those of its JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from httpbytes import ResponseReader

from locust_llm.outcome import TransportEnd, judge
from locust_llm.wire import registry

FILES = sorted((Path(__file__).parent.parent / "captures").glob("*/native-*.http"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_it_decodes_to_what_its_json_says(file: Path, size: int) -> None:
    assert b"POST /completion " in file.with_suffix(".req").read_bytes()
    reader = ResponseReader()
    body = reader.feed(file.read_bytes())
    events = [json.loads(data) for data in re.findall(r"^data: (.*)$", body.decode(), re.MULTILINE)]
    last = events[-1]

    decoder = registry.api("llamacpp").decoder(True)
    for at in range(0, len(body), size):
        decoder.feed(body[at : at + size], at)
    decoder.eof(len(body))
    answer = decoder.answer

    assert answer.text() == "".join(event["content"] for event in events)
    assert answer.kinds == ["content"] * last["tokens_predicted"] + ["finish"]
    assert answer.tokens == [len(event["tokens"]) for event in events]
    assert answer.usage is not None
    assert (answer.usage.n_out, answer.usage.n_in) == (last["tokens_predicted"], last["tokens_evaluated"])
    assert (answer.usage.n_out, answer.usage.n_cached) == (last["timings"]["predicted_n"], last["timings"]["cache_n"])
    assert (answer.finish_reason, answer.model) == (last["stop_type"], last["model"])
    assert answer.timings == last["timings"]
    assert reader.complete
    assert judge(answer, 200, TransportEnd("complete"), None) == ("ok", None)


def test_the_capture_is_there() -> None:
    assert [file.stem for file in FILES] == ["native-completion-stream"]
