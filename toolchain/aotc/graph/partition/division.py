"""The record of a division: partitions, shares of compute, transfers and refused nodes."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from aotc.graph.partition.assignment import Assignment, Sizes
from aotc.graph.view import GraphView, op_of
from aotc.spec.variant import (
    Certainty,
    Compute,
    Partition,
    PartitionReport,
    ProviderShare,
    RefusedNode,
    Transfer,
    TransferTotals,
)

# The provider that makes a value, empty for the caller, and the graph whose value it is.
_Producer = tuple[str, GraphView]


def partition_report(
    graph: GraphView,
    assignment: Assignment,
    sizes: tuple[Sizes, Sizes],
    *,
    names: Sequence[str],
    compiled: Mapping[int, str],
    devices: Mapping[str, str],
    refusals: Iterable[RefusedNode],
    how: Certainty,
) -> PartitionReport:
    """Describe `assignment`; `sizes` are those at the optimal and at the maximum shape.

    `names` are those of its parts, `compiled` their files by index, and `devices` (`cpu` or `gpu`)
    by provider, first choice first.
    """
    parts, (opt, largest) = assignment.parts, sizes
    return PartitionReport(
        origin=how,
        providers=_shares(graph, assignment, sizes, tuple(devices)),
        partitions=(
            *(
                Partition(
                    name=name,
                    provider=part.provider,
                    nodes=len(part.nodes),
                    ops=_ops(op_of(graph.nodes[index]) for index in part.nodes),
                    file=compiled.get(number),
                    compiled=number in compiled,
                )
                for number, (name, part) in enumerate(zip(names, parts, strict=True))
            ),
            *_body_partitions(graph, assignment),
        ),
        alternations=max(0, sum(a.provider != b.provider for a, b in pairwise(parts))),
        transfers=tuple(
            Transfer(
                value=value,
                source=producer,
                target=consumer,
                dtype=graph.element_types.get(value, ""),
                bytes=opt.values.get(value),
                bytes_max=largest.values.get(value),
            )
            for value, producer, consumer in transferred_values(graph, assignment, devices)
        ),
        refusals=tuple(refusals),
    )


def total_transfers(found: Sequence[Transfer]) -> TransferTotals:
    """The sums of `found`; transfers of unknown size count, but add no bytes."""
    return TransferTotals(
        count=len(found),
        bytes=sum(tensor.bytes or 0 for tensor in found),
        bytes_max=sum(tensor.bytes_max or 0 for tensor in found),
    )


def _shares(
    graph: GraphView,
    assignment: Assignment,
    sizes: tuple[Sizes, Sizes],
    providers: Sequence[str],
) -> tuple[ProviderShare, ...]:
    provider_by_node = assignment.providers
    nodes = [node.name for view in (graph, *graph.bodies) for node in view.nodes]
    nodes_by_provider = {
        p: [name for name in nodes if provider_by_node[name] == p] for p in providers
    }
    total_flops = sum(cost.flops for cost in sizes[0].nodes.values())
    counts = Counter(provider_by_node.values())
    parts = Counter(part.provider for part in assignment.parts)
    result = []
    for provider in providers:
        opt, largest = (_compute(nodes_by_provider[provider], at_shape) for at_shape in sizes)
        result.append(
            ProviderShare(
                provider=provider,
                nodes=counts[provider],
                partitions=parts[provider],
                node_share=round(counts[provider] / max(1, len(provider_by_node)), 4),
                flops_share=round(opt.flops / total_flops, 4) if total_flops else 0.0,
                opt=opt,
                max=largest,
            )
        )
    return tuple(result)


def _compute(names: Sequence[str], sizes: Sizes) -> Compute:
    costs = [sizes.nodes[name] for name in names if name in sizes.nodes]
    return Compute(
        flops=sum(cost.flops for cost in costs),
        bytes=sum(cost.bytes for cost in costs),
        unknown=sum(not cost.known for cost in costs),
    )


def _ops(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _body_partitions(graph: GraphView, assignment: Assignment) -> list[Partition]:
    """Groups of nodes in subgraphs that run on another provider than the subgraph's owner."""
    found: dict[tuple[str, str], list[str]] = {}
    for body in graph.bodies:
        for node in body.nodes:
            provider = assignment.providers[node.name]
            if provider != assignment.providers[body.owner]:
                found.setdefault((body.label, provider), []).append(op_of(node))
    return [
        Partition(
            name=f"body{number}",
            provider=provider,
            nodes=len(names),
            ops=_ops(names),
            subgraph=subgraph,
        )
        for number, ((subgraph, provider), names) in enumerate(found.items())
    ]


def transferred_values(
    graph: GraphView, assignment: Assignment, devices: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """All transferred values: name, producer's and consumer's provider, once for each consumer.

    Inputs and outputs of the caller count as well if the provider's device is not the CPU.  The
    same holds in control-flow subgraphs, which count as one iteration, and for both branches of an
    `If`.  `devices` is `cpu` or `gpu` by provider.  The caller has an empty name and uses the CPU.
    The consumer is the node that reads a value, not the control-flow node around it, which produces
    the inputs of its subgraphs and consumes their outputs.  Values with one name in two subgraphs
    are two values.
    """
    providers = assignment.providers
    producers: dict[GraphView, ChainMap[str, _Producer]] = {}
    found: dict[tuple[str, _Producer, str], None] = {}

    def read(value: str, producer: _Producer, consumer: str) -> None:
        source = producer[0]
        if devices[consumer] != "cpu" if not source else source != consumer:
            found[value, producer, consumer] = None

    for view in (graph, *graph.bodies):
        supplier = providers[view.holder] if view.around is not None else ""
        outer = producers[view.around].maps if view.around is not None else ()
        own: dict[str, _Producer] = dict.fromkeys(view.inputs, (supplier, view))
        for value, index in view.producers.items():
            own[value] = providers[view.nodes[index].name], view
        producers[view] = known = ChainMap(own, *outer)
        consumed = [(value, providers[node.name]) for node in view.nodes for value in node.input]
        if view.around is not None:
            consumed += [(value, supplier) for value in view.outputs]
        for value, consumer in consumed:
            if value in known and value not in view.initializers:
                read(value, known[value], consumer)
    result = [(value, producer[0], consumer) for value, producer, consumer in found]
    for value in graph.outputs:
        producer, _ = producers[graph].get(value, ("", graph))
        if producer and devices[producer] != "cpu":
            result.append((value, producer, ""))
    return result
