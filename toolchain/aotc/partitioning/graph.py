"""The graph as partitioning sees it: nodes, what they read and make, sizes of values.

Partitions are of the main graph: a control-flow node reads what its bodies read of the outer graph.
What is inside of bodies is known by body, as bodies side by side may use the same names.
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
    """One node of the main graph; values that are constants are not among `inputs`.

    `captured` are those inputs that only its bodies read, `bodies` the names of their nodes.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bodies: tuple[str, ...] = ()
    captured: frozenset[str] = frozenset()


@record(kw_only=False)
class BodyNode:
    """One node inside a body of control flow; `body` is `node.attribute` of the innermost.

    `owner` is the node of the main graph.  Of `inputs`, constants of any graph are left out, and
    what only bodies of the node itself read.
    """

    name: str
    op: str
    owner: str
    body: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@record(kw_only=False)
class Body:
    """One body of control flow, that of the node `holder`.

    `outer` is the index of the body around it, None for the main graph.  What the holder gives it
    are `inputs`, what it gives back `outputs`.
    """

    holder: str
    outer: int | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[BodyNode, ...]


@record(kw_only=False, slots=False)
class PartitionGraph:
    """A main graph in order of execution.

    `inputs` are the graph inputs that callers give, `dtypes` names of element types by value.
    `bodies` are those of all control flow, outer ones before those inside of them.
    """

    nodes: tuple[GraphNode, ...]
    body_nodes: tuple[BodyNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    bodies: tuple[Body, ...] = ()

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
    constants = _constants(graph)
    nodes: list[GraphNode] = []
    bodies: list[Body] = []
    for node in graph.node:
        first = len(bodies)
        _add_bodies(bodies, node, node.name, None, constants)
        inside = [each.name for body in bodies[first:] for each in body.nodes]
        own = [name for name in node.input if name and name not in constants]
        captured = [
            name
            for attribute in node.attribute
            for body in bodies_of(attribute)
            for name in sorted(outer_values(body))
            if name not in constants
        ]
        nodes.append(
            GraphNode(
                name=node.name,
                op=op_of(node),
                inputs=tuple(dict.fromkeys((*own, *captured))),
                outputs=tuple(name for name in node.output if name),
                bodies=tuple(inside),
                captured=frozenset(captured).difference(own),
            )
        )
    return PartitionGraph(
        nodes=tuple(nodes),
        body_nodes=tuple(each for body in bodies for each in body.nodes),
        inputs=tuple(value.name for value in graph.input if value.name not in constants),
        outputs=tuple(value.name for value in graph.output),
        dtypes=_dtypes(graph),
        bodies=tuple(bodies),
    )


def op_of(node: onnx.NodeProto) -> str:
    """`domain::op_type`; no domain for ONNX's own."""
    own = node.domain in STANDARD
    return node.op_type if own else f"{node.domain}::{node.op_type}"


def outer_values(body: onnx.GraphProto) -> set[str]:
    """Values that a body of control flow reads of the graphs around it."""
    known = {value.name for value in body.input}
    known |= _constants(body)
    read: set[str] = set()
    for node in body.node:
        needed = {name for name in node.input if name}
        for attribute in node.attribute:
            for inner in bodies_of(attribute):
                needed |= outer_values(inner)
        read |= needed - known
        known |= set(node.output)
    return read | {value.name for value in body.output if value.name not in known}


def bodies_of(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    """Bodies of control flow that an attribute holds; mostly none."""
    return [attribute.g] if attribute.HasField("g") else list(attribute.graphs)


def _add_bodies(
    found: list[Body],
    holder: onnx.NodeProto,
    owner: str,
    outer: int | None,
    constants: Set[str],
) -> None:
    """Add the bodies of a node, each before those inside of it."""
    for attribute in holder.attribute:
        for body in bodies_of(attribute):
            own = _constants(body)
            known = constants | own if own else constants
            found.append(
                Body(
                    holder=holder.name,
                    outer=outer,
                    inputs=tuple(each.name for each in body.input if each.name not in own),
                    outputs=tuple(e.name for e in body.output if e.name not in known),
                    nodes=tuple(
                        BodyNode(
                            name=node.name,
                            op=op_of(node),
                            owner=owner,
                            body=f"{holder.name}.{attribute.name}",
                            inputs=tuple(
                                dict.fromkeys(n for n in node.input if n and n not in known)
                            ),
                            outputs=tuple(name for name in node.output if name),
                        )
                        for node in body.node
                    ),
                )
            )
            index = len(found) - 1
            for node in body.node:
                _add_bodies(found, node, owner, index, known)


def _constants(graph: onnx.GraphProto) -> set[str]:
    found = {tensor.name for tensor in graph.initializer}
    return found | {tensor.values.name for tensor in graph.sparse_initializer}


def _dtypes(graph: onnx.GraphProto) -> dict[str, str]:
    """Of all values whose type is known; where names are used again, of the outermost."""
    import onnx

    found: dict[str, str] = {}
    pending = [graph]
    while pending:
        one = pending.pop(0)
        for value in (*one.input, *one.value_info, *one.output):
            kind = value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else 0
            if kind:
                found.setdefault(value.name, onnx.TensorProto.DataType.Name(kind).lower())
        for node in one.node:
            pending += [body for attribute in node.attribute for body in bodies_of(attribute)]
    return found
