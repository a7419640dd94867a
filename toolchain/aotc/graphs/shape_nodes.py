"""Which nodes of a graph do nothing but compute shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_SOURCES = ("Shape", "Size")


def shape_nodes(model: onnx.ModelProto) -> int:
    """Nodes of the main graph whose value depends on the inputs' shapes alone.

    Those are `Shape` and `Size`, and every node that reads their results and otherwise constants.
    """
    constant = {tensor.name for tensor in model.graph.initializer}
    of_shapes: set[str] = set()
    count = 0
    for node in model.graph.node:
        given = [name for name in node.input if name and name not in constant]
        has_body = any(attribute.HasField("g") for attribute in node.attribute)
        if node.op_type == "Constant" or (not node.input and not has_body):
            constant.update(node.output)
        elif node.op_type in _SOURCES or (
            given and not has_body and all(name in of_shapes for name in given)
        ):
            count += 1
            of_shapes.update(node.output)
    return count
