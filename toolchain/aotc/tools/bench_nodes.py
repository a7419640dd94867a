"""Time per node and per provider, from ONNX Runtime's profile, and as a trace."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.base.files.reading import read_at_most
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import field, record, replace
from aotc.runtime.custom_ops import files_of, registrable
from aotc.runtime.model import Model
from aotc.runtime.runners import open_runner
from aotc.runtime.warmup import open_variant
from aotc.session.device.cuda_place import CudaPlace
from aotc.session.node_times import (
    MAX_PROFILE_BYTES,
    MICROSECONDS,
    ProfiledRun,
    faster_half,
    profiled_runs,
    read_events,
)
from aotc.session.padding import Padder
from aotc.session.sessions import ort_errors, ort_message
from aotc.spec.bench_reports import NodesReport, NodeTime, ProviderTime
from aotc.spec.codec import Json
from aotc.spec.providers import ASYNCHRONOUS
from aotc.spec.variant import NodePlacement, Partition, Variant
from aotc.tools.bench_sides import Measured, Side
from aotc.tools.example_inputs import Inputs
from aotc.trust.references import InMemory, MalformedModel, fields, text

if TYPE_CHECKING:
    import onnxruntime as ort


class KnownNodes:
    """What the manifest says of the nodes that ONNX Runtime's profile names."""

    def __init__(self, runs: Sequence[ProfiledRun], variant: Variant, payload: Path) -> None:
        """`payload` is the folder of the variant's model."""
        self.promised = {node.name: node.provider for node in variant.placement.nodes}
        self._names = PayloadNodes(payload / variant.model, variant.placement.nodes)
        self._partitions = _partitions_by_node(runs, variant)

    def name(self, profiled: str, op_type: str) -> str:
        """The payload's name of a node; that of the profile, if ONNX Runtime made it at load."""
        part = self._partitions.get(profiled)
        return part.name if part else self._names.name_of(profiled, op_type) or profiled

    def partition(self, profiled: str) -> Partition | None:
        """The compiled partition that a node is; None if it is a single node."""
        return self._partitions.get(profiled)


def nodes_report(
    runs: Sequence[ProfiledRun], variant: Variant, known: KnownNodes, profiled_count: int
) -> NodesReport:
    """Means over `runs`, one at least of all that were profiled, for each node that ran."""
    own: dict[tuple[str, str, str], float] = defaultdict(float)
    calls: dict[tuple[str, str, str], int] = defaultdict(int)
    for event in itertools.chain.from_iterable(run.nodes for run in runs):
        key = event.node, event.op, event.provider
        own[key] += event.own / MICROSECONDS
        calls[key] += 1
    total = sum(own.values())
    nodes = []
    for key, seconds in sorted(own.items(), key=lambda item: (-item[1], item[0])):
        profiled, op, provider = key
        name, part = known.name(profiled, op), known.partition(profiled)
        nodes.append(
            NodeTime(
                name=name,
                op=op,
                provider=provider,
                promised=known.promised.get(name, part.provider if part else ""),
                partition=part.name if part else "",
                partition_nodes=part.nodes if part else 0,
                calls=calls[key] / len(runs),
                seconds=seconds / len(runs),
                share=seconds / total if total else 0.0,
            )
        )
    return NodesReport(
        variant=variant.name,
        profiled_runs=profiled_count,
        runs=len(runs),
        run_seconds=sum(run.duration for run in runs) / MICROSECONDS / len(runs),
        node_seconds=total / len(runs),
        providers=_by_provider(nodes),
        nodes=tuple(nodes),
        asynchronous=tuple(name for name in variant.providers if name in ASYNCHRONOUS),
    )


def _by_provider(nodes: Sequence[NodeTime]) -> tuple[ProviderTime, ...]:
    grouped: Mapping[str, list[NodeTime]] = defaultdict(list)
    for node in nodes:
        grouped[node.provider].append(node)
    found = (
        ProviderTime(
            provider=provider,
            nodes=len(group),
            seconds=sum(node.seconds for node in group),
            share=sum(node.share for node in group),
        )
        for provider, group in grouped.items()
    )
    return tuple(sorted(found, key=lambda each: (-each.seconds, each.provider)))


