"""Which nodes of a source graph each node of a rewritten graph stands for.

Rewrites (fusions, quantization, casts) keep the names of the values that they still compute.  So a
rewritten node stands for the source's nodes between the values that both graphs have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def shared_values(source: onnx.GraphProto, rewritten: onnx.GraphProto) -> tuple[str, ...]:
    """The names of values that nodes of both graphs compute, in the source's order."""
    made = {name for node in rewritten.node for name in node.output if name}
    return tuple(name for node in source.node for name in node.output if name and name in made)


def covered_nodes(
    source: onnx.GraphProto, rewritten: onnx.GraphProto
) -> dict[str, tuple[str, ...]]:
    """For each node of `rewritten`, by name: the source's nodes that it stands for, in order.

    A node that makes no value of the source stands for the source's node of the same name, else for
    none.  Every source node between two shared values belongs to the node that makes the later one.
    """
    order = {node.name: index for index, node in enumerate(source.node)}
    producers = {name: node for node in source.node for name in node.output if name}
    kept = {name for node in rewritten.node for name in node.output if name}
    found: dict[str, tuple[str, ...]] = {}
    for node in rewritten.node:
        covered: set[str] = set()
        pending = [name for name in node.output if name in producers]
        seen: set[str] = set()
        while pending:
            name = pending.pop()
            producer = producers.get(name)
            if producer is None or name in seen:
                continue
            seen.add(name)
            covered.add(producer.name)
            pending += [given for given in producer.input if given and given not in kept]
        if not covered and node.name in order:
            covered.add(node.name)
        found[node.name] = tuple(sorted(covered, key=order.__getitem__))
    return found
