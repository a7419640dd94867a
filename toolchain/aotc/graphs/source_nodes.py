"""Which nodes of a source graph each node of a rewritten graph stands for.

Rewrites (fusions, quantization, casts) keep the names of the values that they still compute.  So a
rewritten node stands for the source's nodes between the values that both graphs have.  Bodies of
control flow are looked at with the graph around them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from aotc.partitioning.graph import captured_values, subgraphs_of

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

    A node that makes no value of the source stands for the source's node of the same name, or of
    the part before the last `/`, else for none.  Every source node between two shared values
    belongs to the node that makes the later one.  A value that got another name is known by the
    node that reads it, if that was not rewritten.
    """
    way = SourceOrder(source)
    nodes = list(_walk(rewritten))
    made = {name for node in nodes for name in node.output if name}
    former = _former_names(nodes, way.producers, made)
    kept = made | set(former.values())
    found: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        own = [former.get(name, name) for name in node.output]
        covered, _ = way.behind(own, kept)
        if not covered:
            # ONNX Runtime fuses a product and a sum into NAME/MatMulAddFusion, whose value a
            # Reshape makes if it has more than two dims.
            names = (node.name, node.name.rpartition("/")[0])
            covered = next(((name,) for name in names if name in way.places), ())
        found[node.name] = covered
    return found


class SourceOrder:
    """Which nodes of a graph, with unique names, lie behind its values; `places` by node name."""

    def __init__(self, source: onnx.GraphProto) -> None:
        nodes = list(_walk(source))
        self.places = {node.name: index for index, node in enumerate(nodes)}
        self.producers = {name: node for node in nodes for name in node.output if name}

    def behind(
        self, values: Iterable[str], stops: Collection[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The nodes that make `values` of those in `stops`, in order, and which of these they read.

        What a node's subgraphs capture counts as read.
        """
        covered: set[str] = set()
        read: dict[str, None] = {}
        pending = [name for name in values if name in self.producers]
        seen: set[str] = set()
        while pending:
            producer = self.producers.get(name := pending.pop())
            if producer is None or name in seen:
                continue
            seen.add(name)
            covered.add(producer.name)
            for given in read_values(producer):
                if given in stops:
                    read[given] = None
                else:
                    pending.append(given)
        return tuple(sorted(covered, key=self.places.__getitem__)), tuple(read)


def _former_names(
    nodes: Sequence[onnx.NodeProto], producers: Mapping[str, onnx.NodeProto], made: Collection[str]
) -> dict[str, str]:
    """The source's names of values that have others now, by those, as far as readers tell them."""
    found: dict[str, str] = {}
    for node in reversed(nodes):
        for output in node.output:
            before = producers.get(found.get(output, output))
            if (
                before is None
                or (before.op_type, before.domain) != (node.op_type, node.domain)
                or len(before.input) != len(node.input)
            ):
                continue
            for now, then in zip(node.input, before.input, strict=True):
                if now in made and now not in producers and then in producers and then not in made:
                    found.setdefault(now, then)
    return found


def standing_for(
    source: onnx.GraphProto, rewritten: onnx.GraphProto, names: Collection[str]
) -> frozenset[str]:
    """The nodes of `rewritten` that compute what the source's nodes `names` do, by name.

    With a node that stands for one of them come those before it that make no value of the source:
    a node may be rewritten into several, of which only the last makes a value of the source.
    """
    wanted = frozenset(names)
    covered = covered_nodes(source, rewritten)
    makers = {name: node for node in _walk(rewritten) for name in node.output if name}
    by_name = {node.name: node for node in _walk(rewritten)}
    found = {name for name, nodes in covered.items() if wanted.intersection(nodes)}
    pending = list(found)
    while pending:
        for given in by_name[pending.pop()].input:
            before = makers.get(given)
            if before is None or before.name in found or covered[before.name]:
                continue
            found.add(before.name)
            pending.append(before.name)
    return frozenset(found)


def _walk(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _walk(body)


def read_values(node: onnx.NodeProto) -> list[str]:
    """The values that a node reads, those that its subgraphs capture included."""
    captured = [
        name
        for attribute in node.attribute
        for subgraph in subgraphs_of(attribute)
        for name in sorted(captured_values(subgraph))
    ]
    return [name for name in (*node.input, *captured) if name]