def _partitions_by_node(runs: Sequence[ProfiledRun], variant: Variant) -> dict[str, Partition]:
    """The compiled partitions by the names under which they were profiled.

    A provider may name the node of a partition anew: after itself, and a number.  If as many nodes
    of it ran under such names as it has partitions, they are those, in the order of execution.
    """
    report = variant.partitioning
    compiled = [part for part in report.partitions if part.compiled] if report else []
    found = {part.name: part for part in compiled}
    promised = {node.name for node in variant.placement.nodes}
    for provider in {part.provider for part in compiled}:
        parts = [part for part in compiled if part.provider == provider]
        renamed = [
            name
            for name in dict.fromkeys(node.node for run in runs[:1] for node in run.nodes)
            if name.startswith(provider) and name not in promised
        ]
        if len(renamed) == len(parts):
            found |= dict(zip(renamed, parts, strict=True))
    return found


# The payload's names of nodes that ONNX Runtime replaced when the session was created.
#
# Where it gives a node's tensors another layout, it makes a new node. Convolutions in blocks of
# channels are named after the value that they compute, `VALUE_nchwc`; others get the name of the
# old node and a number, `NAME_token_7`, and stay the same operator. Values are read without onnx.


# Field numbers of onnx.proto.
_MODEL_GRAPH: Final = 7
_GRAPH_NODE: Final = 1
_NODE_OUTPUT, _NODE_NAME, _NODE_ATTRIBUTE = 2, 3, 5
_ATTRIBUTE_GRAPH: Final = 6
# ONNX Runtime's, of nodes that it made of others.
_LAYOUT_SUFFIX: Final = "_nchwc"
_COPIED: Final = re.compile(r"(.+)_token_\d+", re.DOTALL)
_MAX_DEPTH: Final = 32


class PayloadNodes:
    """The names of a variant's nodes, for the names that ONNX Runtime's profile has."""

    def __init__(self, model: Path, placed: Iterable[NodePlacement]) -> None:
        """`model` is the variant's ONNX file, `placed` are the nodes of its placement."""
        self._ops = {node.name: node.op for node in placed}
        self._model = model
        self._by_output: dict[str, str] | None = None

    def name_of(self, profiled: str, op_type: str) -> str | None:
        """The payload's name of a profiled node; None if ONNX Runtime made it at load."""
        if profiled in self._ops:
            return profiled
        copied = _COPIED.fullmatch(profiled)
        if copied and self._ops.get(copied[1], "").rpartition("::")[2] == op_type:
            return copied[1]
        if not profiled.endswith(_LAYOUT_SUFFIX):
            return None
        if self._by_output is None:
            self._by_output = _names_by_output(self._model)
        found = self._by_output.get(profiled.removesuffix(_LAYOUT_SUFFIX))
        return found if found in self._ops else None


def _names_by_output(model: Path) -> dict[str, str]:
    """Names of nodes by their outputs; empty where the file cannot be read this way."""
    try:
        source = InMemory(read_at_most(model, MAX_PROFILE_BYTES))
        return {
            output: name
            for number, _, start, length in fields(source, 0, source.size)
            if number == _MODEL_GRAPH
            for output, name in _nodes(source, start, start + length, 0)
        }
    except (MalformedModel, OSError):
        return {}


def _nodes(source: InMemory, start: int, end: int, depth: int) -> Iterator[tuple[str, str]]:
    """Outputs of all nodes of a graph and of its subgraphs, each with its node's name."""
    if depth > _MAX_DEPTH:
        return
    for number, _, node, length in fields(source, start, end):
        if number != _GRAPH_NODE:
            continue
        name, outputs = "", []
        for part, _, at, size in fields(source, node, node + length):
            if part == _NODE_NAME:
                name = text(source, at, size)
            elif part == _NODE_OUTPUT:
                outputs.append(text(source, at, size))
            elif part == _NODE_ATTRIBUTE:
                for item, _, graph, count in fields(source, at, at + size):
                    if item == _ATTRIBUTE_GRAPH:
                        yield from _nodes(source, graph, graph + count, depth + 1)
        yield from ((output, name) for output in outputs)


# A trace in the Trace Event Format, which Perfetto and Chrome show.


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
                "ts": round(span.start * MICROSECONDS, 3),
                "dur": round(span.seconds * MICROSECONDS, 3),
                "pid": span.process,
                "tid": span.thread,
                "args": span.args,
            }
        )
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}
    # Of the characters that steer a terminal the one that is ASCII and that JSON leaves as it is.
    return json.dumps(document, allow_nan=False).replace("\x7f", "\\u007f") + "\n"


