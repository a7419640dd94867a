"""Time per node and per provider, from the profile that ONNX Runtime writes of a session."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from aotc.benching.payload_nodes import PayloadNodes
from aotc.benching.trace_events import TraceEvent
from aotc.contract.known_providers import ASYNCHRONOUS
from aotc.contract.manifest.divided_graph import Partition
from aotc.contract.manifest.variant import Variant
from aotc.contract.results.bench_reports import NodesReport, NodeTime, ProviderTime
from aotc.errors import AotcError
from aotc.records import record

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


def faster_half(runs: Sequence[ProfiledRun]) -> tuple[ProfiledRun, ...]:
    """The runs that took no longer than the median one, in order.

    One run that was interrupted would outweigh all others in a mean; and medians of single nodes
    would not add up to a run.
    """
    median = sorted(run.duration for run in runs)[(len(runs) - 1) // 2]
    return tuple(run for run in runs if run.duration <= median)


def nodes_report(
    runs: Sequence[ProfiledRun], variant: Variant, known: KnownNodes, profiled_count: int
) -> NodesReport:
    """Means over `runs`, one at least of all that were profiled, for each node that ran."""
    own: dict[tuple[str, str, str], float] = defaultdict(float)
    calls: dict[tuple[str, str, str], int] = defaultdict(int)
    for event in itertools.chain.from_iterable(run.nodes for run in runs):
        key = event.node, event.op, event.provider
        own[key] += event.own / 1e6
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
        run_seconds=sum(run.duration for run in runs) / 1e6 / len(runs),
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
