"""A graph as its nodes and what they read and make; its shape nodes and its source's nodes.

Partitions are made of the main graph: a control-flow node also reads what its subgraphs capture.
The contents of subgraphs are kept by subgraph, because several may use the same names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import TYPE_CHECKING

from aotc.base.records import field, record
from aotc.spec.providers import STANDARD

if TYPE_CHECKING:
    import onnx

_SOURCES = ("Shape", "Size")


@record(kw_only=False)
class GraphNode:
    """One node of the main graph; `inputs` has no constants.

    `captured` are the inputs that only its subgraphs read, `inner_nodes` the names of their nodes.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    inner_nodes: tuple[str, ...] = ()
    captured: frozenset[str] = frozenset()


@record(kw_only=False)
class SubgraphNode:
    """One node inside a control-flow subgraph; `subgraph` is the innermost, as `node.attribute`.

    `owner` is the node of the main graph.  `inputs` has neither constants of any graph nor what
    only subgraphs of the node itself read.
    """

    name: str
    op: str
    owner: str
    subgraph: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@record(kw_only=False)
class Subgraph:
    """One control-flow subgraph, an attribute of the node `holder`.

    `parent` is the index of the subgraph around it, None for the main graph.  The holder supplies
    `inputs` and receives `outputs`.
    """

    holder: str
    parent: int | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[SubgraphNode, ...]