def _names(processes: dict[int, str], threads: dict[tuple[int, int], str]) -> Iterator[Json]:
    """Metadata events: the name of each process and thread, and its place among the others."""
    named = [("process", process, 0, process, name) for process, name in processes.items()]
    named += [("thread", *place, place[1], name) for place, name in threads.items()]
    for kind, process, thread, index, name in named:
        ids = {"ph": "M", "pid": process, "tid": thread}
        yield {"name": f"{kind}_name", **ids, "args": {"name": name}}
        yield {"name": f"{kind}_sort_index", **ids, "args": {"sort_index": index}}


# The trace of a measurement: loads, warm-ups, timed calls by stream, and the profiled nodes.


_MEASURED: Final = 1
_PROFILED: Final = 2
_STEPS: Final = 0
_PROFILED_RUNS: Final = 1
# More timed calls make a file that viewers open slowly, and show nothing more.
_MAX_CALLS: Final = 200_000


def bench_trace(
    artifact: str,
    sides: Sequence[Side],
    measured: Measured,
    streams: int,
    profiled: Profiled,
    facts: Mapping[str, Json],
) -> str:
    """The trace as JSON text; `facts` stand in its `otherData`.

    Process 1 is the measurement: a thread for what was done once, and one for each stream of each
    side.  Process 2 is the session that was profiled, on the same clock.
    """
    zero = min(step.start for side in sides for step in side.steps)
    threads = {(_MEASURED, _STEPS): "load and warm-up", (_PROFILED, _PROFILED_RUNS): "runs"}
    numbers: dict[tuple[str, int], int] = {}
    for side in sides:
        for stream in range(streams):
            number = len(numbers) + 1
            numbers[side.name, stream] = number
            threads[_MEASURED, number] = f"{side.name}, stream {stream + 1}"
    spans = [
        Span(
            name=f"{side.name}: {step.name}",
            category=step.name,
            start=step.start - zero,
            seconds=step.seconds,
            thread=_STEPS,
            process=_MEASURED,
        )
        for side in sides
        for step in side.steps
    ]
    calls = [
        Span(
            name=f"run {block.side}",
            category=block.side,
            start=call.start - zero,
            seconds=call.seconds,
            thread=numbers[block.side, call.stream],
            process=_MEASURED,
            args={"round": block.round + 1},
        )
        for block in measured.blocks
        for call in block.calls
    ]
    spans += calls[:_MAX_CALLS]
    spans += _profiled_nodes(profiled, zero)
    other = {**facts, "calls": len(calls), "calls_left_out": max(0, len(calls) - _MAX_CALLS)}
    processes = {
        _MEASURED: f"aotc bench {artifact}",
        _PROFILED: f"profiled session, variant {profiled.report.variant}",
    }
    return trace_text(spans, processes, threads, other)


def _profiled_nodes(profiled: Profiled, zero: float) -> Iterator[Span]:
    """The profiled runs, moved from the profile's clock to that of the trace.

    Times in a profile are cut to whole microseconds, so that a part may seem to end after the
    whole; then it ends with it, because viewers drop events that overlap without being nested.
    """
    offset = profiled.start - zero - profiled.runs[0].start / MICROSECONDS
    for number, run in enumerate(profiled.runs, 1):
        yield _profiled_span(f"run {number}", "run", run.start, run.duration, offset, {})
        ends = [run.start + run.duration]
        for node in run.nodes:
            while len(ends) > 1 and node.start >= ends[-1]:
                ends.pop()
            ends.append(min(node.start + node.duration, ends[-1]))
            name, partition = profiled.names.get(node.node, (node.node, ""))
            args: dict[str, Json] = {"op": node.op, "provider": node.provider, "run": number}
            if partition:
                args["partition"] = partition
            duration = max(0.0, ends[-1] - node.start)
            yield _profiled_span(name, node.provider, node.start, duration, offset, args)


def _profiled_span(
    name: str, category: str, start: float, duration: float, offset: float, args: dict[str, Json]
) -> Span:
    return Span(
        name=name,
        category=category,
        start=max(0.0, start / MICROSECONDS + offset),
        seconds=duration / MICROSECONDS,
        thread=_PROFILED_RUNS,
        process=_PROFILED,
        args=args,
    )


# A session of the artifact's own, profiled by ONNX Runtime: no call in it is timed otherwise.


