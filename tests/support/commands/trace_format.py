"""A strict reader of the Trace Event Format, as far as Perfetto and Chrome ask for it.

It shares nothing with the toolchain's own reader.  Beyond the fields of each event it holds that
events of one thread are nested or apart: viewers drop what overlaps otherwise.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]
_METADATA = {
    "process_name": "name",
    "thread_name": "name",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}
# Times are written with three digits after the point, which is a nanosecond.
_TOLERANCE = 0.002


def read_trace(path: Path) -> tuple[list[Event], dict[tuple[int, int], str]]:
    """The complete events of a trace, and the names of its threads; asserts that it is valid."""
    document = json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    assert set(document) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    complete, threads, processes = [], {}, {}
    for event in document["traceEvents"]:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        if event["ph"] == "M":
            value = event["args"][_METADATA[event["name"]]]
            assert isinstance(value, int if event["name"].endswith("index") else str)
            if event["name"] == "process_name":
                processes[event["pid"]] = value
            elif event["name"] == "thread_name":
                threads[event["pid"], event["tid"]] = value
            continue
        assert event["ph"] == "X", event
        assert set(event) == {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}
        assert event["name"]
        assert event["cat"]
        for field in ("ts", "dur"):
            assert isinstance(event[field], int | float)
            assert event[field] >= 0
        complete.append(event)
    for event in complete:
        assert event["pid"] in processes
        assert (event["pid"], event["tid"]) in threads
    _assert_nested(complete)
    return complete, threads


def _assert_nested(events: list[Event]) -> None:
    by_thread: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        by_thread[event["pid"], event["tid"]].append(event)
    for found in by_thread.values():
        ends: list[float] = []
        for event in sorted(found, key=lambda each: (each["ts"], -each["dur"])):
            start, end = event["ts"], event["ts"] + event["dur"]
            while ends and start >= ends[-1] - _TOLERANCE:
                ends.pop()
            assert not ends or end <= ends[-1] + _TOLERANCE, event
            ends.append(end)


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