@record(kw_only=False, slots=False)
class PartitionGraph:
    """A main graph with its nodes in execution order.

    `inputs` are the graph inputs that callers supply, `dtypes` the names of element types by value.
    `subgraphs` are those of all control flow, outer ones before inner ones.
    """

    nodes: tuple[GraphNode, ...]
    subgraph_nodes: tuple[SubgraphNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    subgraphs: tuple[Subgraph, ...] = ()

    @cached_property
    def consumers(self) -> Mapping[str, tuple[int, ...]]:
        """For each value, the indices of the nodes that read it, in order."""
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for value in node.inputs:
                found.setdefault(value, []).append(index)
        return {value: tuple(indices) for value, indices in found.items()}

    @cached_property
    def output_names(self) -> frozenset[str]:
        """The names of the graph's outputs."""
        return frozenset(self.outputs)

    def producers(self) -> dict[str, int]:
        """For each value, the index of the node that makes it."""
        return {value: i for i, node in enumerate(self.nodes) for value in node.outputs}


def read_graph(model: onnx.ModelProto) -> PartitionGraph:
    """The graph of `model`, whose nodes must have unique names and be in execution order."""
    graph = model.graph
    constants = _constant_names(graph)
    nodes: list[GraphNode] = []
    subgraphs: list[Subgraph] = []
    for node in graph.node:
        first = len(subgraphs)
        _add_subgraphs(subgraphs, node, node.name, None, constants)
        inside = [inner.name for subgraph in subgraphs[first:] for inner in subgraph.nodes]
        own = [name for name in node.input if name and name not in constants]
        captured = [name for name in captured_by(node) if name not in constants]
        nodes.append(
            GraphNode(
                name=node.name,
                op=op_of(node),
                inputs=tuple(dict.fromkeys((*own, *captured))),
                outputs=tuple(name for name in node.output if name),
                inner_nodes=tuple(inside),
                captured=frozenset(captured).difference(own),
            )
        )
    return PartitionGraph(
        nodes=tuple(nodes),
        subgraph_nodes=tuple(node for subgraph in subgraphs for node in subgraph.nodes),
        inputs=tuple(value.name for value in graph.input if value.name not in constants),
        outputs=tuple(value.name for value in graph.output),
        dtypes=_element_types(graph),
        subgraphs=tuple(subgraphs),
    )


def op_of(node: onnx.NodeProto) -> str:
    """The operator as `domain::op_type`; without the domain for ONNX's own."""
    own = node.domain in STANDARD
    return node.op_type if own else f"{node.domain}::{node.op_type}"


def captured_values(subgraph: onnx.GraphProto) -> set[str]:
    """Values that a subgraph reads from the graphs around it."""
    known = {value.name for value in subgraph.input}
    known |= _constant_names(subgraph)
    read: set[str] = set()
    for node in subgraph.node:
        read |= set(read_values(node)) - known
        known |= set(node.output)
    return read | {value.name for value in subgraph.output if value.name not in known}


def captured_by(node: onnx.NodeProto) -> list[str]:
    """The values that each subgraph of a node reads from the graphs around it."""
    return [name for subgraph in subgraphs(node) for name in sorted(captured_values(subgraph))]


def read_values(node: onnx.NodeProto) -> list[str]:
    """The values that a node reads, those that its subgraphs capture included."""
    return [name for name in (*node.input, *captured_by(node)) if name]


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The node's own subgraphs, without those inside of them."""
    for attribute in node.attribute:
        yield from _subgraphs_of(attribute)


def has_subgraphs(node: onnx.NodeProto) -> bool:
    """Whether a node is control flow."""
    return any(map(_subgraphs_of, node.attribute))


def with_inner_nodes(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """A node, then those in its subgraphs at any depth."""
    yield node
    for subgraph in subgraphs(node):
        yield from every_node(subgraph)


def every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph in order, each followed by those in its subgraphs."""
    for node in graph.node:
        yield from with_inner_nodes(node)


def _subgraphs_of(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """The subgraphs that an attribute holds; most attributes hold none."""
    found = list(attribute.graphs)
    return [attribute.g, *found] if attribute.HasField("g") else found


def _add_subgraphs(
    found: list[Subgraph],
    holder: onnx.NodeProto,
    owner: str,
    parent: int | None,
    constants: Set[str],
) -> None:
    """Add the subgraphs of a node, outer ones before inner ones."""
    for attribute in holder.attribute:
        for subgraph in _subgraphs_of(attribute):
            own = _constant_names(subgraph)
            known = constants | own if own else constants
            found.append(
                Subgraph(
                    holder=holder.name,
                    parent=parent,
                    inputs=tuple(value.name for value in subgraph.input if value.name not in own),
                    outputs=tuple(e.name for e in subgraph.output if e.name not in known),
                    nodes=tuple(
                        SubgraphNode(
                            name=node.name,
                            op=op_of(node),
                            owner=owner,
                            subgraph=f"{holder.name}.{attribute.name}",
                            inputs=tuple(
                                dict.fromkeys(n for n in node.input if n and n not in known)
                            ),
                            outputs=tuple(name for name in node.output if name),
                        )
                        for node in subgraph.node
                    ),
                )
            )
            index = len(found) - 1
            for node in subgraph.node:
                _add_subgraphs(found, node, owner, index, known)


def _constant_names(graph: onnx.GraphProto) -> set[str]:
    found = {tensor.name for tensor in graph.initializer}
    return found | {tensor.values.name for tensor in graph.sparse_initializer}


def _element_types(graph: onnx.GraphProto) -> dict[str, str]:
    """Element types by value, if known; if a name is used again, that of the outermost graph."""
    import onnx

    found: dict[str, str] = {}
    pending = [graph]
    while pending:
        current = pending.pop(0)
        for value in (*current.input, *current.value_info, *current.output):
            kind = value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else 0
            if kind:
                found.setdefault(value.name, onnx.TensorProto.DataType.Name(kind).lower())
        for node in current.node:
            pending += subgraphs(node)
    return found


def count_shape_nodes(model: onnx.ModelProto) -> int:
    """The number of nodes of the main graph whose value depends only on the inputs' shapes."""
    return len(_shape_nodes(model))


def shape_nodes(model: onnx.ModelProto) -> frozenset[str]:
    """Names of the nodes of the main graph whose value depends only on the inputs' shapes."""
    return frozenset(node.name for node in _shape_nodes(model))


def _shape_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes that only compute shapes.

    These are `Shape` and `Size`, and every node that reads only their results and constants.
    """
    constant = {tensor.name for tensor in model.graph.initializer}
    shape_values: set[str] = set()
    found = []
    for node in model.graph.node:
        given = [name for name in node.input if name and name not in constant]
        has_subgraph = has_subgraphs(node)
        if node.op_type == "Constant" or (not node.input and not has_subgraph):
            constant.update(node.output)
        elif node.op_type in _SOURCES or (
            given and not has_subgraph and all(name in shape_values for name in given)
        ):
            found.append(node)
            shape_values.update(node.output)
    return found


# Which nodes of a source graph each node of a rewritten graph stands for.
#
# Rewrites (fusions, quantization, casts) keep the names of the values that they still compute. So a
# rewritten node stands for the source's nodes between the values that both graphs have. Bodies of
# control flow are looked at with the graph around them.


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
    order = SourceOrder(source)
    nodes = list(every_node(rewritten))
    made = {name for node in nodes for name in node.output if name}
    former = _former_names(nodes, order.producers, made)
    kept = made | set(former.values())
    found: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        own = [former.get(name, name) for name in node.output]
        covered, _ = order.behind(own, kept)
        if not covered:
            # ONNX Runtime fuses a product and a sum into NAME/MatMulAddFusion, whose value a
            # Reshape makes if it has more than two dims.
            names = (node.name, node.name.rpartition("/")[0])
            covered = next(((name,) for name in names if name in order.places), ())
        found[node.name] = covered
    return found


class SourceOrder:
    """Which nodes of a graph, with unique names, lie behind its values; `places` by node name."""

    def __init__(self, source: onnx.GraphProto) -> None:
        nodes = list(every_node(source))
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
    by_name = {node.name: node for node in every_node(rewritten)}
    makers = {name: node for node in every_node(rewritten) for name in node.output if name}
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
