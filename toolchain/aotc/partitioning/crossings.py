"""Which values go from one provider to another: in the main graph, and in bodies of control flow.

The node that holds a body makes what it gives the body, and reads what the body gives back.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping

from aotc.partitioning.assignment import Assignment
from aotc.partitioning.graph import BodyNode, GraphNode, PartitionGraph

# Provider that makes a value, empty for the caller, and index of the body, None: main graph.
_Maker = tuple[str, int | None]


def crossed(
    graph: PartitionGraph, assignment: Assignment, devices: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Value, maker's provider and reader's of all that crosses, each value once for each reader.

    The caller is an empty name, and takes and gives on the CPU.  Who reads is the node that does,
    and not the control flow that it is in.  Values of one name in two bodies are two.
    """
    providers = assignment.providers
    main: ChainMap[str, _Maker] = ChainMap(dict.fromkeys(graph.inputs, ("", None)))
    main.update(_made(graph.nodes, providers, None))
    found: dict[tuple[str, _Maker, str], None] = {}

    def read(value: str, maker: _Maker, reader: str) -> None:
        source = maker[0]
        if devices[reader] != "cpu" if not source else source != reader:
            found[value, maker, reader] = None

    for node in graph.nodes:
        for value in node.inputs:
            if value not in node.captured:
                read(value, main.get(value, ("", None)), providers[node.name])
    seen: list[ChainMap[str, _Maker]] = []
    for index, body in enumerate(graph.bodies):
        holder = providers[body.holder]
        outer = main if body.outer is None else seen[body.outer]
        makers = outer.new_child(dict.fromkeys(body.inputs, (holder, index)))
        makers.update(_made(body.nodes, providers, index))
        seen.append(makers)
        reads = [(value, providers[each.name]) for each in body.nodes for value in each.inputs]
        for value, reader in (*reads, *((value, holder) for value in body.outputs)):
            if value in makers:
                read(value, makers[value], reader)
    result = [(value, maker[0], reader) for value, maker, reader in found]
    for value in graph.outputs:
        maker, _ = main.get(value, ("", None))
        if maker and devices[maker] != "cpu":
            result.append((value, maker, ""))
    return result


def _made(
    nodes: Iterable[GraphNode | BodyNode], providers: Mapping[str, str], body: int | None
) -> dict[str, _Maker]:
    return {value: (providers[node.name], body) for node in nodes for value in node.outputs}
