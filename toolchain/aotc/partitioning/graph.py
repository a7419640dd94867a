"""The graph as partitioning sees it: nodes, what they read and make, sizes of values.

Main graph only: a control-flow node reads what its bodies read of the outer graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of the main graph; values that are constants are not among `inputs`."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bodies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BodyNode:
    """One node inside a body of control flow; `body` is `node.attribute` of the innermost."""

    name: str
    op: str
    owner: str
    body: str


@dataclass(frozen=True)
class PartitionGraph:
    """A main graph in order of execution.

    `inputs` are the graph inputs that callers give, `dtypes` names of element types by value.
    """

    nodes: tuple[GraphNode, ...]
    body_nodes: tuple[BodyNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the nodes that read each value, in order."""
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for value in node.inputs:
                found.setdefault(value, []).append(index)
        return {value: tuple(indices) for value, indices in found.items()}

    @cached_property
    def final(self) -> frozenset[str]:
        """The graph's outputs."""
        return frozenset(self.outputs)

    def producers(self) -> dict[str, int]:
        """Index of the node that makes each value."""
        return {value: i for i, node in enumerate(self.nodes) for value in node.outputs}


def read_graph(model: onnx.ModelProto) -> PartitionGraph:
    """The graph of `model`, whose nodes have unique names and stand in order of execution."""
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {tensor.values.name for tensor in graph.sparse_initializer}
    nodes: list[GraphNode] = []
    bodies: list[BodyNode] = []
    for node in graph.node:
        inside: list[BodyNode] = []
        read = list(node.input)
        for attribute in node.attribute:
            for body in _bodies(attribute):
                read += sorted(outer_values(body))
                inside += _body_nodes(body, node.name, f"{node.name}.{attribute.name}")
        inputs = tuple(dict.fromkeys(name for name in read if name and name not in constants))
        nodes.append(
            GraphNode(
                name=node.name,
                op=op_of(node),
                inputs=inputs,
                outputs=tuple(name for name in node.output if name),
                bodies=tuple(each.name for each in inside),
            )
        )
        bodies += inside
    return PartitionGraph(
        nodes=tuple(nodes),
        body_nodes=tuple(bodies),
        inputs=tuple(value.name for value in graph.input if value.name not in constants),
        outputs=tuple(value.name for value in graph.output),
        dtypes=_dtypes(graph),
    )


def op_of(node: onnx.NodeProto) -> str:
    """`domain::op_type`; no domain for ONNX's own."""
    own = node.domain in ("", "ai.onnx")
    return node.op_type if own else f"{node.domain}::{node.op_type}"


def outer_values(body: onnx.GraphProto) -> set[str]:
    """Values that a body of control flow reads of the graphs around it."""
    known = {value.name for value in body.input}
    known |= {tensor.name for tensor in body.initializer}
    known |= {tensor.values.name for tensor in body.sparse_initializer}
    read: set[str] = set()
    for node in body.node:
        needed = {name for name in node.input if name}
        for attribute in node.attribute:
            for inner in _bodies(attribute):
                needed |= outer_values(inner)
        read |= needed - known
        known |= set(node.output)
    return read | {value.name for value in body.output if value.name not in known}


def _bodies(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    return [attribute.g] if attribute.HasField("g") else list(attribute.graphs)


def _body_nodes(body: onnx.GraphProto, owner: str, path: str) -> list[BodyNode]:
    found = []
    for node in body.node:
        found.append(BodyNode(node.name, op_of(node), owner, path))
        for attribute in node.attribute:
            for inner in _bodies(attribute):
                found += _body_nodes(inner, owner, f"{node.name}.{attribute.name}")
    return found


def _dtypes(graph: onnx.GraphProto) -> dict[str, str]:
    import onnx

    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else 0
        if kind:
            found[value.name] = onnx.TensorProto.DataType.Name(kind).lower()
    return found
