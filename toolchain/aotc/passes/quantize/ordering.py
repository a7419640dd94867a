"""The order of nodes: each after those whose values it reads, in its bodies too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.partitioning.graph import captured_values, subgraphs_of

if TYPE_CHECKING:
    import onnx


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Sort the nodes of a main graph; those that are in order stay in the order they have."""
    nodes = list(graph.node)
    maker = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    needs = [
        sorted({maker[name] for name in _read(node) if name in maker}, reverse=True)
        for node in nodes
    ]
    order: list[int] = []
    placed: set[int] = set()
    for first in range(len(nodes)):
        pending = [first]
        while pending:
            at = pending[-1]
            missing = [] if at in placed else [need for need in needs[at] if need not in placed]
            if missing:
                pending += missing
                continue
            pending.pop()
            if at not in placed:
                placed.add(at)
                order.append(at)
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies[at] for at in order)


def _read(node: onnx.NodeProto) -> set[str]:
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        for body in subgraphs_of(attribute):
            found |= captured_values(body)
    return found
