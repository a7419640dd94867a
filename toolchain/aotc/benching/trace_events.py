"""Events of the Trace Event Format, which Perfetto and Chrome show: read, and written.

ONNX Runtime writes its profile in the same format, as a list without an object around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from aotc.contract.codec.parsing import Json
from aotc.errors import AotcError
from aotc.files.failures import cannot_read
from aotc.records import field, record

# A profile of a million events, which is the most that ONNX Runtime keeps, has about a gigabyte.
_MAX_BYTES: Final = 2 << 30
_MICROSECONDS: Final = 1e6


@record
class Span:
    """Something that took time, in seconds since the beginning of the trace."""

    name: str
    category: str
    start: float
    seconds: float
    thread: int = 0
    process: int = 1
    args: dict[str, Json] = field(default_factory=dict)


@record
class TraceEvent:
    """A complete event that was read: times in microseconds, as they stand in the file."""

    name: str
    category: str
    start: float
    duration: float
    thread: int
    args: dict[str, Any]


def read_events(path: Path) -> list[TraceEvent]:
    """The complete events (`ph` X) of a trace, or of a profile of ONNX Runtime, in their order.

    Raises AOTC-I066 if the file is cut off or is neither, and I001 if it cannot be read.
    """
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= _MAX_BYTES else b""
    except OSError as error:
        raise cannot_read(error, "the trace cannot be read", str(path)) from None
    if size > _MAX_BYTES:
        raise _unreadable(path, f"{size} bytes, at most {_MAX_BYTES} are read")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise _unreadable(path, "it holds no list of events")
    return [_event(event, path) for event in events if _is_complete(event, path)]


def trace_text(
    spans: Sequence[Span],
    processes: dict[int, str],
    threads: dict[tuple[int, int], str],
    other: dict[str, Json],
) -> str:
    """A trace: `processes` are names by id, `threads` by ids of process and thread.

    Times are in microseconds, as the format has them, with three digits after the point.
    """
    events: list[Json] = [*_names(processes, threads)]
    for span in sorted(spans, key=lambda each: (each.start, -each.seconds)):
        events.append(
            {
                "name": span.name,
                "cat": span.category,
                "ph": "X",
                "ts": round(span.start * _MICROSECONDS, 3),
                "dur": round(span.seconds * _MICROSECONDS, 3),
                "pid": span.process,
                "tid": span.thread,
                "args": span.args,
            }
        )
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}
    # Of the characters that steer a terminal the one that is ASCII and that JSON leaves as it is.
    return json.dumps(document, allow_nan=False).replace("\x7f", "\\u007f") + "\n"


def _names(processes: dict[int, str], threads: dict[tuple[int, int], str]) -> Iterator[Json]:
    for process, name in processes.items():
        yield _metadata("process_name", process, 0, {"name": name})
        yield _metadata("process_sort_index", process, 0, {"sort_index": process})
    for (process, thread), name in threads.items():
        yield _metadata("thread_name", process, thread, {"name": name})
        yield _metadata("thread_sort_index", process, thread, {"sort_index": thread})


def _metadata(name: str, process: int, thread: int, args: dict[str, Json]) -> Json:
    return {"name": name, "ph": "M", "pid": process, "tid": thread, "args": args}


def _is_complete(event: Any, path: Path) -> bool:
    if not isinstance(event, dict):
        raise _unreadable(path, "an event is not an object")
    return event.get("ph") == "X"


def _event(event: dict[str, Any], path: Path) -> TraceEvent:
    start, duration = event.get("ts"), event.get("dur")
    args, thread = event.get("args", {}), event.get("tid", 0)
    name, category = event.get("name"), event.get("cat", "")
    if not (
        isinstance(name, str)
        and isinstance(category, str)
        and isinstance(args, dict)
        and isinstance(thread, int)
        and _is_time(start)
        and _is_time(duration)
    ):
        raise _unreadable(path, "an event has no name, no time, or another form")
    return TraceEvent(
        name=name,
        category=category,
        start=float(start),  # type: ignore[arg-type]
        duration=float(duration),  # type: ignore[arg-type]
        thread=thread,
        args=args,
    )


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63


def _unreadable(path: Path, found: str) -> AotcError:
    return AotcError(
        "AOTC-I066", "the trace is cut off, or is none", where=str(path), found=found[:300]
    )
