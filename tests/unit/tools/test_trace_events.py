"""Traces as they are written and read, and files that are cut off or are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

from aotc.session.node_times import read_events
from aotc.tools.bench_nodes import Span, trace_text

SPANS = (
    Span(name="outer", category="run", start=0.001, seconds=0.002, thread=1),
    Span(name="inner", category="cpu", start=0.001, seconds=0.0005, thread=1, args={"op": "Conv"}),
    Span(name="before", category="load", start=0.0, seconds=0.0001),
)


def text() -> str:
    names = {(1, 0): "load and warm-up", (1, 1): "artifact, stream 1"}
    return trace_text(SPANS, {1: "bench"}, names, {"calls": 3})


def test_what_is_written_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text())
    found = read_events(path)
    assert [event.name for event in found] == ["before", "outer", "inner"]
    assert (found[1].start, found[1].duration) == (1000.0, 2000.0)
    assert (found[2].category, found[2].args) == ("cpu", {"op": "Conv"})


def test_processes_and_threads_have_names() -> None:
    document = json.loads(text())
    named = [event for event in document["traceEvents"] if event["ph"] == "M"]
    assert [(e["name"], e["pid"], e["tid"], e["args"]) for e in named] == [
        ("process_name", 1, 0, {"name": "bench"}),
        ("process_sort_index", 1, 0, {"sort_index": 1}),
        ("thread_name", 1, 0, {"name": "load and warm-up"}),
        ("thread_sort_index", 1, 0, {"sort_index": 0}),
        ("thread_name", 1, 1, {"name": "artifact, stream 1"}),
        ("thread_sort_index", 1, 1, {"sort_index": 1}),
    ]
    assert document["otherData"] == {"calls": 3}


def test_names_cannot_steer_a_terminal(tmp_path: Path) -> None:
    hostile = "\x1b[2J\x7f\u202e"
    span = Span(name=hostile, category=hostile, start=0, seconds=1, args={hostile: hostile})
    shown = trace_text([span], {1: hostile}, {(1, 0): hostile}, {hostile: hostile})
    assert shown.isascii()
    assert shown.rstrip("\n").isprintable()
    path = tmp_path / "trace.json"
    path.write_text(shown)
    assert [event.name for event in read_events(path)] == [hostile]


def test_a_trace_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path, whole = tmp_path / "trace.json", text().rstrip("\n")
    for length in range(len(whole)):
        path.write_text(whole[:length])
        assert refusal(read_events, path).code == "AOTC-I066", length


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"traceEvents": {}},
        3,
        None,
        [3],
        [{"ph": "X"}],
        [{"ph": "X", "name": "n", "ts": -1, "dur": 0}],
        [{"ph": "X", "name": "n", "ts": True, "dur": 0}],
        [{"ph": "X", "name": "n", "ts": 0, "dur": float("nan")}],
        [{"ph": "X", "name": "n", "ts": 0, "dur": float("inf")}],
        [{"ph": "X", "name": "n", "ts": "0", "dur": 0}],
        [{"ph": "X", "name": 5, "ts": 0, "dur": 0}],
        [{"ph": "X", "name": "n", "ts": 0, "dur": 0, "args": []}],
        [{"ph": "X", "name": "n", "ts": 0, "dur": 0, "tid": "a"}],
    ],
    ids=json.dumps,
)
def test_what_is_no_trace_is_refused(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    assert refusal(read_events, path).code == "AOTC-I066"


@pytest.mark.parametrize("data", [b"\xff\xfe", b"[" * 100_000, b""])
def test_bytes_that_are_no_json_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    error = refusal(read_events, path)
    assert (error.code, error.what) == ("AOTC-I066", "the file is not a complete trace")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert refusal(read_events, tmp_path / "none.json").code == "AOTC-I001"
