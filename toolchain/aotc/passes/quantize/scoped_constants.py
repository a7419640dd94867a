"""Constants that the nodes of a graph read, in the graph itself or in those around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aotc.partitioning.graph import subgraphs_of
from aotc.records import record

if TYPE_CHECKING:
    import onnx

MICROSOFT: Final = "com.microsoft"


@record(kw_only=False)
class Scope:
    """A graph, and those around it, innermost first; `inner` is false for the main graph."""

    graph: onnx.GraphProto
    around: tuple[onnx.GraphProto, ...] = ()

    @property
    def inner(self) -> bool:
        """Whether it is the body of a control-flow node."""
        return bool(self.around)

    def constant(self, name: str) -> tuple[onnx.TensorProto, onnx.GraphProto] | None:
        """The initializer `name` that a node sees, and the graph that holds it; None if it is none.

        An initializer that is a graph input too has another value if a caller gives one.
        """
        for graph in (self.graph, *self.around):
            if any(value.name == name for value in graph.input):
                return None
            for tensor in graph.initializer:
                if tensor.name == name:
                    return tensor, graph
            if any(name in node.output for node in graph.node):
                return None
        return None


def scopes_of(graph: onnx.GraphProto, around: tuple[onnx.GraphProto, ...] = ()) -> Iterator[Scope]:
    """`graph`, then all bodies in it, outer ones before inner ones."""
    yield Scope(graph, around)
    for node in graph.node:
        for attribute in node.attribute:
            for body in subgraphs_of(attribute):
                yield from scopes_of(body, (graph, *around))


def replace_nodes(graph: onnx.GraphProto, made: dict[str, list[onnx.NodeProto]]) -> None:
    """Put other nodes in the place of those named in `made`."""
    if not made:
        return
    nodes = [new for node in graph.node for new in made.get(node.name, [node])]
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def require_domain(model: onnx.ModelProto, domain: str) -> None:
    """Import `domain` at version 1, unless the model does."""
    import onnx

    if all(item.domain != domain for item in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))


def drop_unread(model: onnx.ModelProto) -> None:
    """Remove initializers that nothing reads, of all graphs."""
    read: set[str] = set()
    for scope in scopes_of(model.graph):
        read.update(value.name for value in (*scope.graph.input, *scope.graph.output))
        for node in scope.graph.node:
            read.update(node.input)
    for scope in scopes_of(model.graph):
        initializers = scope.graph.initializer
        for index in reversed(range(len(initializers))):
            if initializers[index].name not in read:
                del initializers[index]
