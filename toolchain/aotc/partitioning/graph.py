"""The graph for partitioning: its nodes, and what they read and make.

Partitions are made of the main graph: a control-flow node also reads what its subgraphs capture.
The contents of subgraphs are kept by subgraph, because several may use the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import TYPE_CHECKING

from aotc.contract.operator_domains import STANDARD
from aotc.records import field, record

if TYPE_CHECKING:
    import onnx


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
        captured = [
            name
            for attribute in node.attribute
            for subgraph in subgraphs_of(attribute)
            for name in sorted(captured_values(subgraph))
            if name not in constants
        ]
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
        needed = {name for name in node.input if name}
        for attribute in node.attribute:
            for inner in subgraphs_of(attribute):
                needed |= captured_values(inner)
        read |= needed - known
        known |= set(node.output)
    return read | {value.name for value in subgraph.output if value.name not in known}


def subgraphs_of(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """The subgraphs that an attribute holds; most attributes hold none."""
    return [attribute.g] if attribute.HasField("g") else list(attribute.graphs)


def _add_subgraphs(
    found: list[Subgraph],
    holder: onnx.NodeProto,
    owner: str,
    parent: int | None,
    constants: Set[str],
) -> None:
    """Add the subgraphs of a node, outer ones before inner ones."""
    for attribute in holder.attribute:
        for subgraph in subgraphs_of(attribute):
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
            pending += [
                subgraph for attribute in node.attribute for subgraph in subgraphs_of(attribute)
            ]
    return found
