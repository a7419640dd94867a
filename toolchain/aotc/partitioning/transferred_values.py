"""Values that one provider produces and another consumes, in the main graph and in subgraphs.

A control-flow node produces the inputs of its subgraphs, and consumes their outputs.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping

from aotc.partitioning.assignment import Assignment
from aotc.partitioning.graph import GraphNode, PartitionGraph, SubgraphNode

# The provider that makes a value, empty for the caller, and the subgraph's index, None: main graph.
_Producer = tuple[str, int | None]


def transferred_values(
    graph: PartitionGraph, assignment: Assignment, devices: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """All transferred values: name, producer's and consumer's provider, once for each consumer.

    `devices` is `cpu` or `gpu` by provider.  The caller has an empty name and uses the CPU.  The
    consumer is the node that reads a value, not the control-flow node around it.  Values with one
    name in two subgraphs are two values.
    """
    providers = assignment.providers
    main: ChainMap[str, _Producer] = ChainMap(dict.fromkeys(graph.inputs, ("", None)))
    main.update(_producers_of(graph.nodes, providers, None))
    found: dict[tuple[str, _Producer, str], None] = {}

    def read(value: str, producer: _Producer, consumer: str) -> None:
        source = producer[0]
        if devices[consumer] != "cpu" if not source else source != consumer:
            found[value, producer, consumer] = None

    for node in graph.nodes:
        for value in node.inputs:
            if value not in node.captured:
                read(value, main.get(value, ("", None)), providers[node.name])
    producers_in: list[ChainMap[str, _Producer]] = []
    for index, subgraph in enumerate(graph.subgraphs):
        holder_provider = providers[subgraph.holder]
        outer = main if subgraph.parent is None else producers_in[subgraph.parent]
        producers = outer.new_child(dict.fromkeys(subgraph.inputs, (holder_provider, index)))
        producers.update(_producers_of(subgraph.nodes, providers, index))
        producers_in.append(producers)
        consumed = [
            (value, providers[node.name]) for node in subgraph.nodes for value in node.inputs
        ]
        for value, consumer in (
            *consumed,
            *((value, holder_provider) for value in subgraph.outputs),
        ):
            if value in producers:
                read(value, producers[value], consumer)
    result = [(value, producer[0], consumer) for value, producer, consumer in found]
    for value in graph.outputs:
        producer, _ = main.get(value, ("", None))
        if producer and devices[producer] != "cpu":
            result.append((value, producer, ""))
    return result


def _producers_of(
    nodes: Iterable[GraphNode | SubgraphNode], providers: Mapping[str, str], subgraph: int | None
) -> dict[str, _Producer]:
    return {value: (providers[node.name], subgraph) for node in nodes for value in node.outputs}
