"""The nodes of a graph that only compute shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_SOURCES = ("Shape", "Size")


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
        has_subgraph = any(attribute.HasField("g") for attribute in node.attribute)
        if node.op_type == "Constant" or (not node.input and not has_subgraph):
            constant.update(node.output)
        elif node.op_type in _SOURCES or (
            given and not has_subgraph and all(name in shape_values for name in given)
        ):
            found.append(node)
            shape_values.update(node.output)
    return found