# The first runs of a session allocate memory, and choose kernels.
_WARM_UP: Final = 3
_RUNS: Final = 20
_SECONDS: Final = 5.0
# ONNX Runtime's profiler keeps a million events, and nothing of later ones.
_MAX_EVENTS: Final = 500_000
# Operators whose subgraph runs as often as their inputs say.
_REPEATING: Final = ("Loop", "Scan")


@record
class Profiled:
    """The times per node, and the profiled runs; `start` is that of the first, by `perf_counter`.

    `names` are the payload's names of nodes, and their partitions, by the names in the runs.
    """

    report: NodesReport
    start: float
    names: Mapping[str, tuple[str, str]]
    runs: tuple[ProfiledRun, ...]


def profile_nodes(ready: Model, inputs: Inputs, threads: int | None) -> Profiled:
    """Time per node of the variant that takes these inputs, padded as `run` pads them.

    A variant that captures CUDA graphs runs without them here, because a replayed graph has no
    nodes that could be told apart.  With a loop, the events of one run are counted first, in a
    session of its own.  Raises as creating a session does, R005, AOTC-I066 if ONNX Runtime's
    profile was cut off or lacks a run, and I018 and I026 if it cannot be written.
    """
    route = ready.route(inputs)
    variant = next(each for each in ready.variants if each.name == route.variant)
    sizes = route.padded_to or route.sizes
    if route.padded_to:
        padder = Padder(ready.manifest.inputs, ready.manifest.padding)
        inputs = padder.pad(inputs, route.sizes, route.padded_to).inputs
    with temporary_folder("profile") as folder:
        events = len(variant.placement.nodes)
        if any(node.op in _REPEATING for node in variant.placement.nodes):
            path, _, _ = _run(ready.payload, variant, inputs, sizes, threads, folder, 1)
            found = read_events(path)
            _require_runs(profiled_runs(found, path), 1, path)
            events = len(found)
            path.unlink()
        most = max(1, _MAX_EVENTS // max(1, events))
        path, start, count = _run(ready.payload, variant, inputs, sizes, threads, folder, most)
        runs = profiled_runs(read_events(path), path)
        _require_runs(runs, count, path)
        runs = runs[min(_WARM_UP, most - 1) :]
    known = KnownNodes(runs, variant, ready.payload)
    profiled = {node.node: node.op for run in runs for node in run.nodes}
    return Profiled(
        report=nodes_report(faster_half(runs), variant, known, len(runs)),
        start=start,
        names={
            name: (known.name(name, op), part.name if (part := known.partition(name)) else "")
            for name, op in profiled.items()
        },
        runs=tuple(runs),
    )


def _require_runs(runs: Sequence[ProfiledRun], count: int, path: Path) -> None:
    """Raise AOTC-I066 unless all runs are in the profile, of which the first events are kept."""
    if len(runs) != count:
        raise AotcError(
            "AOTC-I066",
            "ONNX Runtime's profile lacks runs: it keeps at most a million events",
            where=str(path),
            expected=f"{count} runs",
            found=f"{len(runs)} runs",
            fix="Measure without --nodes and --trace, or with fewer rounds of the model's loops.",
        )


def _run(
    payload: Path,
    variant: Variant,
    inputs: Inputs,
    sizes: Mapping[str, int],
    threads: int | None,
    folder: Path,
    most: int,
) -> tuple[Path, float, int]:
    """The profile, the start of the first run after the warm-up, and the number of all runs.

    There are at most `most` runs, and no warm-up if that is 1.
    """

    def opened(settings: Mapping[str, Mapping[str, str]]) -> ort.InferenceSession:
        with registrable(payload, [variant]) as libraries:
            return open_variant(
                payload,
                variant,
                threads=threads,
                settings=settings,
                profile=folder / "session",
                custom_ops=files_of(variant, libraries),
            )

    runner = open_runner(replace(variant, cuda_graphs=None), CudaPlace(), opened)
    try:
        count = min(_WARM_UP, most - 1)
        for _ in range(count):
            runner.run(inputs, None, sizes)
        last = min(count + _RUNS, most)
        start, first = time.perf_counter(), count
        while count < last and (count == first or time.perf_counter() - start < _SECONDS):
            runner.run(inputs, None, sizes)
            count += 1
        try:
            written = Path(runner.session.end_profiling())
        except ort_errors() as error:
            raise AotcError(
                "AOTC-I066", "ONNX Runtime wrote no profile", found=ort_message(error)
            ) from None
    finally:
        runner.close()
    return written, start, count
