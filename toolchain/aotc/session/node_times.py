"""ONNX Runtime's profiles: the runs of a session, and how long each of their nodes took."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import read_at_most
from aotc.base.records import record

# Of a second: profiles and traces are in microseconds.
MICROSECONDS: Final = 1e6
# A profile of a million events, which is the most that ONNX Runtime keeps, has about a gigabyte.
MAX_PROFILE_BYTES: Final = 2 << 30
_NODE: Final = "Node"
_KERNEL: Final = "_kernel_time"
_RUN: Final = "model_run"


@record
class NodeEvent:
    """One execution of one node, in microseconds of the profile's clock.

    `own` is its duration without that of the nodes in its subgraphs.
    """

    node: str
    op: str
    provider: str
    start: float
    duration: float
    own: float


@record
class ProfiledRun:
    """One run of the session, in microseconds, with the nodes that it executed."""

    start: float
    duration: float
    nodes: tuple[NodeEvent, ...]


def profiled_runs(events: Sequence[TraceEvent], where: Path) -> list[ProfiledRun]:
    """The runs in a profile, in order; raises AOTC-I066 if it holds none."""
    runs = sorted(
        (event for event in events if event.category == "Session" and event.name == _RUN),
        key=lambda event: event.start,
    )
    if not runs:
        raise AotcError("AOTC-I066", "the profile holds no run", where=str(where))
    nodes = sorted(_node_events(events), key=lambda node: (node.start, -node.duration))
    starts = [run.start for run in runs]
    grouped: list[list[NodeEvent]] = [[] for _ in runs]
    index = 0
    for node in nodes:
        while index + 1 < len(starts) and node.start >= starts[index + 1]:
            index += 1
        if node.start >= starts[index]:
            grouped[index].append(node)
    return [
        ProfiledRun(start=run.start, duration=run.duration, nodes=tuple(group))
        for run, group in zip(runs, grouped, strict=True)
    ]


def faster_half(runs: Sequence[ProfiledRun]) -> tuple[ProfiledRun, ...]:
    """The runs that took no longer than the median one, in order.

    One run that was interrupted would outweigh all others in a mean; and medians of single nodes
    would not add up to a run.
    """
    median = sorted(run.duration for run in runs)[(len(runs) - 1) // 2]
    return tuple(run for run in runs if run.duration <= median)


def seconds_by_node(path: Path, first: int) -> dict[tuple[str, str], float]:
    """Mean seconds of a run by operator and node, of the profile at `path` without `first` runs.

    Raises AOTC-I066 and I001.
    """
    runs = faster_half(profiled_runs(read_events(path), path)[first:])
    found: dict[tuple[str, str], float] = defaultdict(float)
    for run in runs:
        for node in run.nodes:
            found[node.op, node.node] += node.own / MICROSECONDS / len(runs)
    return found


def _node_events(events: Sequence[TraceEvent]) -> Iterator[NodeEvent]:
    """Executions of nodes, with their own time: nodes of a subgraph run within its node's time."""
    threads: dict[int, list[TraceEvent]] = defaultdict(list)
    for event in events:
        if event.category == _NODE and event.name.endswith(_KERNEL):
            threads[event.thread].append(event)
    for found in threads.values():
        # Of two that begin in the same microsecond, the longer one holds the other.
        found.sort(key=lambda event: (event.start, -event.duration))
        within = [0.0] * len(found)
        around: list[int] = []
        for index, event in enumerate(found):
            while around and event.start >= found[around[-1]].start + found[around[-1]].duration:
                around.pop()
            if around:
                within[around[-1]] += event.duration
            around.append(index)
        for event, inner in zip(found, within, strict=True):
            yield NodeEvent(
                node=event.name.removesuffix(_KERNEL),
                op=str(event.args.get("op_name", "")),
                provider=str(event.args.get("provider", "")),
                start=event.start,
                duration=event.duration,
                # Times are whole microseconds, so that rounded parts may exceed the whole.
                own=max(0.0, event.duration - inner),
            )


# Events of the Trace Event Format, as a list without an object around it.


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
        data = read_at_most(path, MAX_PROFILE_BYTES)
    except OSError as error:
        raise cannot_read(error, "the trace cannot be read", str(path)) from None
    if len(data) > MAX_PROFILE_BYTES:
        raise _unreadable(path, f"more than {MAX_PROFILE_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise _unreadable(path, "it holds no list of events")
    return [_event(event, path) for event in events if _is_complete(event, path)]


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
        "AOTC-I066", "the file is not a complete trace", where=str(path), found=found[:300]
    )
