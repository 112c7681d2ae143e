"""A run's result for machines that build: one line, JUnit XML, Markdown for the step summary of GitHub.

The one thing to know: all of it is made from ``summary.json``; what an objective is and how it is judged is elsewhere
(``objectives.py``, ``judging.py``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..errors import UsageError
from .judging import FAIL, PASS, UNDECIDED, written
from .metrics import METRICS, RATES

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Variable that names the file which GitHub Actions shows; Markdown is appended there."""
_HEAD = (("ttft", "p50"), ("ttft", "p95"), ("tpot", "p50"), ("e2e_latency", "p95"))
_TABLE = ("ttft", "tpot", "itl", "e2e_latency")
_MARKS = {PASS: "✅ pass", FAIL: "❌ fail", UNDECIDED: "❔ undecided"}


def one_line(summary: Mapping[str, Any]) -> str:
    """Return the run in one line: its result where there are objectives, the head figures, the verdict."""
    total, judged = summary["total"], summary.get("objectives")
    parts = []
    if judged:
        results = judged["results"]
        held = sum(r["state"] == PASS for r in results)
        parts.append(f"{judged['state'].upper()} {held} of {len(results)} objectives held")
        missed = [r["objective"] for r in results if r["state"] == FAIL]
        undecided = [r["objective"] for r in results if r["state"] == UNDECIDED]
        parts += [f"missed {', '.join(missed)}"] if missed else []
        parts += [f"undecided {', '.join(undecided)}"] if undecided else []
        parts += ["spoilt by an overloaded client"] if any("spoilt_by" in r for r in results) else []
    for name, stat in _HEAD:
        value = total["metrics"].get(name)
        if value:
            parts.append(f"{METRICS[name].label.split(' (')[0]} {stat} {written(value[stat], value['unit'])}")
    for name in ("system_output_tps", "error_rate", "goodput"):
        if name in total["rates"]:
            label = "" if name == "system_output_tps" else f"{RATES[name].label} "
            parts.append(f"{label}{written(total['rates'][name], RATES[name].unit)}")
    parts.append(f"measurement {summary['verdict']['state']}")
    return one_printable("locust-llm: " + "; ".join(parts))


def junit(summary: Mapping[str, Any]) -> bytes:
    """Return JUnit XML: a test case per objective; undecided and spoilt are errors, skipped where the run passes."""
    judged = summary.get("objectives") or {"results": [], "exit_code": 0}
    suite = ElementTree.Element("testsuite", name="locust-llm objectives")
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in (("run", summary["run"]), ("measurement", summary["verdict"]["state"]), *_window(summary)):
        ElementTree.SubElement(properties, "property", name=key, value=one_printable(str(value)))
    counts = {"failure": 0, "error": 0, "skipped": 0}
    for result in judged["results"]:
        case = ElementTree.SubElement(
            suite, "testcase", classname=one_printable(f"locust-llm.{result.get('name', 'total')}"),
            name=one_printable(result["objective"]), time="0",
        )  # fmt: skip
        kind = _junit_kind(result, judged["exit_code"])
        if kind:
            counts[kind] += 1
            type_ = "overloaded client" if "spoilt_by" in result else result["state"]
            attributes = {"message": one_printable(result["why"])} | ({} if kind == "skipped" else {"type": type_})
            ElementTree.SubElement(case, kind, attributes)
        else:
            ElementTree.SubElement(case, "system-out").text = one_printable(result["why"])
    suite.set("tests", str(len(judged["results"])))
    for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(counts[kind]))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def markdown(summary: Mapping[str, Any]) -> str:
    """Return the result as Markdown: objectives, figures with their intervals, what to distrust."""
    return "\n".join([*_markdown(summary), ""])


def write_junit(summary: Mapping[str, Any], path: str) -> None:
    """Write JUnit XML. Raises UsageError if the file cannot be written."""
    _write(Path(path), "wb", junit(summary), "--junit")


def write_markdown(summary: Mapping[str, Any], path: str) -> None:
    """Write Markdown to a file, anew; the step summary of GitHub, whether named or not, is appended to.

    Raises:
        UsageError: the file cannot be written.
    """
    step = os.environ.get(STEP_SUMMARY, "")
    path = path or step
    if path:
        mode = "ab" if step and Path(path).resolve() == Path(step).resolve() else "wb"
        _write(Path(path), mode, markdown(summary).encode(), "--markdown")


# ---- helpers


def _junit_kind(result: Mapping[str, Any], exit_code: int) -> str:
    if "spoilt_by" in result:
        return "error"
    if result["state"] == UNDECIDED:
        return "skipped" if exit_code == 0 else "error"
    return "failure" if result["state"] == FAIL else ""


def _window(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    window = summary["window"]
    yield "window", f"{window['kind']}, {window['duration_s']:.1f} s"
    yield "exchanges", str(window["started"])


def _markdown(summary: Mapping[str, Any]) -> Iterator[str]:
    judged, window, total = summary.get("objectives"), summary["window"], summary["total"]
    state = f"{_MARKS[judged['state']]} · " if judged else ""
    yield f"### {state}locust-llm: {_cell(summary['run'])}"
    yield ""
    yield (
        f"{window['kind']} window of {window['duration_s']:.1f} s, {window['started']} exchanges, measurement "
        f"**{summary['verdict']['state']}**"
    )
    yield ""
    if judged:
        yield from ("| objective | result | measured |", "| --- | --- | --- |")
        for r in judged["results"]:
            yield f"| {_code(r['objective'])} | {_MARKS[r['state']]} | {_cell(r['why'])} |"
        yield ""
    yield from ("| figure | mean | p50 | p95 | p99 | n |", "| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in _TABLE:
        of = total["metrics"].get(name)
        if of:
            cells = [_with_interval(of, stat) for stat in ("mean", "p50", "p95", "p99")]
            yield f"| {_cell(METRICS[name].label)} | {' | '.join(cells)} | {of['count']} |"
    yield ""
    rates = [k for k in ("system_output_tps", "requests_per_s", "error_rate", "goodput") if k in total["rates"]]
    yield "; ".join(_rate(k, total["rates"][k]) for k in rates)
    reasons = [r for r in summary["verdict"]["reasons"] if r["level"] != "note"]
    if reasons:
        yield ""
        yield from (f"- {_cell(r['effect'])}" for r in reasons)


def _rate(name: str, value: float) -> str:
    label, unit = RATES[name].label, RATES[name].unit
    return f"{label} {written(value, '' if '/' in label else unit).strip()}"  # a label with a stroke says the unit


def _with_interval(of: Mapping[str, Any], stat: str) -> str:
    text = written(of[stat], of["unit"])
    ends = of.get("ci95", {}).get(stat)
    if ends and None not in ends:
        text += f" ({written(ends[0], of['unit'])} – {written(ends[1], of['unit'])})"
    return text + ("~" if stat in of["thin"] else "")


def _cell(text: str) -> str:
    return one_printable(str(text)).replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    return "`" + one_printable(text).replace("|", "\\|").replace("`", "'") + "`"


def one_printable(text: str) -> str:
    """Names come from outside: nothing that XML forbids, and one line."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def _write(path: Path, mode: str, content: bytes, flag: str) -> None:
    try:
        with open(path, mode) as f:
            f.write(content)
    except OSError as e:
        raise UsageError(f"{flag} {path}: cannot be written ({e.strerror})") from None
